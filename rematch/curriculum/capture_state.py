"""What the games of a rollout need to start from savestates and to be captured: for other processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.core.arrays import Bytes, Tree, stored_bool, stored_int, stored_list
from rematch.core.component import PlayState
from rematch.curriculum.savestate_archive import Archive, CaptureBasis


class CaptureState(PlayState):
    """The savestates of the library, and what captures of a rollout are compared with."""

    def __init__(self, archive: Archive, pack: Any, unpack: Any) -> None:
        self.archive, self.pack, self.unpack = archive, pack, unpack
        self.packed: list[tuple[str, Bytes]] = []  # of the library: digest and file, as far as packed

    def shared(self) -> Tree:
        library, basis = self.archive.world.library, self.archive.capture_basis
        digests = [str(bundle.sha256) for bundle in library]
        if [digest for digest, _ in self.packed] != digests[: len(self.packed)]:
            self.packed = []  # the library was restored to an earlier state
        for bundle in list(library)[len(self.packed) :]:
            self.packed.append((str(bundle.sha256), np.frombuffer(self.pack(bundle), np.uint8)))
        files = {f"{number:06d}": file for number, (_, file) in enumerate(self.packed)}
        known = sorted(sorted(names) for names in basis.known)
        return {"digests": digests, "files": files, "quarantine": dict(library.quarantine), "known": known,
                "starts": basis.starts, "record": basis.record, "finished": basis.finished}

    def load_shared(self, tree: Tree) -> None:
        archive, library = self.archive, self.archive.world.library
        present = [bundle.sha256 for bundle in library]
        if present != tree["digests"][: len(present)]:
            library.clear()
        for number in range(len(library), len(tree["digests"])):
            library.add(self.unpack(tree["files"][f"{number:06d}"].tobytes()))
        library.quarantine.clear()
        library.quarantine.update(tree["quarantine"])
        known = frozenset(frozenset(names) for names in stored_list(tree, "known"))
        archive.captured_sets.clear()
        archive.capture_basis = CaptureBasis(
            stored_int(tree, "starts"), known, stored_int(tree, "record"), stored_bool(tree, "finished"))

    def results(self, games: slice) -> Tree:
        return {"quarantine": dict(self.archive.world.library.quarantine)}

    def load_results(self, tree: Tree, games: slice) -> None:
        self.archive.world.library.quarantine.update(tree["quarantine"])
