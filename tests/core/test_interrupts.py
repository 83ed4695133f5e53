"""Ctrl-C is never lost: raised where that works, noted where Python drops what is raised."""

from __future__ import annotations

import os
import signal
import sys
import weakref

import pytest

from rematch.cli import main
from rematch.core.interrupts import ATTENTION, Stopper


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


def test_an_interruption_that_python_drops_still_stops_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with ATTENTION:
        press_where_python_drops_it()
        with Stopper(None) as stop:
            assert stop() and stop.asked == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            ATTENTION.check()
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
    assert capsys.readouterr().err == ""
    with ATTENTION, Stopper(None) as stop:  # the note is gone with its command
        assert not stop()


def test_it_is_raised_at_once_or_after_patient_work() -> None:
    done = []
    with ATTENTION, pytest.raises(KeyboardInterrupt):
        press()
    with ATTENTION:
        with pytest.raises(KeyboardInterrupt), ATTENTION.patiently():
            press()
            done.append("the rest of it")
        with pytest.raises(KeyboardInterrupt), ATTENTION.patiently():
            press()  # the second time
            done.append("never")
    assert done == ["the rest of it"]


@pytest.mark.parametrize("became", [KeyboardInterrupt, ImportError, SystemError])
def test_whatever_it_becomes_on_its_way_it_is_one_line(
    became: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiled modules turn an interruption of their loading into errors of their own."""

    def interrupted(words: object) -> int:
        press_where_python_drops_it()
        raise became("initialization failed")

    monkeypatch.setattr(main, "obey", interrupted)
    assert main.main(["worlds"]) == 130
    assert capsys.readouterr().err == "rematch: interrupted; what was saved stands\n"


def test_other_dropped_exceptions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: told.append(what.exc_type)
    try:
        with ATTENTION:
            thing = Thing()
            watched = weakref.ref(thing, lambda _: 1 // 0)
            del thing
            assert watched() is None
    finally:
        sys.unraisablehook = before
    assert told == [ZeroDivisionError]


@pytest.mark.parametrize("asked", ["time", "SIGTERM"])
def test_ctrl_c_while_a_run_is_being_stopped_does_not_cut_its_save(asked: str) -> None:
    with Stopper(None) as stop:
        stop.asked = asked
        press()
        assert stop.asked == "SIGINT"
        with pytest.raises(KeyboardInterrupt):  # the second
            press()
