"""The example notebook runs: progress while it trains, results as tables, a film inside."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rematch.core.system.progress import PROGRESS
from rematch.reporting.html import notebook

nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="pip install nbclient ipykernel")

EXAMPLE = Path(__file__).parents[1] / "examples" / "first_run.ipynb"


def html_of(cell: Any) -> str:
    return "".join(output["data"].get("text/html", "") for output in cell.outputs if "data" in output)


@pytest.mark.slow
def test_example_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parents[1]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    book = nbformat.read(EXAMPLE, as_version=4)
    client = nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.kernel_name = "python3"
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute()
    train, evaluation, tournament, film, numbers = [cell for cell in book.cells if cell.cell_type == "code"]
    assert "<progress" in html_of(train) and "24.6 K of 24.6 K steps" in html_of(train)
    assert "<table>" in html_of(train) and "verdict" in html_of(train)
    for cell in (evaluation, tournament):
        assert "<table>" in html_of(cell) and "95 % interval" in html_of(cell)
    assert "data:image/gif;base64," in html_of(film)
    assert numbers.outputs[-1]["data"]["text/plain"].startswith("[(2048, ")


def test_stored_notebook_is_executed_small_and_names_no_machine() -> None:
    text = EXAMPLE.read_text()
    book = json.loads(text)
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells) and '"output_type": "error"' not in text
    assert len(text) < 400_000
    assert not re.search(r"/(home|root|work|tmp|Users)/", text)


def test_outside_a_notebook_nothing_is_shown() -> None:
    assert notebook.kernel() is None
    notebook.enable()
    assert PROGRESS.show is None


def test_progress_bar_is_escaped_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    bar = notebook.ProgressBar()
    monkeypatch.setattr(bar.area, "show", lambda text, now=False: shown.append(text))
    bar.update(0.25, "<b>match</b>\nsecond")
    assert 'value="0.2500"' in shown[0] and "&lt;b&gt;match&lt;/b&gt;; second" in shown[0]
    bar.area.handle = object()
    bar.end()
    assert shown[-1] == "" and bar.area.handle is None


def test_errors_of_the_output_do_not_stop_a_training() -> None:
    console = notebook.NotebookConsole()
    console.area.handle = object()  # has no `update`
    console.start("run <x>", 100)
    console.progress(50, 10.0, {})
    console.line("a line\nanother")
    page = console.page()
    assert "run &lt;x&gt;: 50 of 100 steps" in page and "another" in page and 'value="0.5000"' in page
    console.stop()
