"""The baseline: the commit that same_run.py compares with, built in a folder of its own, and its runs.

The folder holds `tree` (the commit's files, compiled by this Python), `cases` (a YAML file per case) and
`runs` (what the cases became in that tree). It is reused: a run is made again only where its settings, this
Python or one of the packages below have changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "1828a23"  # the last one before the components
PACKAGES = ("numpy", "torch", "safetensors", "gymnasium", "pyboy", "open_spiel")  # that bits depend on
LIMIT = 600.0  # seconds of one command
HALF = 4  # iterations after which a run is stopped that the other tree resumes

# Runs in the baseline tree: reads the added cases as JSON, writes NAME.yaml of every case, prints a JSON line
# for each.
WRITE_CASES = """
import json, sys
from pathlib import Path
from rematch import api, config as settings, worlds
from rematch.engine.miniature import shrink
from rematch.missing import NotInstalled

added = json.load(sys.stdin)
cases = {name: {"recipe": name} for name in api.recipes()} | added
for name, case in cases.items():
    row = {"name": name, "from": case.get("from", "")}
    try:
        config = shrink(api.configure(case["recipe"], changes=case.get("settings")))
        config = settings.replace(config, case.get("sizes", {}))
        settings.validate(config)
        row["resume"] = worlds.find(config.game).make(config.world, 1, 0, 0).spec.resume
        Path(sys.argv[1], f"{name}.yaml").write_text(settings.to_yaml(config))
    except NotInstalled as error:
        row["missing"] = str(error)
    print(json.dumps(row), flush=True)
"""

# Runs in the baseline tree: trains YAML into FOLDER and stops, as Ctrl-C would, after some iterations.
TRAIN_HALF = """
import sys
from pathlib import Path
from rematch import api, config as settings
from rematch.engine import shipped
from rematch.engine.run import Run
from rematch.engine.train import Session, train
from rematch.show.console import Console

text, folder, source, half = sys.argv[1:]
config = api.configure(text)
session, show = Session(config), Console(live=False)
show.off = True
if source:
    session.start_from(shipped.starts(Path(source), config))
last = config.start_iteration + int(half)
with Run.create(Path(folder), settings.to_yaml(config)) as run:
    train(session, run, show, lambda: session.iteration >= last)
"""

# Python imports this by itself from PYTHONPATH: no pictures are drawn at the end of a run, which would take
# longer than to train here. The names are those of the baseline and of the present tree.
BLANK_PICTURES = """
import importlib.util, sys

PNG, GIF = bytes([0x89]) + b"PNG", b"GIF89a"
DRAWS = {"rematch.show.pictures": ("learning", lambda *a, **k: PNG),
         "rematch.show.film": ("film", lambda *a, **k: (GIF, "")),
         "rematch.reporting.learning_curves": ("learning", lambda *a, **k: PNG),
         "rematch.reporting.match_film": ("film", lambda *a, **k: (GIF, ""))}


class Blank:
    def find_spec(self, name, path=None, target=None):
        if name not in DRAWS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        load, (function, blank) = spec.loader.exec_module, DRAWS[name]

        def load_blank(module):
            load(module)
            if hasattr(module, function):
                setattr(module, function, blank)

        spec.loader.exec_module = load_blank
        return spec


