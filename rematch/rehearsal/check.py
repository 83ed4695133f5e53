"""The rehearsal: every enabled feature once, in seconds, before hours are spent on a run.

`rehearse` plays a shrunk copy of a run: first in this process with a config that notes what is read, then
as three commands: an undisturbed twin, one that is killed (SIGKILL) in the middle, and its resumption, whose
folders must be equal byte for byte. Everything happens in a temporary folder that is gone afterwards.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.ppo import Ppo
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.core import config as settings
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Spec
from rematch.rehearsal.kill_and_resume import Stage as Stage
from rematch.rehearsal.shrink import Witness, compared, differences, event_log, events, play, shrink
from rematch.selfplay.role_schedule import LEAST_RATE
from rematch.storage.policy_files import policy_names
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.config import idle_in
from rematch.training.trainer import Config, Session
from rematch.worlds import registry

__all__ = ["event_log", "rehearse"]

PRODUCTS = {"picture": ("learning.png", b"\x89PNG"), "film": ("match.gif", b"GIF8"),
            "report": ("report.html", b"<!doctype html>")}


# --- what fired -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One line of the rehearsal. `off` says why it is not enabled; `proof` is empty where it did not fire."""

    name: str
    proof: Callable[[], str]
    off: str = ""


def learning_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """Rollout, each role's learning, and the options of the learner."""
    c, rows = config.ppo, seen.rows
    played = f"{rows[-1]['step']:,} steps, {rows[-1]['games']} games ended"
    yield Feature(name="rollout", proof=lambda: played)
    rates = getattr(config, config.learner)
    still = rates.lr == 0 and (rates.lr_final == 0 or getattr(rates, "anneal", "") == "none")
    for role, first in _beginnings(config).items():
        def moved(role: str = role, first: Floats = first) -> str:
            updates = sum(row.get(f"{role}/updates", 0) for row in rows)
            way = float(np.abs(seen.session.learners[role].policy.weights - first).max())
            undone = seen.session.rollback.count and not way
            told = "undone by the last rollback" if undone else f"weights moved by up to {way:.2g}"
            return f"{updates:.0f} updates, {told}" if updates and (way or undone) else ""

        off = f"{config.learner}.lr is 0" if still else ""
        yield Feature(name=f"learning of {role}", proof=moved, off=off)
    roles = list(seen.session.policies)

    def searched() -> str:
        found = [row for row in rows if row.get(f"{roles[0]}/replay")]
        counts = (sum(row[f"{roles[0]}/decisions"] for row in found), max(row["step"] for row in rows))
        return f"{counts[0]:,.0f} positions of {counts[1]:,} steps" if found else ""

    if config.learner == "expert":
        yield Feature(name="search", proof=searched)
    if config.learner == "dqn":
        yield from memory_features(config, seen)
    if config.learner != "ppo":
        return

    def stopped() -> str:
        early = [row for row in rows for role in roles if row.get(f"{role}/decisions") and
                 row[f"{role}/updates"] < c.epochs * math.ceil(row[f"{role}/decisions"] / c.minibatch)]
        return f"{len(early)} iterations of a role ended early" if early else ""

    def pulled() -> str:
        most = max(row.get(f"{role}/magnet_kl", 0.0) for row in rows for role in roles)
        return f"KL to the slow average up to {most:.2g}" if most > 0 else ""

    def averaged() -> str:
        most = max(row.get(f"{role}/averaged", 0.0) for row in rows for role in roles)
        found = [it for it in seen.session.learners.values() if isinstance(it, Ppo) and it.averaged]
        deployed = bool(found) and all(np.array_equal(it.policy.weights, it.mean) for it in found)
        return f"the player is the mean of the last {most:.0f} iterations" if deployed else ""

    def clipped() -> str:
        without = settings.replace(settings.untracked(config), {"ppo.value_clip": 0.0})
        changed = event_log(without) != events(seen.folder)
        return "without it the run is another" if changed else ""

    def believed() -> str:
        told = [row[f"{role}/belief_nll"] for row in rows for role in roles if f"{role}/belief_nll" in row]
        return f"negative log-likelihood {told[0]:.2f}, then {told[-1]:.2f}" if told else ""

    def told() -> str:
        shown = {role: seen.session.rollout.tape[role].aside for role in roles}
        sizes = [f"{role} {a.shape[-1]} numbers" for role, a in shown.items() if a is not None and a.any()]
        return f"learnt from and not seen: {', '.join(sizes)}" if sizes else ""

    def cooled() -> str:
        told = [row[f"{role}/temperature"] for row in rows for role in roles if f"{role}/temperature" in row]
        return f"from {told[0]:.2f} to {told[-1]:.2f}" if told and set(told) != {1.0} else ""

    off = "" if {c.temperature, c.temperature_final} != {1.0} else "ppo.temperature is 1"
    yield Feature(name="temperature", proof=cooled, off=off)
    net = config.network
    off = "" if net.encoder == "bimdn" else f"network.encoder is {net.encoder}"
    yield Feature(name="belief", proof=believed, off=off)
    off = "" if net.critic == "all" else "network.critic is own"
    yield Feature(name="critic of all", proof=told, off=off)
    lazy = "ppo.lr is 0" if still else ""
    yield Feature(name="magnet", proof=pulled, off=lazy if c.magnet else "ppo.magnet is 0")
    yield Feature(name="average", proof=averaged, off=lazy if c.average else "ppo.average is 0")
    yield Feature(name="value clipping", proof=clipped, off=lazy if c.value_clip else "ppo.value_clip is 0")
    yield Feature(name="target KL", proof=stopped, off=lazy if c.target_kl else "ppo.target_kl is 0")


