"""One world is one folder: a copied one works with nothing else edited. The examples of the pages run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import toys

import rematch
from rematch.core.errors import ConfigError
from rematch.core.settings import setting_names
from rematch.core.system import user_code
from rematch.worlds import conformance, numpy_world, registry
from rematch.worlds.capabilities import Defaults
from rematch.worlds.conformance import BrokenPromise

pytestmark = pytest.mark.usefixtures("blank_pictures")

ROOT = Path(rematch.__file__).parent.parent


@pytest.fixture
def no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No note about an old name was printed yet."""
    monkeypatch.setattr(setting_names, "_noted", set())


# For each world a legal stage unlike its own, the setting that ends games sooner, and its compiled parts.
COPIED = {
    "pursuit": ((4.0, 6.0, 1.0, 2.0), "max_steps", {"native"}),
    "lattice": ((0.0, 3.0, 5.0), "horizon", {"native", "solver"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", COPIED)
def test_a_copied_folder_is_a_world(world: str, tmp_path: Path) -> None:
    """Copies a world under a new name beside it, in a copy of the package, and edits nothing else.

    The copy keeps the contract, has its flags and trains ten iterations, all by its own files.
    """
    shutil.copytree(ROOT / "rematch", tmp_path / "rematch", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tmp_path / f"rematch/worlds/{world}", tmp_path / "rematch/worlds/again")
    stage, ending, compiled = COPIED[world]
    script = f"""
import sys
from rematch.cli.main import main
from rematch.worlds import conformance, registry
from rematch.worlds.conformance import Trial
assert "again" in registry.names() and {str(tmp_path)!r} in registry.__file__
print(conformance.check_game(registry.find("again"), trial=Trial(stage={stage!r})))
assert main(["train", "again", "--help"]) == 0
small = ["--games", "4", "--steps", "10", "--total-steps", "400", "--network.hidden", "8"]
small += ["--evaluation.games", "2", "--evaluation.opponents", "random", "--world.{ending}", "30"]
assert main(["train", "again", *small, "--name", "ten"]) == 0
# Cython enters a core under the name it was compiled by, too; no Python file of the original may be in use.
others = [name for name in sys.modules if name.startswith("rematch.worlds.{world}")]
assert {{name.rpartition(".")[2] for name in others}} <= {compiled!r}, others
assert "/again/" in sys.modules["rematch.worlds.again.native"].__file__
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    assert "again passes" in done.stdout and f"--world.{ending}" in done.stdout
    assert len((tmp_path / "runs/ten/metrics.jsonl").read_text().splitlines()) == 10
    assert f"{ending}: 30" in (tmp_path / "runs/ten/config.yaml").read_text()


def test_world_of_the_page_keeps_the_promises(tmp_path: Path) -> None:
    text = (ROOT / "docs/how_to/worlds.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "guess.py").write_text("\n".join(blocks))
    place = importlib.util.spec_from_file_location("guess_of_the_document", tmp_path / "guess.py")
    assert place and place.loader
    example = importlib.util.module_from_spec(place)
    sys.modules[place.name] = example
    place.loader.exec_module(example)
    assert str(conformance.check_game(example.GAME)) in text

    class Leaky(example.Guess):  # type: ignore[misc,name-defined]
        def write_observations(self) -> None:
            self.view["guesser"]["hint"][:, :, 0] = self.state["hint"][:, :1]

    with pytest.raises(BrokenPromise) as caught:
        conformance.check(Leaky, example.Config())
    assert str(caught.value) in text
    rules = blocks[0][blocks[0].index("class Guess") :]
    assert len([line for line in rules.splitlines() if line.strip()]) <= 40, "a world in 40 lines"


def test_a_world_in_use_is_found_while_its_files_are_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training died of it when the program's folder was copied anew under it."""
    before = registry.find("lattice")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "__init__.py"))
    assert registry.find("lattice") is before
    with pytest.raises(ConfigError, match="unknown world 'elsewhere'"):
        registry.find("elsewhere")


@pytest.mark.slow
def test_tutorial_game_trains_to_beat_its_bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/tic_tac_toe.py: turns and legal moves; in the tutorial it trains 15 times as long."""
    game = user_code.load_file(ROOT / "examples/tic_tac_toe.py").GAME
    report = conformance.check_game(game, trial=conformance.Trial(chance=False))
    assert str(report) in (ROOT / "docs/tutorials/your_own_game.md").read_text()
    point = type("Point", (), {"name": "tic_tac_toe", "value": "", "module": "", "load": lambda self: game})()
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    run = rematch.train("tic_tac_toe", {
        "games": 128, "steps": 18, "total_steps": 200_000, "ppo.minibatch_size": 512, "ppo.gamma": 1.0,
        "ppo.entropy_weight": 0.1, "ppo.entropy_weight_final": 0.001, "evaluation.games": 200,
    }, folder=tmp_path / "run")  # fmt: skip
    (row,) = run.scoreboard()
    assert row["rival"] == "centre" and row["low"] > 0.4


METHODS = ["make_spec", "layout", "reset_games", "apply_actions", "write_observations", "valid_states"]


@pytest.mark.parametrize("method", METHODS)
def test_missing_method_is_named_in_one_line(method: str) -> None:
    kind = type("Half", (toys.Sticks,), {method: vars(numpy_world.NumpyWorld)[method]})
    with pytest.raises(ConfigError, match=f"class Half has no method {method}: it defines ") as caught:
        world = kind(toys.SticksConfig(), 2)
        world.step({"player": np.zeros((2, 3), np.int32)})
        world.load(np.arange(2, dtype=np.int32), world.save(np.arange(2, dtype=np.int32)))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_notes")
def test_old_names_of_methods_work_with_a_note() -> None:
    with pytest.warns(FutureWarning) as notes:
        kind = type("Old", (numpy_world.PlainWorld,), {
            "make_spec": toys.Sticks.make_spec, "layout": toys.Sticks.layout, "draws": 5,
            "begin": toys.Sticks.reset_games, "rules": toys.Sticks.apply_actions, "masked": True,
            "show": toys.Sticks.write_observations, "sane": toys.Sticks.valid_states,
            "forget": toys.Sticks.resample_hidden,
        })  # fmt: skip
    texts = [str(note.message) for note in notes]
    assert texts[0] == "PlainWorld is now NumpyWorld" and "Old.show is now write_observations" in texts
    assert kind.random_numbers == 5
    conformance.check(kind, toys.SticksConfig())
    with pytest.raises(AttributeError, match="no attribute 'FlatWorld'"):
        numpy_world.FlatWorld  # noqa: B018


@pytest.mark.parametrize(("name", "random"), [("matching", False), ("sticks", True), ("drift", True)])
def test_randomness_of_a_game_is_found_by_trial(name: str, random: bool) -> None:
    game = toys.TOYS[name]
    assert game.random(game.Config()) is random
    stated = numpy_world.NumpyGame(name, game.world, game.Config, {})
    stated.defaults = Defaults(random=not random)
    assert stated.random(game.Config()) is not random


def test_randomness_by_the_seed_inside_a_game_is_found() -> None:
    class Weather(toys.Matching):
        def apply_actions(self, actions: Any) -> None:
            super().apply_actions(actions)
            self.state["score"] += self.state["seed"] % np.uint64(97) == 5

    assert numpy_world.NumpyGame("weather", Weather, toys.MatchingConfig, {}).random(toys.MatchingConfig())
