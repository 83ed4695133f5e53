"""Whether this tree trains as the baseline commit did: every recipe in miniature, in both, bit by bit.

    python tools/checks/same_run.py --jobs 2             all cases
    python tools/checks/same_run.py --only quick big     some of them
    python tools/checks/same_run.py --resume             the baseline trains one half, this tree the other

The cases are the baseline's recipes and those of same_run_cases.yaml. Both trees train each as a command. The
old run is read by this tree's reader, which migrates it, and must equal the new run: each array of the newest
checkpoint (dtype, shape, bytes, none left over on either side), each logged value, each policy. Differences
that are wanted stand in same_run_exceptions.yaml. With --resume this tree also goes on with runs that the
baseline stopped, and they must end as its own undisturbed ones.

Exit code 0: equal, or explained; 1: something differs, fails, or an exception no longer occurs; 2: it could
not be compared.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from same_run_baseline import COMMIT, ROOT, Baseline, Case, CheckError, Commands, Made, Stopped
from same_run_compare import (
    Difference,
    KnownDifference,
    compare,
    read_exceptions,
    run_leaves,
    unexplained,
    unused,
)

from rematch.core.errors import ConfigError

CHECKS = Path(__file__).resolve().parent
SHOWN = 20  # differences of a case in --json


@dataclass
class Outcome:
    """One line of the report."""

    case: str
    status: str  # equal | exception | differs | failed | missing
    detail: str = ""
    old_seconds: float = 0.0
    new_seconds: float = 0.0
    count: int = 0  # leaves that differ
    differences: list[Difference] = field(default_factory=list)  # the first of them
    exceptions: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return self.status not in ("differs", "failed")


class Check:
    """Runs cases in both trees and compares what they became."""

    def __init__(self, baseline: Baseline, cases: Sequence[Case], exceptions: list[KnownDifference]) -> None:
        self.baseline, self.commands = baseline, baseline.commands
        self.cases = {case.name: case for case in cases}
        self.exceptions = exceptions

    def outcome(self, case: Case, resume: bool) -> Outcome:
        """Both runs of a case, and how they compare."""
        if case.missing:
            return Outcome(case.name, "missing", case.missing)
        place = Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=self.commands.scratch))
        try:
            source = self._old(self.cases[case.start]).folder if case.start else None
            old = self._old(case, source)
            new = self._train(case, place / "new", source)
            out = self._judged(case, "", old, new)
            if resume and out.fine and case.resume != "episode":
                half = self.baseline.half(case, source)
                resumed = self._resume(half.folder, place / "resumed")
                out = worse(out, self._judged(case, "resumed: ", new, resumed))
                out.old_seconds = old.seconds
            return out
        except (CheckError, ConfigError) as error:
            return Outcome(case.name, "failed", " ".join(str(error).split()))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _old(self, case: Case, source: Path | None = None) -> Made:
        try:
            return self.baseline.run(case, source)
        except CheckError as error:
            raise CheckError(f"in the baseline: {error}") from None

    def _train(self, case: Case, folder: Path, source: Path | None) -> Made:
        words = ["-m", "rematch", "train", str(case.file), "--name", str(folder)]
        begun = time.monotonic()
        self.commands.python(ROOT, words + (["--from", str(source)] if source else []))
        return Made(folder, time.monotonic() - begun)

    def _resume(self, half: Path, folder: Path) -> Made:
        shutil.copytree(half, folder)
        begun = time.monotonic()
        self.commands.python(ROOT, ["-m", "rematch", "resume", str(folder), "--other-machine"])
        return Made(folder, time.monotonic() - begun)

    def _judged(self, case: Case, prefix: str, old: Made, new: Made) -> Outcome:
        differences = compare(run_leaves(old.folder), run_leaves(new.folder))
        rest, names = unexplained(case.name, differences, self.exceptions)
        out = Outcome(case.name, "equal", "", old.seconds, new.seconds)
        out.exceptions, out.count, out.differences = names, len(differences), differences[:SHOWN]
        if rest:
            out.status, out.count, out.differences = "differs", len(rest), rest[:SHOWN]
            out.detail = prefix + summary(rest)
        elif differences:
            out.status, out.detail = "exception", f"{prefix}{', '.join(names)} ({len(differences)} leaves)"
        return out


def worse(run: Outcome, resumed: Outcome) -> Outcome:
    """Of the two comparisons of a case the one to report: a resumed run that differs is never hidden."""
    return resumed if run.status == "equal" or not resumed.fine else run


def summary(differences: Sequence[Difference]) -> str:
    """How many leaves differ, the first one, and the first logged metric, which dates the difference."""
    first = differences[0]
    text = f"{len(differences)} leaves; first {first.leaf}: {first.what}"
    logged = [difference.leaf for difference in differences if difference.leaf.startswith("metrics.jsonl/")]
    return f"{text}; in the log first {logged[0]}" if logged and logged[0] != first.leaf else text


def run_cases(check: Check, cases: Sequence[Case], jobs: int, resume: bool) -> list[Outcome]:
    """All cases, `jobs` at a time; a line on stderr as each is done."""
    outcomes: dict[str, Outcome] = {}
    pool = ThreadPoolExecutor(jobs)
    pending: set[Future[Outcome]] = {pool.submit(check.outcome, case, resume) for case in cases}
    try:
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for job in done:
                out = job.result()
                outcomes[out.case] = out
                text = f"[{len(outcomes)}/{len(cases)}] {line(out)}"
                print(text, file=sys.stderr, flush=True)
    finally:
        check.commands.stop()
        pool.shutdown(cancel_futures=True)
    return [outcomes[case.name] for case in cases]


def line(out: Outcome) -> str:
    """One case as a row of the table."""
    times = f"{out.old_seconds:6.1f} s {out.new_seconds:6.1f} s" if out.new_seconds else " " * 17
    return f"{out.case:<18} {out.status:<9} {times}  {out.detail}".rstrip()


def report(outcomes: Sequence[Outcome], stale: Sequence[str], seconds: float) -> int:
    """The table on stdout; the exit code."""
    print(f"{'case':<18} {'result':<9} {'old':>8} {'new':>8}")
    for out in outcomes:
        print(line(out))
    for name in stale:
        print(f"exception {name!r} did not occur in any case: remove it from same_run_exceptions.yaml")
    counts = {status: sum(out.status == status for out in outcomes)
              for status in ("equal", "exception", "differs", "failed", "missing")}
    totals = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{totals}; {seconds:.0f} s; baseline {COMMIT}")
    return int(bool(stale) or not all(out.fine for out in outcomes))


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        raise CheckError(message)


def read_words(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="same_run.py", description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these cases alone")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases that run at the same time")
    parser.add_argument("--resume", action="store_true", help="resume runs that the baseline stopped, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    parser.add_argument("--baseline", type=Path, metavar="FOLDER", help="where the baseline's tree and runs "
                        "are kept; default: a folder in the system's folder of temporary files")
    options = parser.parse_args(words)
    if not 1 <= options.jobs <= 64:
        raise CheckError(f"--jobs = {options.jobs}: expected 1 to 64")
    if options.json and not options.json.resolve().parent.is_dir():
        raise CheckError(f"--json = {options.json}: expected a file in a folder that is there")
    options.baseline = (options.baseline or Path(tempfile.gettempdir(), f"rematch-{COMMIT}")).resolve()
    return options


def chosen(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases named by --only; all of them where it names none."""
    names = [case.name for case in cases]
    for name in only:
        if name not in names:
            raise CheckError(f"--only {name}: expected some of {', '.join(names)}")
    return [case for case in cases if case.name in only or not only]