def memory_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """Replay, target network and bonuses of dqn."""
    rows, (learner,) = seen.rows, seen.session.learners.values()
    assert isinstance(learner, Dqn)
    kept, plan, c = learner.replay, learner.replay.plan, config.dqn

    def replayed() -> str:
        over = ", the oldest written over" if kept.head > plan.rows else ""
        told = f"{kept.size:,} steps in {kept.nbytes:,} bytes, {len(kept.chunks)} chunks on disk{over}"
        return told if kept.size and learner.adam.updates else ""

    def synced() -> str:
        times = learner.adam.updates // c.target_every
        return f"{times} times the online network" if times else ""

    def scored(name: str) -> str:
        role = learner.role.name
        most = max(row[f"{role}/r_{name}"] for row in rows)
        return f"{most:.3g} per step, weight {learner.weights[COMPONENTS.index(name)]:g}" if most > 0 else ""

    off = f"{config.learner}.replay_ratio is 0" if not c.replay_ratio else ""
    yield Feature(name="replay", proof=replayed, off=off)
    yield Feature(name="target network", proof=synced, off=off)
    there = {bonus.name for bonus in learner.bonuses}
    for name, weight, told in (("rnd", "rnd_screen.weight", "RND of pictures"),
                               ("novel", "novelty.weight", "episodic novelty"),
                               ("way", "bands.way", "reward along the way")):  # fmt: skip
        yield Feature(name=told, proof=partial(scored, name), off="" if name in there else f"{weight} is 0")
    off = "" if learner.role.milestones else "the world tells no milestones"
    yield Feature(name="milestones", proof=lambda: tried(seen), off=off)
    count = seen.session.diary.count if seen.session.diary else 0
    yield Feature(name="episodes told", proof=lambda: f"{count} episodes" if count else "")
    off = "" if config.watch.video_interval else "watch.video_interval is 0"
    filmed = f"{len(seen.takes)} takes of {', '.join(map(str, seen.takes))} pictures"
    yield Feature(name="films", proof=lambda: filmed if seen.takes else "", off=off)


def tried(seen: Witness) -> str:
    """Trials of milestones, and what was believed of them."""
    about = seen.session.minds.milestones
    if about is None or not about.trials.any():
        return ""
    return f"{about.trials.sum()} trials of {len(about.names)} milestones, weight {about.weight:g}"


def _beginnings(config: Config) -> dict[str, Floats]:
    learners = Session(settings.untracked(config)).learners
    return {role: learner.policy.weights for role, learner in learners.items()}


