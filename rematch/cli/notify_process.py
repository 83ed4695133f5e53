"""--notify: a process of its own that follows a run and sends messages about it.

The address may hold a token. It reaches the process through its standard input, never through its command
line, and stays out of the environment of all other processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rematch.cli.command import Option
from rematch.core.system import user_code

VARIABLE = "REMATCH_NOTIFY"
LAST_SECONDS = 2.0  # that a command waits for the last message
PROGRAM = "import sys; from rematch.cli.main import main; sys.exit(main())"
NOTIFY = Option(
    name="--notify", value="URL",
    help="send messages about the run (evaluation, alarm, stopped, died, done) to this web address: JSON, or "
         f"plain text to a topic of ntfy; also read from the variable {VARIABLE}",
)  # fmt: skip


def address_of(values: Mapping[str, str]) -> str:
    """The checked address of --notify or of the variable, which is removed; empty without one."""
    from rematch.reporting.exporters.webhook import Address

    url = values.get("--notify") or os.environ.get(VARIABLE, "")
    os.environ.pop(VARIABLE, None)  # bots and emulators do not see it
    if url:
        Address(url)
    return url


@contextlib.contextmanager
def notifying(url: str, folder: Path, show: Callable[[str], None]) -> Iterator[None]:
    """Follow the run in `folder` from a process of its own; `show` receives its lines, from a thread."""
    if not url:
        yield
        return
    words = ["notify", str(folder), "--url", "-", *user_code.child_flags()]
    # A session of its own: neither Ctrl-C nor the end of the terminal reaches it.
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    assert child.stdin is not None and child.stdout is not None
    output = child.stdout

    def read_lines() -> None:
        for line in output:
            show(line.decode(errors="replace").rstrip()[:300])

    reader = threading.Thread(target=read_lines, daemon=True)
    reader.start()
    try:
        child.stdin.write(f"{url}\n".encode())
        child.stdin.flush()
        yield
    finally:
        with contextlib.suppress(OSError):
            child.stdin.close()
        reader.join(LAST_SECONDS)  # it goes on by itself where that is not enough
        child.poll()
        child.returncode = child.returncode or 0  # no warning: the process is left to itself
