"""A server of the page in a thread, and a client that sends what a test wants."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from rematch.web import server
from support.patience import PATIENCE, wait_until

TOKEN = "a-token-of-this-test"


class Client:
    """Requests to a server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(
        self, path: str, method: str = "GET", token: str | None = TOKEN, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent.setdefault("Cookie", f"{server.cookie_name(self.port)}={token}")
        connection.putrequest(method, path, skip_host="Host" in sent)
        if body:
            sent.setdefault("Content-Length", str(len(body)))
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        if body:
            with contextlib.suppress(BrokenPipeError):
                connection.send(body)
        response = connection.getresponse()
        result = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        connection.close()
        return result

    def json(self, path: str) -> Any:
        status, _, body = self.send(path)
        assert status == 200, (path, status, body[:200])
        return json.loads(body)

    def post(self, path: str, value: Any, **more: Any) -> tuple[int, Any]:
        """Status, and the JSON value of the answer or its text."""
        more.setdefault("Content_Type", "application/json")
        status, _, body = self.send(path, "POST", body=json.dumps(value).encode(), **more)
        return status, json.loads(body) if status == 200 else body.decode()

    def finished(self, world: str, job: str) -> Any:
        """The job's last answer."""
        answers: list[Any] = []

        def ended() -> bool:
            answers.append(self.json(f"/api/jobs/{job}"))
            return bool(answers[-1]["state"] != "running")

        wait_until(ended, lambda: f"{answers[-1]} is still running")
        return answers[-1]


@contextlib.contextmanager
def serving(root: Path) -> Iterator[int]:
    """The port of a server of the runs in `root`."""
    listening = server.bind("127.0.0.1", 0)
    port = int(listening.getsockname()[1])
    app = server.make_app(root, TOKEN, server.host_names("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield port
    finally:
        running.should_exit = True
        thread.join(10)


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    """A client of a server of the runs in the folder of the fixture `root`."""
    with serving(root) as port:
        yield Client(port)
