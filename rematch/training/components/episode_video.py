"""A recording: an episode from the start, played as deployed, with what the player thought and was paid.

It is played in a world of its own, and its bonuses are copies: the training does not notice. Pictures are the
world's own; what becomes of them is reporting/episode_film.py's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.clock import Clock, interval_passed
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, RunError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.recording import CompressedImage, EpisodeRecording, Frame
from rematch.core.stepping import concat_fields
from rematch.core.world import CUT_OFF, DECIDED, RUNNING, World
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.training.components.episode_log import EpisodeLog

MOST_FRAMES = 600  # pictures of one recording
MOST_BARS = 10  # milestones that are shown
PIECE = 64  # steps that bonuses are asked about together
ENDS = {RUNNING: "breaks off", DECIDED: "to the end", CUT_OFF: "cut off"}


@dataclass(frozen=True, kw_only=True)
class EpisodeVideoConfig:
    """Videos of whole episodes, played with the current policy during training."""

    interval: int = knob(0, "steps between two videos; 0: off", unit="steps", low=0)
    max_steps: int = knob(
        1_500, "length of a video, at most", unit="steps", low=1, high=100_000, needs="interval"
    )


class EpisodeRecorder:
    """Records one episode of a run."""

    def __init__(self, config: EpisodeVideoConfig, setup: Setup, clock: Clock) -> None:
        self.setup, self.clock = setup, clock
        diary = setup.get(EpisodeLog)
        assert diary is not None
        self.diary = diary
        self.world = setup.make_world(1, 0, setup.config.seed)
        (self.role,) = setup.spec.roles.values()
        terms = setup.all(RewardTermComponent)
        self.scorers = [term.film_scorer(self.role) for term in terms]
        self.terms, self.weights = diary.terms, diary.weights
        self.steps = config.max_steps
        self.steps_per_frame = -(-self.steps // MOST_FRAMES)
        self.paid: Floats = np.zeros((self.steps + 1, len(self.terms)), np.float32)

    def record(self) -> tuple[EpisodeRecording, dict[str, Any]]:
        """The recording, and its entry in the run's events."""
        world, player = self.world, self.setup.agents.players[self.role.name]
        key = rng.key(self.setup.config.seed, rng.EVALUATION, self.clock.step)
        recurrent_state, trail, rows = None, [], np.zeros(1, np.int32)  # type: ignore[var-annotated]
        kept: list[tuple[int, CompressedImage, int, Floats, tuple[str, ...]]] = []
        tape, ended, step = RolloutBuffer(self.setup.spec, PIECE, 1), RUNNING, 0
        while step < self.steps and ended == RUNNING:
            obs = concat_fields(self.role, world.view[self.role.name])[:, 0]
            legal = world.view.mask.get(self.role.name)
            mask = None if legal is None else legal[:, 0]
            seat = Seat(self.role, self.role.seats[0], world, rows, obs, mask)
            move = player.act(seat, RngKey(key, rng.ACT, step), recurrent_state)
            recurrent_state, action = move.recurrent_state, int(move.action[0])
            picture = self._draw(world, trail)
            reached = self._reached(world)
            if step % self.steps_per_frame == 0:
                scores = self._scores(player, seat, move)
                kept.append((step, CompressedImage.of(picture), action, scores, reached))
            tape[self.role.name].obs[step % PIECE, 0, 0] = obs[0]
            view = world.step({self.role.name: np.array([[action]], np.int32)})
            ended = int(view.ended[0])
            tape.ended[step % PIECE, 0] = ended
            tape.length[step % PIECE, 0] = view.length[0]
            found = [name for _, name in world.event_log.events] if world.event_log is not None else []
            tape.events += [(step % PIECE, 0, name) for name in found]
            reached = (*reached, *found)  # the end itself too: after it the world shows the next game
            self.paid[step + 1, 0] = view.reward[0, 0]
            step += 1
            if step % PIECE == 0 or ended != RUNNING or step == self.steps:
                self._score(tape, step)
        return self._cut(kept, step, ended, reached)

    def _draw(self, world: World, trail: list[Any]) -> Any:
        renderer = self.setup.game.renderer
        assert renderer is not None, "refused by check"
        return renderer.draw(world, 0, trail)

    def _scores(self, player: Any, seat: Seat, move: Decision) -> Floats:
        """[A] what each action is thought to be worth: Q values, or the policy's probabilities."""
        if move.scores is not None:
            return np.asarray(move.scores[0])
        return np.asarray(player.action_probs(seat)[0])

    def _reached(self, world: Any) -> tuple[str, ...]:
        return tuple(world.milestones(0)) if self.diary.world is not None else ()

    def _score(self, tape: RolloutBuffer, step: int) -> None:
        """What the copies pay for the sights since the last time; the very first one was nobody's doing."""
        first, name = (step - 1) // PIECE * PIECE, self.role.name
        part = RolloutBuffer(self.setup.spec, step - first, 1)
        part[name].obs[:], part.ended[:] = tape[name].obs[: part.steps], tape.ended[: part.steps]
        part.length[:], part.events[:] = tape.length[: part.steps], tape.events
        for column, scorer in enumerate(self.scorers, 1):
            self.paid[first:step, column] = scorer.score(part, 0)[:, 0, 0]
        self.paid[0, 1:] = 0
        tape.ended[:] = RUNNING
        tape.events.clear()

    def _cut(
        self, kept: list[tuple[int, CompressedImage, int, Floats, tuple[str, ...]]], steps: int, ended: int,
        reached: tuple[str, ...],
    ) -> tuple[EpisodeRecording, dict[str, Any]]:  # fmt: skip
        so_far = np.cumsum(self.paid[: steps + 1], axis=0, dtype=np.float64)
        total, last = so_far @ self.weights, self.paid @ self.weights
        frames = []
        for step, picture, action, scores, there in kept:
            columns = zip(self.terms, self.paid[step].tolist(), so_far[step].tolist())
            paid = {name: (now, sum_) for name, now, sum_ in columns}
            paid["total"] = (float(last[step]), float(total[step]))
            bars = self._bars(there)
            frames.append(Frame(picture=picture, action=action, scores=scores, rewards=paid, milestones=bars))
        caption = f"{ENDS[ended]} after {steps} steps, R_env {so_far[-1, 0]:.1f}, R_total {total[-1]:.1f}"
        name = f"rollout_{self.clock.step}"
        recording = EpisodeRecording(name=name, actions=self.role.actions.names, frames=frames,
                                     steps_per_frame=self.steps_per_frame, caption=caption)
        returns = {f"return_{name}": float(x) for name, x in zip(self.terms, so_far[-1])}
        noted = {"event": "film", "step": self.clock.step, "name": name, "length": steps}
        noted |= {"ended": ENDS[ended], "milestones": list(reached), "return_total": float(total[-1])}
        return recording, noted | returns

    def _bars(self, reached: tuple[str, ...]) -> tuple[tuple[str, float | None, bool], ...]:
        """Headlines first, then whatever else the world has set; with beliefs, the rest too."""
        believed = self.diary.believed()
        names = dict.fromkeys([*self.diary.headlines(), *reached[::-1], *believed])
        return tuple((name, believed.get(name), name in reached) for name in [*names][:MOST_BARS])


