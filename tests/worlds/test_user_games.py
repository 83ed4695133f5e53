"""Games from files of the user: what is wrong with one is a line with the cause, before any training."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rematch
from rematch.cli import main
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.system import user_code
from rematch.worlds import registry
from rematch.worlds.numpy_world import NumpyGame, NumpyWorld

EXAMPLE = Path(rematch.__file__).parents[1] / "examples/tic_tac_toe.py"
SMALL = ["--games", "4", "--steps", "9", "--total_steps", "72", "--network.hidden", "8",
         "--evaluation.games", "4"]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A game without settings."""


class TwoRoles(NumpyWorld):
    """Two roles with a seat each."""

    @classmethod
    def make_spec(cls, config: Any) -> Spec:
        fields, actions = (Field(name="now", columns=("x",)),), Actions(kind="discrete", names=("a", "b"))
        roles = {name: Role(name=name, fields=fields, actions=actions, seats=(seat,))
                 for seat, name in enumerate(("first", "second"))}
        return Spec(world="two", roles=roles)


# What a newcomer does wrong: text of the example, its replacement, and the line that says so.
MISTAKES = {
    "ends Python": ("        games, turn = np", "        quit()\n        games, turn = np",
                    r"SystemExit: None \(game.py line \d+, in apply_actions\)"),
    "no list": ('return [("board", "i1", 9), ("turn", "i1")]', 'return {"board": 9}',
                r"layout of TicTacToe returned {'board': 9}: expected a list of \(name, type\) or"),
    "no method": ("def write_observations(self", "def write_observation(self",
                  "class TicTacToe has no method write_observations: it defines what each seat observes"),
    "no legal move": ("(board == 0)[:, None]", "(board == 7)[:, None]", "is to move and has no legal action"),
    "wrong shape": ("np.stack([board, -board], 1)", "np.stack([board, -board, board], 1)",
                    r"ValueError: could not broadcast .* \(game.py line 55, in write_observations\)"),
    "wrong dtype": ('self.state["turn"] = 1 - turn',
                    'self.state["turn"] = 1 - turn; self.view.reward = self.view.reward.astype("f8")',
                    r"shapes: view.reward of a world just stepped: expected float32 \[4, 2\], found float64"),
    "nan": ("= 2 * self.view.outcome[won | full] - 1", "= np.nan", "view.reward at step 4 is not finite"),
    "outcome": ("2 * self.view.outcome[won | full] - 1", "0; self.view.outcome[won | full] *= 2",
                "view.outcome at step 4 is"),
    "acting": ('self.view.acting[:] = self.state["turn"][:, None] == [0, 1]', "pass",
               "turns: view.acting says 32 times that several seats are to move at once"),
    "no reward": ("self.view.reward[won | full] = 2 * self.view.outcome[won | full] - 1", "pass",
                  r"rewards: every reward in \d+ games of random play is 0"),
    "no outcome": ("self.view.ended[won | full] = DECIDED",
                   "self.view.ended[won | full] = DECIDED; self.view.outcome[won | full] = 0.5",
                   r"outcomes: the outcome of all \d+ games of random play is \[0.5 0.5\]"),
    "no own array": ("games, turn = np.arange(self.games), self", "games, turn = self.numbers, self",
                     r"AttributeError: .* has no attribute 'numbers' \(game.py line 42, in apply_actions\)"),
    "illegal bot": ("return np.array(order)[(seat.obs[:, order] == 0).argmax(1)]",
                    "return np.zeros(len(uniform), int)", "bot player/centre: at step 2, seat 0: an action"),
    "raising bot": ("(seat.obs[:, order] == 0)", "(seat.obs[:, 99] == 0)",
                    r"IndexError: index 99 is out of bounds .* \(game.py line 65, in centre\)"),
    "role of a bot": ('bots={"player"', 'bots={"players"',
                      "bots: there is no role 'players': expected one of player"),
    "settings": ("@dataclass(frozen=True, kw_only=True)", "", "Config is not a frozen dataclass"),
    "kind of actions": ('"discrete"', '"Discrete"', "the kind of its actions is 'Discrete', expected"),
    "not masked": ("masked = True", "masked = False", "set masked = True in its class"),
    "parameters": ("def reset_games(self, rows, uniform)", "def reset_games(self, rows)",
                   "game: TypeError: TicTacToe.reset_games.. takes 2 positional arguments but 3 were given"),
    "layout": ('"i1", 9)', '"i9", 9)', r"layout of TicTacToe returned .*; data type 'i9' not understood"),
    "spec raises": ("columns=CELLS, low", "columns=CELL, low",
                    r"NameError: name 'CELL' is not defined \(game.py line 30, in make_spec\)"),
    "class": ("GAME = NumpyGame(", "GAME = TicTacToe  # (", "an object .*, found the class TicTacToe"),
    "name of the game": ("GAME = NumpyGame", "GAMES = NumpyGame", "game.py has no GAME; nearest: GAMES"),
    "hidden randomness": ('self.state["board"][rows], self.state["turn"][rows] = 0, 0',
                          'self.state["turn"][rows] = np.random.randint(0, 2, len(rows))',
                          "determinism: two worlds with the same seed differ"),
    "spec": ("columns=CELLS, low=-1.0, high=1.0", "columns=CELLS, low=0.0",
             r"column 'cell_.', at step 0: -1.0, expected a number in \[0, 1\]"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "pytest-of" not in path])
    with contextlib.chdir(tmp_path), user_code.nothing_allowed():
        yield tmp_path


