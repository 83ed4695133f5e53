"""Makes a cartridge: python -m rematch.worlds.gameboy.cartridge SIZE --seed N --out FILE.gb [--solution]."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import check, compiler, constants, solver, world_generator


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rematch.worlds.gameboy.cartridge",
        allow_abbrev=False,
        description="Makes a role-playing cartridge for a Game Boy emulator.",
    )
    parser.add_argument("size", help=f"one of {', '.join(world_generator.SIZES)}, or a world's text file")
    parser.add_argument("--seed", type=int, default=0, help="another world of the same size")
    parser.add_argument("--out", type=Path, help="where the cartridge is written")
    parser.add_argument(
        "--solution", action="store_true", help="print the inputs that finish it, one an action"
    )
    parser.add_argument(
        "--text", action="store_true", help="print the world as text, to be edited and compiled"
    )
    parser.add_argument(
        "--check",
        type=int,
        default=0,
        metavar="STEPS",
        help="press random buttons for so many steps and say what they reach",
    )
    parser.add_argument(
        "--replay", action="store_true", help="play the solution on the emulator, from power-on"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = options().parse_args(arguments)
    try:
        made = make(given.size, given.seed)
        if given.text:
            print(made.world, end="")
        if given.out is not None:
            given.out.write_bytes(made.rom)
        if given.solution:
            inputs = made.solution
            print(*(constants.ACTIONS[action] for action in inputs), sep="\n")
            least = solver.bound(made.atlas)
            said = f"{len(inputs)} actions of {constants.TICKS} ticks; no solution has fewer than {least}"
            print(said, file=sys.stderr)
        if given.check < 0:
            raise ConfigError(f"--check {given.check}: expected steps")
        if given.check:
            print(check.random_walk(made.atlas, made.seed, given.check))
        if given.replay:
            print(check.replay(made))
        if given.out is None and not (given.text or given.solution or given.check or given.replay):
            raise ConfigError(
                "nothing to do: expected --out FILE, --solution, --text, --check STEPS or --replay"
            )
    except (ConfigError, OSError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    size = f"{len(made.maps)} maps, {made.atlas.badges} badges"
    print(f"{made.name}, seed {made.seed}: {size}, SHA-1 {made.sha1}", file=sys.stderr)
    return 0


def make(size: str, seed: int) -> compiler.Cartridge:
    """From a size, or from a text file of one's own."""
    if size not in world_generator.SIZES and ("." in size or "/" in size):
        try:
            return compiler.compile_world(Path(size).read_text(), Path(size).stem, seed)
        except UnicodeDecodeError:
            raise ConfigError(f"{size}: expected a world as text") from None
    return compiler.build(size, seed)


if __name__ == "__main__":
    sys.exit(main())
