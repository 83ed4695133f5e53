"""Byte-wise comparison of runs: the digest of all that a run did, and the files in which two runs differ."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from rematch.core.run_config import Config
from rematch.rehearsal.trial import play
from rematch.storage.checkpoint import MANIFEST_FILE
from rematch.storage.run_folder import CONFIG_FILE, TIMING_FILE


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
