"""A game from a Python file: `rematch train ./my_world.py`; exact resume; never imported unless allowed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.trainers import resume_run, start_run

import rematch
from rematch.cli.main import main
from rematch.core.errors import ConfigError
from rematch.core.system import user_code
from rematch.rehearsal.compare import differences
from rematch.reporting.status import status
from rematch.storage.run_folder import Run
from rematch.training.fingerprint import fingerprint
from rematch.training.recipes import configure, stored_config
from rematch.verbs.report import report
from rematch.verbs.tournament import tournament
from rematch.worlds import registry

EXAMPLE = Path(rematch.__file__).parents[1] / "examples/tic_tac_toe.py"
SMALL: dict[str, Any] = {
    "games": 8, "steps": 8, "total_steps": 8 * 8 * 4, "save_every": 1, "evaluation.games": 4,
    "network.hidden": [8],
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_code_is_allowed() -> Any:
    with user_code.nothing_allowed():
        yield


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the example, relative to the working folder."""
    shutil.copy(EXAMPLE, tmp_path / "my_world.py")
    monkeypatch.chdir(tmp_path)
    return "./my_world.py"


def test_game_of_a_file_trains_and_resumes_exactly(file: str, tmp_path: Path) -> None:
    config = configure(file, changes=SMALL)
    assert config.game == f"{tmp_path / 'my_world.py'}:GAME" and registry.title(config.game) == "my_world"
    start_run(tmp_path / "whole", config)
    start_run(tmp_path / "cut", config, lambda trainer: trainer.clock.iteration >= 2)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_settings_of_the_file_are_flags(file: str) -> None:
    assert configure(f"{file}:GAME", flags=["--world.draw", "0.25"]).world.draw == 0.25
    with pytest.raises(ConfigError, match=r"world\.drow.*nearest: .*world\.draw"):
        configure(file, flags=["--world.drow", "0.25"])


def test_other_rules_have_another_fingerprint(file: str) -> None:
    before = fingerprint(configure(file))
    other = Path("other.py")
    other.write_text(Path(file).read_text() + "# other rules\n")
    assert fingerprint(configure("./other.py")) != before


def test_run_of_a_file_imports_nothing_unless_allowed(file: str, tmp_path: Path) -> None:
    config = configure(file, changes=SMALL)
    start_run(tmp_path / "run", config, lambda trainer: trainer.clock.iteration >= 1)
    with user_code.nothing_allowed(), Run.open(tmp_path / "run", write=False) as run:
        with pytest.raises(ConfigError, match=r"game = .*my_world\.py:GAME: .*--allow-code"):
            stored_config(run)
        user_code.allow_everything()
        assert stored_config(run) == config


def test_status_of_such_a_run_needs_no_code(file: str, tmp_path: Path) -> None:
    config = configure(file, changes=SMALL)
    start_run(tmp_path / "run", config, lambda trainer: trainer.clock.iteration >= 2)
    with user_code.nothing_allowed():
        facts = status(tmp_path / "run")
        with pytest.raises(ConfigError, match="--allow-code"):
            report(tmp_path / "run")
    assert not facts["broken"] and facts["exit"] == 3 and facts["iterations"] == config.iterations
    assert facts["next"] == f"rematch resume {tmp_path / 'run'} --allow-code"
    assert status(tmp_path / "run")["next"] == f"rematch resume {tmp_path / 'run'} --allow-code"


def test_bots_of_a_file_play_a_tournament(file: str) -> None:
    result = tournament(file, ["centre", "centre"], games=20)
    entry = result["table"][0]  # neither the game nor the bot is random: one game from each seat
    assert entry["games"] == 2 and entry["repeats"] and result["world"] == "tic_tac_toe"


def test_recipe_file_that_names_a_game_file_needs_permission(file: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"game: {file}\ngames: 8\n")
    with pytest.raises(ConfigError, match="--allow-code"):
        configure(str(recipe))


@pytest.mark.parametrize(("text", "why"), [
    (None, "there is no file"),
    ("GAME = 3\n", "expected an object of the class rematch.worlds.game.Game, found one of int"),
    ("raise RuntimeError('on purpose')\n", "cannot be imported: RuntimeError: on purpose"),
    ("import rematch\n", "bad.py has no GAME"),
])  # fmt: skip
def test_file_without_a_game_is_one_line(
    text: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("bad.py").write_text(text)
    assert main(["train", "./bad.py"]) == 2
    error = capsys.readouterr().err
    assert why in error and error.count("\n") == 1
