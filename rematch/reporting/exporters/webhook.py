"""Sends messages to a web address: as JSON, or as plain text to a topic of ntfy (https://ntfy.sh).

A thread sends them; the queue is bounded, every request has a time limit, redirects are not followed, and
failures are counted. The address may hold a token: no error or text of this module contains more of it than
the host.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from rematch.core.errors import ConfigError

MOST_WAITING = 100  # messages; the oldest are dropped
TRIES = 3
PAUSE = 2.0  # seconds before a message is tried again, times the number of tries
TIMEOUT = 10.0  # seconds for connecting, and for every part of an answer
DEADLINE = 20.0  # seconds for a whole request
MOST_ADDRESS = 2000  # characters
NTFY = "ntfy+"  # prefix of an address that is a topic of ntfy on a server of your own
PRIORITY = {"alarm": "4", "died": "5"}  # of ntfy; others have 3
TAGS = {"alarm": "warning", "died": "skull", "done": "checkered_flag", "evaluation": "bar_chart"}
EXPECTED = "expected https://HOST/PATH, http://HOST/PATH, or ntfy+https://HOST/TOPIC"


@dataclass(frozen=True)
class Message:
    """One event of a run."""

    event: str  # started, resumed, evaluation, alarm, stopped, died, done
    run: str
    text: str
    values: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"source": "rematch", "event": self.event, "run": self.run, "text": self.text, **self.values}


class Address:
    """A checked address. Its text shows the host only."""

    def __init__(self, url: str) -> None:
        self.ntfy = url.startswith(NTFY)
        parts = checked(url.removeprefix(NTFY))
        self.secure, self.host = parts.scheme == "https", str(parts.hostname)
        self.port = parts.port or (443 if self.secure else 80)
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.ntfy |= self.host == "ntfy.sh"

    def __repr__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.host}/..."

    def connect(self) -> http.client.HTTPConnection:
        if self.secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)


def checked(url: str) -> SplitResult:
    """The parts of an http address; ConfigError, without the address, for another one."""
    printable = url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url)
        valid = printable and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or len(url) > MOST_ADDRESS:
        raise ConfigError(f"--notify: {EXPECTED}")
    if parts.username or parts.password:
        raise ConfigError("--notify: a user name in the address is not supported; expected a token in its "
                          "path or query")
    return parts


def body(message: Message, ntfy: bool) -> tuple[bytes, dict[str, str]]:
    """The body of a request and its headers."""
    if not ntfy:
        return json.dumps(message.to_dict()).encode(), {"Content-Type": "application/json"}
    title = f"{message.run}: {message.event}".encode("ascii", "replace").decode()
    headers = {"Content-Type": "text/plain; charset=utf-8", "Title": title,
               "Priority": PRIORITY.get(message.event, "3"), "Tags": TAGS.get(message.event, "rocket")}
    return message.text.encode()[:4000], headers


def send(address: Address, message: Message) -> str:
    """Send a message; the reason where that fails, else ""."""
    data, headers = body(message, address.ntfy)
    headers["User-Agent"] = "rematch"
    connection = address.connect()
    stop = threading.Timer(DEADLINE, close_socket, [connection])
    stop.daemon = True
    stop.start()
    try:
        connection.request("POST", address.path, data, headers)
        status = connection.getresponse().status
    except TimeoutError:
        return f"no answer within {TIMEOUT:g} s"
    except ssl.SSLError:
        return "the certificate or the encryption was refused"
    except OSError as error:
        return (error.strerror or type(error).__name__).lower()
    except http.client.HTTPException as error:
        return f"no HTTP answer ({type(error).__name__})"
    finally:
        stop.cancel()
        connection.close()
    if 300 <= status < 400:
        return f"status {status}: a redirect, which is not followed"
    return "" if 200 <= status < 300 else f"status {status}"


def close_socket(connection: http.client.HTTPConnection) -> None:
    """End a request whose server answers byte by byte."""
    if isinstance(connection.sock, socket.socket):
        connection.sock.shutdown(socket.SHUT_RDWR)


class Sender:
    """Sends messages one after another in a thread of its own; `put` returns at once."""

    def __init__(self, address: Address, report: Callable[[str], None]) -> None:
        self.address, self.report = address, report
        self.sent = self.lost = 0
        self.reason = ""  # of the newest failure
        self._waiting: queue.Queue[Message | None] = queue.Queue(MOST_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, message: Message | None) -> None:
        """Add a message; where the queue is full, the oldest one is lost."""
        while True:
            try:
                self._waiting.put_nowait(message)
                return
            except queue.Full:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        try:
            self._waiting.get_nowait()
            self._fail("more messages than the address accepts")
        except queue.Empty:
            pass

    def close(self, seconds: float) -> None:
        """Send what is waiting, for at most `seconds`; the rest is lost."""
        self.put(None)
        self._thread.join(seconds)
        self._closing.set()
        self.lost += max(0, self._waiting.qsize() - 1) if self._thread.is_alive() else 0

    def summary(self) -> str:
        """One line with the numbers of sent and lost messages."""
        lost = f", {self.lost} lost ({self.reason})" if self.lost else ""
        return f"notify: {self.sent} messages sent to {self.address}{lost}"

    def _run(self) -> None:
        while (message := self._waiting.get()) is not None:
            for attempt in range(1, TRIES + 1):
                reason = send(self.address, message)
                if not reason or self._closing.wait(PAUSE * attempt if attempt < TRIES else 0.0):
                    break
            if reason:
                self._fail(reason)
            else:
                self.sent += 1

    def _fail(self, reason: str) -> None:
        """Count a lost message; the first one is reported."""
        self.lost, self.reason = self.lost + 1, reason
        if self.lost == 1:
            self.report(f"notify: a message to {self.address} was lost: {reason}; further ones are counted")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
