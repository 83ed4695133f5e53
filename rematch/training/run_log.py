"""What a run tells while it trains: evaluations with their verdict, what every seat sees, phases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rematch.core.errors import RunError
from rematch.core.recording import Take
from rematch.evaluation.past_policies import card
from rematch.evaluation.verdict import alarms, balanced, behind, verdict
from rematch.reporting.text import evaluation_lines
from rematch.rollout.rollout_buffer import Tape
from rematch.storage.run_folder import Run
from rematch.training.episode_video import Camera

if TYPE_CHECKING:
    from rematch.training.trainer import Session

MICRO = 10  # micro-phases per line about them


class Show(Protocol):
    """Where numbers go while a run trains (reporting/console.py)."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def film(self, take: Take) -> dict[str, bytes]:
        """The films that can be made of it here: name -> bytes."""


def note_diary(session: Session, run: Run, show: Show) -> None:
    """After an iteration: its episodes; and now and then a line about all of it."""
    diary, c = session.diary, session.config
    if diary is None:
        return
    diary.write(run)
    note_lines(run, show, [diary.episode_line(episode) for episode in diary.ended])
    if passed(session.step, c.games * c.steps, c.watch.log_interval):
        total = c.iterations * c.games * c.steps
        run.log_line(diary.log_line(session.step, total, None))
        show.line(diary.log_line(session.step, total, diary.pace(session.step)))
        diary.write_progress(run, session.step)


def note_film(session: Session, run: Run, show: Show) -> None:
    """Now and then an episode from the start, as pictures. Where they cannot be kept the run goes on."""
    diary, c = session.diary, session.config
    if diary is None or not passed(session.step, c.games * c.steps, c.watch.video_interval):
        return
    take, noted = Camera(session, diary).record()
    run.event(noted)
    text = f"Film at step {session.step:,}: {take.caption}"
    run.log_line(text)
    show.line(text)
    try:
        for name, data in show.film(take).items():
            run.write_file(f"films/{name}", data)
    except RunError as error:
        show.line(f"{error}; training goes on")


def passed(step: int, per: int, interval: int) -> bool:
    """Whether the last `per` steps led to a multiple of the interval, or over it; 0 is never."""
    return interval > 0 and step // interval > (step - per) // interval


def note_phase(session: Session, run: Run, show: Show) -> None:
    """Before an iteration: a line when a phase begins; of micro-phases, one for every MICRO of them."""
    schedule, iteration = session.schedule, session.iteration
    phase = schedule.phase
    if not schedule.apart or iteration != phase.first:
        return
    rival = f" against {session.config.schedule.cold_start_rival}" if phase.number == 0 else ""
    text = f"Phase {phase.name}: {phase.roles[0]} learns{rival}, from step {session.step:,}"
    if phase.warm:
        text += f"; a warm start on the new level, until step {phase.last * schedule.steps:,}"
    elif phase.number and (phase.number - 1) // len(schedule.roles) < len(schedule.config.phase_warmup):
        text += f"; WARMUP: only {(phase.last - phase.first) * schedule.steps:,} steps"
    if schedule.config.kind == "micro" and phase.number and not phase.warm:
        if phase.number % MICRO != 1:
            return
        pool = ", ".join(f"{len(roster.rivals)} {role}" for role, roster in session.league.rosters.items())
        text = f"{text}; micro {phase.number}, Pool: {pool}"
    run.log_line(text)
    show.line(text)


def note_lines(run: Run, show: Show, lines: Sequence[str]) -> None:
    """Something worth a line each, in train.log and on the console."""
    for text in lines:
        run.log_line(text)
        show.line(text)


