"""Importing rematch and printing help load no heavy library and take a moment only."""

from __future__ import annotations

import subprocess
import sys

from support.source_tree import ROOT


def best_of_three(code: list[str]) -> tuple[float, str]:
    """Seconds that a fresh Python says something took, at best, and the rest of what it printed.

    They are seconds of processor time, which a busy machine does not change.
    """
    output = []
    for _ in range(3):
        run = subprocess.run([sys.executable, *code], cwd=ROOT, capture_output=True, text=True, check=True)
        first, _, rest = run.stdout.partition("\n")
        output.append((float(first), rest))
    return min(output)


def test_importing_costs_next_to_nothing() -> None:
    watch = "import sys, time; t = time.process_time(); import rematch; print(time.process_time() - t);"
    watch += "print(*sys.modules)"
    seconds, modules = best_of_three(["-c", watch])
    assert seconds < 0.3
    assert not {"torch", "numpy", "yaml", "matplotlib", "rich"} & set(modules.split())


def test_help_comes_at_once() -> None:
    watch = (
        "import os, sys, subprocess;"
        "r = subprocess.run([sys.executable, '-m', 'rematch', '--help'], capture_output=True, text=True);"
        "t = os.times(); print(t.children_user + t.children_system); print(r.returncode, r.stderr, r.stdout)"
    )
    seconds, output = best_of_three(["-c", watch])
    assert seconds < 0.5 and output.startswith("0 ") and "  train RECIPE" in output
    code = "import sys; from rematch.cli.main import main; print(0); main([{}]); print(*sys.modules)"
    for words in ("", "'--help'", "'train', '--help'", "'eval', '-h'"):
        modules = best_of_three(["-c", code.format(words)])[1].split()
        assert not {"torch", "matplotlib", "numpy", "rich", "rematch.api"} & set(modules), words
