"""Small worlds for tests, `matching`, `sticks`, `drift` and `recall`, on rematch.worlds.numpy_world.

Each name is a Game.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.player import Seat
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.worlds.numpy_world import NumpyGame, NumpyWorld, Rows, States, Uniform


def game(
    kind: type[NumpyWorld], config: type, bots: Mapping[str, Any], roles: tuple[str, ...]
) -> NumpyGame:
    """A toy as a game in which every role has the same bots."""
    return NumpyGame(kind.__name__.lower(), kind, config, dict.fromkeys(roles, bots))


# --- matching: two roles that move at once; nothing is hidden, nothing is left to chance ------------


@dataclass(frozen=True, kw_only=True)
class MatchingConfig:
    rounds: int = knob(5, "rounds of a game", low=1)
    heads: float = knob(3.0, "what two heads pay the matcher", low=0.0)


class Matching(NumpyWorld):
    """Matching pennies: equal coins pay the matcher 1 (or `heads`), different ones cost it 1; the total wins.

    In one round the matcher's equilibrium is heads with 2 / (heads + 3), and so is the hider's.
    """

    @classmethod
    def make_spec(cls, config: MatchingConfig) -> Spec:
        fields = (
            Field(name="last", columns=("own_heads", "own_tails", "other_heads", "other_tails"), low=0.0),
            Field(name="score", columns=("own",)),
            Field(name="clock", columns=("to_go",), low=0.0),
        )
        coin = Actions(kind="discrete", names=("heads", "tails"))
        roles = {
            name: Role(name=name, fields=fields, actions=coin, seats=(seat,))
            for seat, name in enumerate(("matcher", "hider"))
        }
        return Spec(world="matching", roles=roles)

    def layout(self) -> list[Any]:
        return [("coin", "i4", 2), ("score", "f4")]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        self.state["coin"][rows] = -1

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        coins = ((states["coin"] >= -1) & (states["coin"] <= 1)).all(1)
        return np.asarray(coins & np.isfinite(states["score"]) & (states["time"] < self.config.rounds))

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, view = self.state, self.view
        matcher, hider = actions["matcher"][:, 0], actions["hider"][:, 0]
        pay = np.where(matcher == hider, np.where(matcher == 0, self.config.heads, 1.0), -1.0).astype(
            np.float32
        )
        state["coin"] = np.stack([matcher, hider], 1)
        state["score"] += pay
        view.reward[:] = np.stack([pay, -pay], 1)
        over = state["time"] >= self.config.rounds
        view.ended[over] = DECIDED
        won = (np.sign(state["score"]) + 1) / 2
        view.outcome[over] = np.stack([won, 1 - won], 1)[over]

    def write_observations(self) -> None:
        state, most = self.state, self.config.rounds * max(1.0, self.config.heads)
        shown = (state["coin"][:, :, None] == np.arange(2)).astype(np.float32)  # [N, seat, coin]
        for seat, role in enumerate(self.spec.roles):
            fields = self.view.fields[role]
            fields["last"][:, 0] = np.concatenate([shown[:, seat], shown[:, 1 - seat]], 1)
            fields["score"][:, 0, 0] = state["score"] / most * (1 - 2 * seat)
            fields["clock"][:, 0, 0] = 1 - state["time"] / self.config.rounds


def _coin(share: float) -> Any:
    return lambda seat, uniform: (uniform >= share).astype(np.int64)


matching = game(
    Matching,
    MatchingConfig,
    {"heads": _coin(1.0), "tails": _coin(0.0), "random": _coin(0.5)},
    ("matcher", "hider"),
)


# --- sticks: three seats of one role take turns; each has a secret --------------------------------------


@dataclass(frozen=True, kw_only=True)
class SticksConfig:
    most: int = knob(12, "most sticks on the table at the start", low=6, high=100)
    toll: float = knob(0.1, "what taking three costs; the player before receives it", low=0.0)
    charm: float = knob(0.2, "what each take of the secret number is worth at the end", low=0.0)


class Sticks(NumpyWorld):
    """Take one to three sticks in turn; who takes the last one loses (-1, the others +0.5 each).

    Taking three pays a toll to the player before, who is not to move then. Each player has a charm, a number
    of sticks that only it knows; how often each took its charm is settled at the end against the mean.
    """

    masked = True

    @classmethod
    def make_spec(cls, config: SticksConfig) -> Spec:
        takes = tuple(f"{owner}_{n}" for owner in ("own", "next", "before") for n in (1, 2, 3))
        fields = (
            Field(name="pile", columns=("sticks",), low=0.0),
            Field(name="turn", columns=("own", "next", "before"), low=0.0),
            Field(name="takes", columns=takes, low=0.0),
            Field(name="charm", columns=("one", "two", "three"), low=0.0),
        )
        take = Actions(kind="discrete", names=("one", "two", "three"))
        role = Role(
            name="player", fields=fields, actions=take, seats=(0, 1, 2), hidden=("other players' charms",)
        )
        return Spec(world="sticks", roles={"player": role})

    def layout(self) -> list[Any]:
        return [("pile", "i4"), ("turn", "i4"), ("charm", "i4", 3), ("takes", "i4", (3, 3))]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        state = self.state
        state["pile"][rows] = 5 + (uniform[:, 0] * (self.config.most - 4)).astype(np.int32)
        state["turn"][rows] = (uniform[:, 1] * 3).astype(np.int32)
        state["charm"][rows] = (uniform[:, 2:5] * 3).astype(np.int32)

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        pile, turn, charm, takes = (states[name] for name in ("pile", "turn", "charm", "takes"))
        fine = (pile >= 1) & (pile <= self.config.most) & (turn >= 0) & (turn < 3)
        fine &= ((charm >= 0) & (charm < 3)).all(1) & ((takes >= 0) & (takes <= self.config.most)).all((1, 2))
        return np.asarray(fine)

    def resample_hidden(self, states: States, seat: int, uniform: Uniform) -> None:
        others = [s for s in range(3) if s != seat]
        states["charm"][:, others] = (uniform[:, :2] * 3).astype(np.int32)

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, view, rows = self.state, self.view, np.arange(self.games)
        turn = state["turn"].copy()
        choice = np.asarray(actions["player"])[rows, turn]
        bad = np.flatnonzero((choice < 0) | (choice > 2) | (choice >= state["pile"]))
        if bad.size:
            raise ConfigError(f"sticks: game {self.first + bad[0]}: choice {choice[bad[0]]} is not legal")
        state["pile"] -= choice + 1
        state["takes"][rows, turn, choice] += 1
        three = choice == 2
        view.reward[rows, turn] -= self.config.toll * three
        view.reward[rows, (turn + 2) % 3] += self.config.toll * three
        state["turn"] = (turn + 1) % 3
        over = np.flatnonzero(state["pile"] == 0)
        lucky = np.take_along_axis(state["takes"][over], state["charm"][over][:, :, None], 2)[:, :, 0]
        view.reward[over] += 0.5 + self.config.charm * (lucky - lucky.mean(1, keepdims=True))
        view.reward[over, turn[over]] -= 1.5
        view.outcome[over] = 1
        view.outcome[over, turn[over]] = 0
        view.ended[over] = DECIDED

    def write_observations(self) -> None:
        state, fields, most = self.state, self.view.fields["player"], self.config.most
        for seat in range(3):
            order = [(seat + k) % 3 for k in range(3)]  # own, next, before
            fields["pile"][:, seat, 0] = state["pile"] / most
            fields["turn"][:, seat] = state["turn"][:, None] == order
            fields["takes"][:, seat] = state["takes"][:, order].reshape(-1, 9) / most
            fields["charm"][:, seat] = state["charm"][:, seat, None] == np.arange(3)
        self.view.acting[:] = state["turn"][:, None] == np.arange(3)
        self.view.mask["player"][:] = (np.arange(3) < state["pile"][:, None])[:, None]


def _any_legal(seat: Seat, uniform: NDArray[np.float64]) -> NDArray[Any]:
    legal = np.ones((len(uniform), seat.role.actions.size)) if seat.mask is None else seat.mask
    return np.asarray((np.cumsum(legal, 1) <= (uniform * legal.sum(1))[:, None]).sum(1))


def _leave_one(seat: Seat, uniform: NDArray[np.float64]) -> NDArray[Any]:
    """Leave the next player exactly one stick where that is possible, else take one."""
    pile = np.rint(seat.obs[:, 0] * seat.world.config.most).astype(np.int64)  # type: ignore[attr-defined]
    return np.where((pile >= 2) & (pile <= 4), pile - 2, 0)


sticks = game(Sticks, SticksConfig, {"random": _any_legal, "careful": _leave_one}, ("player",))


# --- drift: one seat, continuous, cut off by a clock that nobody sees ---------------------------------


@dataclass(frozen=True, kw_only=True)
class DriftConfig:
    limit: int = knob(40, "steps after which a game is cut off", low=2)
    wind: float = knob(0.5, "strongest wind, as a share of the strongest push", low=0.0, high=1.0)


class Drift(NumpyWorld):
    """A raft on a line, in a wind that is not seen: +1 is the shore, -1 the fall; reward is the way made."""

    @classmethod
    def make_spec(cls, config: DriftConfig) -> Spec:
        fields = (Field(name="raft", columns=("place",)), Field(name="pole", columns=("push",)))
        push = Actions(kind="continuous", names=("push",))
        role = Role(name="rafter", fields=fields, actions=push, seats=(0,), hidden=("wind",))
        return Spec(world="drift", roles={"rafter": role}, stage=("start",), cutoffs=True, zero_sum=False)

    def layout(self) -> list[Any]:
        return [("place", "f4"), ("push", "f4"), ("wind", "f4")]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        start = self.state["stage"][rows, 0] + 0.2 * (uniform[:, 1] - 0.5)
        self.state["place"][rows] = np.clip(start, -0.9, 0.9)
        self.state["wind"][rows] = self.config.wind * (2 * uniform[:, 0] - 1)

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        small = [np.abs(states[name]) <= 1 for name in ("place", "push", "wind")]
        return np.asarray(np.logical_and.reduce([*small, states["time"] < self.config.limit]))

    def resample_hidden(self, states: States, seat: int, uniform: Uniform) -> None:
        states["wind"] = self.config.wind * (2 * uniform[:, 0] - 1)

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, view = self.state, self.view
        before = state["place"].copy()
        state["push"] = np.clip(np.asarray(actions["rafter"], np.float32)[:, 0, 0], -1, 1)
        state["place"] = np.clip(before + np.float32(0.1) * (state["push"] + state["wind"]), -1, 1)
        view.reward[:, 0] = state["place"] - before
        over = np.abs(state["place"]) >= 1
        view.ended[:] = np.where(
            over, DECIDED, np.where(state["time"] >= self.config.limit, CUT_OFF, RUNNING)
        )
        view.outcome[:, 0] = np.where(over, state["place"] > 0, 0.5)

    def write_observations(self) -> None:
        fields = self.view.fields["rafter"]
        fields["raft"][:, 0, 0] = self.state["place"]
        fields["pole"][:, 0, 0] = self.state["push"]


drift = game(
    Drift,
    DriftConfig,
    {
        "still": lambda seat, uniform: np.zeros((len(uniform), 1), np.float32),
        "back": lambda seat, uniform: -seat.obs[:, :1],
        "random": lambda seat, uniform: (2 * uniform[:, None] - 1).astype(np.float32),
    },
    ("rafter",),
)

# --- recall: two seats who must remember; a history, and things aside ---------------------------------


@dataclass(frozen=True, kw_only=True)
class RecallConfig:
    remember: bool = knob(True, "whether a seat is shown its history")


STEPS = 4  # of a game, and of the history


class Recall(NumpyWorld):
    """Each seat is shown a sign at once and has to name it with its last move; more right answers win.

    In between it glimpses where the other one sits: x in the second step, y in the third. Past steps are in
    the history alone. Aside: the other's true place, and its sign.
    """

    @classmethod
    def make_spec(cls, config: RecallConfig) -> Spec:
        now = ("sign", "x", "y")
        past = tuple(f"{column}_{step}" for step in range(STEPS) for column in now)
        shown = [Field(name="clock", columns=("to_go",), low=0.0), Field(name="now", columns=now)]
        shown += [Field(name="history", columns=past, shape=(STEPS, 3))] * config.remember
        privileged = (Field(name="sign", columns=("theirs",)), Field(name="other", columns=("x", "y")))
        role = Role(
            name="player", fields=tuple(shown), actions=Actions(kind="discrete", names=("minus", "plus")),
            seats=(0, 1), hidden=("the other's sign",), privileged=privileged,
        )  # fmt: skip
        return Spec(world="recall", roles={"player": role})

    def layout(self) -> list[Any]:
        return [("sign", "f4", 2), ("spot", "f4", (2, 2)), ("past", "f4", (2, STEPS, 3))]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        self.state["sign"][rows] = np.where(uniform[:, :2] < 0.5, -1, 1)
        self.state["spot"][rows] = 2 * uniform[:, 2:6].reshape(-1, 2, 2) - 1
        self.state["past"][rows, :, -1, 0] = self.state["sign"][rows]

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        fine = (np.abs(states["sign"]) == 1).all(1) & (np.abs(states["spot"]) <= 1).all((1, 2))
        return np.asarray(fine & (np.abs(states["past"]) <= 1).all((1, 2, 3)) & (states["time"] < STEPS))

    def resample_hidden(self, states: States, seat: int, uniform: Uniform) -> None:
        sign = np.where(uniform[:, 0] < 0.5, -1, 1)
        states["sign"][:, 1 - seat] = sign
        states["past"][np.arange(len(states)), 1 - seat, STEPS - 1 - states["time"], 0] = sign

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, view = self.state, self.view
        state["past"][:, :, :-1] = state["past"][:, :, 1:].copy()
        state["past"][:, :, -1] = 0
        for step, axis in ((1, 0), (2, 1)):
            position = state["time"] == step
            state["past"][position, :, -1, 1 + axis] = state["spot"][position, ::-1, axis]
        over = state["time"] == STEPS
        right = ((actions["player"] == 1) == (state["sign"] > 0)).astype(np.float32)
        view.reward[over] = (right - right[:, ::-1])[over]
        view.outcome[over] = (1 + right - right[:, ::-1])[over] / 2
        view.ended[over] = DECIDED

    def write_observations(self) -> None:
        state, fields = self.state, self.view.fields["player"]
        fields["clock"][:, :, 0] = 1 - state["time"][:, None] / STEPS
        fields["now"][:] = state["past"][:, :, -1]
        if "history" in fields:
            fields["history"][:] = state["past"].reshape(-1, 2, 3 * STEPS)
        fields["sign"][:, :, 0] = state["sign"][:, ::-1]
        fields["other"][:] = state["spot"][:, ::-1]


recall = game(Recall, RecallConfig, {"random": _coin(0.5)}, ("player",))

TOYS = {"matching": matching, "sticks": sticks, "drift": drift, "recall": recall}
