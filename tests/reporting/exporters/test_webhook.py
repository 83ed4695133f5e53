"""Messages to a web address: real local servers that are good, slow, dead or redirect."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from support.web_servers import Received, server

from rematch.core.errors import ConfigError
from rematch.reporting.exporters import webhook
from rematch.reporting.exporters.webhook import Address, Message, Sender, send

MESSAGE = Message("alarm", "mine", "the gap is large: 0.9 [0.8, 1.0] – n = 1000", {"step": 5})


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "PAUSE", 0.01)
    monkeypatch.setattr(webhook, "TIMEOUT", 0.5)
    monkeypatch.setattr(webhook, "DEADLINE", 1.0)


def test_json_is_posted() -> None:
    with server() as (url, received):
        assert send(Address(f"{url}/hook?token=abc"), MESSAGE) == ""
    (request,) = received
    assert request.path == "/hook?token=abc" and request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {"source": "rematch", "event": "alarm", "run": "mine",
                                        "text": MESSAGE.text, "step": 5}


def test_ntfy_gets_plain_text() -> None:
    with server() as (url, received):
        assert send(Address(f"ntfy+{url}/topic"), MESSAGE) == ""
    (request,) = received
    assert request.body.decode() == MESSAGE.text
    assert request.headers["Title"] == "mine: alarm" and request.headers["Priority"] == "4"
    assert Address("https://ntfy.sh/topic").ntfy and not Address("https://example.org/ntfy.sh").ntfy


def test_redirect_is_not_followed() -> None:
    with server() as (target, hits), server(redirect=f"{target}/stolen") as (url, received):
        assert "a redirect, which is not followed" in send(Address(f"{url}/secret"), MESSAGE)
        assert len(received) == 1 and not hits


def test_errors_are_reasons_without_the_address() -> None:
    with server(status=503) as (url, _):
        assert send(Address(f"{url}/secret"), MESSAGE) == "status 503"
    with server(wait=3.0) as (url, _):
        assert "no answer within" in send(Address(f"{url}/secret"), MESSAGE)
    with free_port() as port:
        assert "refused" in send(Address(f"http://127.0.0.1:{port}/secret"), MESSAGE)
    assert send(Address("http://no-such-host.invalid/secret"), MESSAGE)


@contextmanager
def free_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield port


def test_answer_byte_by_byte_ends() -> None:
    """Each byte comes in time, the answer never ends: the deadline counts."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(b"H")

    threading.Thread(target=drip, daemon=True).start()
    assert send(Address(f"http://127.0.0.1:{listening.getsockname()[1]}/"), MESSAGE)
    assert not over.is_set(), "the bytes have not ended"
    over.set()
    listening.close()


@pytest.mark.parametrize("url", [
    "ftp://host/x", "file:///etc/passwd", "https://", "host/x", "http://host:99999/", "http://ho st/secret",
    "http://host/\n", "javascript:alert(1)", "http://host:0/", "ntfy+file:///x", "http://ä/secret",
    "http://u:secret@host/", "https://host/" + "x" * 3000,
])  # fmt: skip
def test_other_addresses_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address(url)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_sender_never_waits_and_counts_what_is_lost() -> None:
    lines: list[str] = []
    with server(wait=60.0) as (url, _):
        sender = Sender(Address(f"{url}/secret"), lines.append)
        started = time.monotonic()
        for _ in range(5 * webhook.MOST_WAITING):
            sender.put(MESSAGE)
        assert time.monotonic() - started < 30.0  # one answer takes a minute
        sender.close(0.2)
    assert sender.lost >= 4 * webhook.MOST_WAITING and sender.sent == 0
    assert len(lines) == 1 and "further ones are counted" in lines[0]
    assert "secret" not in lines[0] + sender.summary() + repr(sender.address)


def test_message_is_tried_again() -> None:
    with server(fail_first=2) as (url, received):
        sender = Sender(Address(url), pytest.fail)
        sender.put(MESSAGE)
        sender.close(5.0)
    assert sender.sent == 1 and sender.lost == 0 and len(received) == 3


def test_messages_keep_their_order() -> None:
    received: list[Received]
    with server() as (url, received):
        sender = Sender(Address(url), pytest.fail)
        for step in range(20):
            sender.put(Message("evaluation", "mine", "", {"step": step}))
        sender.close(5.0)
    steps: list[Any] = [json.loads(request.body)["step"] for request in received]
    assert steps == list(range(20))
