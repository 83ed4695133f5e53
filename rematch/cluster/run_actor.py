"""A whole run on a node of a cluster: a child process, and its folder in a temporary folder of that node."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import rematch
from rematch.cluster import folder_copy
from rematch.cluster.node_report import ERROR, describe, differences
from rematch.core.arrays import Tree, stored_int, stored_text, stored_texts
from rematch.storage.tree_bytes import decode, encode

OUTPUT = "output.log"  # beside the folder of the run
CHECK_SECONDS = 0.1
CHILD = ("import sys; from rematch.core.system.interrupts import stop_with_parent; "
         "stop_with_parent(int(sys.argv.pop(1))); "
         "from rematch.cli.main import main; sys.exit(main())")


class RunActor:
    """Runs one command in a folder of its own; `changes` gives what is new in it."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()

    def start(self, message: bytes) -> bytes:
        """Write the files of the run so far and start its command; the reply names node and process."""
        order = decode(message, "the order for a run")
        if problems := differences(order["machine"], describe()):
            return encode({ERROR: "; ".join(problems), "node": os.uname().nodename})
        self.top = Path(tempfile.mkdtemp(prefix="rematch-"))
        folder = self.top / stored_text(order, "folder")
        folder_copy.apply(self.top, order["beside"])
        folder_copy.apply(folder, order["run"])
        output = self.top / OUTPUT
        words = [word.replace("{TOP}", str(self.top)) for word in stored_texts(order, "command")]
        self.reader = folder_copy.FolderReader(folder)
        while not self.reader.changes()["complete"]:  # these files came from there
            pass
        self.output_sent, self.output = 0, output
        package = str(Path(rematch.__file__).parents[1])
        environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        threads = stored_int(order, "threads", 1)
        with output.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(os.getpid()), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0, cwd=self.top,
                env=environment | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)},
            )  # fmt: skip
        return encode({"node": os.uname().nodename, "process": self.child.pid})

    def changes(self, seconds: float) -> bytes:
        """What is new after at most `seconds`, and the exit code once the command has ended."""
        assert self.child is not None, "start comes first"
        with self.lock:
            deadline = time.monotonic() + seconds
            while self.child.poll() is None and time.monotonic() < deadline:
                time.sleep(CHECK_SECONDS)
            code = self.child.poll()
            changes = self.reader.changes()
            reply: Tree = {"run": changes, "output": self._output()}
            if code is not None and changes["complete"]:
                reply["code"] = code
            return encode(reply)

    def _output(self) -> Any:
        data = self.output.read_bytes()
        new, self.output_sent = data[self.output_sent :], len(data)
        return np.frombuffer(new, np.uint8)

    def stop(self, number: int) -> bytes:
        """Send the command a signal."""
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.Signals(number))
        return b""

    def remove(self) -> bytes:
        """Delete the temporary folder."""
        shutil.rmtree(self.top, ignore_errors=True)
        return b""
