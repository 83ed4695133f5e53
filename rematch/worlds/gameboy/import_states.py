"""Savestates from files: plain states of PyBoy (emulator/state_versions.py), or bundles of another run.

A plain state is tested in a separate process, because it may crash the emulator: PyBoy must read it to its
last byte and no further, and the game must run. A plain state does not say to which cartridge it belongs; one
of another game is only noticed if its length differs or its game crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rematch.core.errors import ConfigError

from .emulator import emulator_pool
from .emulator.state_versions import conversions, writer
from .savestates import FOREIGN, MAGIC, Bundle, compress, unpack

if TYPE_CHECKING:
    from .savestate_world import SavestateGames

PROBE = (5, 5, 0)  # actions that an imported state must run without a fault: B, B, down


def import_states(world: SavestateGames, files: Sequence[tuple[str, bytes]]) -> list[Bundle | ConfigError]:
    """For each (name, content) the savestate, or the reason why it is refused."""
    shared = world.shared
    spec = emulator_pool.PoolSpec(shared.rom, world.title.regions, 1)
    pool = emulator_pool.WorkerPool(spec, 1, world.config.patience)
    results: list[Bundle | ConfigError] = []
    try:
        for name, data in files:
            try:
                results.append(_import(world, pool, name, data))
            except ConfigError as error:
                results.append(error)
    finally:
        pool.close()
    return results


def _import(world: SavestateGames, pool: emulator_pool.WorkerPool, name: str, data: bytes) -> Bundle:
    if data.startswith(MAGIC):
        bundle = unpack(data, name)
        try:
            world.library.emulator(bundle)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        return bundle
    states = conversions(data, name)
    faults = [_misread(pool, state, world.shared.power_on) for state in states]
    if all(faults):
        raise ConfigError(f"{name}: {writer(data[0])}, {len(data)} bytes: {faults[-1]}")
    state = states[faults.index("")]
    try:
        fault = pool.load(0, state)
        for action in PROBE:
            fault = fault or next(iter(pool.step(0, [action])), None)
        fault = fault or pool.load(0, world.shared.power_on) or pool.load(0, state)
        if fault is not None:
            raise ConfigError(f"{name}: {writer(data[0])}; its game does not run: {fault.line}")
        emulator, facts = pool.save(0), world.shared.reader.facts(pool.ram)
    except emulator_pool.EmulatorLost as lost:
        raise ConfigError(f"{name}: {writer(data[0])}; its game does not run: {lost.fault.line}") from None
    names = zip(world.shared.reader.names, facts.reached[0])
    milestones = tuple(name for name, reached in names if reached)
    return Bundle(
        **compress(emulator), rom=world.library.rom, pyboy=world.library.pyboy, milestones=milestones,
        parent=FOREIGN, root=FOREIGN, map=world.title.map_name(int(facts.map[0])),
        start_group=world.title.start_group(frozenset(milestones)),
    )  # fmt: skip


def _misread(pool: emulator_pool.WorkerPool, state: bytes, power_on: bytes) -> str:
    """Why PyBoy does not read this state exactly to its end; "" if it does.

    Old states lack numbers of newer ones; those of `power_on` remain, so the result is always the same.
    """
    pool.load(0, power_on)
    if fault := pool.load(0, state):
        return f"PyBoy cannot load it with this cartridge: {fault.line}"
    longer = pool.load(0, state[:-1]) is None
    pool.load(0, power_on)
    return "longer than a state of this cartridge: of another game?" if longer else ""
