"""Messages between a command and its driver process: a header of JSON and raw bytes, over a socket."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

SIZES = struct.Struct("<IQ")  # bytes of the header and of the payload

Header = dict[str, Any]


class Link:
    """One end of a socket; several threads may send, one receives."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.lock = end, threading.Lock()

    def send(self, header: Header, payload: bytes = b"") -> None:
        """Raises OSError where the other process has ended."""
        text = json.dumps(header).encode()
        with self.lock:
            self.end.sendall(SIZES.pack(len(text), len(payload)) + text)
            if payload:
                self.end.sendall(payload)

    def receive(self) -> tuple[Header, bytes]:
        """The next message; EOFError where the other process has ended."""
        header, payload = SIZES.unpack(self._bytes(SIZES.size))
        return json.loads(self._bytes(header)), self._bytes(payload)

    def _bytes(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.end.recv(count - len(data), socket.MSG_WAITALL)
            except OSError:
                more = b""
            if not more:
                raise EOFError("the other process has ended")
            data = data + more if data else more
        return data
