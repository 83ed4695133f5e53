"""Runs checks part by part, for tools/checks/gpu.py: each part is one record, and none is measured twice.

A record is written, to the disk, as soon as its part ends. A part whose record has the digest of the present
sources and the present card is not measured again, so a command that was interrupted is started again as it
was. With a time limit, a part begins only if the time that it took last fits into what is left.
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
# Seconds of a part that was never measured: of these checks, and of all others
EXPECTED = {"kills": 120.0, "sweep_kills": 100.0, "band": 120.0, "learn": 90.0, "strength": 40.0}
LEAST = 60.0


@dataclass(frozen=True)
class Part:
    """A part of a check: `measure` returns its record. `name` is empty where the check has one part.

    A part that `continues` is called with the seconds that are left. Where they were too few, its record has
    `complete` false; the next command calls it again.
    """

    check: str
    name: str
    measure: Callable[..., Record]
    continues: bool = False

    @property
    def title(self) -> str:
        return f"{self.check}, {self.name}" if self.name else self.check

    def made(self, record: Mapping[str, Any]) -> bool:
        """Whether this is a record of this part."""
        return record.get("check") == self.check and record.get("part", "") == self.name


def parts_of(check: str, measure: Any) -> list[Part]:
    """The parts of a check: `measure` is one function, or one for each name."""
    named: Mapping[str, Callable[..., Record]] = measure if isinstance(measure, Mapping) else {"": measure}
    return [Part(check, name, each, getattr(each, "continues", False)) for name, each in named.items()]


def records(files: Iterable[Path]) -> list[Record]:
    """The records of these files; a last line that was not written to its end is none."""
    found = []
    for file in files:
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return [record for record in found if isinstance(record, dict)]


def append(file: Path, record: Record) -> None:
    """Add a record; a line that was not written to its end is ended first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as out:
        size = out.seek(0, os.SEEK_END)
        if size:
            out.seek(size - 1)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(json.dumps(record, default=float).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


class EvaluationTimes:
    """The seconds after which the evaluations of a run in training stood in its history.

    A thread looks at the file; a context.
    """

    EVERY = 0.05  # seconds

    def __init__(self, run: Path) -> None:
        self.file, self.seconds, self.size = run / "history.json", list[float](), 0
        self.started, self.over = time.perf_counter(), threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> EvaluationTimes:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        self._look()

    def _watch(self) -> None:
        while not self.over.wait(self.EVERY):
            self._look()

    def _look(self) -> None:
        """The history is replaced as a whole, so it can be read at any time."""
        size = self.file.stat().st_size if self.file.exists() else 0
        if size == self.size:
            return
        self.size, rows = size, json.loads(self.file.read_text())
        self.seconds += [time.perf_counter() - self.started] * (len(rows) - len(self.seconds))

    def until(self, reached: Sequence[bool]) -> float | None:
        """The seconds until the evaluation from which on all have reached it; None where the last has not."""
        first = len(reached) - next((n for n, each in enumerate(reversed(reached)) if not each), len(reached))
        return self.seconds[first] if first < len(reached) else None


@dataclass
class Series:
    """One command that measures parts."""

    common: Record  # in every record: commit, sources, card
    file: Path | None = None  # records are appended here
    earlier: Sequence[Path] = ()  # further files with records
    seconds: float = float("inf")  # for all parts together
    again: bool = False  # measure also what has a record

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def known(self) -> list[Record]:
        return records([*self.earlier, *([self.file] if self.file else [])])

    def is_done(self, part: Part) -> bool:
        """Whether there is a whole record of this part with the present sources on the present card."""
        same = ("sources", "card")
        return not self.again and any(
            part.made(record) and all(record.get(key) == self.common.get(key) for key in same)
            and "failed" not in record and record.get("complete", True) for record in self.known()
        )  # fmt: skip

    def expected(self, part: Part) -> float:
        """The seconds that this part took when it was measured last."""
        if part.continues:
            return LEAST
        took = [record["check_seconds"] for record in self.known()
                if part.made(record) and "check_seconds" in record]  # fmt: skip
        return float(took[-1]) if took else EXPECTED.get(part.check, LEAST)

    def run(self, parts: Sequence[Part]) -> int:
        """Measure parts; 1 where one failed. Prints what is left for the next command."""
        failed, left = False, list[str]()
        for part in parts:
            if self.is_done(part):
                print(f"{part.title}: has a record of these sources", flush=True)
            elif self.expected(part) > self.left:
                left.append(part.title)
            else:
                record = self.measured(part)
                failed |= "failed" in record
                if not record.get("complete", True):
                    left.append(part.title)
        if left:
            print(f"left for the next command: {'; '.join(left)}", flush=True)
        return int(failed)

    def measured(self, part: Part) -> Record:
        """Measure one part and write its record; an error becomes a record with the key `failed`."""
        started = time.perf_counter()
        record: Record = {"check": part.check} | ({"part": part.name} if part.name else {}) | self.common
        print(f"{part.title}: begins", flush=True)
        try:
            record |= part.measure(self.left) if part.continues else part.measure()
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            record["failed"] = str(error)[-2000:] or type(error).__name__
        record["check_seconds"] = time.perf_counter() - started
        print(json.dumps(record, indent=1, default=float), flush=True)
        if self.file:
            append(self.file, record)
        return record