def write_game(folder: Path, old: str = "", new: str = "") -> None:
    text = EXAMPLE.read_text()
    assert old in text
    (folder / "game.py").write_text(text.replace(old, new, 1))
    for name in [name for name in sys.modules if name.startswith("rematch_user_game_")]:
        del sys.modules[name]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_in_a_game_is_one_line_before_training(
    mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, line = MISTAKES[mistake]
    write_game(folder, old, new)
    assert main.main(["train", "./game.py", *SMALL]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Traceback" not in error
    assert re.search(line, error), error
    assert not (folder / "runs").exists(), "no run was started"


@pytest.mark.parametrize("command", [["check", "./game.py"], ["sweep", "./game.py", "--seeds", "0-1"]])
def test_check_and_sweep_find_a_mistake_first(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_game(folder, *MISTAKES["no legal move"][:2])
    assert main.main([*command, *SMALL]) == 2
    assert "no legal action" in capsys.readouterr().err and not (folder / "runs").exists()


def test_edited_game_is_noticed_by_resume_and_eval(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_game(folder)
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine"]) == 0
    write_game(folder, "range(9)", "range(0, 9)")
    capsys.readouterr()
    user_code.allow_everything()
    with pytest.warns(UserWarning, match="runs/mine: game.py has changed since the checkpoint was saved"):
        assert main.main(["eval", "mine", "--games", "4"]) == 0
    assert main.main(["resume", "mine"]) == 2
    assert "runs/mine: changed since the checkpoint was saved: game.py;" in capsys.readouterr().err
    assert main.main(["resume", "mine", "--other-machine"]) == 0
    assert "is complete" in capsys.readouterr().out


def test_game_that_does_not_end_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_game(folder, "full = (self.state", "won &= False; full = (self.state")
    write_game(folder, "self.view.ended[won | full] = DECIDED",
               'self.state["board"][full] = 0; self.view.reward[:] = [1, -1]')
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine", "--evaluation.max_steps", "400"]) == 0
    note = "Not checked: that every game ends (0 of 4 games ended within"
    assert note in capsys.readouterr().out and note in (folder / "runs/mine/train.log").read_text()


def test_greedy_evaluation_counts_equal_games_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_game(folder)
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine"]) == 0
    capsys.readouterr()
    user_code.allow_everything()
    assert main.main(["eval", "mine", "--games", "40", "--greedy"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"player \(learnt\) +centre +2 +", out) and "Against centre nothing is random" in out
    assert main.main(["eval", "mine", "--games", "40"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"player \(learnt\) +centre +40 +", out) and "nothing is random" not in out


def test_game_without_bots_trains_and_says_that_it_has_no_opponents(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text()
    assert text.count(', bots={"player": {"centre": centre}}') == 1
    (folder / "game.py").write_text(text.replace(', bots={"player": {"centre": centre}}', ""))
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine"]) == 0
    out = capsys.readouterr().out
    assert "No matches against scripted opponents were played." in out and "2 iterations of 4 games" in out
    assert "INCONCLUSIVE: no scripted player was met, so strength was not measured: rematch exploit" in out


def test_game_without_bots_is_played_against_a_run_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXAMPLE.read_text()
    (folder / "game.py").write_text(text.replace(', bots={"player": {"centre": centre}}', ""))
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine"]) == 0
    capsys.readouterr()
    assert main.main(["play", "./game.py"]) == 2
    assert "has no scripted player of the role player; expected --against with" in capsys.readouterr().err
    user_code.allow_everything()
    assert main.main(["status", "mine"]) == 0
    assert re.search(r"\n2 +- +- +- +72\n", capsys.readouterr().out), "no mean score"
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main.main(["play", "mine"]) == 0
    assert main.main(["eval", "./game.py", "--players", "mine,mine", "--games", "2"]) == 0
    assert main.main(["eval", "./game.py", "--players", "mine", "--games", "2"]) == 2
    assert "has no scripted players to play against; expected two names" in capsys.readouterr().err
    assert main.main(["eval", "./game.py", "--players", "nobody,mine", "--games", "2"]) == 2
    assert "no player called 'nobody': expected one of a run, a .safetensors file" in capsys.readouterr().err


def test_roles_of_a_game_without_bots_are_those_of_its_rules() -> None:
    """A run of alternating phases has phases of all roles."""
    game = NumpyGame("two", TwoRoles, NoSettings)
    assert game.role_count(NoSettings()) == 2 and list(game.bot_names("second")) == []


def test_recipe_that_names_a_game_by_a_relative_path(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its runs are those of the file: they meet its players, also from another folder, and have its name."""
    write_game(folder)
    (folder / "mine.yaml").write_text("game: ./game.py\n")
    assert main.main(["train", "mine.yaml", *SMALL, "--name", "mine", "--allow-code"]) == 0
    assert f"game: {folder}/game.py:GAME" in (folder / "runs/mine/config.yaml").read_text()
    assert main.main(["eval", "./game.py", "--players", "mine,centre", "--games", "4", "--allow-code"]) == 0
    capsys.readouterr()
    (folder / "elsewhere").mkdir()
    with contextlib.chdir(folder / "elsewhere"):
        assert main.main(["eval", str(folder / "runs/mine"), "--games", "4", "--allow-code"]) == 0
    assert main.main(["runs"]) == 0
    assert re.search(r"^mine +game +72", capsys.readouterr().out, re.MULTILINE)
    assert registry.title("./game.py") == registry.title("game.py:GAME") == "game"


def test_file_imports_files_beside_it_and_their_changes_are_noticed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_game(folder, "import numpy as np\n", "import numpy as np\nfrom own_rules import SIZE\n")
    (folder / "own_rules.py").write_text("SIZE = 9\n")
    assert main.main(["train", "./game.py", *SMALL, "--name", "mine"]) == 0
    for name in [name for name in sys.modules if name.startswith(("rematch_user_game_", "own_rules"))]:
        del sys.modules[name]
    (folder / "own_rules.py").write_text("SIZE = 10\n")
    user_code.allow_everything()
    assert main.main(["resume", "mine"]) == 2
    assert "runs/mine: changed since the checkpoint was saved: game.py;" in capsys.readouterr().err
    sys.modules.pop("own_rules", None)


@pytest.mark.parametrize(("words", "line"), [
    (["play", "./game.py", "--seat", "3"], "seat = 3: expected a whole number from 1 to 2"),
    (["train", "game"], "nearest: ./game.py"),
    (["train", "quick", "--network", "game.py"], "expected game.py:NAME, a class of that file"),
    (["train", "quick", "--components", "game:Tic"], "there is no module game; nearest: game.py:Tic"),
])  # fmt: skip
def test_wrong_name_of_a_file_gets_the_right_one(
    words: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_game(folder)
    assert main.main(words) == 2
    assert line in capsys.readouterr().err