def check_trees(commands: Commands, trees: Sequence[Path]) -> None:
    """Each command must import the tree that it is meant to, compiled."""
    for tree in trees:
        place = commands.python(tree, ["-c", "import rematch, rematch.api; print(rematch.__file__)"])
        if Path(place.strip()).resolve().parents[1] != tree.resolve():
            raise CheckError(f"rematch is imported from {place.strip()}, not from {tree}")


def same_run(options: argparse.Namespace, scratch: Path) -> int:
    """Build the baseline, run and compare the cases, print the report; returns the exit code."""
    begun = time.monotonic()
    exceptions = read_exceptions(CHECKS / "same_run_exceptions.yaml")
    added: dict[str, Any] = yaml.safe_load((CHECKS / "same_run_cases.yaml").read_text())
    commands = Commands(scratch)
    baseline = Baseline(options.baseline, commands)
    try:
        print(f"baseline {COMMIT} in {options.baseline}", file=sys.stderr, flush=True)
        if baseline.build():
            print(f"compiled in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        check_trees(commands, [ROOT, baseline.tree])
        cases = baseline.cases(added)
        check = Check(baseline, cases, exceptions)
        outcomes = run_cases(check, chosen(cases, options.only), options.jobs, options.resume)
    finally:
        commands.stop()
    compared = {out.case for out in outcomes if out.status not in ("failed", "missing")}
    stale = unused(exceptions, [case.name for case in cases], compared)
    seconds = time.monotonic() - begun
    code = report(outcomes, stale, seconds)
    if options.json:
        body = {"baseline": COMMIT, "seconds": seconds, "unused_exceptions": stale,
                "cases": [asdict(out) for out in outcomes]}
        options.json.write_text(json.dumps(body, indent=1) + "\n")
    return code


def interrupt(*_: object) -> NoReturn:
    """SIGTERM ends the check as Ctrl-C does."""
    raise KeyboardInterrupt


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, interrupt)
    try:
        options = read_words(words)
        with tempfile.TemporaryDirectory(prefix="rematch-same-run-") as scratch:
            return same_run(options, Path(scratch))
    except (CheckError, ConfigError, OSError) as error:
        print(f"same_run: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Stopped):
        print("same_run: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
