"""The settings of gameboy: cartridge, length of episodes, emulator processes."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob
from rematch.core.system.processors import processors

from . import titles


@dataclass(frozen=True, kw_only=True)
class Config:
    """The Game Boy world: cartridge, length of episodes and emulator processes."""

    cartridge: str = knob(
        "small", "size of the included cartridge; tiny: 3 maps, 1 badge; mid: 5 maps, 2 badges; small: 8 "
        "maps, 3 badges; kanto-ish: 23 maps, 8 badges", choices=("tiny", "mid", "small", "kanto-ish"),
        needs="rom=",
    )  # fmt: skip
    cartridge_seed: int = knob(
        0, "seed from which the included cartridge is generated", low=0, high=(1 << 32) - 1, needs="rom="
    )
    rom: str = knob(
        "", "path of another cartridge, for example Pokémon Red, or of a world description (.txt); empty: "
        "the included cartridge",
    )  # fmt: skip
    screen: bool = knob(
        True, "observations contain the screen; false: only values from work RAM, which is faster"
    )
    mask: bool = knob(
        True, "observations contain a map of the visited places around the player; false is faster"
    )
    max_steps: int = knob(
        4096, "actions after which an episode is truncated", unit="actions", low=1, high=200_000
    )
    idle_steps: int = knob(
        0, "actions without a new milestone after which an episode is truncated; 0: never", unit="actions",
        low=0, high=200_000,
    )  # fmt: skip
    workers: int = knob(
        0, "processes for the emulators; 0, or with one game: the emulators run in the threads of the run; "
        "-1: half of the processors of the machine, from 2 to 8",
        unit="processes", low=-1, high=256,
    )  # fmt: skip
    patience: float = knob(
        30.0, "time without an answer after which a worker process is replaced", unit="seconds", low=0.1,
        high=3600.0, needs="workers",
    )  # fmt: skip

    @property
    def processes(self) -> int:
        """Number of worker processes on this machine."""
        return self.workers if self.workers >= 0 else min(8, max(2, processors() // 2))

    def check(self) -> None:
        if self.rom:
            titles.check(self.rom)
