"""Savestates and which of them episodes begin from (rematch/curriculum/savestate_archive.py)."""

from pathlib import Path

from rematch.curriculum.savestate_archive import Swarm
from rematch.curriculum.start_states import Start, SwarmConfig


class CurriculumManager(Swarm):
    """The swarm by the document's names: a registry, sampling at a reset, chances that follow progress."""

    sample = Swarm.stage
    probabilities = Swarm.weights
    update = Swarm.report

    def registry(self, savestates: Path) -> dict[str, Path]:
        """Name -> file of every savestate so far, where `savestates` is the run's folder of them."""
        return {start.file.removesuffix(".state"): savestates / start.file for start in self.starts}


__all__ = ["CurriculumManager", "Start", "Swarm", "SwarmConfig"]
