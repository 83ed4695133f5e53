"""rematch play for worlds without an interface of their own: games of the user, runs, continuous actions."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rematch
from rematch.cli import main
from rematch.core.system import user_code
from rematch.reporting.terminal.terminal_game import parse_choice, parse_numbers

EXAMPLE = Path(rematch.__file__).parents[1] / "examples/tic_tac_toe.py"
SMALL = ["--games", "4", "--steps", "9", "--total_steps", "36", "--network.hidden", "8",
         "--evaluation.games", "2"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "game.py").write_text(EXAMPLE.read_text())
    with contextlib.chdir(tmp_path), user_code.nothing_allowed():
        yield tmp_path
    for name in [name for name in sys.modules if name.startswith("rematch_user_game_")]:
        del sys.modules[name]


def play(monkeypatch: pytest.MonkeyPatch, words: list[str], typed: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return main.main(["play", *words])


def test_game_of_the_user_is_played_to_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`centre` takes the middle, then the corners: seat 0 wins with the first row before it has a line."""
    typed = "cell_1\n9\nnope\ncell_9\ncell_7\nCELL_3\ncell_5\ncell_8\n" + "1\n" * 9
    assert play(monkeypatch, ["./game.py", "--seed", "3"], typed) == 0
    out = capsys.readouterr().out
    assert "tic_tac_toe: seat 1 player: you, seat 2 player: centre. --seed 3 plays the same start" in out
    assert "seat 2 (centre): cell_4" in out and "legal: 1 cell_0, 2 cell_1" in out
    assert "9: expected a number from 1 to 7" in out and "'nope' is not a legal action" in out
    assert out.rstrip().splitlines()[-1].startswith(("You lose: player 2 (centre) wins", "You draw: drawn",
                                                     "You win: player 1 (you) wins"))


def test_person_quits_or_input_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, ["./game.py", "--seat", "2"], "q\n") == 0
    out = capsys.readouterr().out
    assert out.index("seat 1 (centre): cell_4") < out.index("player (seat 2) observes")
    assert out.endswith("q\nThe game is not finished.\n")
    assert play(monkeypatch, ["./game.py"], "") == 0
    assert capsys.readouterr().out.endswith("End of input. The game is not finished.\n")


def test_run_is_the_opponent_under_its_own_rules(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["--world.draw", "0.25"]
    assert main.main(["train", "./game.py", *SMALL, *rules, "--name", "mine"]) == 0
    with user_code.nothing_allowed():
        assert play(monkeypatch, ["mine"], "q\n") == 2
        assert "--allow-code" in capsys.readouterr().err
    assert play(monkeypatch, ["mine", "--seat", "2", "--allow-code"], "q\n") == 0
    assert "seat 1 player: mine, seat 2 player: you" in capsys.readouterr().out
    assert play(monkeypatch, ["./game.py", "--against", "mine", "--world.draw", "0.5"], "q\n") == 2
    assert "mine was trained with other rules: draw = 0.25" in capsys.readouterr().err


def test_game_may_show_itself_as_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text()
    show = ('from rematch.worlds.capabilities import Defaults\n'
            'def show(world, row, seat):\n'
            '    return f"board of seat {seat}: {world.state[\'board\'][row].tolist()}"\n'
            'GAME.defaults = Defaults(text=show)\n')
    (folder / "game.py").write_text(text + show)
    assert play(monkeypatch, ["./game.py"], "cell_0\nq\n") == 0
    out = capsys.readouterr().out
    assert "board of seat 0: [1, 0, 0, 0, -1, 0, 0, 0, 0]" in out and "observes" not in out
    (folder / "game.py").write_text(text + show.replace("world.state", "world.states"))
    del sys.modules[next(name for name in sys.modules if name.startswith("rematch_user_game_"))]
    assert play(monkeypatch, ["./game.py"], "q\n") == 2
    assert "has no attribute 'states' (game.py line " in capsys.readouterr().err


def test_continuous_actions_are_typed_as_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["pursuit", "--seat", "2", "--seed", "1", "--against", "stand_still", "--world.max_steps", "20"]
    assert play(monkeypatch, flags, "fast\n0.5\n" + "0.5, -0.25\n" * 25) == 0
    out = capsys.readouterr().out
    assert "'fast': expected 2 numbers from -1 to 1" in out and "'0.5': expected 2 numbers" in out
    assert "seat 1 (stand_still): speed" in out
    assert out.rstrip().splitlines()[-1].startswith("You win: evader (you) wins after 20 steps")


@pytest.mark.parametrize(("words", "line"), [
    ([], "expected rematch play WORLD"),
    (["nowhere"], "a .py file with a game, or a run"),
    (["lattice", "--against", "nobody_here"], "no evader called 'nobody_here'"),
    (["lattice", "--sead", "1"], "nearest: --seed"),
])  # fmt: skip
def test_wrong_words_are_one_line(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, words, "") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and line in error


@given(st.text(max_size=30))
def test_any_word_is_a_legal_action_or_a_line(word: str) -> None:
    names = ["left", "right", "3"]
    choice = parse_choice(word, names)
    assert choice in (0, 1, 2) if isinstance(choice, int) else "\n" not in choice.replace(word, "")
    values = parse_numbers(word, 2)
    assert isinstance(values, str) or (len(values) == 2 and all(-1 <= value <= 1 for value in values))
