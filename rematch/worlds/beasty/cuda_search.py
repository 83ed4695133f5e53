"""The search on the GPU: action values of many positions at a time, from playouts of bots or of a policy.

Playouts of bots have the bits of the CPU (search.h). A policy plays one turn of all playouts at a time: one
product of matrices then serves them all. The caller computes its logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.core.arrays import Bytes, Ints
from rematch.core.player import RngKey
from rematch.core.system.cuda import Program
from rematch.worlds import cuda_world

from . import native
from .bots import PLAYOUT_BOT
from .config import ACTIONS, SPECIES, Config
from .cuda import rules_of

FOLDER = Path(__file__).parent
THREADS = 128  # of a block
BOT_PLAYOUTS, POLICY_PLAYOUTS = 1 << 23, 1 << 20  # at a time
POINTERS = ("games", "number", "candidates", "count", "turns", "row", "rank", "value", "score", "players",
            "leaf", "logits", "estimate", "running", "key", "step")  # fmt: skip
NUMBERS = ("rows", "pairs", "completions", "stream", "own_bot", "other_bot")
ARRAYS = np.dtype([*((name, "u8") for name in POINTERS), *((name, "i8") for name in NUMBERS)])
OBSERVE = np.dtype([("games", "u8"), ("obs", "u8"), ("mask", "u8"), ("rows", "i8")])
KERNELS = ("search_candidates", "search_playouts", "search_means", "search_leaves", "search_turns",
           "search_results", "observe_movers")  # fmt: skip

PolicyFunction = Callable[[Tensor], tuple[Tensor, Tensor]]  # observations -> logits, values
# Bytes of saved games [n, S], their numbers [n], and the actions to search as bits [n] (None: all legal)
Positions = tuple[Tensor, Tensor, Tensor | None]


class CudaSearch:
    """Searches positions of one set of rules; states are the bytes of saved games [n, S], on the GPU."""

    playout_bot = PLAYOUT_BOT

    def __init__(self, config: Config) -> None:
        values = ", ".join(cuda_world.c_number(value, c_type) for value, c_type in rules_of(config))
        program = Program(FOLDER / "search.cu", {}, include=(FOLDER, FOLDER.parent / "native"), exact=True,
                          text=f"#define RULES {{{values}}}")  # fmt: skip
        self.kernels = {name: program.kernel(name) for name in KERNELS}
        self.device, self.seats = cuda_world.DEVICE, config.players
        offset = native.GAME_TYPE.fields
        assert offset is not None
        self.deck = offset["deck"][1] // 4  # of the first deck, in words of 32 bits

    def observe(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Observations [n, F] of the players to move, and their legal actions [n, 33]."""
        rows, players = len(states), self.seats
        width = 4 + len(SPECIES) * (1 + 3 * players) + 5 * players + 2  # line, cards, counts: observation.h
        obs = torch.empty((rows, width), device=self.device)
        mask = torch.empty((rows, len(ACTIONS)), dtype=torch.uint8, device=self.device)
        self.observer(states, obs, mask)()
        return obs, mask

    def observer(self, states: Tensor, obs: Tensor, mask: Tensor) -> Callable[[], None]:
        """What writes `obs` and `mask` of these states; a CUDA graph can record it."""
        struct = np.zeros(1, OBSERVE)
        struct["games"], struct["obs"], struct["mask"] = (t.data_ptr() for t in (states, obs, mask))
        struct["rows"] = len(states)
        arguments, rows = self._sent(struct), len(states)
        return lambda: self._launch("observe_movers", rows, 1, arguments)

    def action_values(self, positions: Positions, completions: int, rng_key: RngKey) -> Tensor:
        """[n, 33] as `BeastyWorld.action_values`, with the same bits."""
        search = _Search(self, positions, rng_key)
        for pairs in search.parts(BOT_PLAYOUTS // completions):
            struct = search.struct(pairs, completions)
            search.value = torch.empty((completions, len(pairs[0])), dtype=torch.float64, device=self.device)
            struct["value"] = search.value.data_ptr()
            arguments = self._sent(struct)
            self._launch("search_playouts", len(pairs[0]), completions, arguments)
            self._launch("search_means", len(pairs[0]), 1, arguments)
        return search.score

    def policy_values(
        self, positions: Positions, budget: tuple[int, int], rng_key: RngKey, players: Tensor,
        policy: PolicyFunction,
    ) -> Tensor:  # fmt: skip
        """[n, 33] as `BeastyWorld.policy_values`; players [n, k]."""
        states, number, candidates = positions
        is_solvable = (states.view(torch.int32)[:, self.deck : self.deck + 4] == 0).all(1) & (self.seats == 2)
        out = torch.full((len(states), len(ACTIONS)), torch.nan, dtype=torch.float64, device=self.device)
        for solved in (True, False):
            rows = torch.nonzero(is_solvable == solved)[:, 0]
            if not len(rows):
                continue
            some = (states[rows], number[rows], None if candidates is None else candidates[rows])
            if solved:
                out[rows] = self.action_values(some, 1, rng_key)
            else:
                search = _Search(self, some, rng_key)
                search.players = players[rows].to(torch.int32).contiguous()
                out[rows] = self._played_on(search, budget, policy)
        return out

    def _played_on(self, search: _Search, budget: tuple[int, int], policy: PolicyFunction) -> Tensor:
        """The values of positions that are not solved; their leaves are played by the policy and bots."""
        completions, turns = budget
        for pairs in search.parts(POLICY_PLAYOUTS // completions):
            count = len(pairs[0])
            leaves = count * completions
            struct = search.struct(pairs, completions)
            leaf = torch.empty((leaves, search.states.shape[1]), dtype=torch.uint8, device=self.device)
            running = torch.empty(leaves, dtype=torch.uint8, device=self.device)
            logits = torch.zeros((leaves, len(ACTIONS)), device=self.device)
            estimate = torch.zeros(leaves, device=self.device)
            value = torch.empty((completions, count), dtype=torch.float64, device=self.device)
            for name, tensor in {"leaf": leaf, "running": running, "logits": logits, "estimate": estimate,
                                 "value": value, "players": search.players}.items():  # fmt: skip
                struct[name] = tensor.data_ptr()
            arguments = self._sent(struct)
            self._launch("search_leaves", count, completions, arguments)
            first = int(search.turns[pairs[0]].min())
            most = len(SPECIES) * self.seats - first - 1
            for _ in range(most if turns < 0 else min(turns, most)):
                logits.copy_(policy(self.observe(leaf)[0])[0])
                self._launch("search_turns", count, completions, arguments)
            if turns >= 0:
                estimate.copy_(policy(self.observe(leaf)[0])[1])
            self._launch("search_results", count, completions, arguments)
            self._launch("search_means", count, 1, arguments)
        return search.score

    def _sent(self, struct: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(struct.view(np.uint8).reshape(-1)).to(self.device)

    def _launch(self, name: str, threads: int, rows: int, arguments: Tensor) -> None:
        self.kernels[name]((-(-threads // THREADS), rows), THREADS, arguments)


class _Search:
    """The positions of one search and their pairs: a position and one of its candidates."""

    players: Tensor  # [n, k]
    value: Tensor

    def __init__(self, search: CudaSearch, positions: Positions, rng_key: RngKey) -> None:
        states, number, candidates = positions
        rows, self.device = len(states), search.device
        self.states, self.number = states.contiguous(), number.to(torch.int32).contiguous()
        every = torch.full((rows,), -1, dtype=torch.int64, device=self.device)
        self.candidates = every if candidates is None else candidates.clone()
        self.count, self.turns = (torch.empty(rows, dtype=torch.int32, device=self.device) for _ in range(2))
        self.score = torch.full((rows, len(ACTIONS)), torch.nan, dtype=torch.float64, device=self.device)
        self.base = np.zeros(1, ARRAYS)
        for name in ("states", "number", "candidates", "count", "turns", "score"):
            self.base["games" if name == "states" else name] = getattr(self, name).data_ptr()
        self.base["key"], self.base["stream"], self.base["step"] = rng_key.seed, rng_key.stream, rng_key.step
        self.base["rows"] = rows
        self.base["own_bot"] = self.base["other_bot"] = PLAYOUT_BOT
        search._launch("search_candidates", rows, 1, search._sent(self.base))

    def parts(self, most: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs, at most `most` at a time: position and rank of the action; similar lengths side by side."""
        order = self.turns.argsort(stable=True)
        count = self.count[order].long()
        row = order.repeat_interleave(count)
        first = (count.cumsum(0) - count).repeat_interleave(count)
        rank = torch.arange(len(row), device=self.device) - first
        most = max(1, most)
        for at in range(0, len(row), most):
            yield row[at : at + most], rank[at : at + most]

    def struct(self, pairs: tuple[Tensor, Tensor], completions: int) -> np.ndarray[Any, Any]:
        """The arguments of the kernels for these pairs, which the caller must not free before the end."""
        struct = self.base.copy()
        struct["row"], struct["rank"] = pairs[0].data_ptr(), pairs[1].data_ptr()
        struct["pairs"], struct["completions"] = len(pairs[0]), completions
        return struct


class PolicySearch:
    """Searches with playouts of one policy, for games on the CPU."""

    def __init__(self, policy: Any, config: Config) -> None:
        self.search, self.players = CudaSearch(config), config.players
        self.network: PolicyFunction = policy.on_tensors(self.search.device)

    def values(
        self, states: Bytes, number: Ints, completions: int, rng_key: RngKey, candidates: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        """[n, 33] the values of the candidates."""
        device, shape = self.search.device, (len(states), self.players)
        players = torch.full(shape, -1, dtype=torch.int32, device=device)
        games, numbers, chosen = (
            torch.from_numpy(array).to(device) for array in (states, number, candidates.view(np.int64))
        )
        positions = (games, numbers, chosen)
        values = self.search.policy_values(positions, (completions, -1), rng_key, players, self.network)
        out: NDArray[np.float64] = values.cpu().numpy()
        return out
