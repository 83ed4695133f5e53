"""Savestates, and which of them episodes start from (rematch/curriculum/savestate_archive.py)."""

from pathlib import Path

from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.start_states import SavestatesConfig, Start


class CurriculumManager(Archive):
    """The archive by the document's names: a registry, sampling at a reset, chances that follow progress."""

    sample = Archive.stage
    probabilities = Archive.weights
    update = Archive.report

    def registry(self, savestates: Path) -> dict[str, Path]:
        """Name -> file of every savestate so far, where `savestates` is the run's folder of them."""
        return {start.file.removesuffix(".state"): savestates / start.file for start in self.starts}


__all__ = ["Archive", "CurriculumManager", "SavestatesConfig", "Start"]
