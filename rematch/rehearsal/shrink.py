"""A run in miniature: the small copy that rehearsals and the knob tests play, and how two runs compare."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.recording import Take
from rematch.curriculum.demonstrations import LED
from rematch.storage.checkpoint import MANIFEST_FILE
from rematch.storage.run_folder import CONFIG_FILE, TIMING_FILE, Run
from rematch.training.trainer import Config, Session, train
from rematch.worlds import registry

ITERATIONS = 8
RIVALS = 3  # scripted ones of each role that a rehearsal's evaluations meet


def shrink(config: Config) -> Config:
    """The same run at the size of a rehearsal: what is off stays off, what is on comes to its turn soon."""
    c = config
    short = getattr(registry.find(c.game), "short", None)
    games, steps = 32, 16 if short else 256  # a world that cannot shorten its games needs time to end some
    if c.learner == "dqn":
        games, steps = 4 if short else 8, steps // (1 if short else 4)  # its network is large
    changes: dict[str, Any] = {
        "games": games, "steps": steps, "total_steps": ITERATIONS * games * steps,
        "stagger": min(c.stagger, steps), "save_every": 1, "start_iteration": min(c.start_iteration, 1),
        "network.hidden": tuple(min(width, 64) for width in c.network.hidden),
        "network.width": min(c.network.width, 4 * c.network.heads),
        "network.layers": min(c.network.layers, 2),
        "ppo.epochs": min(c.ppo.epochs, 2), "ppo.minibatch": max(1, min(c.ppo.minibatch, games * steps // 4)),
        "lookahead.replay": min(c.lookahead.replay, 4096),
        "lookahead.minibatch": min(c.lookahead.minibatch, 256),
        "expert.completions": min(c.expert.completions, 2),
        "expert.positions": min(c.expert.positions, 64), "expert.replay": min(c.expert.replay, 256),
        "expert.minibatch": min(c.expert.minibatch, 64),
        "ppo.value_clip": min(c.ppo.value_clip, 1e-3), "ppo.target_kl": min(c.ppo.target_kl, 1e-7),
        "league.size": min(c.league.size, 2), "league.slots": min(c.league.slots, 2),
        "league.snapshot_every": 1, "league.rotate": 1,
        "league.exploit_every": min(c.league.exploit_every, 2),
        "league.exploit_steps": min(c.league.exploit_steps, games * steps), "league.exploit_keep": 0.0,
        "evaluation.every": 2 if c.learner == "ppo" else 4,  # the others play slowly
        "evaluation.games": min(c.evaluation.games, 4),
        "evaluation.rivals": few_rivals(c),
        "evaluation.past": min(c.evaluation.past, 3),  # so that they are thinned out
        "bands.scouts": min(c.bands.scouts, 2), "bands.scout_steps": min(c.bands.scout_steps, 32),
        "bands.scout_patience": min(c.bands.scout_patience, 32),
    }
    if short:
        changes["world"] = short(c.world)
    if c.anywhere:
        changes["anywhere"] = max(c.anywhere, 0.3)
    if c.league.history:
        changes["league.history"] = max(c.league.history, 0.5)
    if 0 < c.league.scripted_share < 1:  # both kinds of rival come to sit
        changes["league.scripted_share"] = min(max(c.league.scripted_share, 0.3), 0.7)
    if c.ppo.average:  # phases may be over long before the last part of so few iterations
        changes["ppo.average"] = 1.0
    if c.curriculum.kind != "none":  # any rate and any gap is good enough to climb
        changes |= {
            "curriculum.capture_rate": 0.0, "curriculum.min_escape_rate": 0.0,
            "curriculum.min_phases": 3 if c.schedule.last_first else 1,  # the others learn in between
            "curriculum.gap_threshold": 1.0, "curriculum.gap_consecutive": 1,
        }
    changes |= shrink_replay(c, games, steps) if c.learner == "dqn" else {}
    return settings.replace(c, changes | shrink_schedule(c, games * steps) | shrink_guards(c, games * steps))


def few_rivals(config: Config) -> tuple[str, ...]:
    """Those that evaluations name, or some that are not slow: ten in a row took most of a rehearsal."""
    module = registry.find(config.game)
    slow = getattr(module, "SLOW", ())
    some = [name for names in module.BOTS.values() for name in [n for n in names if n not in slow][:RIVALS]]
    return config.evaluation.rivals or tuple(dict.fromkeys(some))


def shrink_replay(config: Config, games: int, steps: int) -> dict[str, Any]:
    """Short sequences, so that there are some soon, and a ring that is written over before the end."""
    c = config.dqn
    ahead = min(c.n_step, 3)
    burn_in = min(c.burn_in, 2)
    sequence = min(c.sequence, burn_in + ahead + 5)
    return {
        "dqn.n_step": ahead, "dqn.burn_in": burn_in, "dqn.sequence": sequence, "dqn.batch": min(c.batch, 8),
        "dqn.warmup": min(c.warmup, games * steps), "dqn.target_every": min(c.target_every, 4),
        "dqn.replay": games * max(ITERATIONS * steps // 2, steps + 40),
        "dqn.replay_ratio": min(c.replay_ratio, 0.5),
        "rnd_screen.update_every": min(config.rnd_screen.update_every, games * steps // 4),
        "watch.log_interval": min(config.watch.log_interval, 2 * games * steps),
        "watch.video_interval": min(config.watch.video_interval, ITERATIONS * games * steps // 2),
        "watch.video_steps": min(config.watch.video_steps, 32),
    }


def shrink_schedule(config: Config, per: int) -> dict[str, Any]:
    """A cold start of two iterations and phases of one, so that each kind of phase comes to its turn.

    A limit of phases ends the run in the same iteration, before its steps do. Any gap but the largest counts
    as balanced, and all evaluations must say so: if the pair converges, then with the last iteration.
    """
    c = config.schedule
    cold = 2 * per if c.cold_start_steps else 0
    changes: dict[str, Any] = {
        "schedule.cold_start_steps": cold, "schedule.phase_steps": min(c.phase_steps, per),
        "schedule.micro_phase_steps": min(c.micro_phase_steps, per),
        "schedule.phase_warmup": tuple(min(steps, per) for steps in c.phase_warmup),
        "schedule.warm_start_steps": min(c.warm_start_steps, per),
        "schedule.adaptive_threshold": min(c.adaptive_threshold, 1e-9), "schedule.adaptive_phases": 1,
        "schedule.force_switch_steps": min(c.force_switch_steps, 2 * per),
        "schedule.dampen_threshold": 1.0 if c.dampen_threshold else 0.0,
    }
    left = ITERATIONS - (cold // per if c.kind != "together" else 0)  # iterations after S0
    if c.kind == "alternate" and c.max_phases:
        depends = c.iterations(2, per) is None  # then it is not known beforehand when the phases are over
        changes |= {"schedule.max_phases": left, "total_steps": (4 if depends else 2) * ITERATIONS * per}
    if c.convergence_consecutive:
        changes["schedule.eta"] = 1.0
        changes["schedule.convergence_consecutive"] = left if c.kind == "alternate" else left // 2
    return changes


def shrink_guards(config: Config, per: int) -> dict[str, Any]:
    """A rolling checkpoint at every iteration; any share of wins is a collapse, and is undone."""
    c = config.rollback
    changes: dict[str, Any] = {
        "ewc.fisher_samples": min(config.ewc.fisher_samples, 64),
        "rnd.update_every": min(config.rnd.update_every, per // 4),
    }
    if c.back:
        changes |= {
            "rollback.back": min(c.back, 2), "rollback.every": min(c.every, per),
            "rollback.keep": min(c.keep, 3), "rollback.episodes": 1, "rollback.low": 0.4999,
            "rollback.high": 0.5, "rollback.cooldown": min(c.cooldown, 2 * per),
        }
    return changes


@dataclass
class Witness:
    """Watches a rehearsal from where the console stands, and keeps what proves that a feature fired."""

    session: Session
    folder: Path = Path()  # where the run lies that `play` made
    rows: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    snapshots: int = 0  # decisions that snapshots of the league made
    scripted: int = 0  # decisions that scripted rivals made
    seats: set[str] = field(default_factory=set)  # names of snapshots that sat in a slot
    phases: dict[str, str] = field(default_factory=dict)  # name of a phase -> the role that learnt
    cold: int = 0  # decisions that the cold start's rival made
    anywhere: int = 0  # games that were to begin anywhere
    led: int = 0  # steps that games were led (curriculum/demonstrations.py)
    takes: list[int] = field(default_factory=list)  # pictures of each film
    rates: set[float] = field(default_factory=set)  # by which the schedule multiplied the learning rate

    def line(self, text: str) -> None:
        """Warnings are the console's business."""

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        self.rows.append(metrics)
        session = self.session
        for role, table in session.tables.items():
            track = session.rollout.tape[role]
            slot = track.slot[track.acted != 0]
            cold = session.facing.get(role, -1)
            self.cold += int((slot == cold).sum())
            self.scripted += int(((slot >= len(table.packed)) & (slot != cold)).sum())
            self.snapshots += int(((slot > 0) & (slot < len(table.packed))).sum())
            self.seats |= {name for name in session.league.rosters[role].who if name}
        self.rates.add(session.schedule.rate)
        if session.schedule.apart:
            phase = session.schedule.phase
            for role in phase.roles:
                if metrics.get(f"{role}/updates"):
                    self.phases[phase.name] = role
        if session.swarm and session.swarm.practice:
            self.led += int((session.swarm.practice.how == LED).sum())
        if "anywhere" in session.spec.stage:
            self.anywhere += int(session.world.next.stage[:, session.spec.stage.index("anywhere")].sum())

    def evaluation(self, row: dict[str, Any]) -> None:
        self.evaluations.append(row)

    def film(self, take: Take) -> dict[str, bytes]:
        """Encoding is the console's business too."""
        self.takes.append(len(take.shots))
        return {}


