"""Matches on the GPU: policies and scripted players, many matches at a time.

Games and scripted players have the bits of the CPU. Policies are computed in float, by the formulas of the
deployed network (agents/networks/cuda/act_float.h), not in the bfloat16 of training; only the last bits of
their actions differ from those on the CPU. A result depends on its match alone, not on those beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.cuda_acting import network_kernel
from rematch.agents.networks.layout import layout
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.player import Player
from rematch.core.system import cuda
from rematch.evaluation.cuda.torch_seats import TorchSeats, kind_of
from rematch.evaluation.match import MatchKey, Played, Scoreboard
from rematch.rollout.cuda_collector import SETTINGS
from rematch.rollout.cuda_rollout import DEVICE, on_device
from rematch.worlds.cuda_world import CudaWorld
from rematch.worlds.game import Game

FOLDER = Path(__file__).parent
MAX_STEPS = (1 << 31) - 1  # of a game
CHUNK = 25  # steps between two looks at whether all games have ended
FLOAT_THREADS, FLOAT_ROWS, MAX_ROLES = 128, 32, 4  # of act_float.h and matches.cu
MATCH = np.dtype([("reward", "u8"), ("outcome", "u8"), ("ended", "u8"), ("length", "u8"),
                  ("action", "u8", MAX_ROLES), ("final_outcome", "u8"), ("final_length", "u8"),
                  ("returns", "u8"), ("hash", "u8"), ("running", "u8"), ("step", "u8"),
                  ("words", "i4", MAX_ROLES), ("games", "i4"), ("seats", "i4"), ("roles", "i4"),
                  ("limit", "i4")], align=True)  # fmt: skip
PLACES = {"w1": "trunk.0.weight", "b1": "trunk.0.bias", "w2": "trunk.1.weight", "b2": "trunk.1.bias",
          "head": "policy.head.weight", "head_bias": "policy.head.bias", "log_std": "policy.log_std"}

Match = tuple[Sequence[Player], MatchKey]  # players by seat


@dataclass
class Seat:
    """A policy in one seat of one match."""

    policy: Policy
    match: int
    seat: int
    key: int


class CudaMatches:
    """Plays matches of one game on the GPU; `play` leaves those to the CPU that it cannot play."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.tables: dict[tuple[int, int], MatchTable] = {}  # matches and games of each -> their arrays

    def play(self, board: Scoreboard, matches: Sequence[Match]) -> list[Played | None]:
        """The games of each match; None where a match needs the CPU."""
        out: list[Played | None] = [None] * len(matches)
        playable = [n for n, match in enumerate(matches) if self._playable(board, match)]
        for games in dict.fromkeys(matches[n][1].games for n in playable):
            chosen = [n for n in playable if matches[n][1].games == games]
            shape = (len(chosen), games)
            if shape not in self.tables:
                if len(self.tables) > 3:  # evaluations have two or three shapes
                    self.tables.clear()
                self.tables[shape] = MatchTable(self.game, board.make(len(chosen) * games, 0, 0), shape)
            results = self.tables[shape].play(board, [matches[n] for n in chosen])
            for n, played in zip(chosen, results):
                out[n] = played
        return out

    def _playable(self, board: Scoreboard, match: Match) -> bool:
        spec, (players, _) = board.spec, match
        simple = not any(role.milestones for role in spec.roles.values())
        return simple and all(self._seatable(player) for player in players)

    def _seatable(self, player: Player) -> bool:
        assert self.game.cuda is not None
        if isinstance(player, Policy):
            return not player.config.module
        return self.game.cuda.bot_number(player) is not None


def by_kernels(role: Any, config: Any) -> bool:
    """Whether act_float.h computes this network; if not, torch does."""
    if len(role.fields) > 1 or len(role.seats) > 1 or networks.cannot_compute(role, config):
        return False
    return networks.float_bytes(role, config) <= networks.SHARED_MEMORY


