"""What a long run for one seat tells of its episodes: lines for people, tables for plots.

episodes.csv has a row per episode, progress.csv the posteriors at every log line, events.jsonl whatever has a
step and a name. All are rewound with their checkpoint: each episode stands there once, however often a run
was killed. Clock times stay out of them.
"""

from __future__ import annotations

import csv
import io
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np

from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.core.arrays import Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING, TellingWorld, World
from rematch.curriculum.demonstrations import LED
from rematch.curriculum.savestate_archive import Swarm
from rematch.exploration.milestone_bonus import Milestones
from rematch.rollout.rollout_buffer import Tape
from rematch.storage.run_folder import Run

EPISODES, PROGRESS = "episodes.csv", "progress.csv"
RECENT = 100  # episodes that means are taken over
BANDS = ("early", "mid", "late")
FIGURES = ("alpha", "beta", "mean", "low95", "high95")  # of a posterior
SAVESTATE = "savestate"
OWN = ("milestones", SAVESTATE)  # of what a world tells at an end: not for the episode's line


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """What is told while a long run goes on."""

    log_interval: int = knob(5_000, "steps between two log lines", low=1)
    video_interval: int = knob(0, "steps between two films of an episode from the start; 0: none", low=0)
    video_steps: int = knob(
        1_500, "steps after which a film breaks off", low=1, high=100_000, needs="video_interval"
    )


def check_watch(config: WatchConfig, module: ModuleType) -> None:
    if config.video_interval and not hasattr(module, "draw"):
        why = "this world draws no pictures; expected 0"
        raise ConfigError(f"watch.video_interval = {config.video_interval}: {why}")


@dataclass(frozen=True)
class Episode:
    """One that ended."""

    number: int  # from 1
    game: int
    length: int
    returns: tuple[float, ...]  # by COMPONENTS
    total: float
    steps: tuple[int, int]  # of the run, at its start and at its end
    told: Mapping[str, Any]  # by the world
    led: int  # of its steps, by a known way's inputs (curriculum/demonstrations.py)


