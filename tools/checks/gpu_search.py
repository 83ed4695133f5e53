"""The search of Beasty Bar on the GPU: the same values as on the CPU, and positions searched per second."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core.player import RngKey
from rematch.worlds import cuda_world
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.cuda_search import CudaSearch, Positions
from rematch.worlds.beasty.world import BeastyWorld, make

Record = dict[str, Any]
KEY = RngKey(7, 2, 2**32 + 5)
COMPLETIONS = 8
COMPARED, TIMED = 4096, 65_536  # positions
RULES: dict[str, Record] = {"two players": {}, "variant": {"earlier_rules": True},
                            "four players": {"players": 4, "first": -1}}  # fmt: skip
NETWORKS = ((512, 256), (1024, 512))


def positions(settings: Record, games: int) -> BeastyWorld:
    """Games after 0 to 23 random turns."""
    world = make(Config(**settings), games, first=1000, seed=9)
    parts = np.array_split(np.arange(games, dtype=np.int32), 24)
    states = []
    for turns, rows in enumerate(parts):
        states.append(world.save(rows))
        world.random_steps(1, turns)
    world.load(np.arange(games, dtype=np.int32), np.concatenate(states))
    return world


def on_gpu(world: BeastyWorld) -> Positions:
    rows = np.arange(world.games, dtype=np.int32)
    numbers = torch.arange(world.first, world.first + world.games, device=cuda_world.DEVICE)
    return cuda_world.tensor_of(world.save(rows)), numbers, None


def equal() -> Record:
    """Values of the same positions on both, bit by bit; SystemExit where one differs."""
    record: Record = {}
    for name, settings in RULES.items():
        world = positions(settings, COMPARED)
        expected = world.action_values(np.arange(COMPARED, dtype=np.int32), COMPLETIONS, KEY, 4)
        found = CudaSearch(world.config).action_values(on_gpu(world), COMPLETIONS, KEY).cpu().numpy()
        values = int(np.isfinite(expected).sum())
        different = int((~np.isclose(expected, found, rtol=0, atol=0, equal_nan=True)).sum())
        record[name] = {"positions": COMPARED, "values": values, "different": different}
        print(f"search, {name}: {different} of {values:,} values differ", flush=True)
    if any(result["different"] for result in record.values()):
        raise SystemExit(1)
    return record


def _rate(play: Any, positions: int) -> float:
    """Positions per second, after a first call that is not timed."""
    play()
    torch.cuda.synchronize()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < 3:
        play()
        torch.cuda.synchronize()
        calls += 1
    return calls * positions / (time.perf_counter() - start)


def speed() -> Record:
    """Positions searched per second, with playouts of the bot and of networks with random weights."""
    world, record = positions({}, TIMED), Record()
    search, games = CudaSearch(world.config), on_gpu(world)
    record["bot"] = _rate(lambda: search.action_values(games, COMPLETIONS, KEY), TIMED)
    players = torch.full((TIMED, 2), -1, dtype=torch.int32, device=cuda_world.DEVICE)
    for hidden in NETWORKS:
        policy = Policy(world.spec.roles["player"], NetworkConfig(hidden=hidden, activation="relu"), "policy")
        policy.initialise(1)
        network = policy.on_tensors(cuda_world.DEVICE)
        for turns in (-1, 4):
            name = f"policy {hidden[0]}-{hidden[1]}" + (f", {turns} turns" if turns >= 0 else "")
            budget = (COMPLETIONS, turns)
            play = lambda: search.policy_values(games, budget, KEY, players, network)  # noqa: E731, B023
            record[name] = _rate(play, TIMED)
    cpu = positions({}, COMPARED)
    start = time.process_time()
    cpu.action_values(np.arange(COMPARED, dtype=np.int32), COMPLETIONS, KEY)
    record["bot, one core of the processor"] = COMPARED / (time.process_time() - start)
    for name, rate in record.items():
        print(f"search, {COMPLETIONS} playouts per action, {name}: {rate:,.0f} positions/s", flush=True)
    return record


def check() -> Record:
    """The record of `gpu.py search`."""
    return {"equal": equal(), "positions_per_second": speed()}
