"""Reports of progress: parts of parts, equal parts, and nothing where no display is set."""

from __future__ import annotations

import pytest

from rematch.core.system.progress import ProgressReports


def test_parts_of_parts_scale_the_share() -> None:
    seen: list[tuple[float, str]] = []
    progress = ProgressReports()
    progress.report(0.5, "nobody listens")
    with progress.shown_by(lambda share, text: seen.append((share, text))):
        for item in progress.each(["a", "b"]):
            progress.report(0.0, item)
            with progress.part(0.5, 1.0):
                progress.report(0.5, item)
                progress.report(7.0, item)
        progress.report(1.0)
        with progress.shown_by(None):
            progress.report(0.0, "silent")
    progress.report(0.0, "over")
    assert seen == [(0.0, "a"), (0.375, "a"), (0.5, "a"), (0.5, "b"), (0.875, "b"), (1.0, "b"), (1.0, "")]


def test_error_restores_the_whole() -> None:
    progress = ProgressReports()
    with pytest.raises(KeyError), progress.part(0.2, 0.4):
        raise KeyError
    assert (progress.start, progress.end) == (0.0, 1.0)
