"""Byte-wise comparison of runs: a digest of all files of a run, and the files in which two runs differ."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from rematch.core.run_config import Config
from rematch.rehearsal.trial import play
from rematch.storage import replay_files
from rematch.storage.checkpoint import MANIFEST_FILE
from rematch.storage.run_folder import CONFIG_FILE, TIMING_FILE


def event_log(config: Config) -> str:
    """The digest (`events`) of a run of `config`, which is trained in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rematch-") as folder:
        return events(play(config, Path(folder) / "run").folder)


def events(folder: Path) -> str:
    """SHA-256 of a run: its logs, evaluations, recorded states, and the state in every checkpoint.

    The settings are not part of it: a setting has an effect if the other files change.
    """
    out = hashlib.sha256()
    for name, path in comparable_files(folder).items():
        if path.suffix == replay_files.SUFFIX:
            out.update(f"{name}\n{replay_files.read(path).states}\n".encode())
        elif path.name not in (CONFIG_FILE, MANIFEST_FILE):
            out.update(f"{name}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return out.hexdigest()


def comparable_files(folder: Path) -> dict[str, Path]:
    """Relative name -> file, without clock times and damaged checkpoints, which may differ in equal runs."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    return {str(name): path for name, path in files.items() if name.parts[0] not in (TIMING_FILE, "damaged")}


def differences(one: Path, two: Path) -> list[str]:
    """The names of files in which two run folders differ; empty where they are equal byte for byte."""
    first, second = comparable_files(one), comparable_files(two)
    missing = [f"{name} (in one run only)" for name in first.keys() ^ second.keys()]
    common = first.keys() & second.keys()
    changed = [name for name in common if first[name].read_bytes() != second[name].read_bytes()]
    return sorted(missing + changed)
