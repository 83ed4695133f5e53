"""Records games as replays, and steps the real rules through a replay again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import config as settings
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, Player, RngKey, Seat, StochasticPlayer, WeightedPlayer
from rematch.core.recording import BROKEN_OFF, CUT_OFF_END, DECIDED_END, RESIGNED, Replay, ReplayPlayer
from rematch.core.spec import Role, Spec
from rematch.core.stepping import SeatedPlayers, empty_actions
from rematch.core.world import CUT_OFF, DECIDED, RUNNING, World
from rematch.evaluation.match import first_legal_actions
from rematch.evaluation.text import clean
from rematch.worlds import registry

MOST_STEPS = 100_000  # limit for a game that never ends
Actions = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Match:
    """What a replay says of its match: world, settings, seed, and the training step of a run."""

    world: str
    config: Any  # settings of the world
    seed: int
    step: int | None = None


class _Notes:
    """A player that notes what it says of its decisions: values, action probabilities, scores."""

    def __init__(self, player: Player, role: Role, games: int) -> None:
        self.player, self.name = player, player.name
        self.discrete, self.actions = role.actions.kind == "discrete", role.actions.size
        self.games = games
        self.values: list[Floats] = []  # [N] of each step; nan where the seat is not to move
        self.probs: list[Floats] = []  # [N, A]
        self.scores: list[Floats] = []
        self.present: set[str] = set()

    def start_step(self) -> None:
        self.values.append(np.full(self.games, np.nan, np.float32))
        self.probs.append(np.full((self.games, self.actions), np.nan, np.float32))
        self.scores.append(np.full((self.games, self.actions), np.nan, np.float32))

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        decision = self.player.act(seat, rng_key, recurrent_state)
        if decision.value is not None:
            self._note("values", seat.rows, decision.value)
        if self.discrete and decision.scores is not None:
            self._note("scores", seat.rows, decision.scores)
        elif self.discrete and isinstance(self.player, StochasticPlayer):
            self._note("probs", seat.rows, self.player.action_probs(seat))
        return decision

    def _note(self, name: str, rows: Ints, numbers: Floats) -> None:
        self.present.add(name)
        getattr(self, name)[-1][rows] = numbers

    def of_game(self, name: str, game: int, length: int) -> Floats:
        return np.array([step[game] for step in getattr(self, name)[:length]], np.float32)


def record(
    world: World, players: Sequence[Player], match: Match, limit: int = MOST_STEPS,
    before_step: Callable[[int], None] = lambda step: None,
) -> list[Replay]:  # fmt: skip
    """One whole game per copy of the world, as in a match; players by seat; at most `limit` steps."""
    recorder = _Recorder(world, players, match)
    for step in range(limit):
        if not recorder.running.any():
            break
        before_step(step)
        recorder.step(step)
    return [recorder.replay(game) for game in range(world.games)]


class _Recorder:
    """The games of one world while they are recorded."""

    def __init__(self, world: World, players: Sequence[Player], match: Match) -> None:
        n, seats = world.games, world.spec.seats
        if len(players) != seats:
            raise ConfigError(f"{len(players)} players: expected {seats}, one for each seat")
        self.world, self.match = world, match
        self.notes = {
            seat: _Notes(player, world.spec.role_of(seat), n) for seat, player in enumerate(players)
        }
        self.seated = SeatedPlayers(
            self.notes, dict.fromkeys(range(seats), match.seed), rng.ACT, read_values=True
        )
        self.rows: Ints = np.arange(n, dtype=np.int32)
        self.start = world.save(self.rows).copy()
        self.digests = [hashlib.sha256() for _ in range(n)]
        self.actions: list[Actions] = []
        self.running = np.ones(n, bool)
        self.length = np.zeros(n, np.int64)
        self.final = [sha256(state) for state in self.start]
        self.ends = [BROKEN_OFF] * n
        self.outcome = np.full((n, seats), 0.5)
        self.savestates = [""] * n

    def step(self, step: int) -> None:
        world, running = self.world, self.running
        actions = first_legal_actions(world)
        for notes in self.notes.values():
            notes.start_step()
        resigned = self.seated.act(world, actions, step, running) & running[:, None]
        for game in np.flatnonzero(resigned.any(1)).tolist():  # its action is not played
            self.outcome[game] = np.where(resigned[game], 0.0, 1.0 if world.spec.seats == 2 else 0.5)
            self.ends[game], running[game] = RESIGNED, False
        for game, state in zip(self.rows[running].tolist(), world.save(self.rows[running])):
            self.digests[game].update(state.tobytes())
            self.final[game] = sha256(state)
        self.actions.append(actions)
        self.length[running] += 1
        view = world.step(actions)
        if world.event_log is not None:
            for game, info in world.event_log.episode_infos:
                if running[game]:
                    self.savestates[game] = str(info.get("savestate", ""))[:100]
        for game in np.flatnonzero(running & (view.ended != RUNNING)).tolist():
            self.ends[game] = CUT_OFF_END if view.ended[game] == CUT_OFF else DECIDED_END
            self.outcome[game], running[game] = view.outcome[game], False

    def replay(self, game: int) -> Replay:
        match, length = self.match, int(self.length[game])
        notes: dict[str, dict[int, Floats]] = {"values": {}, "probs": {}, "scores": {}}
        for seat, player in self.notes.items():
            for name in player.present:
                notes[name][seat] = player.of_game(name, game, length)
        empty = empty_actions(self.world)
        actions = {
            role: np.array([step[role][game] for step in self.actions[:length]], array.dtype).reshape(
                length, *array.shape[1:])
            for role, array in empty.items()
        }  # fmt: skip
        return Replay(
            world=match.world, build=registry.find(match.world).build, settings=settings.tree(match.config),
            seed=match.seed, game=self.world.first + game, start=self.start[game],
            players=tuple(replay_player(notes.player, self.world.spec.role_of(seat)) for seat, notes in
                          self.notes.items()),
            actions=actions, end=self.ends[game], outcome=tuple(map(float, self.outcome[game])),
            final=self.final[game], states=self.digests[game].hexdigest(),
            savestate=self.savestates[game], step=match.step, **notes,
        )  # fmt: skip


def sha256(state: Bytes) -> str:
    return hashlib.sha256(state.tobytes()).hexdigest()


def replay_player(player: Player, role: Role) -> ReplayPlayer:
    """A player's entry in a replay; a policy has the digest of its weights."""
    digest = ""
    if isinstance(player, WeightedPlayer):
        digest = hashlib.sha256(player.weights.tobytes()).hexdigest()
    return ReplayPlayer(role=role.name, name=clean(player.name)[:200], digest=digest)


