"""The plan of the package: what the trainer knows, learner names, sizes of folders."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import architecture
import pytest


def test_plan_of_the_package_holds() -> None:
    rules = architecture.rules()
    assert len(rules) == 6
    assert {rule.name: rule.broken for rule in rules if rule.broken} == {}


def test_rules_notice_what_they_forbid() -> None:
    compare = ast.parse("config.learner == 'dqn'").body[0].value  # type: ignore[attr-defined]
    assert architecture.mentions_learner(compare)
    for text in ("hasattr(self.world, 'told')", "getattr(part, 'events', ())", "hasattr(player, 'x')"):
        assert architecture.probes_world(ast.parse(text).body[0].value), text  # type: ignore[attr-defined]
    setting = ast.parse("getattr(world, name)").body[0].value  # type: ignore[attr-defined]
    assert not architecture.probes_world(setting)
    none = ast.parse("part is None").body[0].value  # type: ignore[attr-defined]
    assert architecture.compares_with_none(none, {"part"})
    assert "League" in architecture.component_classes() and len(architecture.component_classes()) > 20


READERS = ("agents/learners", "selfplay", "curriculum", "exploration", "stability", "training/components")
BUFFERS = ("rollout", "role_rollout", "track", "part")  # names of buffers and of one role's part of them
COLUMNS = {"obs", "action", "mask", "privileged", "logp", "value", "reward", "acted", "slot", "outcome",
           "ended", "length", "started", "states", "forced", "demo_index", "last_value", "cut_value",
           "last_acting"}


def direct_reads(tree: ast.AST) -> Iterator[str]:
    """Columns that are read without `host`; a comparison with None and an assignment are no reads."""
    allowed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            allowed.add(id(node.left))
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            allowed.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in COLUMNS and id(node) not in allowed:
            owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(owner, ast.Name) and owner.id in BUFFERS:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_direct_reads_are_noticed() -> None:
    for text in ("rollout.ended[t] != 0", "rollout[role].obs", "x = track.slot == 0"):
        assert list(direct_reads(ast.parse(text))), text
    for text in ("rollout.host('ended')", "rollout.states is not None", "rollout.ended[:] = 0", "role.slot"):
        assert not list(direct_reads(ast.parse(text))), text


@pytest.mark.parametrize("folder", READERS)
def test_components_read_rollout_columns_with_host(folder: str) -> None:
    paths = sorted((architecture.PACKAGE / folder).glob("*.py"))
    result = {path.name: list(direct_reads(ast.parse(Path(path).read_text()))) for path in paths}
    assert len(paths) > 1 and not {name: reads for name, reads in result.items() if reads}
