"""A test that takes too much processor time fails, unless it is marked `slow`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize(("seconds", "slow"), [(65.0, False), (65.0, True), (3.0, False)])
def test_long_test_fails_unless_it_is_slow(
    seconds: float, slow: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = request.config.pluginmanager.get_plugins()
    conftest: Any = next(plugin for plugin in plugins if hasattr(plugin, "MOST_CPU_SECONDS"))
    times = iter([1.0, 1.0 + seconds])
    item = SimpleNamespace(get_closest_marker=lambda name: name if slow else None)
    fails = seconds > conftest.MOST_CPU_SECONDS and not slow
    with monkeypatch.context() as patch:
        for name in conftest.UNLIMITED:
            patch.delenv(name, raising=False)
        patch.setattr(conftest, "cpu_seconds", lambda: next(times))
        call = conftest.pytest_runtest_call(item)
        next(call)  # the test runs
        with pytest.raises(pytest.fail.Exception if fails else StopIteration):
            next(call)
