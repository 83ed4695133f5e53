"""How the suite runs: the same hypothesis examples always (HYPOTHESIS_PROFILE=search: new ones)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.blank import white

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A shell that runs the suite in the background has it ignore Ctrl-C, and every child inherits that. The tests
# send it on purpose: put it back as a terminal has it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def blank_pictures() -> Iterator[None]:
    """For modules that train often and do not look: learning.png and match.gif are white, here and in
    children that inherit PYTHONPATH. Drawing them takes one second, two with the library's import."""
    from rematch.reporting import learning_curves, match_film

    folder = Path(__file__).parent / "support/blank"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_curves, "learning", lambda *_: white.png())
        patch.setattr(match_film, "film", lambda *_, **__: (white.gif(), ""))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        yield
