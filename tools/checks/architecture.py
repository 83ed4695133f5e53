"""Measures the plan of the package: what the trainer knows, which learner names are compared, folder sizes.

    python tools/checks/architecture.py

Prints one line per rule with its figure and its limit; exit code 1 where one is broken.
tests/architecture/test_components.py holds the same rules.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rematch"
HUBS = ("training/loop.py", "training/trainer.py")
MOST_LINES, MOST_IMPORTS, MOST_MODULES = 150, 10, 15
PROBED = frozenset({"world", "part", "game", "player", "opponent", "bot"})
NAMES_OF_LEARNERS = frozenset({"ppo", "dqn", "lookahead", "expert"})


@dataclass(frozen=True)
class Rule:
    """One rule: what was measured, its limit, and the places that break it."""

    name: str
    figure: str
    broken: tuple[str, ...] = ()


@functools.cache  # several rules read every file
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def imports_of(path: Path) -> set[str]:
    """Modules of Rematch that a file imports."""
    out: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rematch"):
            out.add(str(node.module))
        elif isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names if alias.name.startswith("rematch")}
    return out


def component_classes() -> set[str]:
    """Names of the classes in training/component_list.py."""
    out: set[str] = set()
    for node in ast.walk(tree_of(PACKAGE / "training/component_list.py")):
        if isinstance(node, ast.Tuple):
            out |= {element.id for element in node.elts if isinstance(element, ast.Name)}
    return out


def hub_sizes() -> list[Rule]:
    """The trainer is short, and the loop and the trainer import few modules."""
    lines = len((PACKAGE / "training/trainer.py").read_text().splitlines())
    long = (f"training/trainer.py: {lines} lines",) if lines > MOST_LINES else ()
    fan_out = {hub: len(imports_of(PACKAGE / hub)) for hub in HUBS}
    wide = tuple(f"{hub} imports {count}" for hub, count in fan_out.items() if count > MOST_IMPORTS)
    return [
        Rule("lines of the trainer", f"{lines} (at most {MOST_LINES})", long),
        Rule("imports of loop and trainer", f"{max(fan_out.values())} (at most {MOST_IMPORTS})", wide),
    ]


def hub_knowledge() -> Rule:
    """Loop and trainer name no component, probe none and compare none with None."""
    names, broken = component_classes(), []
    for hub in HUBS:
        tree = tree_of(PACKAGE / hub)
        parts = part_names(tree)
        for node in ast.walk(tree):
            place = f"{hub}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Name) and node.id in names:
                broken.append(f"{place} names {node.id}")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in ("isinstance", "hasattr", "getattr"):
                    broken.append(f"{place} calls {node.func.id}")
            elif isinstance(node, ast.Compare) and compares_with_none(node, parts):
                broken.append(f"{place} compares a component with None")
    return Rule("what loop and trainer know of components", f"{len(broken)} (none)", tuple(broken))


def part_names(tree: ast.Module) -> set[str]:
    """Names that hold components: parameters and loop variables called part, component or p."""
    names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names & {"part", "p", "component", "kind"}


def compares_with_none(node: ast.Compare, parts: set[str]) -> bool:
    sides = [node.left, *node.comparators]
    none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    return none and any(isinstance(side, ast.Name) and side.id in parts for side in sides)


def learner_comparisons() -> Rule:
    """No learner's name is compared outside of agents/."""
    broken = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] == "agents":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Compare) and mentions_learner(node):
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return Rule("comparisons of learner names outside agents/", f"{len(broken)} (none)", tuple(broken))


def mentions_learner(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    attribute = any(isinstance(s, ast.Attribute) and s.attr == "learner" for s in sides)
    texts = [c.value for s in sides for c in ast.walk(s) if isinstance(c, ast.Constant)]
    return attribute and any(text in NAMES_OF_LEARNERS for text in texts)


def world_probes() -> Rule:
    """No world, game or player is probed for names that it may not have: capabilities are objects or None."""
    broken = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and probes_world(node):
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return Rule("probes of worlds for optional names", f"{len(broken)} (none)", tuple(broken))


def probes_world(node: ast.Call) -> bool:
    """hasattr(world, "name") or getattr(world, "name", default), also of a part, a game or a player."""
    if not (isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr") and node.args):
        return False
    if not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant)):
        return False
    first = node.args[0]
    name = first.id if isinstance(first, ast.Name) else getattr(first, "attr", "")
    optional = node.func.id == "hasattr" or len(node.args) == 3
    return optional and name.rstrip("s") in PROBED


def folder_sizes() -> Rule:
    """At most so many modules lie in a folder; cli/commands has one per command."""
    counts = Counter(path.parent for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    counts.pop(PACKAGE / "cli/commands", None)
    sizes = {str(folder.relative_to(ROOT)): count for folder, count in counts.items()}
    broken = tuple(f"{folder}: {count}" for folder, count in sorted(sizes.items()) if count > MOST_MODULES)
    return Rule("modules in one folder", f"{max(sizes.values())} (at most {MOST_MODULES})", broken)


def rules() -> list[Rule]:
    return [*hub_sizes(), hub_knowledge(), learner_comparisons(), world_probes(), folder_sizes()]


def main() -> int:
    broken = False
    for rule in rules():
        print(f"{'BROKEN' if rule.broken else 'holds '}  {rule.name}: {rule.figure}")
        for place in rule.broken:
            print(f"          {place}")
        broken |= bool(rule.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
