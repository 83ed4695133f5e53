"""How the suite runs: temporary files in memory, and the same hypothesis examples always
(HYPOTHESIS_PROFILE=search: new ones)."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.blank import white

from rematch.core.system import system_memory

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A shell that runs the suite in the background has it ignore Ctrl-C, and every child inherits that. The tests
# send it on purpose: put it back as a terminal has it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Two processes of tests share two cores: threads of numpy and PyTorch would wait for each other, spinning.
# Both read this when they are imported, the children too.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")  # a file system in memory on most Linux machines
MEMORY_BYTES = 4 << 30  # free there and in all; the tests need about one


def use_memory() -> None:
    """Put temporary files into memory, unless TMPDIR says where: most tests train a run, whose files wait for
    the disk at each save, and all these waits together are longer than a fourth of the work.

    A small file system, as in a container, or one without programs is not used. Chromium and Ray have files
    of their own there.
    """
    if "TMPDIR" in os.environ or any(name in os.environ for name in ("REMATCH_BROWSER", "REMATCH_CLUSTER")):
        return
    try:
        place = os.statvfs(MEMORY)
    except OSError:
        return
    room = min(place.f_bavail * place.f_frsize, system_memory.available_bytes())
    if room < MEMORY_BYTES or place.f_flag & os.ST_NOEXEC:
        return
    folder = MEMORY / f"rematch-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return  # somebody else's
    os.environ["TMPDIR"] = str(folder)  # of the children too
    tempfile.tempdir = None  # chosen again


use_memory()


# A test takes less than three CPU seconds or is marked `slow`. On a busy machine the same work takes longer:
# one of three took ten there.
MOST_CPU_SECONDS = 60.0
UNLIMITED = ("REMATCH_BROWSER", "REMATCH_CLUSTER", "HYPOTHESIS_PROFILE")  # suites of long tests


def cpu_seconds() -> float:
    """Of this process and of all its children that have ended."""
    usages = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """`make test` stays short: a test that takes too long fails."""
    began = cpu_seconds()
    yield
    seconds = cpu_seconds() - began
    if item.get_closest_marker("slow") or any(name in os.environ for name in UNLIMITED):
        return
    if seconds > MOST_CPU_SECONDS:
        pytest.fail(f"{seconds:.1f} CPU seconds: make it smaller, or mark it `slow` if it is long by nature")


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
