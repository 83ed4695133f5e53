"""Code that a run folder, a recipe or a policy names is imported by no command without --allow-code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.trainers import start_run
from support.user_network import NETWORK

import rematch
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.system import user_code
from rematch.training.config import config_class
from rematch.training.recipes import configure
from rematch.web.run_data import RunData

EXAMPLES = Path(rematch.__file__).parents[1] / "examples"
MARK = "\nimport pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"
SMALL: dict[str, Any] = {
    "games": 8, "steps": 8, "total_steps": 8 * 8 * 2, "save_every": 1, "evaluation.games": 2,
    "evaluation.opponents": ["random"], "world.max_steps": 20, "world.prep_steps": 0,
}  # fmt: skip
NEED_CODE = [
    "eval mine --games 2", "report mine --quick", "resume mine", "film mine --out x.gif",
    "export mine --out a", "tournament pursuit mine lion flee_straight --games 2",
    "exploit mine --budget 64 --seeds 1 --games 2",
    "fork mine --name other", "rewind mine --from 0 --to 1 --log metrics", "diff mine mine --games 2",
    "train quick --from agent-pursuer.safetensors", "train recipe.yaml", "check recipe.yaml",
    "sweep recipe.yaml --seeds 0-1", "train recipe.yaml --help",
    "eval pursuit --players agent-pursuer.safetensors,flee_straight --games 2",
    "eval pursuit --players mine,flee_straight --games 2",
    "replay mine --players mine,flee_straight --out g.replay",
]  # fmt: skip
NEED_NONE = ["status mine", "runs", "replay mine"]


def forget_modules() -> None:
    """As a new process: no module of the user's files is imported."""
    import sys

    for name in [name for name in sys.modules if name.startswith("rematch_user_")]:
        del sys.modules[name]
    config_class.cache_clear()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run that names a network and a reward term, its exported policies, and a recipe."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "term.py").write_text((EXAMPLES / "novelty_by_hash.py").read_text() + MARK)
    (folder / "net.py").write_text(NETWORK + MARK)
    own = {"reward_terms": [f"{folder / 'term.py'}:HashNovelty"], "hash_novelty.weight": 0.1,
           "network.module": f"{folder / 'net.py'}:Net"}
    with user_code.nothing_allowed():
        config = configure("quick", changes=SMALL | own)
        start_run(folder / "runs/mine", config)
        rematch.export(folder / "runs/mine", folder / "agent")
    shutil.copy(folder / "runs/mine/config.yaml", folder / "recipe.yaml")
    for file in folder.glob("*.imported"):
        file.unlink()
    yield folder
    forget_modules()


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    forget_modules()
    monkeypatch.chdir(trained)
    with user_code.nothing_allowed():
        yield trained
    for file in trained.glob("*.imported"):
        file.unlink()


@pytest.mark.parametrize("line", NEED_CODE)
def test_command_refuses_in_one_line_and_imports_nothing(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main.main(line.split()) == 2
    error = capsys.readouterr().err
    assert "--allow-code" in error and error.count("\n") == 1
    assert not list(folder.glob("*.imported"))
    assert sorted(folder.rglob("*")) == before, "nothing is written"


@pytest.mark.parametrize("line", NEED_NONE)
def test_reading_command_works_without_the_code(line: str, folder: Path) -> None:
    assert main.main(line.split()) in (0, 3)
    assert not list(folder.glob("*.imported"))


def test_page_of_a_run_imports_nothing(folder: Path) -> None:
    data = RunData(folder / "runs")
    (run,) = data.scan()
    assert data.run(run)["problems"] is not None and data.curves(run)["step"]
    assert not list(folder.glob("*.imported"))


def test_allowed_code_is_imported(folder: Path) -> None:
    assert main.main(["eval", "mine", "--games", "2", "--allow-code"]) == 0
    assert sorted(file.name for file in folder.glob("*.imported")) == ["net.imported", "term.imported"]


# --- entry points of installed packages -------------------------------------------------------------------


def test_component_of_an_installed_package_is_named_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "stop_at_entropy.py", tmp_path / "package_with_a_component.py")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("stop_early", "package_with_a_component:StopAtEntropy", user_code.GROUP)
    monkeypatch.setattr(user_code, "entry_points", lambda group: [point] if group == user_code.GROUP else [])
    changes = SMALL | {"components": ["stop_early"], "stop_at_entropy.entropy": 100.0,
                       "stop_at_entropy.patience": 2, "total_steps": 8 * 8 * 4}
    with user_code.nothing_allowed():
        result = start_run(tmp_path / "run", configure("quick", changes=changes))
        assert result.trainer.clock.end_reason == "a component requested the end"
        assert user_code.source_digest("stop_early"), "an edited package is noticed by resume"
    with user_code.nothing_allowed(), pytest.raises(ConfigError, match="--allow-code"):
        configure(str(tmp_path / "run/config.yaml"))
