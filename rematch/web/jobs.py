"""Jobs: games and calculations that the page asks for, one at a time, each in a child process.

The child has low priority, is bounded in time and in the size of its result, can be cancelled, and ends when
the server does. It never runs in the process of a training.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from typing import IO, Any

from rematch.core.system import user_code
from rematch.evaluation.text import clean

Json = dict[str, Any]
MOST_SECONDS = 180.0
MOST_RESULT = 1 << 25  # bytes
COMMAND = (sys.executable, "-m", "rematch.web.job_process")


class Refused(Exception):
    """A request that cannot be answered: its text is for the user."""


class Job:
    """One child process, and what is known of it."""

    def __init__(self, request: Json) -> None:
        self.id = secrets.token_hex(8)
        self.state, self.text, self.result = "running", "starting", None
        self.started = time.monotonic()
        self._child = subprocess.Popen(
            [*COMMAND, *user_code.child_flags()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()  # it stays open: its end tells the child that the server is gone
        reason = f"no result after {MOST_SECONDS:g} s"
        self._timer = threading.Timer(MOST_SECONDS, self._end, ("failed", reason))
        self._timer.daemon = True
        self._timer.start()
        threading.Thread(target=self._progress, daemon=True).start()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _progress(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            if self.state == "running":
                self.text = clean(line.decode("utf-8", "replace").strip())[:300]

    def _wait(self) -> None:
        output: IO[bytes] | None = self._child.stdout
        assert output is not None
        data = output.read(MOST_RESULT + 1)
        if len(data) > MOST_RESULT:
            self._end("failed", "the result is too large")
        self._child.wait()
        self._timer.cancel()
        if self.state != "running":
            return
        try:
            answer = json.loads(data)
            error = answer.get("error")
        except (ValueError, AttributeError):
            answer, error = {}, self.text or "the calculation ended without a result"
        if error is None:
            self.result = answer["result"]
        self.state, self.text = ("done", "") if error is None else ("failed", clean(str(error))[:1000])

    def _end(self, state: str, text: str) -> None:
        if self.state == "running":
            self.state, self.text = state, text
        self._child.kill()

    def cancel(self) -> None:
        self._end("cancelled", "cancelled")
        self._thread.join(5)

    def to_json(self) -> Json:
        seconds = round(time.monotonic() - self.started, 1) if self.state == "running" else None
        return {"job": self.id, "state": self.state, "text": self.text, "seconds": seconds,
                "result": self.result}  # fmt: skip


class Jobs:
    """The newest job of a server; a second one is refused while it runs."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._lock = threading.Lock()

    def start(self, world: str, name: str, request: Json) -> Json:
        """Start the job `name` of a world's page, or with "" of the page of any run."""
        with self._lock:
            if self._job is not None and self._job.state == "running":
                raise Refused("another game or calculation is running; wait for it or cancel it")
            self._job = Job({"world": world, "job": name, "request": request})
            return self._job.to_json()

    def find(self, job: object) -> Job:
        """The job of this identifier; Refused where it is not the newest."""
        present = self._job
        if present is None or present.id != job:
            raise Refused("there is no such job (any more)")
        return present

    def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
