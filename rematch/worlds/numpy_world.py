"""Worlds in plain numpy: write the rules, and this does the rest of what `rematch.core.world.World` asks.

A game's whole state is one row of a structured array, so saving is copying bytes and a part is a slice. A
world of your own defines `make_spec`, `layout`, `reset_games`, `apply_actions`, `write_observations`,
`valid_states` and, where something is hidden, `resample_hidden`, and is offered as a NumpyGame;
docs/tutorials/your_own_game.md shows a whole one. For billions of steps write the rules in C, as in pursuit/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError, WorldError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.settings.config_values import short_repr
from rematch.core.settings.setting_names import note_renamed
from rematch.core.spec import Spec
from rematch.core.world import CUT_OFF, RUNNING, EventLog, Next, Observations, PointCounter, View, World
from rematch.worlds.game import Game, check_bot, first_line

MAGIC = 0x6E616C50  # first word of every state: other bytes do not start with it

Rows = NDArray[Any]  # [n] numbers of games
States = NDArray[Any]  # [n] rows of the world's own structured type
Uniform = NDArray[np.float64]  # [n, random_numbers] in [0, 1)
Rule = Callable[[Seat, NDArray[np.float64]], NDArray[Any]]  # (decision, random numbers [n]) -> actions


def uniform_numbers(
    seeds: NDArray[np.uint64], steps: NDArray[Any], count: int, stream: int = rng.RESET
) -> Uniform:
    """[n, count] numbers: row i is keys.units(seeds[i], stream, count, steps[i])."""
    counter = np.zeros((len(seeds), count, 4), np.uint64)
    counter[:, :, 0] = np.arange(count)
    counter[:, :, 1] = steps[:, None]
    counter[:, :, 2] = stream
    key: Any = seeds[:, None]  # philox takes an array of keys as well as one
    out = rng.philox(key, counter)
    words = out[..., 0] << np.uint64(32) | out[..., 1]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cut_observations(obs: Observations, rows: Any) -> Observations:
    return {role: {name: array[rows] for name, array in fields.items()} for role, fields in obs.items()}


class NoMask(dict[str, Bytes]):
    """The masks of a world without any: writing one is an error that says what to do."""

    def __missing__(self, role: str) -> Bytes:
        raise WorldError(f"view.mask[{role!r}]: the world has no masks; set masked = True in its class")


RENAMED = {  # methods and attributes of NumpyWorld: old name -> present name
    "begin": "reset_games", "rules": "apply_actions", "show": "write_observations", "sane": "valid_states",
    "forget": "resample_hidden", "draws": "random_numbers",
}  # fmt: skip


class NumpyWorld:
    """A World without its rules; a subclass defines them."""

    masked = False  # whether `write_observations` writes view.mask
    random_numbers = 8  # per game, for `reset_games` and `resample_hidden`
    points: PointCounter | None = None

    @property
    def event_log(self) -> EventLog | None:
        """None: the world has no milestones."""
        return None

    def __init_subclass__(cls) -> None:
        """Accept the old names of the methods, with a note."""
        super().__init_subclass__()
        for old, new in RENAMED.items():
            if old in cls.__dict__ and new not in cls.__dict__:
                note_renamed(f"{cls.__name__}.{old}", new)
                setattr(cls, new, cls.__dict__[old])

    # --- what a subclass defines ---

    @classmethod
    def make_spec(cls, config: Any) -> Spec:
        """Roles, observation fields and actions under these settings."""
        raise cls._missing("make_spec", "roles, observation fields and actions")

    def layout(self) -> list[Any]:
        """The columns of a game's state, as numpy.dtype takes them; `time` already counts the steps."""
        raise self._missing("layout", "the columns of a state")

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        """Start these games; their state is zero except `stage` and `slot`. `uniform` is the only source of
        chance."""
        raise self._missing("reset_games", "the start of games")

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        """One step of all games: change `self.state`; write view.reward, .ended and .outcome (0 before)."""
        raise self._missing("apply_actions", "a step of all games")

    def write_observations(self) -> None:
        """Write view.fields (privileged ones too), view.acting (1 before the first call) and view.mask from
        `self.state`."""
        raise self._missing("write_observations", "what each seat observes")

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        """[n] whether each loaded state is possible: a damaged file must not become a game."""
        raise self._missing("valid_states", "which loaded states are possible")

    def resample_hidden(self, states: States, seat: int, uniform: Uniform) -> None:
        """Draw again, in these states, the values that the seat does not observe."""

    # --- World ---

    def __init__(self, config: Any, games: int, first: int = 0, seed: int = 0) -> None:
        if games < 1:
            raise ConfigError(f"games = {games}: expected a whole number of at least 1")
        self.config = config  # `layout` may read it
        spec, blank = self.make_spec(config), np.zeros
        own: list[Any] = [("magic", "u4"), ("episode", "u4"), ("seed", "u8"), ("time", "i4")]
        own += [("slot", "i4", (spec.seats,)), ("stage", "f4", (len(spec.stage),))]

        def obs() -> Observations:
            shape = {name: (games, len(role.seats)) for name, role in spec.roles.items()}
            return {
                role.name: {
                    f.name: blank((*shape[name], f.size), np.float32) for f in role.fields + role.privileged
                }
                for name, role in spec.roles.items()
            }

        mask = {
            role.name: np.ones((games, len(role.seats), role.actions.size), np.uint8)
            for role in spec.roles.values()
        }
        view = View(
            fields=obs(),
            acting=np.ones((games, spec.seats), np.uint8),
            reward=blank((games, spec.seats), np.float32),
            ended=blank(games, np.uint8),
            outcome=blank((games, spec.seats), np.float32),
            length=blank(games, np.int32),
            mask=mask if self.masked else NoMask(),
            final=obs() if spec.cutoffs else {},
        )
        following = Next(
            seed=np.array([rng.key(seed, rng.GAME, first + game) for game in range(games)], np.uint64),
            slot=blank((games, spec.seats), np.int32),
            stage=blank((games, len(spec.stage)), np.float32),
        )
        self._attach(config, spec, first, (blank(games, self._columns(own)), view, following))
        self._restart(np.arange(games))
        self.write_observations()

    def _columns(self, own: list[Any]) -> np.dtype[Any]:
        """The columns `own` of all worlds, then those of this game."""
        layout = self.layout()
        try:
            return np.dtype(own + layout)
        except (TypeError, ValueError) as error:
            name = type(self).__name__
            raise ConfigError(f"layout of {name} returned {short_repr(layout)}: expected a list of "
                              f"(name, type) or (name, type, shape); {error}") from None

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state = self.view, self.state
        view.reward[:], view.ended[:], view.outcome[:] = 0, RUNNING, 0
        state["time"] += 1
        self.apply_actions(actions)
        view.length[:] = state["time"]
        cut = view.ended == CUT_OFF
        if cut.any():
            self.write_observations()
            for role, fields in view.final.items():
                for name, last in fields.items():
                    last[cut] = view.fields[role][name][cut]
        self._restart(np.flatnonzero(view.ended))
        self.write_observations()
        return view

    def observe(self, rows: Ints) -> Observations:
        fields = {
            name: {f.name: self.view[name][f.name] for f in role.fields}
            for name, role in self.spec.roles.items()
        }
        return cut_observations(fields, np.asarray(rows, np.intp))

    def save(self, rows: Ints) -> Bytes:
        return self._bytes(self.state[rows])

    def load(self, rows: Ints, states: Bytes) -> None:
        size = self.state.dtype.itemsize
        if states.dtype != np.uint8 or states.shape != (len(rows), size):
            given = f"{states.dtype} {list(states.shape)}"
            raise ConfigError(
                f"{self.spec.world}: expected states uint8 [{len(rows)}, {size}], found {given}"
            )
        read = np.ascontiguousarray(states).view(self.state.dtype).reshape(len(rows))
        bad = np.flatnonzero(~((read["magic"] == MAGIC) & (read["time"] >= 0) & self.valid_states(read)))
        if bad.size:
            raise ConfigError(f"{self.spec.world}: state {bad[0]} is no state of this world")
        self.state[rows] = read
        self.view.reward[rows], self.view.ended[rows], self.view.outcome[rows] = 0, RUNNING, 0
        self.view.length[rows] = read["time"]
        self.write_observations()

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        states, games = self.state[rows], self.first + np.asarray(rows, np.int64)
        keys = np.full(len(states), key, np.uint64)
        self.resample_hidden(states, seat, uniform_numbers(keys, games, self.random_numbers))
        return self._bytes(states)

    def parts(self, count: int) -> list[Self]:
        cuts = [self.games * k // count for k in range(count + 1)]
        return [self._part(slice(low, high)) for low, high in pairwise(cuts)]

    # --- inside ---

    @classmethod
    def _missing(cls, method: str, meaning: str) -> WorldError:
        return WorldError(f"class {cls.__name__} has no method {method}: it defines {meaning} "
                          "(docs/tutorials/your_own_game.md)")

    def _attach(self, config: Any, spec: Spec, first: int, arrays: tuple[States, View, Next]) -> None:
        self.config, self.spec, self.first = config, spec, first
        self.state, self.view, self.next = arrays
        self.games, self.slot = len(self.state), self.state["slot"]
        self.counters: Mapping[str, int] = {}

    def _part(self, cut: slice) -> Self:
        part, view, following = object.__new__(type(self)), self.view, self.next
        seen = View(
            fields=cut_observations(view.fields, cut),
            acting=view.acting[cut],
            reward=view.reward[cut],
            ended=view.ended[cut],
            outcome=view.outcome[cut],
            length=view.length[cut],
            mask={role: mask[cut] for role, mask in view.mask.items()},
            final=cut_observations(view.final, cut),
        )
        later = Next(seed=following.seed[cut], slot=following.slot[cut], stage=following.stage[cut])
        part._attach(self.config, self.spec, self.first + cut.start, (self.state[cut], seen, later))
        return part

    def _restart(self, rows: Rows) -> None:
        if not rows.size:
            return
        fresh = np.zeros(len(rows), self.state.dtype)
        old = self.state[rows]
        fresh["magic"], fresh["episode"] = MAGIC, old["episode"] + (old["magic"] == MAGIC)
        for name in ("seed", "slot", "stage"):
            fresh[name] = getattr(self.next, name)[rows]
        self.state[rows] = fresh
        numbers = uniform_numbers(fresh["seed"], fresh["episode"], self.random_numbers)
        self.reset_games(rows, numbers)

    @staticmethod
    def _bytes(states: States) -> Bytes:
        return states.view(np.uint8).reshape(len(states), states.dtype.itemsize)


class ScriptedPlayer:
    """A bot: `rule(seat, uniform [n]) -> action`, `uniform` being one number in [0, 1) per game."""

    def __init__(self, name: str, rule: Rule) -> None:
        self.name, self.rule = name, rule

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
        own = rng.key(rng_key.seed, rng_key.stream, seat.seat)  # each seat has its own numbers
        drawn = rng.units(own, rng_key.stream, int(games.max(initial=-1)) + 1, rng_key.step)[games]
        return Decision(action=self.rule(seat, drawn))


TRIAL_COPIES, TRIAL_STEPS = 256, 64


def copies_differ(world: NumpyWorld) -> bool:
    """Whether the games of a new world, which differ in their seeds, become different by the same actions.

    A world with stages counts as random: a curriculum may start its games anywhere.
    """
    own = [name for name in world.state.dtype.names or () if name not in ("magic", "episode", "seed", "slot")]
    for step in range(TRIAL_STEPS):
        if world.spec.stage or any((world.state[name] != world.state[name][0]).any() for name in own):
            return True
        actions = {}
        for role in world.spec.roles.values():
            uniform = rng.units(step, rng.ACT, len(role.seats) * role.actions.size)
            numbers = uniform.reshape(len(role.seats), role.actions.size)
            if role.actions.kind == "continuous":
                one: NDArray[Any] = (2 * numbers - 1).astype(np.float32)
            else:
                mask = world.view.mask.get(role.name)
                one = np.where(True if mask is None else mask[0], numbers, -1.0).argmax(-1).astype(np.int32)
            actions[role.name] = np.repeat(one[None], world.games, 0)
        world.step(actions)
    return False


class NumpyGame(Game):
    """A game from a NumpyWorld class, its settings class and its bots: role -> name -> rule.

    Without bots evaluations have no scripted opponents: only best responses (`rematch exploit`) then measure
    how strong a policy is. Capabilities are set on the object: `GAME.renderer = Renderer(draw=draw)`.
    """

    def __init__(
        self, name: str, world: type[NumpyWorld], config: type[Any],
        bots: Mapping[str, Mapping[str, Rule]] | None = None,
    ) -> None:
        self.name, self.world, self.Config, self.rules = name, world, config, bots or {}
        self.bots = {role: tuple(rules) for role, rules in self.rules.items()}
        self._random: dict[str, bool] = {}  # settings as text -> whether games differ

    @property
    def summary(self) -> str:
        return first_line(self.world.__doc__)

    def spec(self, config: Any) -> Spec:
        return self.world.make_spec(config)

    def role_count(self, config: Any) -> int:
        return len(self.spec(config).roles)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> World:
        return self.world(config, games, first, seed)

    def random(self, config: Any) -> bool:
        """As the game states, else by trial: whether copies that get the same actions differ."""
        if self.defaults.random is not None:
            return self.defaults.random
        key = repr(config)
        if key not in self._random:
            self._random[key] = copies_differ(self.world(config, TRIAL_COPIES))
        return self._random[key]

    def bot(self, name: str, role: str) -> ScriptedPlayer:
        check_bot(self.bots, name, role)
        return ScriptedPlayer(name, self.rules[role][name])


def __getattr__(name: str) -> Any:
    """The old name of NumpyWorld, with a note."""
    if name == "PlainWorld":
        note_renamed("PlainWorld", "NumpyWorld")
        return NumpyWorld
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
