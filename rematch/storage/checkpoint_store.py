"""The checkpoint store of a run: commit, load, prune. An interrupted save leaves the earlier ones unchanged.

Commit (DESIGN section 4): write the files and the manifest, fsync each, rename, fsync the folder, read back;
only then may an older checkpoint be deleted. Names that begin with a dot are intermediate: .tmp- is being
written, .old- is about to be replaced (`load` still reads it), .gone- is being deleted.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rematch.core.errors import ConfigError, Damaged, RunError
from rematch.storage import array_chunks, atomic_files, checkpoint
from rematch.storage.array_chunks import ArrayChunk
from rematch.storage.atomic_files import os_errors_as_run_error
from rematch.storage.checkpoint import MANIFEST_FILE, RECENT, TEMPORARY, Checkpoint, Manifest

RECENT_CHECKPOINTS = 3


class CheckpointStore:
    """The checkpoints of the run in one folder; `config` is the SHA-256 of its config.yaml."""

    def __init__(self, run: Path, config: str) -> None:
        self.run, self.folder, self.config = run, run / "checkpoints", config
        self.keep: dict[str, str] = {}  # name of a checkpoint -> RECENT, MILESTONE or TEMPORARY

    def commit(self, manifest: Manifest, files: dict[str, bytes], chunks: Sequence[ArrayChunk] = ()) -> Path:
        """Write all files or none; array chunks that are not on the disk yet are written first.

        After a RunError the earlier checkpoints are unchanged.
        """
        final = self.folder / f"iter_{manifest.iteration:08d}"
        temporary, old = final.with_name(f".tmp-{final.name}"), final.with_name(f".old-{final.name}")
        encoded, renamed = manifest.encode(), False
        try:
            atomic_files.subfolder(self.run, "checkpoints")
            self.remove_leftovers()
            array_chunks.write_chunks(self.run, chunks)
            if os.path.lexists(final):  # saved before, most likely with the same state
                with suppress(Damaged):
                    if checkpoint.verify(final)[0].encode() == encoded:
                        array_chunks.check_sizes(self.run, manifest.chunks)
                        atomic_files.sync_folder(final.parent)
                        return final
            os.mkdir(temporary, 0o700)
            for name, data in (files | {MANIFEST_FILE: encoded}).items():
                atomic_files.write_new(temporary / name, data)
            atomic_files.sync_folder(temporary)
            if os.path.lexists(final):
                os.rename(final, old)  # `load` reads this name if the process dies before the next line
            os.rename(temporary, final)
            renamed = True
            atomic_files.sync_folder(final.parent)
            checkpoint.verify(final)
            array_chunks.check_sizes(self.run, manifest.chunks)
        except (OSError, Damaged) as error:
            with suppress(OSError):
                if renamed:
                    os.rename(final, temporary)
                self.remove_leftovers()
            raise RunError(f"checkpoint {final.name} was not saved: {atomic_files.reason(error)}") from error
        self.keep[final.name] = manifest.keep
        with suppress(OSError, RunError):  # the next save tries again to delete what cannot be deleted now
            self.remove_leftovers()
            self.prune()
        return final

    def load(self, verify_chunks: bool = True, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that verifies, and why newer ones do not; None if none was ever saved.

        Changes nothing. Raises ConfigError where there are checkpoints and none verifies. Without
        `verify_chunks` array chunks are not hashed: the weights alone do not need a replay of a gigabyte.
        With `until` later iterations are left out.
        """
        names, loaded, skipped = self._load_newest(verify_chunks, until)
        # another process may have saved meanwhile
        while (loaded is None or skipped) and names != self.candidates(until):
            names, loaded, skipped = self._load_newest(verify_chunks, until)
        if loaded:
            return replace(loaded, skipped=skipped)
        if not names:
            return None
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:4])
        raise ConfigError(f"{self.run}: none of its {len(names)} checkpoints verifies ({reasons}): "
                          "refusing to start, nothing was changed")

    def _load_newest(
        self, verify_chunks: bool, until: int | None
    ) -> tuple[list[str], Checkpoint | None, list[tuple[str, str]]]:
        """All candidates, the newest that verifies, and (name, reason) of the newer ones."""
        names = self.candidates(until)
        skipped: list[tuple[str, str]] = []
        for name in names:
            try:
                loaded = checkpoint.read_checkpoint(self.folder / name, verify_chunks)
                if loaded.manifest.config != self.config:
                    raise Damaged("it was saved with another config.yaml than the run has now")
                return names, loaded, skipped
            except Damaged as damage:
                skipped.append((name, str(damage)))
        return names, None, skipped

    def candidates(self, until: int | None = None) -> list[str]:
        """Names of checkpoints, newest first; one that was about to be replaced follows its replacement."""
        most = sys.maxsize if until is None else until
        with os_errors_as_run_error(f"{self.run} cannot be read"):
            if not os.path.lexists(self.folder):
                return []
            if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
                raise ConfigError(f"{self.folder} is not a regular folder")
            names = [name for name in os.listdir(self.folder)
                     if (match := checkpoint.CHECKPOINT_NAME.fullmatch(name.removeprefix(".old-")))
                     and int(match[1]) <= most]
        return sorted(names, key=lambda name: (int(name.rpartition("_")[2]), name[0] != "."), reverse=True)

    def remove_leftovers(self) -> None:
        """Delete what a crash left partly written or partly deleted; complete or undo a replacement."""
        for name in sorted(os.listdir(self.folder)) if os.path.lexists(self.folder) else []:
            if name.startswith((".tmp-", ".gone-")):
                atomic_files.remove(self.folder / name)
            elif name.startswith(".old-"):
                replacement = self.folder / name.removeprefix(".old-")
                if not os.path.lexists(replacement):
                    os.rename(self.folder / name, replacement)
                else:
                    with suppress(Damaged):
                        checkpoint.verify(replacement)
                        atomic_files.remove(self.folder / name)

    def prune(self) -> None:
        """Keep the three most recent checkpoints, milestones, and a temporary one while it is the newest."""
        names = [name for name in self.candidates() if not name.startswith(".")]
        for name in set(names) - set(self.keep):
            with suppress(Damaged):
                self.keep[name] = checkpoint.read_manifest(self.folder / name).keep
        recent = [name for name in names if self.keep.get(name) == RECENT]
        temporary = [name for name in names[1:] if self.keep.get(name) == TEMPORARY]
        for name in recent[RECENT_CHECKPOINTS:] + temporary:
            gone = self.folder / f".gone-{name}"  # `load` ignores this name: it reads nothing partly deleted
            os.rename(self.folder / name, gone)
            atomic_files.remove(gone)
            del self.keep[name]
        for name in names[RECENT_CHECKPOINTS:]:
            if name not in self.keep and os.path.lexists(self.folder / name):
                self.move_to_damaged(name)  # unreadable: it may have been a milestone
        self._delete_unreferenced_chunks()

    def _delete_unreferenced_chunks(self) -> None:
        if not os.path.isdir(self.run / array_chunks.CHUNK_FOLDER):
            return
        with suppress(Damaged):  # an unreadable manifest may reference any chunk: delete none
            manifests = [checkpoint.read_manifest(self.folder / name) for name in self.candidates()]
            referenced = {chunk for manifest in manifests for chunk in manifest.chunks}
            array_chunks.delete_unreferenced(self.run, referenced)

    def move_to_damaged(self, name: str) -> None:
        """Move a checkpoint that does not verify to damaged/, under a name that is free there."""
        target = atomic_files.subfolder(self.run, "damaged") / name.removeprefix(".old-")
        number = 1
        while os.path.lexists(target):
            number += 1
            target = target.with_name(f"{target.name.partition('-')[0]}-{number}")
        os.rename(self.folder / name, target)
        self.keep.pop(name, None)
        atomic_files.sync_folder(target.parent)
        atomic_files.sync_folder(self.folder)