sys.meta_path.insert(0, Blank())
"""


class CheckError(Exception):
    """The check cannot go on; the text is the reason, in one line."""


class Stopped(Exception):
    """The check was interrupted."""


@dataclass(frozen=True)
class Case:
    """A small run that both trees make."""

    name: str
    file: Path  # its settings, in the baseline's words
    start: str = ""  # another case, with whose policies it starts
    resume: str = "state"  # what the world promises a resumed run (Spec.resume)
    missing: str = ""  # why it cannot be run here


@dataclass(frozen=True)
class Made:
    """A finished run."""

    folder: Path
    seconds: float


class Commands:
    """Runs commands of both trees as processes; all of them can be killed at once."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.stopped = scratch, threading.Event()
        self.children: set[subprocess.Popen[str]] = set()
        self.guard = threading.Lock()
        (scratch / "blank").mkdir(parents=True, exist_ok=True)
        (scratch / "blank" / "sitecustomize.py").write_text(BLANK_PICTURES)

    def python(self, tree: Path, words: Sequence[str], text: str = "") -> str:
        """What `python WORDS` prints where `tree` is imported; CheckError with its last line if it fails."""
        path = [str(self.scratch / "blank"), str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self.guard:
            if self.stopped.is_set():
                raise Stopped
            child = subprocess.Popen(
                [sys.executable, *words], cwd=self.scratch, text=True, start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.children.add(child)
        try:
            output, errors = child.communicate(text, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._kill(child)
            child.communicate()
            raise CheckError(f"not done within {LIMIT:.0f} seconds") from None
        finally:
            with self.guard:
                self.children.discard(child)
        if self.stopped.is_set():
            raise Stopped
        if child.returncode:
            lines = (errors.strip() or output.strip()).splitlines()
            raise CheckError(lines[-1] if lines else f"exit code {child.returncode}")
        return output

    def stop(self) -> None:
        """Kill what runs; nothing starts any more."""
        with self.guard:
            self.stopped.set()
            for child in self.children:
                self._kill(child)

    @staticmethod
    def _kill(child: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its emulators too


class Baseline:
    """The baseline's tree and runs in one folder."""

    def __init__(self, folder: Path, commands: Commands) -> None:
        self.folder, self.commands, self.tree = folder, commands, folder / "tree"

    def build(self) -> bool:
        """Put the commit's files there and compile them; False where that was done before."""
        done = self.folder / "built.json"
        build_info = {"commit": COMMIT, "python": sys.version, "executable": sys.executable}
        self._claim()
        with locked(self.folder / "lock"):
            if done.exists() and json.loads(done.read_text()) == build_info:
                return False
            done.unlink(missing_ok=True)
            shutil.rmtree(self.tree, ignore_errors=True)
            unpack(COMMIT, self.tree)
            self.commands.python(self.tree, [str(self.tree / "setup.py"), "-q", "build_ext", "--inplace"])
            done.write_text(json.dumps(build_info))
        return True

    def _claim(self) -> None:
        """Make the folder; refuse one of another user, as its code is executed, or with other files in it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CheckError(f"{self.folder}: {error.strerror}") from None
        owner = self.folder.lstat().st_uid
        if not self.folder.is_dir() or self.folder.is_symlink() or owner != os.getuid():
            raise CheckError(f"{self.folder} is not a folder of this user; choose another with --baseline")
        names = {path.name for path in self.folder.iterdir()}
        if names - {"tree", "cases", "runs", "lock", "built.json"}:
            raise CheckError(f"{self.folder} holds something else; choose another with --baseline")

    def cases(self, added: Mapping[str, Any]) -> list[Case]:
        """Every recipe of the baseline, then the added cases."""
        place = self.folder / "cases"
        place.mkdir(exist_ok=True)
        printed = self.commands.python(self.tree, ["-c", WRITE_CASES, str(place)], json.dumps(added))
        rows = [json.loads(line) for line in printed.splitlines()]
        return [Case(row["name"], place / f"{row['name']}.yaml", row["from"], row.get("resume", ""),
                     row.get("missing", "")) for row in rows]

    def run(self, case: Case, source: Path | None) -> Made:
        """The whole run of a case; `source`: the run with whose policies it starts."""
        words = ["-m", "rematch.cli", "train", str(case.file), "--name", "FOLDER"]
        return self._make(case, words + (["--from", str(source)] if source else []), "whole")

    def half(self, case: Case, source: Path | None) -> Made:
        """The first iterations of a case, stopped in an orderly way."""
        words = ["-c", TRAIN_HALF, str(case.file), "FOLDER", str(source or ""), str(HALF)]
        return self._make(case, words, "half")

    def _make(self, case: Case, words: Sequence[str], kind: str) -> Made:
        folder = self.folder / "runs" / f"{case.name}-{kind}-{digest(case, words)}"
        note = folder.with_suffix(".json")
        folder.parent.mkdir(exist_ok=True)
        with locked(folder.with_suffix(".lock")):
            if not note.exists():
                with tempfile.TemporaryDirectory(dir=self.commands.scratch) as place:
                    made = Path(place) / "run"
                    begun = time.monotonic()
                    self.commands.python(self.tree, [str(made) if w == "FOLDER" else w for w in words])
                    seconds = time.monotonic() - begun
                    slim(made)
                    shutil.rmtree(folder, ignore_errors=True)
                    shutil.move(made, folder)
                note.write_text(json.dumps({"seconds": seconds}))
            return Made(folder, json.loads(note.read_text())["seconds"])


def slim(run: Path) -> None:
    """Only the newest checkpoint of a finished run is compared."""
    for path in sorted((run / "checkpoints").glob("iter_*"))[:-1]:
        shutil.rmtree(path)


def digest(case: Case, words: Sequence[str]) -> str:
    """Of all that a run's bits depend on."""
    versions = [sys.version]
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    text = "\n".join([COMMIT, case.file.read_text(), case.start, str(HALF), words[1], *versions])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def unpack(commit: str, folder: Path) -> None:
    """The files of a commit of this repository."""
    listed = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True)
    if listed.returncode:
        why = listed.stderr.decode(errors="replace").strip().splitlines()
        raise CheckError(f"commit {commit}: {why[-1] if why else 'git archive failed'}")
    folder.mkdir(mode=0o700)
    with tarfile.open(fileobj=io.BytesIO(listed.stdout)) as tar:
        tar.extractall(folder, filter="data")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One thread of one process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
