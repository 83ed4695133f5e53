"""The log of episodes, for worlds with one seat: lines for people, tables for plots.

episodes.csv has a row per episode, progress.csv the posteriors at every log line, events.jsonl whatever has a
step and a name. All are rewound with their checkpoint: each episode stands there once, however often a run
was killed. Clock times stay out of them.
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
RECENT = 100  # episodes that means are taken over
BANDS = ("early", "mid", "late")
FIGURES = ("alpha", "beta", "mean", "low95", "high95")  # of a posterior
SAVESTATE = "savestate"
OWN = ("milestones", SAVESTATE)  # of what a world tells at an end: not for the episode's line


@dataclass(frozen=True, kw_only=True)
class EpisodeLogConfig:
    """Log lines and tables of episodes, for worlds with one seat."""

    interval: int = knob(5_000, "steps between two log lines", unit="steps", low=1)


@dataclass(frozen=True)
class Episode:
    """One that ended."""

    number: int  # from 1
    game: int
    length: int
    returns: tuple[float, ...]  # by column of the reward
    total: float
    steps: tuple[int, int]  # of the run, at its start and at its end
    told: Mapping[str, Any]  # by the world
    led: int  # of its steps, by a known way's inputs (curriculum/demonstrations.py)


class EpisodeLog(Component):
    """Follows the games of a run from rollout to rollout. Everything here is a function of the rollouts."""

    name = "episode_log"
    Config = EpisodeLogConfig

    def __init__(self, config: EpisodeLogConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        world = setup.world
        self.games = games = world.games
        self.world = world.event_log
        (self.role,) = setup.spec.roles
        terms = setup.all(RewardTermComponent)
        self.terms = (ENV, *(term.name for term in terms))  # columns of the reward
        self.weights = np.array([1.0, *(term.weight for term in terms)], np.float32)
        self.returns = np.zeros((games, len(self.terms)))
        self.length = np.zeros(games, np.int64)  # steps that the run counts: games may have started before it
        self.led = np.zeros(games, np.int64)  # of them, forced ones
        self.shown: list[list[str]] = [[] for _ in range(games)]  # milestones of forced steps
        self.count = self.step = 0
        self.recent: deque[list[float]] = deque(maxlen=RECENT)  # length and returns of unforced episodes
        self.paid = np.zeros(len(self.terms))  # since the last line about the training
        self.paid_steps = 0
        self.alarmed: list[str] = []
        self.asked = (0, time.perf_counter())  # the step and the time of that line
        self.ended: list[Episode] = []  # in the last rollout
        self.milestones: list[dict[str, Any]] = []  # reached in it
        self.epsilon: float | None = None

    @classmethod
    def off(cls, config: EpisodeLogConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup)

    @classmethod
    def no_effect(cls, key: str, config: EpisodeLogConfig, setup: Setup) -> str:
        return "" if setup.spec.seats == 1 else "episodes are logged where the world has one seat"

    @classmethod
    def shrink(cls, config: EpisodeLogConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"interval": min(config.interval, 2 * small.steps_per_iteration)}

    def connect(self) -> None:
        milestones = self.setup.get(Milestones)
        self.believer = milestones.posteriors if milestones is not None else None
        savestates = self.setup.get(Savestates)
        self.archive = savestates.archive if savestates is not None else None

    def resumed(self, clock: Clock) -> None:
        self.asked = (clock.step, time.perf_counter())

    # --- following the rollouts ---

    def rewards(self, rollout: RolloutBuffer) -> Floats:
        """[T, N, terms] the columns of the reward, unweighted."""
        track = rollout[self.role]
        columns = [track.reward[:, :, 0]]
        columns += [track.reward_terms[name].values[:, :, 0] for name in self.terms[1:]]
        return np.stack(columns, axis=-1).astype(np.float32)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        reward, games, step = self.rewards(rollout), rollout.games, clock.step
        infos = {(t, game): info for t, game, info in rollout.episode_infos}
        led = None if rollout.forced is None else rollout.forced == FORCED
        shown: dict[int, list[tuple[int, str]]] = {}
        for t, game, name in rollout.forced_events:
            shown.setdefault(t, []).append((game, name))
        self.ended, self.step = [], step + rollout.steps * games
        for t in range(rollout.steps):
            # A term belongs to an observation: no step earned that of an episode's first one.
            going = self.length > 0
            self.length += 1
            if led is not None:
                self.led += led[t]
            self.returns[:, 0] += reward[t, :, 0]
            self.returns[going, 1:] += reward[t, going, 1:]
            for game, name in shown.get(t, ()):
                self.shown[game].append(name)
            for game in np.flatnonzero(rollout.ended[t] != RUNNING).tolist():
                end = step + (t + 1) * games
                self._close(game, end, self._tagged(infos.get((t, game), {})))
        self.milestones = [
            {"event": "milestone", "step": step + t * games + game + 1, "env": game, "milestone": name}
            for t, game, name in rollout.events
        ]
        self.paid += reward.reshape(-1, len(self.terms)).sum(0, dtype=np.float64)
        self.paid_steps += rollout.steps * games

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

    def _tagged(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """With the savestate that the episode began from by the name that the swarm gave it."""
        if SAVESTATE not in told:
            return dict(told)
        sha256 = told[SAVESTATE]
        starts = self.archive.starts if self.archive else []
        known = {start.sha256: start.milestone for start in starts} | {"": "power_on"}
        return {**told, "savestate_tag": known.get(sha256, sha256[:8])}

    def _close(self, game: int, end: int, told: Mapping[str, Any]) -> None:
        self.count += 1
        returns, length = self.returns[game], int(self.length[game])
        total = float(returns @ self.weights)
        steps = (end - length * self.games, end)
        whole = tuple(returns.tolist())
        own = {"milestones": [name for name in told.get("milestones", ()) if name not in self.shown[game]]}
        self.ended.append(
            Episode(self.count, game, length, whole, total, steps, {**told, **own}, int(self.led[game]))
        )
        if not self.led[game]:  # what the inputs of a known way earn is nobody's strength
            self.recent.append([float(length), total, *whole])
        self.returns[game], self.length[game], self.led[game], self.shown[game] = 0, 0, 0, []

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl and the dashboard."""
        out = {"recent/episodes": float(self.count)}
        if self.recent:
            names = ("length", "return_total", *(f"return_{name}" for name in self.terms))
            means = np.mean(np.array(self.recent), axis=0).tolist()
            out |= {f"recent/{name}": mean for name, mean in zip(names, means)}
        out |= {f"spawn/{band}": share for band, share in self.spawned().items()}
        return out | {f"theta/{name}": mean for name, mean in self.foremost(3).items()}

    def spawned(self) -> dict[str, float]:
        """The shares of running games by where they began, if the world tells."""
        if self.world is None:
            return {}
        found = self.world.bands()
        return {band: found.count(band) / len(found) for band in BANDS}

    def believed(self) -> dict[str, float]:
        """Posterior means by milestone."""
        if self.believer is None:
            return {}
        alpha, beta = self.believer.beliefs.alpha, self.believer.beliefs.beta
        return dict(zip(self.believer.names, (alpha / (alpha + beta)).tolist()))

    def figures(self) -> dict[str, tuple[float, ...]]:
        """alpha, beta, mean and 95 % interval by milestone."""
        if self.believer is None:
            return {}
        held, means = self.believer.beliefs, self.believed()
        return {
            name: (float(held.alpha[m]), float(held.beta[m]), means[name], *held.interval(m))
            for m, name in enumerate(self.believer.names)
        }

    def alarms(self) -> list[str]:
        found = [] if self.believer is None else np.flatnonzero(self.believer.alarmed).tolist()
        return [self.believer.names[m] for m in found] if self.believer else []

    def foremost(self, most: int) -> dict[str, float]:
        """Posterior means where the story stands: the last headline that is reached more often than not, and
        what comes next."""
        means = self.believed()
        names = [name for name in self.headlines() if name in means]
        known = [place for place, name in enumerate(names) if means[name] >= 0.5]
        first = known[-1] if known else 0
        return {name: means[name] for name in names[first : first + most]}

    def headlines(self) -> tuple[str, ...]:
        return self.world.headlines if self.world is not None else ()

    def pace(self, step: int) -> float:
        """Steps per second since this was asked before, or since the run was started."""
        now = time.perf_counter()
        rate = (step - self.asked[0]) / max(1e-9, now - self.asked[1])
        self.asked = (step, now)
        return rate

    # --- lines ---

    def episode_line(self, episode: Episode) -> str:
        words = [f"[EP {episode.number} env={episode.game}] len={episode.length}"]
        words += [f"led={episode.led}"] if episode.led else []
        words += [f"R_env={episode.returns[0]:.1f}", f"R_total={episode.total:.1f}"]
        words += [f"{name}={value}" for name, value in episode.told.items() if name not in OWN]
        thetas = [f"theta_{short(name)}={mean:.2f}" for name, mean in self.foremost(2).items()]
        return "  ".join(words + thetas)

    def log_line(self, step: int, total: int, rate: float | None) -> str:
        """`rate` in steps per second, where the line is for a console and not for a file."""
        means = self.metrics()
        words = [f"step={step}/{total}"] + ([] if rate is None else [f"sps={rate:.0f}"])
        words += [] if self.epsilon is None else [f"epsilon={self.epsilon:.3f}"]
        for name, key in (("len", "length"), ("R_env", "return_env"), ("R_total", "return_total")):
            known = f"recent/{key}" in means
            words.append(f"{name}={means[f'recent/{key}']:.1f}" if known else f"{name}=-")
        paid = self.paid / max(1, self.paid_steps)
        words += [f"r_{name}={mean:.4f}" for name, mean in zip(self.terms, paid.tolist())]
        words.append(f"r_total={float(paid @ self.weights):.4f}")
        words += [f"episodes={self.count}", f"envs={self.games}"]
        shares = " | ".join(f"{band} {100 * share:.0f}%" for band, share in self.spawned().items())
        return "  ".join(words + ([f"spawn: {shares}"] if shares else []))

    # --- tables ---

    def write(self) -> None:
        """The rows of the last rollout."""
        log = self.setup.log
        for row in self.milestones:
            log.event(row)
        posteriors = self.posterior_cells() if self.ended else {}
        for e in self.ended:
            log.table(EPISODES, self.cells(e, posteriors))
            more = {name: value for name, value in e.told.items() if name not in OWN}
            log.event({"event": "episode", "step": e.steps[1], "env": e.game, "episode": e.number} | more)

    def cells(self, e: Episode, posteriors: Mapping[str, float]) -> dict[str, Any]:
        """A row of episodes.csv: column -> cell."""
        returns = {f"return_{name}": value for name, value in zip(self.terms, e.returns)}
        return {
            "episode_id": e.number, "env_id": e.game, "length_steps": e.length,
            "return_env": e.returns[0], "return_total": e.total, **returns,
            "milestones_reached": ";".join(e.told.get("milestones", ())), **posteriors,
            "alarm_triggered": ";".join(self.alarms()), "start_step": e.steps[0], "end_step": e.steps[1],
            "led_steps": e.led,
        }  # fmt: skip

    def posterior_cells(self) -> dict[str, float]:
        return {f"{kind}_{name}": figure for name, figures in self.figures().items()
                for kind, figure in zip(FIGURES, figures)}

    def write_progress(self, step: int) -> None:
        """With a log line: the posteriors as they stand, and new alarms."""
        self.paid[:], self.paid_steps = 0, 0
        alarms = self.alarms()
        for name, figures in self.figures().items():
            cells = {"step": step, "milestone": name, **dict(zip(FIGURES, figures))}
            self.setup.log.table(PROGRESS, cells | {"alarm_triggered": int(name in alarms)})
        for name in [name for name in alarms if name not in self.alarmed]:
            theta = self.believed()[name]
            self.setup.log.event({"event": "alarm", "step": step, "milestone": name, "theta": theta})
        self.alarmed = alarms

    # --- state ---

    def state_dict(self) -> Tree:
        recent = np.array(self.recent).reshape(-1, 2 + len(self.terms))
        return {
            "returns": self.returns, "length": self.length, "led": self.led, "shown": self.shown,
            "count": self.count, "recent": recent, "paid": self.paid, "paid_steps": self.paid_steps,
            "alarmed": self.alarmed, "step": self.step,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        if not tree:  # of version 0, which logged episodes of Q-learning alone: the log begins here
            return
        self.returns[:], self.length[:], self.paid[:] = tree["returns"], tree["length"], tree["paid"]
        self.led[:], self.shown = tree["led"], [list(names) for names in tree["shown"]]
        self.step = tree["step"]
        self.count, self.paid_steps, self.alarmed = tree["count"], tree["paid_steps"], tree["alarmed"]
        self.recent.clear()
        self.recent.extend(tree["recent"].tolist())


def short(name: str) -> str:
    """Boulder for badge_Boulder."""
    return name.removeprefix("badge_")