_shared: dict[tuple[str, str], CudaMatches] = {}


def matches_on_gpu(game: Game, world: Any) -> CudaMatches:
    """The matches of this game with these settings; runs that train together share them."""
    return _shared.setdefault((game.name, repr(world)), CudaMatches(game))


class MatchTable:
    """The arrays of some matches of equally many games, side by side: row match * games + game."""

    def __init__(self, game: Game, twin: Any, shape: tuple[int, int]) -> None:
        assert game.cuda is not None
        self.matches, self.games = shape
        self.world = CudaWorld(twin, game.cuda)
        self.spec, rows, seats = self.world.spec, self.matches * self.games, self.world.spec.seats

        def zeros(*columns: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros((rows, *columns), dtype=dtype, device=DEVICE)

        float32, int32, uint8 = torch.float32, torch.int32, torch.uint8
        self.arrays = {
            "reward": zeros(seats, dtype=float32), "outcome": zeros(seats, dtype=float32),
            "ended": zeros(dtype=uint8), "length": zeros(dtype=int32), "slot": zeros(seats, dtype=int32),
            "slot_after": zeros(seats, dtype=int32), "acting": self.world.acting, "": None,
            **dict.fromkeys(self.world.cuda.arrays), **self.world.arrays,
            **{f"next.{name}": tensor for name, tensor in self.world.next_tensors.items()},
            **{f"field.{name}": tensor for name, tensor in self.world.fields.items()},
        }  # fmt: skip
        self.results = {
            "final_outcome": zeros(seats, dtype=float32), "final_length": zeros(dtype=int32),
            "returns": zeros(seats, dtype=torch.float64), "hash": zeros(dtype=torch.int64),
            "running": zeros(dtype=uint8),
        }  # fmt: skip
        for name, role in self.spec.roles.items():
            discrete, k = role.actions.kind == "discrete", len(role.seats)
            columns = (k,) if discrete else (k, role.actions.size)
            self.arrays[f"action.{name}"] = zeros(*columns, dtype=int32 if discrete else float32)
            self.arrays[f"obs.{name}"] = self.world.fields[f"{name}.{role.fields[0].name}"]
            self.arrays[f"mask.{name}"] = self.world.mask.get(name)
        self.step = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        self.failure = torch.zeros(2, dtype=torch.int32, device=DEVICE)
        program = cuda.Program(FOLDER / "matches.cu", {}, include=(FOLDER.parents[1] / "worlds/native",))
        self.record_kernel, self.count_kernel = program.kernel("record_step"), program.kernel("count_step")
        self.steps = on_device(np.array([self._step_pointers(m) for m in range(self.matches)], np.uint64))
        self.graphs: dict[Any, Any] = {}  # kinds of the seated networks -> graph of CHUNK steps
        # kind of a network -> its kernel, structs of its seats, weights, blocks
        self.seats: dict[Any, tuple[Any, Tensor, Tensor, int]] = {}
        self.torch_seats: dict[Any, TorchSeats] = {}
        self.settings = on_device(np.zeros(self.matches, SETTINGS))
        self.record = on_device(np.zeros(1, MATCH))

    def _rows(self, tensor: Tensor | None, match: int) -> int:
        """The address of the first game of a match."""
        return 0 if tensor is None else tensor[match * self.games :].data_ptr()

    def _step_pointers(self, match: int) -> list[int]:
        names = [*self.world.batch, "slot", "slot_after"]
        return [self._rows(self.arrays[name], match) for name in names]

    # --- one set of matches ---

    def play(self, board: Scoreboard, matches: Sequence[Match]) -> list[Played]:
        self._start(board, matches)
        limit = min(board.limit(self.games), MAX_STEPS)
        self._send(self.record, self._record_struct(limit))
        seats = self._seat(board, matches)
        kinds = tuple(seats)
        if kinds not in self.graphs:
            self.graphs[kinds] = cuda.record_graph(partial(self._steps, kinds))
        for first in range(0, limit, CHUNK):
            board.watch(f"{len(matches)} matches on the GPU: step {first:,}")
            self.graphs[kinds].replay()
            if not bool(self.results["running"].any()):
                break
        kind, row = self.failure.tolist()
        if kind:
            meaning = self.world.cuda.failures.get(kind, f"failure {kind}")
            raise RuntimeError(f"a match on the GPU failed: {meaning} (game {row})")
        return self._played(limit)

    def _send(self, tensor: Tensor, struct: NDArray[Any]) -> None:
        tensor.copy_(torch.from_numpy(struct.view(np.uint8).reshape(-1)))

    def _start(self, board: Scoreboard, matches: Sequence[Match]) -> None:
        """Start every game; the slot of a policy is 0, that of a scripted player 1."""
        twin, games = self.world.twin, self.games
        stage = board.make(1, 0, 0).next.stage[:1]  # of the present level
        settings = np.zeros(self.matches, SETTINGS)
        settings["games"], settings["stream"] = games, rng.ACT
        settings["first_step"], settings["failure"] = self.step.data_ptr(), self.failure.data_ptr()
        settings["policies"] = 1
        for number, table in enumerate(self.world.tables.values()):
            settings["table"][:, number] = table.data_ptr()
        twin.next.stage[:] = stage
        for m, (players, key) in enumerate(matches):
            rows = slice(m * games, (m + 1) * games)
            twin.next.seed[rows] = rng.words(board.deal_seed(key.index), rng.GAME, games)
            for seat, player in enumerate(players):
                bot = None if isinstance(player, Policy) else self.world.cuda.bot_number(player)
                twin.next.slot[rows, seat] = 0 if bot is None else 1
                settings["key"][m, seat] = rng.key(board.deal_seed(key.index, key.turn), rng.ACT, seat)
                settings["bot"][m, seat, 0] = 0 if bot is None else bot
        self._send(self.settings, settings)
        self.world.restart()
        self.world.push_next()
        slot = self.arrays["slot"]
        assert slot is not None
        slot.copy_(self.world.next_tensors["slot"])
        for tensor in (*self.results.values(), self.step, self.failure):
            tensor.zero_()
        self.results["running"].fill_(1)

    def _record_struct(self, limit: int) -> NDArray[Any]:
        struct = np.zeros(1, MATCH)
        for name in ("reward", "outcome", "ended", "length"):
            struct[name] = self._rows(self.arrays[name], 0)
        for name, tensor in self.results.items():
            struct[name] = tensor.data_ptr()
        for r, (name, role) in enumerate(self.spec.roles.items()):
            struct["action"][0, r] = self._rows(self.arrays[f"action.{name}"], 0)
            each = 1 if role.actions.kind == "discrete" else role.actions.size
            struct["words"][0, r] = each * len(role.seats)
        struct["step"], struct["games"] = self.step.data_ptr(), self.matches * self.games
        struct["seats"], struct["roles"], struct["limit"] = self.spec.seats, len(self.spec.roles), limit
        return struct

    def _seat(self, board: Scoreboard, matches: Sequence[Match]) -> dict[Any, list[Seat]]:
        """Send the policies: those of one kind of network act in one launch, one struct per seat."""
        kinds: dict[Any, list[Seat]] = {}
        for m, (players, key) in enumerate(matches):
            for seat, player in enumerate(players):
                if isinstance(player, Policy):
                    role = self.spec.role_of(seat)
                    number = rng.key(board.deal_seed(key.index, key.turn), rng.ACT, seat)
                    config = player.config
                    kind = kind_of(role, config)
                    if by_kernels(role, config):
                        kind = tuple(networks.macros(role, config).items())
                    kinds.setdefault(kind, []).append(Seat(player, m, seat, number))
        for kind, seats in kinds.items():
            first = seats[0].policy
            if not by_kernels(first.role, first.config):
                is_new = kind not in self.torch_seats
                if is_new:
                    role = self.spec.role_of(seats[0].seat)
                    self.torch_seats[kind] = TorchSeats(self, role, first.config, CHUNK)
                self.torch_seats[kind].send(seats)
                if is_new:  # libraries select kernels and allocate memory; actions are chosen again
                    self.torch_seats[kind].act(0)
                continue
            most = self.matches * self.spec.seats
            if kind not in self.seats:
                self.seats[kind] = (
                    network_kernel("act_float", first.role, first.config),
                    on_device(np.zeros(most, networks.FLOAT)),
                    torch.zeros((most, first.weights.size), device=DEVICE),
                    -(-self.games // FLOAT_ROWS),
                )
            _, structs, weights, _ = self.seats[kind]
            arguments = np.zeros(most, networks.FLOAT)  # those after the last have no rows
            policies = list({id(seat.policy): seat.policy for seat in seats}.values())
            for number, policy in enumerate(policies):
                weights[number].copy_(torch.from_numpy(policy.weights))
            for struct, taken in zip(arguments, seats):
                place = next(n for n, policy in enumerate(policies) if policy is taken.policy)
                self._fill(struct, taken, weights[place])
            self._send(structs, arguments)
        return kinds

    def _fill(self, struct: Any, seat: Seat, weights: Tensor) -> None:
        policy, role = seat.policy, self.spec.role_of(seat.seat)
        entries = {name: at for name, _, at in layout(policy.role, policy.config)}
        for name, entry in PLACES.items():
            struct[name] = entries.get(entry, 0)
        struct["weights"], struct["key"], struct["greedy"] = weights.data_ptr(), seat.key, policy.greedy
        struct["obs"] = self._rows(self.arrays[f"obs.{role.name}"], seat.match)
        struct["mask"] = self._rows(self.arrays[f"mask.{role.name}"], seat.match)
        action = "choice" if role.actions.kind == "discrete" else "action"
        struct[action] = self._rows(self.arrays[f"action.{role.name}"], seat.match)
        struct["acting"], struct["step"] = self._rows(self.arrays["acting"], seat.match), self.step.data_ptr()
        struct["rows"], struct["all_seats"], struct["seat"] = self.games, self.spec.seats, seat.seat

    def _steps(self, kinds: Sequence[Any]) -> None:
        """What the graph records: CHUNK steps of all games."""
        rows = self.matches * self.games
        torch_seats = [self.torch_seats[kind] for kind in kinds if kind in self.torch_seats]
        for seats in torch_seats:
            seats.begin()
        for number in range(CHUNK):
            for seats in torch_seats:
                seats.act(number)
            for kernel, structs, _, blocks in (self.seats[kind] for kind in kinds if kind in self.seats):
                kernel((blocks, self.matches * self.spec.seats), FLOAT_THREADS, structs)
            self.world.launch_step((self.matches, self.games), self.steps, (0, 1), self.settings)
            self.record_kernel((-(-rows // 256), 1), 256, self.record)
            self.count_kernel((1, 1), 1, self.record)

    def _played(self, limit: int) -> list[Played]:
        """The results, match by match; a game that still runs counts half a point."""
        host = {name: tensor.cpu().numpy() for name, tensor in self.results.items()}
        running = host["running"] != 0
        host["final_outcome"][running], host["final_length"][running] = 0.5, limit
        points = np.full(host["final_outcome"].shape, np.nan)
        reached = np.zeros((len(running), 0), bool)
        returns, hashes = host["returns"] / self.spec.reward_scale, host["hash"].view(np.uint64)
        columns: tuple[Any, ...] = (host["final_outcome"], host["final_length"], returns, points, reached,
                                    running, hashes)  # fmt: skip
        out = []
        for m in range(self.matches):
            rows = slice(m * self.games, (m + 1) * self.games)
            arrays: list[Any] = [column[rows].copy() for column in columns]
            out.append(Played(*arrays))
        return out