def schedule_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """Where games begin; the cold start, each role's phases, and what may end a run before its steps do."""
    c, roles = config.schedule, list(seen.session.policies)

    def cold() -> str:
        who = f"{c.cold_start_rival} made {seen.cold:,} decisions, {roles[-1]} learnt"
        return who if seen.cold and seen.phases.get("S0") == roles[-1] else ""

    def taken() -> str:
        turns = {name: role for name, role in seen.phases.items() if name != "S0"}
        told = ", ".join(f"{name} {role}" for name, role in turns.items())
        return told if set(turns.values()) == set(roles) else ""

    def limited() -> str:
        last = seen.session.schedule.phase.number
        left = config.total_steps - seen.session.step
        return f"ended after S{last} with {left:,} steps left" if last == c.max_phases and left > 0 else ""

    def judged() -> str:
        counts = [row["balanced"] for row in seen.evaluations if "balanced" in row]
        return f"judged {len(counts)} times; {seen.session.ended or 'not converged'}" if counts else ""

    begun = f"{seen.anywhere} games were to"
    off = "" if config.anywhere else "anywhere is 0"
    yield Feature(name="begin anywhere", proof=lambda: begun if seen.anywhere else "", off=off)
    off = "" if c.kind != "together" else "schedule.kind is together"
    none = "" if c.cold_start_steps else "schedule.cold_start_steps is 0"
    yield Feature(name="cold start", proof=cold, off=off or none)
    yield Feature(name="phases", proof=taken, off=off)
    off = off or ("" if c.kind == "alternate" else f"schedule.kind is {c.kind}")
    none = "" if c.max_phases else "schedule.max_phases is 0"
    yield Feature(name="phase limit", proof=limited, off=off or none)
    off = "" if c.convergence_consecutive else "schedule.convergence_consecutive is 0"
    yield Feature(name="convergence", proof=judged, off=off)
    off = "" if c.dampen_threshold else "schedule.dampen_threshold is 0"

    def damped() -> str:
        due = {max(LEAST_RATE, min(1.0, row["gap"] / (c.dampen_threshold or 1))) for row in seen.evaluations}
        told = ", ".join(f"{rate:.2f}" for rate in sorted(seen.rates))
        return f"rates of learning followed the gap: {told}" if due and seen.rates <= due | {1.0} else ""

    yield Feature(name="damping", proof=damped, off=off)


def curriculum_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """Levels are climbed, games begin on them, and what the schedule does at a new level is done."""
    c, curriculum = config.curriculum, seen.session.curriculum
    off = "" if curriculum else "curriculum.kind is none"
    swarm = seen.session.swarm

    def swarmed() -> str:
        visits = sum(start.visits for start in swarm.starts) if swarm else 0
        told = f"{len(swarm.starts)} savestates, {visits} episodes began in one" if swarm else ""
        return told if visits or seen.led else ""  # who practises may have found one milestone only

    def climbed() -> str:
        up = [row for row in seen.evaluations if row.get("moved", 0) > 0]
        return f"{len(up)} times, to {curriculum.name}" if up and curriculum else ""

    def stayed() -> str:
        stages = np.unique(seen.session.world.next.stage, axis=0)
        return f"{len(stages)} kinds of start at once" if len(stages) > 1 else ""

    def warmed() -> str:
        names = [name for name in seen.phases if name.endswith("w")]
        return f"{', '.join(names)}" if names else ""

    yield Feature(name="swarm", proof=swarmed, off="swarm is off" if config.swarm == "off" else "")
    none = f"swarm is {config.swarm}" if config.swarm != "bands" else ""
    sought = f"{swarm.scouted:,} steps of {config.bands.scouts}" if swarm and swarm.scouted else ""
    idle = none or ("" if config.bands.scouts else "bands.scouts is 0")
    yield Feature(name="scouts", proof=lambda: sought, off=idle)
    led = f"games were led {seen.led:,} steps" if seen.led else ""
    idle = none or ("" if config.bands.practice else "bands.practice is off")
    yield Feature(name="practice", proof=lambda: led, off=idle)
    yield Feature(name="curriculum", proof=climbed, off=off)
    yield Feature(name="mixed levels", proof=stayed, off=off or ("" if c.mixed_ratio else "mixed_ratio is 0"))
    none = "" if config.schedule.warm_start_steps else "schedule.warm_start_steps is 0"
    yield Feature(name="warm start", proof=warmed, off=off or none)