class Diary:
    """Follows the games of a run from tape to tape. Everything here is a function of the tapes."""

    def __init__(self, learner: Dqn, world: World, believer: Milestones | None, swarm: Swarm | None) -> None:
        self.learner, self.believer, self.swarm = learner, believer, swarm
        self.games = games = world.games
        self.world = cast(TellingWorld, world) if hasattr(world, "told") else None
        self.returns = np.zeros((games, len(COMPONENTS)))
        self.length = np.zeros(games, np.int64)  # steps that the run counts: games may have begun before it
        self.led = np.zeros(games, np.int64)  # of them, those that a known way's inputs made
        self.shown: list[list[str]] = [[] for _ in range(games)]  # milestones that games were led to
        self.count = self.step = 0
        self.recent: deque[list[float]] = deque(maxlen=RECENT)  # of who was not led: length, r_total, parts
        self.paid = np.zeros(len(COMPONENTS))  # since the last log line
        self.paid_steps = 0
        self.alarmed: list[str] = []
        self.asked = (0, time.perf_counter())  # the step and the time of the last log line
        self.ended: list[Episode] = []  # on the last tape
        self.milestones: list[dict[str, Any]] = []  # reached on it

    def follow(self, tape: Tape, step: int) -> dict[str, float]:
        """After a tape was learnt from; `step` is the run's before it. Means over the latest episodes."""
        reward, games = self.learner.reward, tape.games
        told = {(t, game): what for t, game, what in tape.told}
        led = self.swarm.practice.how == LED if self.swarm and self.swarm.practice else None
        shown: dict[int, list[tuple[int, str]]] = {}
        for t, game, name in tape.led:
            shown.setdefault(t, []).append((game, name))
        self.ended, self.step = [], step + tape.steps * games
        for t in range(tape.steps):
            # A bonus belongs to the sight it was paid for (td.paid): an episode's first was nobody's doing.
            going = self.length > 0
            self.length += 1
            if led is not None:
                self.led += led[t]
            self.returns[:, 0] += reward[t, :, 0]
            self.returns[going, 1:] += reward[t, going, 1:]
            for game, name in shown.get(t, ()):
                self.shown[game].append(name)
            for game in np.flatnonzero(tape.ended[t] != RUNNING).tolist():
                end = step + (t + 1) * games
                self._close(game, end, self._tagged(told.get((t, game), {})))
        self.milestones = [
            {"event": "milestone", "step": step + t * games + game + 1, "env": game, "milestone": name}
            for t, game, name in tape.events
        ]
        self.paid += reward.reshape(-1, len(COMPONENTS)).sum(0, dtype=np.float64)
        self.paid_steps += tape.steps * games
        return self.metrics()

    def _tagged(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """With the savestate that the episode began from by the name that the swarm gave it."""
        if SAVESTATE not in told:
            return dict(told)
        sha256 = told[SAVESTATE]
        starts = self.swarm.starts if self.swarm else []
        known = {start.sha256: start.milestone for start in starts} | {"": "power_on"}
        return {**told, "savestate_tag": known.get(sha256, sha256[:8])}

    def _close(self, game: int, end: int, told: Mapping[str, Any]) -> None:
        self.count += 1
        returns, length = self.returns[game], int(self.length[game])
        total = float(returns @ self.learner.weights)
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
            names = ("length", "return_total", *(f"return_{name}" for name in COMPONENTS))
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
        words.append(f"epsilon={self.learner.explorer.epsilon:.3f}")
        for name, key in (("len", "length"), ("R_env", "return_env"), ("R_total", "return_total")):
            known = f"recent/{key}" in means
            words.append(f"{name}={means[f'recent/{key}']:.1f}" if known else f"{name}=-")
        paid = self.paid / max(1, self.paid_steps)
        words += [f"r_{name}={mean:.4f}" for name, mean in zip(COMPONENTS, paid.tolist())]
        words.append(f"r_total={float(paid @ self.learner.weights):.4f}")
        words += [f"episodes={self.count}", f"envs={self.games}"]
        shares = " | ".join(f"{band} {100 * share:.0f}%" for band, share in self.spawned().items())
        return "  ".join(words + ([f"spawn: {shares}"] if shares else []))

    # --- tables ---

    def write(self, run: Run) -> None:
        """The rows of the last tape."""
        for row in self.milestones:
            run.event(row)
        held = self.figures() if self.ended else {}
        known, alarms = [figure for figures in held.values() for figure in figures], ";".join(self.alarms())
        for e in self.ended:
            numbers = (e.number, e.game, e.length, e.returns[0], e.total, *e.returns[1:])
            reached = ";".join(e.told.get("milestones", ()))
            run.table(EPISODES, line((*numbers, reached, *known, alarms, *e.steps, e.led)), self.head())
            more = {name: value for name, value in e.told.items() if name not in OWN}
            run.event({"event": "episode", "step": e.steps[1], "env": e.game, "episode": e.number} | more)

    def head(self) -> str:
        """Of episodes.csv."""
        returns = ("return_env", "return_total", *(f"return_{name}" for name in COMPONENTS[1:]))
        names = self.believer.names if self.believer else ()
        beliefs = [f"{kind}_{name}" for name in names for kind in FIGURES]
        return line(
            (
                "episode_id",
                "env_id",
                "length_steps",
                *returns,
                "milestones_reached",
                *beliefs,
                "alarm_triggered",
                "start_step",
                "end_step",
                "led_steps",
            )
        )

    def write_progress(self, run: Run, step: int) -> None:
        """With a log line: the posteriors as they stand, and new alarms."""
        self.paid[:], self.paid_steps = 0, 0
        alarms = self.alarms()
        for name, figures in self.figures().items():
            head = line(("step", "milestone", *FIGURES, "alarm_triggered"))
            run.table(PROGRESS, line((step, name, *figures, int(name in alarms))), head)
        for name in [name for name in alarms if name not in self.alarmed]:
            run.event({"event": "alarm", "step": step, "milestone": name, "theta": self.believed()[name]})
        self.alarmed = alarms

    # --- state ---

    def state(self) -> Tree:
        recent = np.array(self.recent).reshape(-1, 2 + len(COMPONENTS))
        return {
            "returns": self.returns,
            "length": self.length,
            "led": self.led,
            "shown": self.shown,
            "count": self.count,
            "recent": recent,
            "paid": self.paid,
            "paid_steps": self.paid_steps,
            "alarmed": self.alarmed,
            "step": self.step,
        }

    def restore(self, tree: Tree) -> None:
        self.returns[:], self.length[:], self.paid[:] = tree["returns"], tree["length"], tree["paid"]
        self.led[:], self.shown = tree["led"], [list(names) for names in tree["shown"]]
        self.step = tree["step"]
        self.count, self.paid_steps, self.alarmed = tree["count"], tree["paid_steps"], tree["alarmed"]
        self.asked = (self.step, time.perf_counter())
        self.recent.clear()
        self.recent.extend(tree["recent"].tolist())


def short(name: str) -> str:
    """Boulder for badge_Boulder."""
    return name.removeprefix("badge_")


def line(cells: Sequence[Any]) -> str:
    """A row of a table, numbers to six digits."""
    out = io.StringIO()
    texts = [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells]
    csv.writer(out, lineterminator="").writerow(texts)
    return out.getvalue()
