"""Savestates and the choice of start states (rematch/curriculum/savestate_archive.py)."""

from pathlib import Path

from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.start_states import SavestatesConfig, Start


class CurriculumManager(Archive):
    """The archive under the earlier project's names: registry, sampling at resets, start probabilities."""

    sample = Archive.next_stage
    probabilities = Archive.start_weights
    update = Archive.record_rollout

    def registry(self, savestates: Path) -> dict[str, Path]:
        """Name -> file of every savestate; `savestates` is the folder of a run."""
        return {start.file.removesuffix(".state"): savestates / start.file for start in self.starts}


__all__ = ["Archive", "CurriculumManager", "SavestatesConfig", "Start"]