def league_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """Snapshots join, sit down and are replaced; scripted rivals sit down; strength is measured."""
    c, rosters = config.league, seen.session.league.rosters
    off = "" if c.history else "league.history is 0"
    off = off or ("the world has one seat, and so no rivals" if seen.session.spec.seats == 1 else "")
    names = {rival.name for roster in rosters.values() for rival in roster.scripted}

    def joined() -> str:
        count = sum(roster.seen for roster in rosters.values())
        kept = sum(len(roster.rivals) for roster in rosters.values())
        return f"{count} joined, {kept} kept ({c.keep})" if count > kept else ""

    def sat() -> str:
        return f"{len(seen.seats)} snapshots made {seen.snapshots:,} decisions" if seen.snapshots else ""

    yield Feature(name="snapshots", proof=joined, off=off)
    full = "league.scripted_share is 1" if names and c.scripted_share == 1 else ""
    yield Feature(name="rivals seated", proof=sat, off=off or full)
    none = "league.scripted names nobody" if not names else ""
    none = none or ("league.scripted_share is 0" if c.scripted_share == 0 else "")
    made = f"{', '.join(sorted(names))} made {seen.scripted:,} decisions"
    yield Feature(name="scripted rivals", proof=lambda: made if seen.scripted else "", off=off or none)

    def hunted() -> str:
        found = [name for name in seen.seats if "exploiter" in name]
        return f"{len(found)} trained, joined and seated" if found else ""

    none = "" if c.exploit_every else "league.exploit_every is 0"
    yield Feature(name="exploiters", proof=hunted, off=off or none or full)

    def measured() -> str:
        rows = seen.evaluations
        what = f"{len(rows[-1]['table'])} pairings" if rows and rows[-1]["table"] else "returns"
        return f"{len(rows)} evaluations of {what}" if rows else ""

    yield Feature(name="evaluation", proof=measured)


def guard_features(config: Config, seen: Witness) -> Iterator[Feature]:
    """What protects what was learnt, and what is paid for the new."""
    rollback, rows = seen.session.rollback, seen.rows

    def undone() -> str:
        kept = f"{len(rollback.rolling)} checkpoints kept"
        return f"{rollback.count} of them, {kept}" if rollback.count else ""

    def most(name: str, text: str) -> str:
        found = [value for row in rows for key, value in row.items() if key.endswith(f"/{name}")]
        return text.format(max(found)) if found and max(found) > 0 else ""

    yield Feature(name="rollback", proof=undone, off="" if config.rollback.back else "rollback.back is 0")
    yield Feature(name="EWC", proof=lambda: most("ewc_penalty", "penalty up to {:.2g}"),
                  off="" if config.ewc.weight else "ewc.weight is 0")
    yield Feature(name="RND", proof=lambda: most("rnd_intrinsic", "bonus of up to {:.2g} per step"),
                  off="" if config.rnd.coef else "rnd.coef is 0")


def product_features(config: Config, folder: Path, iterations: int) -> Iterator[Feature]:
    """What lies in a finished run's folder, read back."""

    def saved() -> str:
        with Run.open(folder, write=False) as run:
            checkpoint = run.load()
        if checkpoint is None or checkpoint.manifest.iteration != iterations or checkpoint.skipped:
            return ""
        return f"{checkpoint.folder.name} verifies"

    def policies() -> str:
        found = sorted((folder / "policies").glob("*.safetensors"))
        return ", ".join(f"{path.stem} ({len(Run.read_policy(path)[0])} arrays)" for path in found)

    def past() -> str:
        kept = sorted(policy_names(folder, PAST_FOLDER))
        return f"kept after iterations {', '.join(str(int(name)) for name in kept)}" if kept else ""

    yield Feature(name="checkpoint", proof=saved)
    yield Feature(name="policies", proof=policies)
    spec: Spec = registry.find(config.game).make(config.world, 1, 0, 0).spec
    none = "" if config.evaluation.past else "evaluation.past is 0"
    off = idle_in(config, spec, "evaluation.past") or none
    yield Feature(name="past selves", proof=past, off=off)
    for name, (file, magic) in PRODUCTS.items():
        def written(file: str = file, magic: bytes = magic) -> str:
            data = (folder / file).read_bytes()
            return f"{file}, {len(data):,} bytes" if data.startswith(magic) else ""

        draws = name != "film" or hasattr(registry.find(config.game), "draw")
        yield Feature(name=name, proof=written, off="" if draws else f"{config.game} draws no pictures")


