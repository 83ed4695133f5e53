"""tools/checks/component_cost.py: the time of the hooks of each component."""

from __future__ import annotations

from typing import Any

import component_cost
import pytest
from support.tiny_run import SMALL


def test_hooks_are_measured_and_a_limit_decides(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for kind in component_cost.COMPONENTS:
        for hook in component_cost.HOOKS:
            if hook in vars(kind):
                monkeypatch.setattr(kind, hook, vars(kind)[hook])  # put back after the test
    changes = [f"{key}={value}" for key, value in SMALL.items() if not isinstance(value, list)]
    words = ["quick", "--steps", "96", "--set", *changes, "evaluation.opponents=random", "network.hidden=8"]
    assert component_cost.main([*words, "--only", "league"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quick, 96 steps: ") and lines[-1].startswith("league ")
    assert "% of the time" in lines[-1] and " calls" in lines[-1]
    monkeypatch.setattr(component_cost, "MOST", 0.0)
    assert component_cost.main([*words, "--only", "league"]) == 1