def play(config: Config, folder: Path) -> Witness:
    """Train `config` to its end in `folder`, in this process, without pictures."""
    session = Session(config)
    witness = Witness(session, folder)
    with Run.create(folder, settings.to_yaml(config)) as run:
        train(session, run, witness, lambda: False)
    return witness


def event_log(config: Config) -> str:
    """SHA-256 of all that a run of `config` did."""
    with tempfile.TemporaryDirectory(prefix="rematch-") as place:
        return events(play(config, Path(place) / "run").folder)


def events(folder: Path) -> str:
    """SHA-256 of all that a run did: logs, evaluations, and every checkpoint's whole state.

    The settings themselves are left out: a knob must show in what happens, not in its own name.
    """
    out = hashlib.sha256()
    for name, path in compared(folder).items():
        if path.name not in (CONFIG_FILE, MANIFEST_FILE):
            out.update(f"{name}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return out.hexdigest()


def compared(folder: Path) -> dict[str, Path]:
    """Every file that two equal runs share: clock times and set-aside checkpoints are not compared."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    return {str(name): path for name, path in found.items() if name.parts[0] not in (TIMING_FILE, "damaged")}


def differences(one: Path, two: Path) -> list[str]:
    """The files in which two run folders differ, by name; empty where they are equal byte for byte."""
    ours, theirs = compared(one), compared(two)
    alone = [f"{name} (only one of them has it)" for name in ours.keys() ^ theirs.keys()]
    both = ours.keys() & theirs.keys()
    return sorted(alone + [name for name in both if ours[name].read_bytes() != theirs[name].read_bytes()])
