"""Messages about a run: started, resumed, evaluation, alarm, stopped, died, done.

A process of its own follows the run folder, so it survives the training and can report its death: the kernel
releases the lock of a dead process. The training neither waits for it nor knows about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import read_history
from rematch.evaluation.text import clean, human
from rematch.evaluation.verdict import alarms
from rematch.reporting import run_summary, untrusted_folder
from rematch.reporting.exporters.run_tail import Row, RunTail, whole
from rematch.reporting.exporters.webhook import Message, now
from rematch.reporting.status import status
from rematch.storage.run_folder import FAILED_EVENT, Run
from rematch.training.recipes import stored_config

POLL_SECONDS = 1.0
SWEEP_FILE = "sweep.yaml"  # in the folder of a sweep, which holds the folders of its runs
MOST_TEXT = 1000  # characters of a message
UNKNOWN_END = "its process ended without a reason in the log: killed, out of memory, or the machine stopped"


class RunWatcher:
    """Turns the files of one run into messages; `poll` returns those since the last call."""

    def __init__(self, folder: Path, attached: bool = False) -> None:
        self.folder, self.tail = folder, RunTail(folder)
        self.attached = attached  # the run trains already: what has happened before is not reported
        sweep = f"{folder.resolve().parent.name}/" if (folder.parent / SWEEP_FILE).exists() else ""
        self.name = clean(sweep + folder.resolve().name)
        self.alarms: set[str] = set()  # kinds that were reported
        self.last_event: Row = {}
        self.started = self.ended = False

    def begin(self) -> Iterator[Message]:
        """The run is started or resumed; evaluations since then are reported, earlier ones are not."""
        events, rows = self.tail.events(), self.tail.evaluations()
        resumes = [index for index, event in enumerate(events) if event["event"] == "resume"]
        resumed = whole(events[resumes[-1]], "iteration") if resumes else -1
        new = [] if self.attached else [row for row in rows if row["iteration"] > resumed]
        if len(new) < len(rows):
            self.alarms = self._kinds()
        self.started = True
        if self.attached:
            yield self.message("started", f"messages about the training begin{self._steps()}")
        elif not resumes:
            yield self.message("started", f"the training has started{self._steps()}")
        else:
            before = events[resumes[-1] - 1]["event"] if resumes[-1] else ""
            died = "" if before in ("stop", FAILED_EVENT) else " (it had ended without a stop request)"
            text = f"the training continues at iteration {resumed}{died}"
            yield self.message("resumed", text, {"iteration": resumed})
        yield from self._evaluations(new)

    def poll(self) -> Iterator[Message]:
        """Messages since the last call; the last one says how the run has ended."""
        running = self.tail.running
        if not self.started:
            if running and self.tail.exists:
                yield from self.begin()
            return
        for event in self.tail.events():
            self.last_event = event
        yield from self._evaluations(self.tail.evaluations())
        if not running and not self.tail.running:
            self.ended = True
            yield self._end()

    def message(self, event: str, text: str, values: Mapping[str, Any] | None = None) -> Message:
        stamped = {"time": now(), **(values or {})}
        return Message(event, self.name, clean(text)[:MOST_TEXT], stamped)

    def _steps(self) -> str:
        facts = self._status()
        return f": {facts['game']}, {human(facts['total_steps'])} steps" if facts.get("total_steps") else ""

    def _evaluations(self, rows: Sequence[Row]) -> Iterator[Message]:
        """Messages about new evaluations and the alarms that they raise."""
        for row in rows:
            yield self._evaluation(row)
        if rows:
            yield from self._new_alarms()

    def _evaluation(self, row: Row) -> Message:
        verdict = clean(row.get("verdict") or "no verdict")
        text = f"after {human(row.get('step'))} steps: {verdict}"
        return self.message("evaluation", text, {"verdict": verdict[:MOST_TEXT], "step": whole(row, "step"),
                                                 "iteration": whole(row, "iteration")})

    def _new_alarms(self) -> Iterator[Message]:
        new = self._kinds() - self.alarms
        self.alarms |= new
        for alarm in self._alarms() if new else ():
            if alarm["kind"] in new:
                causes = [clean(cause) for cause in alarm["causes"]]
                cause = "; likely causes: " + "; ".join(causes) if causes else "; no likely cause was found"
                yield self.message("alarm", f"{alarm['text']}{cause}",
                                   {"kind": alarm["kind"], "causes": causes, "step": alarm["first"]})

    def _kinds(self) -> set[str]:
        with suppress(Exception):  # hostile or damaged files: the other messages are still sent
            return alarm_kinds(self.folder)
        return set()

    def _alarms(self) -> list[Row]:
        """The alarms with their likely causes; reads all metrics."""
        with suppress(Exception):
            return alarm_rows(self.folder)
        return []

    def _status(self) -> dict[str, Any]:
        with suppress(ConfigError, OSError):
            return status(self.folder)
        return {}

    def _end(self) -> Message:
        facts, event = self._status(), self.last_event
        where = {"iteration": facts.get("iteration"), "step": facts.get("step")}
        if facts.get("state") == "complete":
            verdict = facts.get("verdict") or "no verdict"
            text = f"complete after {human(facts.get('step'))} steps: {verdict}"
            return self.message("done", text, {"verdict": verdict[:MOST_TEXT], **where})
        if facts.get("iterations") and facts["iteration"] == facts["iterations"]:
            return self.message("done", "the training is complete; its report is not written", where)
        at = f"at iteration {facts.get('iteration')} of {facts.get('iterations')}"
        if event.get("event") == "stop":
            return self.message("stopped", f"stopped ({event.get('why')}) {at}", where)
        why = event.get("why") if event.get("event") == FAILED_EVENT else UNKNOWN_END
        return self.message("died", f"died {at}: {why}", {"cause": clean(why)[:MOST_TEXT], **where})


def watch(
    watcher: RunWatcher, put: Callable[[Message], None], abandoned: Callable[[], bool],
    seconds: float = POLL_SECONDS,
) -> bool:  # fmt: skip
    """Pass on all messages of a run until it ends; False where `abandoned` is true before it starts."""
    while not watcher.ended:
        for message in watcher.poll():
            put(message)
        if not watcher.started and abandoned():
            return False
        if not watcher.ended:
            time.sleep(seconds)
    return True


def alarm_kinds(path: Path) -> set[str]:
    """The kinds of a run's alarms, from its evaluations alone: much faster than `alarm_rows`."""
    with Run.open(path, write=False) as run:
        config = stored_config(run)
    history = read_history(untrusted_folder.history(path))
    return {alarm.kind for alarm in alarms(history, config.evaluation)}


def alarm_rows(path: Path) -> list[dict[str, Any]]:
    """The alarms of a run, each with its likely causes; empty where its settings cannot be read."""
    run = run_summary.Folder(path)
    if run.config is None or run.spec is None:
        return []
    return run_summary.alarms_with_causes(
        run, run.attempt(lambda: run_summary.observations(path)) or {}
    )
