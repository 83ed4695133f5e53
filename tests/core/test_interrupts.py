"""Interrupts: a Ctrl-C is never lost, also where Python drops its exception."""

from __future__ import annotations

import os
import signal
import sys
import weakref

import pytest

from rematch.cli import main
from rematch.core.system.interrupts import INTERRUPTS, StopRequest


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Thing:
    """Something that a weak reference can watch."""


def press_where_python_drops_it() -> None:
    """In the callback of a weak reference, as in importlib's locks."""
    thing = Thing()
    watched = weakref.ref(thing, lambda _: press())
    del thing
    assert watched() is None


def test_ctrl_c_that_python_drops_still_stops_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with INTERRUPTS:
        press_where_python_drops_it()
        with StopRequest(None) as stop:
            assert stop() and stop.reason == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            INTERRUPTS.raise_if_received()
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
    assert capsys.readouterr().err == ""
    with INTERRUPTS, StopRequest(None) as stop:  # a new command has no recorded signal
        assert not stop()


def test_ctrl_c_is_raised_at_once_or_after_a_deferred_block() -> None:
    done = []
    with INTERRUPTS, pytest.raises(KeyboardInterrupt):
        press()
    with INTERRUPTS:
        with pytest.raises(KeyboardInterrupt), INTERRUPTS.deferred():
            press()
            done.append("the rest of it")
        with pytest.raises(KeyboardInterrupt), INTERRUPTS.deferred():
            press()  # the second time
            done.append("never")
    assert done == ["the rest of it"]


@pytest.mark.parametrize("became", [KeyboardInterrupt, ImportError, SystemError])
def test_ctrl_c_that_became_another_exception_is_one_line(
    became: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiled modules turn an interrupt while they load into other exceptions."""

    def interrupted(words: object) -> int:
        press_where_python_drops_it()
        raise became("initialization failed")

    monkeypatch.setattr(main, "dispatch", interrupted)
    assert main.main(["worlds"]) == 130
    assert capsys.readouterr().err == "rematch: interrupted\n"
    assert main.main(["train", "quick"]) == 130
    assert capsys.readouterr().err == "rematch: interrupted; checkpoints that were saved are intact\n"


def test_other_unraisable_exceptions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    messages = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: messages.append(what.exc_type)
    try:
        with INTERRUPTS:
            thing = Thing()
            watched = weakref.ref(thing, lambda _: 1 // 0)
            del thing
            assert watched() is None
    finally:
        sys.unraisablehook = before
    assert messages == [ZeroDivisionError]


@pytest.mark.parametrize("reason", ["time", "SIGTERM"])
def test_ctrl_c_after_another_stop_request_does_not_interrupt_the_save(reason: str) -> None:
    with StopRequest(None) as stop:
        stop.reason = reason
        press()
        assert stop.reason == "SIGINT"
        with pytest.raises(KeyboardInterrupt):  # the second
            press()