# --- kill and resume --------------------------------------------------------------------------------------


def killed_and_resumed(stage: Stage, twin: Path, resume: str = "state") -> Feature:
    """The Feature "kill and resume", played out now."""
    folder = stage.place / "killed"

    def proof() -> str:
        newest = stage.kill_midway(folder)
        stage.finish(stage.start("resume", str(folder)))
        unlike = differences(twin, folder)
        if unlike:
            raise ConfigError(f"not the undisturbed run's bytes: {', '.join(unlike[:5])}")
        return f"SIGKILL at {newest}, resumed: all {len(compared(twin))} files equal the undisturbed run's"

    anew = "the world does not repeat itself: its games begin anew, not to the same bits"
    return Feature(name="kill and resume", proof=proof, off=anew if resume == "episode" else "")


# --- the whole --------------------------------------------------------------------------------------------


def rehearse(config: Config) -> int:
    """Fire every enabled feature of a run once and print a line for each; 0 if all went well, else 1."""
    small, read = shrink(config), set[str]()
    failed = False
    with tempfile.TemporaryDirectory(prefix="rematch-check-") as place, \
            contextlib.closing(Stage(Path(place), small)) as stage:
        twin = Path(place) / "twin"
        undisturbed = stage.start("train", str(stage.recipe), "--name", str(twin))
        tracked = settings.track(small, read)
        seen, why = _guarded(lambda: play(tracked, Path(place) / "tracked"))
        if seen is None:
            return _tell("rollout and learning", why, False)
        kinds = (learning_features, schedule_features, curriculum_features, league_features, guard_features)
        for feature in [feature for kind in kinds for feature in kind(small, seen)]:
            failed |= _perform(feature)
        _, why = _guarded(lambda: stage.finish(undisturbed))
        if why:
            return _tell("training as a command", why, False)
        resumed = killed_and_resumed(stage, twin, seen.session.spec.resume)
        for feature in [*product_features(small, twin, seen.session.iteration), resumed]:
            failed |= _perform(feature)
    return int(failed | _tell_unread(small, read, seen.session.spec))


def _guarded(act: Callable[[], Any]) -> tuple[Any, str]:
    """What `act` gives, or why it failed in one line: a rehearsal exists to meet errors of any kind."""
    try:
        return act(), ""
    except ConfigError as error:
        return None, str(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__}: {error} ({Path(at.filename).name} line {at.lineno})"


def _perform(feature: Feature) -> bool:
    """Print a feature's line; True if it is on and did not fire."""
    if feature.off:
        print(f"{feature.name:<20} off      {feature.off}", flush=True)
        return False
    proof, why = _guarded(feature.proof)
    return bool(_tell(feature.name, why or proof or "it is on, and nothing of it was seen", bool(proof)))


def _tell(name: str, text: str, fine: bool) -> int:
    print(f"{name:<20} {'fired ' if fine else 'FAILED'}   {' '.join(str(text).split())}", flush=True)
    return int(not fine)


def _tell_unread(config: Config, read: set[str], spec: Spec | None = None) -> bool:
    """Name the settings that nothing read: a line for all of a part that idle for one reason, and one for
    each that has none. True if there is such a one."""
    every = [key for key, _, _ in settings.leaves(config)]
    unread = [key for key in every if key not in read]
    print(f"{'settings':<20} {len(every) - len(unread)} of {len(every)} were read", flush=True)
    idle: dict[tuple[str, str], list[str]] = {}
    for key in unread:
        part, _, name = key.rpartition(".")
        why = settings.has_effect(config, key) or (idle_in(config, spec, key) if spec else "")
        idle.setdefault((part, why) if why else (key, ""), []).append(name)
    for (part, why), leaves in idle.items():
        if not why:
            print(f"  {part}: NOTHING READ IT", flush=True)
            continue
        whole = len(leaves) == sum(key.startswith(f"{part}.") for key in every)
        which = f"all {len(leaves)}" if whole else ", ".join(leaves)
        print(f"  {part or 'run'}: {why}; no effect: {which}", flush=True)
    return not all(why for _, why in idle)
