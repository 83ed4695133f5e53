"""checkpoints/: commits, keeps, sets aside. A save that is cut short leaves the one before it as it was.

Commit (DESIGN section 6): files, manifest, fsync each, rename, fsync the folder, read back; only then may an
older one go. Names with a dot are on their way in or out: .tmp- (being written), .old- (about to be replaced;
`load` still knows it), .gone- (being removed).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rematch.core.errors import ConfigError, Damaged, RunError
from rematch.storage import array_chunks, atomic_files
from rematch.storage import checkpoint as disk
from rematch.storage.array_chunks import Chunk
from rematch.storage.atomic_files import told
from rematch.storage.checkpoint import Checkpoint, Manifest

KEPT = 3


class Shelf:
    """The checkpoints of the run in one folder; `config` is the SHA-256 of its config.yaml."""

    def __init__(self, run: Path, config: str) -> None:
        self.run, self.folder, self.config = run, run / "checkpoints", config
        self.keeps: dict[str, str] = {}  # checkpoint -> recent | milestone | passing

    def commit(self, manifest: Manifest, contents: dict[str, bytes], parts: Sequence[Chunk] = ()) -> Path:
        """All files together or none; chunks that are not on the disk yet come first.

        On RunError the checkpoints before it are as they were.
        """
        final = self.folder / f"iter_{manifest.iteration:08d}"
        beside, old = final.with_name(f".tmp-{final.name}"), final.with_name(f".old-{final.name}")
        sealed, moved = manifest.sealed(), False
        try:
            atomic_files.subfolder(self.run, "checkpoints")
            self.sweep()
            array_chunks.store(self.run, parts)
            if os.path.lexists(final):  # saved before; most likely the very same
                with suppress(Damaged):
                    if disk.verify(final)[0].sealed() == sealed:
                        atomic_files.sync_folder(final.parent)
                        return final
            os.mkdir(beside, 0o700)
            for name, data in (contents | {disk.MANIFEST: sealed}).items():
                atomic_files.write_new(beside / name, data)
            atomic_files.sync_folder(beside)
            if os.path.lexists(final):
                os.rename(final, old)  # `load` knows this name, should we die before the next line
            os.rename(beside, final)
            moved = True
            atomic_files.sync_folder(final.parent)
            disk.verify(final)
            array_chunks.there(self.run, manifest.chunks)
        except (OSError, Damaged) as error:
            with suppress(OSError):
                if moved:
                    os.rename(final, beside)
                self.sweep()
            raise RunError(f"checkpoint {final.name} was not saved: {atomic_files.reason(error)}") from error
        self.keeps[final.name] = manifest.keep
        with suppress(OSError, RunError):  # what cannot be removed now is tried again by the next save
            self.sweep()
            self.prune()
        return final

    def load(self, whole: bool = True) -> Checkpoint | None:
        """The newest checkpoint that verifies, and why newer ones did not; None if none was ever saved.

        Changes nothing. Where there are checkpoints and none verifies, it refuses. Chunks are hashed only for
        the `whole`: a replay is a gigabyte, and who wants the weights alone need not wait for it.
        """
        names: list[str] | None = None
        skipped: list[tuple[str, str]] = []
        while names != (found := self.candidates()):  # a writer may be at work while we only read
            names, skipped = found, []
            for name in names:
                try:
                    checkpoint = disk.read_checkpoint(self.folder / name, whole)
                    if checkpoint.manifest.config != self.config:
                        raise Damaged("it was saved under another config.yaml than this run has now")
                    return replace(checkpoint, skipped=skipped)
                except Damaged as why:
                    skipped.append((name, str(why)))
        if not names:
            return None
        shown = "; ".join(f"{name}: {why}" for name, why in skipped[:4])
        raise ConfigError(f"{self.run}: none of its {len(names)} checkpoints verifies ({shown}): "
                          "refusing to start, nothing was changed")

    def candidates(self) -> list[str]:
        """Checkpoints, newest first; one that was about to be replaced comes after its replacement."""
        with told(f"{self.run} cannot be read"):
            if not os.path.lexists(self.folder):
                return []
            if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
                raise ConfigError(f"{self.folder} is not a plain folder")
            names = [name for name in os.listdir(self.folder)
                     if disk.NAME.fullmatch(name.removeprefix(".old-"))]
        return sorted(names, key=lambda name: (int(name.rpartition("_")[2]), name[0] != "."), reverse=True)

    def sweep(self) -> None:
        """Remove what a crash left half written or half removed; finish or undo a replacement."""
        for name in sorted(os.listdir(self.folder)) if os.path.lexists(self.folder) else []:
            if name.startswith((".tmp-", ".gone-")):
                atomic_files.remove(self.folder / name)
            elif name.startswith(".old-"):
                new = self.folder / name.removeprefix(".old-")
                if not os.path.lexists(new):
                    os.rename(self.folder / name, new)
                else:
                    with suppress(Damaged):
                        disk.verify(new)
                        atomic_files.remove(self.folder / name)

    def prune(self) -> None:
        """Keep the newest three, milestones, and a passing one only while it is the newest of all."""
        names = [name for name in self.candidates() if not name.startswith(".")]
        for name in set(names) - set(self.keeps):
            with suppress(Damaged):
                self.keeps[name] = disk.read_manifest(self.folder / name).keep
        recent = [name for name in names if self.keeps.get(name) == "recent"]
        passing = [name for name in names[1:] if self.keeps.get(name) == "passing"]
        for name in recent[KEPT:] + passing:
            gone = self.folder / f".gone-{name}"  # a name that `load` does not know: half removed is removed
            os.rename(self.folder / name, gone)
            atomic_files.remove(gone)
            del self.keeps[name]
        for name in names[KEPT:]:
            if name not in self.keeps and os.path.lexists(self.folder / name):
                self.set_aside(name)  # unreadable: it may have been a milestone
        if not os.path.isdir(self.run / array_chunks.FOLDER):
            return
        with suppress(Damaged):  # who cannot be read may name any of them
            found = [disk.read_manifest(self.folder / name).chunks for name in self.candidates()]
            array_chunks.thin(self.run, {chunk for named in found for chunk in named})

    def set_aside(self, name: str) -> None:
        """Move a checkpoint that does not verify to damaged/, under a name that is free there."""
        aside = atomic_files.subfolder(self.run, "damaged") / name.removeprefix(".old-")
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = aside.with_name(f"{aside.name.partition('-')[0]}-{number}")
        os.rename(self.folder / name, aside)
        self.keeps.pop(name, None)
        atomic_files.sync_folder(aside.parent)
        atomic_files.sync_folder(self.folder)