class EpisodeVideo(Component):
    """Films an episode now and then; where the film cannot be stored the run goes on."""

    name = "episode_video"
    Config = EpisodeVideoConfig

    @classmethod
    def check(cls, config: EpisodeVideoConfig, setup: Setup) -> None:
        if not config.interval:
            return
        why = "" if setup.game.renderer is not None else "this world draws no pictures"
        if setup.spec.role_of(0).actions.kind != "discrete":
            why = "actions are continuous, films show the values of discrete ones"
        if why:
            raise ConfigError(f"episode_video.interval = {config.interval}: {why}; expected 0")

    @classmethod
    def no_effect(cls, key: str, config: EpisodeVideoConfig, setup: Setup) -> str:
        return EpisodeLog.no_effect("", setup.config.episode_log, setup)

    @classmethod
    def off(cls, config: EpisodeVideoConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup) or ("" if config.interval else "episode_video.interval is 0")

    @classmethod
    def shrink(cls, config: EpisodeVideoConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"interval": min(config.interval, small.iterations * small.steps_per_iteration // 2),
                "max_steps": min(config.max_steps, 32)}

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if not interval_passed(clock.step, clock.steps_per_iteration, self.config.interval):
            return
        log = self.setup.log
        recording, event = EpisodeRecorder(self.config, self.setup, clock).record()
        log.event(event)
        log.line(f"Film at step {clock.step:,}: {recording.caption}")
        try:
            for name, data in log.film(recording).items():
                log.write_file(f"films/{name}", data)
        except RunError as error:
            log.console(f"{error}; training goes on")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        pictures = ", ".join(map(str, record.films))
        yield Evidence(self.name, f"{len(record.films)} films of {pictures} pictures" if record.films else "")
