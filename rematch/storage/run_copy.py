"""Copies a run as it was at one of its checkpoints; the source is only read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rematch.storage import atomic_files
from rematch.storage.array_chunks import CHUNK_FOLDER
from rematch.storage.atomic_files import os_errors_as_run_error
from rematch.storage.checkpoint import TABLE_FILES, Checkpoint
from rematch.storage.lineage import LINEAGE_FILE
from rematch.storage.policy_files import POLICY_FOLDER
from rematch.storage.run_folder import (
    CONFIG_FILE,
    HISTORY_FILE,
    LOG_FILES,
    PAST_FOLDER,
    PAST_POLICY,
    REPLAY_FILE,
    REPLAY_FOLDER,
)

LOGS = (*LOG_FILES, HISTORY_FILE, *sorted(TABLE_FILES))


def copy_run(source: Path, target: Path, checkpoint: Checkpoint | None) -> None:
    """A new folder with the run's settings, the checkpoint and the files that belong to it.

    None: the settings alone, for a run that starts again. The logs are copied whole: `Run.rewind` truncates
    them to the checkpoint and checks them. Links are not followed and not copied.
    """
    with os_errors_as_run_error(f"{source} cannot be copied to {target}"):
        os.makedirs(target, 0o700)
        names = [CONFIG_FILE, LINEAGE_FILE]
        if checkpoint is not None:
            names += [*LOGS, *(f"{CHUNK_FOLDER}/{chunk}" for chunk in sorted(checkpoint.manifest.chunks))]
            for policy in checkpoint.manifest.policies:
                names += [f"{POLICY_FOLDER}/{policy}.safetensors", f"{POLICY_FOLDER}/{policy}.json"]
            names += _until(source, checkpoint.iteration)
            inside = f"checkpoints/{checkpoint.folder.name}"
            names += [f"{inside}/{name}" for name in sorted(os.listdir(source / inside))]
        for name in names:
            _copy(source / name, target / name)
        atomic_files.sync_folder(target)


def _until(source: Path, iteration: int) -> list[str]:
    """The past policies and replays of iterations up to this one."""
    out = []
    for folder, pattern in ((PAST_FOLDER, PAST_POLICY), (REPLAY_FOLDER, REPLAY_FILE)):
        if (source / folder).is_dir():
            matches = filter(None, map(pattern.fullmatch, sorted(os.listdir(source / folder))))
            out += [f"{folder}/{match[0]}" for match in matches if int(match[1]) <= iteration]
    return out


def _copy(source: Path, target: Path) -> None:
    """Copy a plain file; anything else, and a missing file, is left out."""
    if source.is_file() and not source.is_symlink():
        target.parent.mkdir(0o700, parents=True, exist_ok=True)
        shutil.copyfile(source, target, follow_symlinks=False)
        os.chmod(target, 0o600)
