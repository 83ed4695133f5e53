"""The plan of the package: what the trainer knows, learner names, sizes of folders."""

from __future__ import annotations

import architecture
import pytest


@pytest.mark.parametrize("rule", architecture.rules(), ids=lambda rule: rule.name)
def test_plan_of_the_package_holds(rule: architecture.Rule) -> None:
    assert not rule.broken, f"{rule.name}: {', '.join(rule.broken)}"


def test_rules_notice_what_they_forbid() -> None:
    import ast

    compare = ast.parse("config.learner == 'dqn'").body[0].value  # type: ignore[attr-defined]
    assert architecture.mentions_learner(compare)
    for text in ("hasattr(self.world, 'told')", "getattr(part, 'events', ())", "hasattr(player, 'x')"):
        assert architecture.probes_world(ast.parse(text).body[0].value), text  # type: ignore[attr-defined]
    setting = ast.parse("getattr(world, name)").body[0].value  # type: ignore[attr-defined]
    assert not architecture.probes_world(setting)
    none = ast.parse("part is None").body[0].value  # type: ignore[attr-defined]
    assert architecture.compares_with_none(none, {"part"})
    assert "League" in architecture.component_classes() and len(architecture.component_classes()) > 20
