"""The bot of docs/reference/beasty.md, saved and played as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rematch.cli import main

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "beasty.md"


def test_bot_of_the_page_plays_when_it_is_copied_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PAGE.read_text().partition("### Your own bot")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    (file,) = re.findall(r"Save this as `(\w+\.py)`", section)
    (command,) = re.findall(r"^    rematch (.+mybots:MyBot.*)$", section, re.M)
    (tmp_path / file).write_text(code)
    monkeypatch.chdir(tmp_path)
    words = command.replace("--games 200", "--games 4").split()
    assert main.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["forfeits"] == []
    assert [(row["rival"], row["games"]) for row in result["table"]] == [("random", 4), ("heuristic", 4)]
