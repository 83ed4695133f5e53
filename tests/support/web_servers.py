"""A local HTTP server for tests: it records requests and answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One request."""

    path: str
    headers: Any
    body: bytes


@contextmanager
def server(
    status: int = 200, redirect: str = "", wait: float = 0.0, fail_first: int = 0
) -> Iterator[tuple[str, list[Received]]]:
    """The address of a server, and the requests that it has received."""
    received: list[Received] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(Received(self.path, self.headers, body))
            time.sleep(wait)
            self.send_response(302 if redirect else 500 if len(received) <= fail_first else status)
            if redirect:
                self.send_header("Location", redirect)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    web.daemon_threads = True
    web.block_on_close = False
    web.handle_error = lambda *_: None  # type: ignore[method-assign, assignment]
    threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{web.server_address[1]}", received
    finally:
        web.shutdown()
        web.server_close()