def repeatable(spec: Spec) -> bool:
    """Whether a start state and actions give the same game again; some Gymnasium environments do not."""
    return spec.resume != "episode"


# --- stepping again ---------------------------------------------------------------------------------------


class Playback:
    """A replay's game in a world of its own: iterate over its steps; the rules are the real ones."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        game = registry.find(replay.world)
        source = f"the replay of {registry.title(replay.world)}"
        rules = settings.flatten(dict(replay.settings), source)
        self.config = settings.apply(game.Config(), rules, source, prefix="world.", notes=False)
        settings.validate(self.config, "world.")
        self.game, self.row = game, np.zeros(1, np.int32)
        if not repeatable(game.spec(self.config)):
            raise ConfigError(f"{replay.world}: a start and actions do not repeat its games, so it has no "
                              "replays")
        self.world = game.make(self.config, 1, 0, 0)
        self._check_actions()
        self.world.load(self.row, replay.start[None])

    def _check_actions(self) -> None:
        roles, replay = self.world.spec.roles, self.replay
        expected = {name: array.shape[1:] for name, array in empty_actions(self.world).items()}
        shapes = {name: array.shape[1:] for name, array in replay.actions.items()}
        seats = [self.world.spec.role_of(seat).name for seat in range(self.world.spec.seats)]
        if shapes != expected or [player.role for player in replay.players] != seats:
            raise ConfigError(f"the seats or actions of the replay are not those of {replay.world} under its "
                              "settings")
        for name, array in replay.actions.items():
            if array.dtype == np.float32:
                legal = np.isfinite(array).all()
            else:
                legal = ((array >= 0) & (array < roles[name].actions.size)).all()
            if not legal:
                raise ConfigError(f"the replay has an action of {name} that is outside its range")

    def _checked(self, step: int) -> Actions:
        """The actions of a step; ConfigError where a seat that is to move makes an illegal one."""
        actions = {name: array[step][None] for name, array in self.replay.actions.items()}
        for seat in np.flatnonzero(self.world.view.acting[0]):
            role = self.world.spec.role_of(int(seat))
            mask, index = self.world.view.mask.get(role.name), role.seats.index(int(seat))
            if mask is not None and not mask[0, index, actions[role.name][0, index]]:
                raise ConfigError(f"the replay has an illegal action of {role.name} at step {step}")
        return actions

    def steps(self) -> Iterator[int]:
        """Yields the number of each step while the world shows the state before it; then steps the world."""
        for step in range(self.replay.length):
            yield step
            self.world.step(self._checked(step))
            if self.world.view.ended[0] != RUNNING and step + 1 < self.replay.length:
                raise ConfigError(f"the game of the replay ends after {step + 1} steps, not after "
                                  f"{self.replay.length}: the rules have changed since")

    def verify(self, before_step: Callable[[int], None] = lambda step: None) -> None:
        """Step through the whole game; ConfigError where a state or the result differs by a byte."""
        replay, digest, final = self.replay, hashlib.sha256(), sha256(self.replay.start)
        for step in self.steps():
            before_step(step)
            state = self.world.save(self.row)[0]
            digest.update(state.tobytes())
            final = sha256(state)
        view = self.world.view
        ended = int(view.ended[0]) if replay.length else RUNNING
        same_end = ended == {CUT_OFF_END: CUT_OFF, DECIDED_END: DECIDED}.get(replay.end, RUNNING)
        same_outcome = ended == RUNNING or tuple(map(float, view.outcome[0])) == replay.outcome
        if (final, digest.hexdigest()) == (replay.final, replay.states) and same_end and same_outcome:
            return
        what = "the result" if final == replay.final else "the last state"
        cause = "" if self.game.build == replay.build else (
            f": the rules are of another build ({self.game.build or 'none'}, the replay has "
            f"{replay.build or 'none'})")  # fmt: skip
        raise ConfigError(f"{what} after {replay.length} steps is not the recorded one{cause}")