def note_evaluation(session: Session, run: Run, show: Show, last: bool) -> None:
    """A history row with its verdict; where the pair has converged, this ends the run."""
    row, config = session.evaluate(last), session.config
    history = [*run.history, row]
    if config.schedule.convergence_consecutive:
        row["balanced"] = balanced(history, config.schedule.eta)
        top = not session.curriculum or session.curriculum.at_top  # balance on the way up ends nothing
        if top and row["balanced"] >= config.schedule.convergence_consecutive:
            session.set_beside(row)
            row["converged"] = not (alarms(history, config.evaluation) or behind(row))
            session.ended = "converged" if row["converged"] else ""
    moved, evidence = 0, ""
    if session.curriculum and row["phase"] != "S0":
        moved, evidence = session.curriculum.report(row)
        row |= {"moved": moved, "evidence": evidence}
    session.schedule.report(row, moved)
    if session.schedule.over(session.iteration) and session.iteration < config.iterations:
        session.ended = "phases"
    row["verdict"] = verdict(history, config.evaluation)
    run.append_history(row)
    for line in [*evaluation_lines(row), f"Verdict: {row['verdict']}"]:
        run.log_line(line)
    show.evaluation(row)
    if session.curriculum and moved:
        where = f"{session.curriculum.level + 1} of {len(session.curriculum.levels)}"
        way = "up" if moved > 0 else "back"
        text = f"CURRICULUM {way} to level {where}: {session.curriculum.name}, because {evidence}"
        kept = session.mark(f"level {session.curriculum.level}") if moved > 0 else []
        note_lines(run, show, [text, *kept])
    counted = [f"{name} {count}" for name, count in session.world.counters.items() if count]
    if counted:
        run.log_line(f"World: {', '.join(counted)}")
        show.line(f"World: {', '.join(counted)}")


def few(names: Sequence[str]) -> list[str]:
    """The names; of more than forty the first and the last (all of them stand in sight.json)."""
    return [*names] if len(names) <= 40 else [names[0], "...", names[-1]]


def note_milestones(session: Session, run: Run) -> None:
    """Where collapses are undone: all players as they are now, among the policies, for good."""
    for name in session.milestones if session.config.rollback.back else ():
        for role, policy in session.minds.networks.items():
            about = card(session.config, policy, session.iteration)
            run.write_policy(f"{role}@{name.replace(' ', '-')}", policy.arrays(), about)
    session.milestones.clear()


def note_sight(run: Run, show: Show, tape: Tape) -> None:
    """Save what every seat saw in the first rollout; warn of columns that never changed."""
    seen: dict[str, Any] = {}
    for role, track in tape.tracks.items():
        rows = track.sight.reshape(-1, track.role.size)
        low, high, mean = rows.min(0), rows.max(0), rows.mean(0, dtype=np.float64)
        seen[role] = [
            {
                "column": name,
                "min": float(low[i]),
                "max": float(high[i]),
                "mean": float(mean[i]),
                "constant": bool(low[i] == high[i]),
            }
            for i, name in enumerate(track.role.columns)
        ]
        dull = [entry["column"] for entry in seen[role] if entry["constant"]]
        named: list[str] = []
        for f in track.role.fields:  # an array by its shape: its columns stand in sight.json
            whole = [f"{f.name} [{' x '.join(map(str, f.shape))}]"]
            named += whole if f.shape else few([f"{f.name}.{column}" for column in f.columns])
        text = f"Sight {role}: {len(seen[role])} numbers: {', '.join(named)}"
        run.log_line(text)
        if dull:
            warning = f"Sight {role}: warning: never changed in the first rollout: {', '.join(few(dull))}"
            run.log_line(warning)
            show.line(warning)
        if track.aside is not None:
            told = ", ".join(f"{f.name}.{c}" for f in track.role.aside for c in f.columns)
            run.log_line(f"Sight {role}: aside, for learning alone: {told}")
        if track.role.hidden:
            run.log_line(f"Sight {role}: hidden: {', '.join(track.role.hidden)}")
    lines = {role: ",\n".join(map(json.dumps, entries)) for role, entries in seen.items()}  # a column each
    text = ",\n".join(f"{json.dumps(role)}: [\n{rows}\n]" for role, rows in lines.items())
    run.write_file("sight.json", f"{{\n{text}\n}}\n".encode())
