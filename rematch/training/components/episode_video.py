"""Recordings of whole episodes: the policy as it is evaluated, its action scores and its rewards.

An episode is played in a separate world with copies of the reward terms, so the training does not change. The
world draws the pictures; reporting/episode_film.py makes films of them.
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

MAX_FRAMES = 600  # pictures of one recording
MAX_BARS = 10  # milestones in the panel
CHUNK = 64  # steps whose reward terms are computed together
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
        log = setup.get(EpisodeLog)
        assert log is not None
        self.log = log
        self.world = setup.make_world(1, 0, setup.config.seed)
        (self.role,) = setup.spec.roles.values()
        terms = setup.all(RewardTermComponent)
        self.scorers = [term.film_scorer(self.role) for term in terms]
        self.terms, self.weights = log.terms, log.weights
        self.steps = config.max_steps
        self.steps_per_frame = -(-self.steps // MAX_FRAMES)
        self.paid: Floats = np.zeros((self.steps + 1, len(self.terms)), np.float32)

    def record(self) -> tuple[EpisodeRecording, dict[str, Any]]:
        """The recording, and its event for events.jsonl."""
        world, player = self.world, self.setup.agents.players[self.role.name]
        key = rng.key(self.setup.config.seed, rng.EVALUATION, self.clock.step)
        recurrent_state, trail, rows = None, [], np.zeros(1, np.int32)  # type: ignore[var-annotated]
        recorded: list[tuple[int, CompressedImage, int, Floats, tuple[str, ...]]] = []
        rollout, ended, step = RolloutBuffer(self.setup.spec, CHUNK, 1), RUNNING, 0
        while step < self.steps and ended == RUNNING:
            self.setup.check_stop()
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
                recorded.append((step, CompressedImage.of(picture), action, scores, reached))
            rollout[self.role.name].obs[step % CHUNK, 0, 0] = obs[0]
            view = world.step({self.role.name: np.array([[action]], np.int32)})
            ended = int(view.ended[0])
            rollout.ended[step % CHUNK, 0] = ended
            rollout.length[step % CHUNK, 0] = view.length[0]
            new = [name for _, name in world.event_log.events] if world.event_log is not None else []
            rollout.events += [(step % CHUNK, 0, name) for name in new]
            reached = (*reached, *new)  # with the last step's: after it the world shows the next game
            self.paid[step + 1, 0] = view.reward[0, 0]
            step += 1
            if step % CHUNK == 0 or ended != RUNNING or step == self.steps:
                self._score(rollout, step)
        return self._cut(recorded, step, ended, reached)

    def _draw(self, world: World, trail: list[Any]) -> Any:
        renderer = self.setup.game.renderer
        assert renderer is not None, "refused by check"
        return renderer.draw(world, 0, trail)

    def _scores(self, player: Any, seat: Seat, move: Decision) -> Floats:
        """[A] scores of the actions: Q values, or the policy's probabilities."""
        if move.scores is not None:
            return np.asarray(move.scores[0])
        return np.asarray(player.action_probs(seat)[0])

    def _reached(self, world: Any) -> tuple[str, ...]:
        return tuple(world.milestones(0)) if self.log.event_log is not None else ()

    def _score(self, rollout: RolloutBuffer, step: int) -> None:
        """Reward terms of the observations since the last call; an episode's first one pays nothing."""
        first, name = (step - 1) // CHUNK * CHUNK, self.role.name
        part = RolloutBuffer(self.setup.spec, step - first, 1)
        part[name].obs[:] = rollout[name].host("obs")[: part.steps]
        part.ended[:] = rollout.host("ended")[: part.steps]
        part.length[:], part.events[:] = rollout.host("length")[: part.steps], rollout.events
        for column, scorer in enumerate(self.scorers, 1):
            self.paid[first:step, column] = scorer.score(part, 0)[:, 0, 0]
        self.paid[0, 1:] = 0
        rollout.ended[:] = RUNNING
        rollout.events.clear()

    def _cut(
        self, recorded: list[tuple[int, CompressedImage, int, Floats, tuple[str, ...]]], steps: int,
        ended: int, reached: tuple[str, ...],
    ) -> tuple[EpisodeRecording, dict[str, Any]]:  # fmt: skip
        sums = np.cumsum(self.paid[: steps + 1], axis=0, dtype=np.float64)
        total, last = sums @ self.weights, self.paid @ self.weights
        frames = []
        for step, picture, action, scores, milestones in recorded:
            columns = zip(self.terms, self.paid[step].tolist(), sums[step].tolist())
            paid = {name: (now, sum_) for name, now, sum_ in columns}
            paid["total"] = (float(last[step]), float(total[step]))
            bars = self._bars(milestones)
            frames.append(Frame(picture=picture, action=action, scores=scores, rewards=paid, milestones=bars))
        caption = f"{ENDS[ended]} after {steps} steps, R_env {sums[-1, 0]:.1f}, R_total {total[-1]:.1f}"
        name = f"rollout_{self.clock.step}"
        recording = EpisodeRecording(name=name, actions=self.role.actions.names, frames=frames,
                                     steps_per_frame=self.steps_per_frame, caption=caption)
        returns = {f"return_{name}": float(x) for name, x in zip(self.terms, sums[-1])}
        event = {"event": "film", "step": self.clock.step, "name": name, "length": steps}
        event |= {"ended": ENDS[ended], "milestones": list(reached), "return_total": float(total[-1])}
        return recording, event | returns

    def _bars(self, reached: tuple[str, ...]) -> tuple[tuple[str, float | None, bool], ...]:
        """Bars of the headlines, then of other reached milestones, then of all that have posteriors."""
        means = self.log.posterior_means()
        names = dict.fromkeys([*self.log.headlines(), *reached[::-1], *means])
        return tuple((name, means.get(name), name in reached) for name in [*names][:MAX_BARS])


class EpisodeVideo(Component):
    """Records an episode at intervals; if the film cannot be stored, the run continues."""

    name = "episode_video"
    Config = EpisodeVideoConfig

    @classmethod
    def check(cls, config: EpisodeVideoConfig, setup: Setup) -> None:
        if not config.interval:
            return
        reason = "" if setup.game.renderer is not None else "this world draws no pictures"
        if setup.spec.role_of(0).actions.kind != "discrete":
            reason = "actions are continuous; films show the scores of discrete actions"
        if reason:
            raise ConfigError(f"episode_video.interval = {config.interval}: {reason}; expected 0")

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
            log.console(f"{error}; training continues")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        pictures = ", ".join(map(str, record.films))
        yield Evidence(self.name, f"{len(record.films)} films of {pictures} pictures" if record.films else "")
