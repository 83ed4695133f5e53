"""tools/checks/cluster.py: what its cases are compared with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cluster
import pytest


def test_table_is_made_without_a_cluster_and_a_failure_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 0

    def command(words: list[str], environment: Any = None) -> Any:
        assert words[:2] == ["tournament", "beasty"] and "--cluster" not in words
        return SimpleNamespace(stdout="[]\n", stderr="no disk", returncode=code)

    monkeypatch.setattr(cluster, "command", command)
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(cluster.Check, "reference", lambda self, case: tmp_path / "local" / case)
    check = cluster.Check(tmp_path, False)
    work = cluster.Disturbed(check, "tournament", tmp_path / "kills-0")
    assert work.local.read_text() == "[]\n"
    work.output.write_text("[]\n")
    assert work.differences() == []
    work.output.write_text("[1]\n")
    assert work.differences() == ["another table"]
    work.local.unlink()
    code = 2
    with pytest.raises(SystemExit, match="tournament fails without a cluster: no disk"):
        cluster.Disturbed(check, "tournament", tmp_path / "kills-1")
