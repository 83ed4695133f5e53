"""The episode log, for worlds with one seat: lines in the log, and tables.

episodes.csv has one row per episode, progress.csv the posteriors at every log line, events.jsonl all events
with step and name. They are rewound with their checkpoint, so each episode is listed once, even if the run
was killed. They contain no clock times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.agents.learners.replay_buffer import ENV
from rematch.core.arrays import Floats, Tree
from rematch.core.clock import Clock, interval_passed
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.world import RUNNING
from rematch.curriculum.savestates import Savestates
from rematch.exploration.milestone_bonus import Milestones
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import FORCED, RolloutBuffer

EPISODES, PROGRESS = "episodes.csv", "progress.csv"
RECENT = 100  # episodes in the means
START_GROUPS = ("early", "mid", "late")
FIGURES = ("alpha", "beta", "mean", "low95", "high95")  # of a posterior
SAVESTATE = "savestate"
NOT_IN_LINE = ("milestones", SAVESTATE)  # entries of an episode's info that its log line omits


@dataclass(frozen=True, kw_only=True)
class EpisodeLogConfig:
    """Log lines and tables of episodes, for worlds with one seat."""

    interval: int = knob(5_000, "steps between two log lines", unit="steps", low=1)


@dataclass(frozen=True)
class Episode:
    """An ended episode."""

    number: int  # from 1
    game: int
    length: int
    returns: tuple[float, ...]  # by reward term
    total: float
    steps: tuple[int, int]  # of the run, at the start and at the end of the episode
    info: Mapping[str, Any]  # from the world's event log
    forced: int  # number of forced steps (curriculum/demonstrations.py)


class EpisodeLog(Component):
    """Follows the games of a run from rollout to rollout. Its state is a function of the rollouts."""

    name = "episode_log"
    Config = EpisodeLogConfig

    def __init__(self, config: EpisodeLogConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        world = setup.world
        self.games = games = world.games
        self.event_log = world.event_log
        self.start_groups: list[str] = []  # [N] of the running episodes
        (self.role,) = setup.spec.roles
        terms = setup.all(RewardTermComponent)
        self.terms = (ENV, *(term.name for term in terms))  # reward terms, the world's own first
        self.weights = np.array([1.0, *(term.weight for term in terms)], np.float32)
        self.returns = np.zeros((games, len(self.terms)))
        self.length = np.zeros(games, np.int64)  # steps since the start of the episode or of the run
        self.forced = np.zeros(games, np.int64)  # number of forced steps among them
        self.forced_milestones: list[list[str]] = [[] for _ in range(games)]  # reached in forced steps
        self.count = self.step = 0
        self.recent: deque[list[float]] = deque(maxlen=RECENT)  # length and returns of unforced episodes
        self.reward_sum = np.zeros(len(self.terms))  # by reward term, since the last log line
        self.reward_steps = 0
        self.alarmed: list[str] = []
        self.last_query = (0, time.perf_counter())  # step and time of the last `pace`
        self.ended: list[Episode] = []  # in the last rollout
        self.milestones: list[dict[str, Any]] = []  # reached in it
        self.epsilon: float | None = None

    @classmethod
    def off(cls, config: EpisodeLogConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup)

    @classmethod
    def no_effect(cls, key: str, config: EpisodeLogConfig, setup: Setup) -> str:
        return "" if setup.spec.seats == 1 else "episodes are logged only where the world has one seat"

    @classmethod
    def shrink(cls, config: EpisodeLogConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"interval": min(config.interval, 2 * small.steps_per_iteration)}

    def connect(self) -> None:
        milestones = self.setup.get(Milestones)
        self.posteriors = milestones.posteriors if milestones is not None else None
        savestates = self.setup.get(Savestates)
        self.archive = savestates.archive if savestates is not None else None

    def resumed(self, clock: Clock) -> None:
        self.last_query = (clock.step, time.perf_counter())

    # --- rollouts ---

    def rewards(self, rollout: RolloutBuffer) -> Floats:
        """[T, N, terms] the unweighted rewards."""
        track = rollout[self.role]
        columns = [track.host("reward")[:, :, 0]]
        columns += [track.reward_terms[name].values[:, :, 0] for name in self.terms[1:]]
        return np.stack(columns, axis=-1).astype(np.float32)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        reward, games, step = self.rewards(rollout), rollout.games, clock.step
        infos = {(t, game): info for t, game, info in rollout.episode_infos}
        forced = None if rollout.forced is None else rollout.host("forced") == FORCED
        forced_milestones: dict[int, list[tuple[int, str]]] = {}
        for t, game, name in rollout.forced_events:
            forced_milestones.setdefault(t, []).append((game, name))
        self.ended, self.step = [], step + rollout.steps * games
        for t in range(rollout.steps):
            # A reward term belongs to an observation; the first one of an episode was earned by no step.
            running = self.length > 0
            self.length += 1
            if forced is not None:
                self.forced += forced[t]
            self.returns[:, 0] += reward[t, :, 0]
            self.returns[running, 1:] += reward[t, running, 1:]
            for game, name in forced_milestones.get(t, ()):
                self.forced_milestones[game].append(name)
            for game in np.flatnonzero(rollout.host("ended")[t] != RUNNING).tolist():
                end = step + (t + 1) * games
                self._close(game, end, self._tagged(infos.get((t, game), {})))
        self.milestones = [
            {"event": "milestone", "step": step + t * games + game + 1, "env": game, "milestone": name}
            for t, game, name in rollout.events
        ]
        self.reward_sum += reward.reshape(-1, len(self.terms)).sum(0, dtype=np.float64)
        self.reward_steps += rollout.steps * games
        self.start_groups = rollout.start_groups

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        self.epsilon = metrics.get(f"{self.role}/epsilon")
        self.write()
        log = self.setup.log
        for episode in self.ended:
            log.line(self.episode_line(episode))
        if interval_passed(clock.step, clock.steps_per_iteration, self.config.interval):
            log.line(self.log_line(clock.step, clock.total_steps, None), console=False)
            log.console(self.log_line(clock.step, clock.total_steps, self.pace(clock.step)))
            self.write_progress(clock.step)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield Evidence(self.name, f"{self.count} episodes" if self.count else "")

    def _tagged(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Add the milestone of the savestate from which the episode started."""
        if SAVESTATE not in info:
            return dict(info)
        sha256 = info[SAVESTATE]
        starts = self.archive.starts if self.archive else []
        milestones = {start.sha256: start.milestone for start in starts} | {"": "power_on"}
        return {**info, "savestate_tag": milestones.get(sha256, sha256[:8])}

    def _close(self, game: int, end: int, info: Mapping[str, Any]) -> None:
        self.count += 1
        returns, length = self.returns[game], int(self.length[game])
        total = float(returns @ self.weights)
        steps = (end - length * self.games, end)
        by_term = tuple(returns.tolist())
        forced_names = self.forced_milestones[game]
        milestones = [name for name in info.get("milestones", ()) if name not in forced_names]
        info = {**info, "milestones": milestones}
        forced = int(self.forced[game])
        self.ended.append(Episode(self.count, game, length, by_term, total, steps, info, forced))
        if not forced:  # the returns of demonstrations do not measure the policy
            self.recent.append([float(length), total, *by_term])
        self.returns[game], self.length[game] = 0, 0
        self.forced[game], self.forced_milestones[game] = 0, []

    def metrics(self) -> dict[str, float]:
        """Means over recent episodes, starts of running ones, posterior means of the next milestones."""
        out = {"recent/episodes": float(self.count)}
        if self.recent:
            names = ("length", "return_total", *(f"return_{name}" for name in self.terms))
            means = np.mean(np.array(self.recent), axis=0).tolist()
            out |= {f"recent/{name}": mean for name, mean in zip(names, means)}
        out |= {f"spawn/{name}": share for name, share in self.start_shares().items()}
        return out | {f"theta/{name}": mean for name, mean in self.next_milestones(3).items()}

    def start_shares(self) -> dict[str, float]:
        """Fractions of the running episodes by start group; empty without milestones."""
        groups = self.start_groups
        if not groups:
            return {}
        return {name: groups.count(name) / len(groups) for name in START_GROUPS}

    def posterior_means(self) -> dict[str, float]:
        """Posterior means by milestone."""
        if self.posteriors is None:
            return {}
        alpha, beta = self.posteriors.beliefs.alpha, self.posteriors.beliefs.beta
        return dict(zip(self.posteriors.names, (alpha / (alpha + beta)).tolist()))

    def posterior_figures(self) -> dict[str, tuple[float, ...]]:
        """alpha, beta, mean and 95 % interval by milestone."""
        if self.posteriors is None:
            return {}
        beliefs, means = self.posteriors.beliefs, self.posterior_means()
        return {
            name: (float(beliefs.alpha[m]), float(beliefs.beta[m]), means[name], *beliefs.interval(m))
            for m, name in enumerate(self.posteriors.names)
        }

    def alarms(self) -> list[str]:
        """Milestones that were mastered and are lost."""
        if self.posteriors is None:
            return []
        return [self.posteriors.names[m] for m in np.flatnonzero(self.posteriors.alarmed).tolist()]

    def next_milestones(self, count: int) -> dict[str, float]:
        """Posterior means of the last headline that is reached in most episodes, and of those after it."""
        means = self.posterior_means()
        names = [name for name in self.headlines() if name in means]
        likely = [index for index, name in enumerate(names) if means[name] >= 0.5]
        first = likely[-1] if likely else 0
        return {name: means[name] for name in names[first : first + count]}

    def headlines(self) -> tuple[str, ...]:
        return self.event_log.headlines if self.event_log is not None else ()

    def pace(self, step: int) -> float:
        """Steps per second since the last call, or since the start of the run."""
        now = time.perf_counter()
        rate = (step - self.last_query[0]) / max(1e-9, now - self.last_query[1])
        self.last_query = (step, now)
        return rate

    # --- lines ---

    def episode_line(self, episode: Episode) -> str:
        words = [f"[EP {episode.number} env={episode.game}] len={episode.length}"]
        words += [f"forced={episode.forced}"] if episode.forced else []
        words += [f"R_env={episode.returns[0]:.1f}", f"R_total={episode.total:.1f}"]
        words += [f"{name}={value}" for name, value in episode.info.items() if name not in NOT_IN_LINE]
        thetas = [f"theta_{short(name)}={mean:.2f}" for name, mean in self.next_milestones(2).items()]
        return "  ".join(words + thetas)

    def log_line(self, step: int, total: int, rate: float | None) -> str:
        """rate: steps per second; None for a line in a file."""
        means = self.metrics()
        words = [f"step={step}/{total}"] + ([] if rate is None else [f"sps={rate:.0f}"])
        words += [] if self.epsilon is None else [f"epsilon={self.epsilon:.3f}"]
        for name, key in (("len", "length"), ("R_env", "return_env"), ("R_total", "return_total")):
            exists = f"recent/{key}" in means
            words.append(f"{name}={means[f'recent/{key}']:.1f}" if exists else f"{name}=-")
        mean_reward = self.reward_sum / max(1, self.reward_steps)
        words += [f"r_{name}={mean:.4f}" for name, mean in zip(self.terms, mean_reward.tolist())]
        words.append(f"r_total={float(mean_reward @ self.weights):.4f}")
        words += [f"episodes={self.count}", f"envs={self.games}"]
        shares = " | ".join(f"{name} {100 * share:.0f}%" for name, share in self.start_shares().items())
        return "  ".join(words + ([f"spawn: {shares}"] if shares else []))

    # --- tables ---

    def write(self) -> None:
        """Write the rows of the last rollout."""
        log = self.setup.log
        for row in self.milestones:
            log.event(row)
        posteriors = self.posterior_cells() if self.ended else {}
        for e in self.ended:
            log.table(EPISODES, self.cells(e, posteriors))
            more = {name: value for name, value in e.info.items() if name not in NOT_IN_LINE}
            log.event({"event": "episode", "step": e.steps[1], "env": e.game, "episode": e.number} | more)

    def cells(self, e: Episode, posteriors: Mapping[str, float]) -> dict[str, Any]:
        """A row of episodes.csv: column -> cell."""
        returns = {f"return_{name}": value for name, value in zip(self.terms, e.returns)}
        return {
            "episode_id": e.number, "env_id": e.game, "length_steps": e.length,
            "return_env": e.returns[0], "return_total": e.total, **returns,
            "milestones_reached": ";".join(e.info.get("milestones", ())), **posteriors,
            "alarm_triggered": ";".join(self.alarms()), "start_step": e.steps[0], "end_step": e.steps[1],
            "led_steps": e.forced,
        }  # fmt: skip

    def posterior_cells(self) -> dict[str, float]:
        return {f"{kind}_{name}": figure for name, figures in self.posterior_figures().items()
                for kind, figure in zip(FIGURES, figures)}

    def write_progress(self, step: int) -> None:
        """Write the present posteriors and new alarms, together with a log line."""
        self.reward_sum[:], self.reward_steps = 0, 0
        alarms = self.alarms()
        for name, figures in self.posterior_figures().items():
            cells = {"step": step, "milestone": name, **dict(zip(FIGURES, figures))}
            self.setup.log.table(PROGRESS, cells | {"alarm_triggered": int(name in alarms)})
        for name in [name for name in alarms if name not in self.alarmed]:
            theta = self.posterior_means()[name]
            self.setup.log.event({"event": "alarm", "step": step, "milestone": name, "theta": theta})
        self.alarmed = alarms

    # --- state ---

    def state_dict(self) -> Tree:
        recent = np.array(self.recent).reshape(-1, 2 + len(self.terms))
        return {
            "returns": self.returns, "length": self.length, "led": self.forced,
            "shown": self.forced_milestones, "count": self.count, "recent": recent, "paid": self.reward_sum,
            "paid_steps": self.reward_steps,
            "alarmed": self.alarmed, "step": self.step,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        if not tree:  # version 0 logged episodes of Q-learning only: the log starts here
            return
        self.returns[:], self.length[:], self.reward_sum[:] = tree["returns"], tree["length"], tree["paid"]
        self.forced[:], self.forced_milestones = tree["led"], [list(names) for names in tree["shown"]]
        self.step = tree["step"]
        self.count, self.reward_steps, self.alarmed = tree["count"], tree["paid_steps"], tree["alarmed"]
        self.recent.clear()
        self.recent.extend(tree["recent"].tolist())


def short(name: str) -> str:
    """The name without `badge_`."""
    return name.removeprefix("badge_")
