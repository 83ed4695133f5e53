"""`rematch play beasty`: scripted games through a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.cli import main
from rematch.core import config as settings
from rematch.storage import policy_files
from rematch.worlds.beasty import terminal
from rematch.worlds.beasty.config import ACTIONS, SPECIES, Config
from rematch.worlds.beasty.describe import EFFECTS, label, move_text, named_turn_text
from rematch.worlds.beasty.reference import rules
from rematch.worlds.beasty.state import State
from rematch.worlds.beasty.terminal import Page, parse_move
from rematch.worlds.beasty.world import make


@pytest.fixture
def run_game(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(typed: str, *flags: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main.main(["play", "beasty", *flags]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        return output.out

    return run


EASY = ("--against", "random", "--thought", "20")


@pytest.mark.parametrize("players", ["2", "3", "4"])
def test_game_through_a_pipe(run_game: Any, players: str) -> None:
    text = run_game("1\n" * 20, *EASY, "--seed", "3", "--players", players)
    assert re.search(r"^(You win|You lose|A draw): you \d+ points, random", text, re.M)
    assert "\x1b" not in text and "Review of your moves" in text
    turns = [int(n) for n in re.findall(r"^--- turn (\d+):", text, re.M)]
    assert turns == sorted(turns) and 10 <= len(turns) <= 12
    assert text.count("You play ") == len(turns)
    for block in text.split("--- turn")[1:]:  # every page has the line, the hand and numbered moves
        assert ("GATE <" in block or "line is empty" in block) and "Your hand: " in block
        assert re.search(r"^   1  .*-> ", block, re.M)
    assert run_game("1\n" * 20, *EASY, "--seed", "3", "--players", players) == text  # the same deal
    assert run_game("1\n" * 20, *EASY, "--seed", "5", "--players", players) != text


def test_undo_returns_to_the_last_decision(run_game: Any) -> None:
    text = run_game("1\n2\nu\n3\nq\n", *EASY, "--seed", "3")
    pages = text.split("--- ")[1:]
    assert pages[1].splitlines()[:8] == pages[3].splitlines()[:8]  # the same page before and after
    assert "Taken back: " in text
    assert "Nothing to undo" in run_game("u\nq\n", *EASY, "--seed", "3")


def test_hint_names_moves_of_the_list_best_first(run_game: Any) -> None:
    text = run_game("h\nq\n", *EASY, "--seed", "3")
    (hint,) = re.findall(r"^Hint, by search: (.*); estimated probability to win\.", text, re.M)
    listed = dict(re.findall(r"^ +(\d+)  (\w+)", text, re.M))
    action_probs = []
    for output in hint.split("; "):
        number, name, chance = re.fullmatch(r"(\d+) (\w+)[^(]* \((\d+) %\)", output).groups()  # type: ignore[union-attr]
        assert listed[number] == name
        action_probs.append(int(chance))
    assert action_probs == sorted(action_probs, reverse=True)
    late = run_game("1\n" * 8 + "h\n" + "1\n" * 9, *EASY, "--seed", "3")
    assert "Hint, exact: " in late


def test_resign_quit_and_end_of_input(run_game: Any) -> None:
    text = run_game("1\nr\n", *EASY, "--seed", "3")
    assert "You resign." in text and "Review" in text and "You lose" not in text
    for typed, output in (("1\nq\n", "Game not finished."), ("1\n", "End of input. Game not finished.")):
        text = run_game(typed, *EASY, "--seed", "3")
        assert text.rstrip().endswith(output) and "Review" not in text
    assert run_game("q\n", *EASY).startswith("Beasty Bar against random. Deal ")  # a random deal


def test_invalid_input_prints_a_message(run_game: Any) -> None:
    text = run_game("0\n99\nlyon\n\n?\n" + "1\n" * 20, *EASY, "--seed", "3")
    assert "0: expected a number from 1 to 4." in text and "99: expected a number" in text
    assert "'lyon' is not a legal move: a number or a name" in text
    assert all(re.search(rf"^ +\d+ {name} +\d points", text, re.M) for name in EFFECTS)
    assert "Review" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("beasty --players 5", "players = '5': expected a whole number from 2 to 4"),
        ("beasty --players 1", "expected a whole number from 2 to 4"),
        ("beasty --against serch", "no player called 'serch': .*nearest: search"),
        ("beasty --seeds 3", "unknown setting --seeds"),
        ("besty", "nearest: beasty"),
        ("", "expected rematch play WORLD"),
    ],
)
def test_wrong_flags_are_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["play", *words.split()]) == 2
    output = capsys.readouterr().err
    assert re.search(message, output) and output.count("\n") == 1


def test_moves_are_parsed_by_number_and_name() -> None:
    legal = [ACTIONS.index(name) for name in ("zebra", "parrot at 0", "parrot at 1", "lion")]
    assert parse_move("2", legal) == legal[1] and parse_move("zebra", legal) == legal[0]
    assert parse_move("parrot at 2", legal) == legal[2] and parse_move("li", legal) == legal[3]
    assert parse_move("parrot", legal) == "parrot: which one? 2 parrot at 1, 3 parrot at 2."
    assert "Nearest: zebra" in str(parse_move("zebar", legal))
    assert len({label(a) for a in range(len(ACTIONS))}) == len(ACTIONS)


def test_turn_and_move_texts() -> None:
    config = Config()
    orders = [["parrot", "zebra", "lion", "seal"], ["hippo", "skunk", "snake", "monkey"]]
    full = [[*order, *(name for name in SPECIES if name not in order)] for order in orders]
    state = rules.play(rules.deal(full, config), ACTIONS.index("zebra"), config)
    state = rules.play(state, ACTIONS.index("hippo"), config)
    action, names = ACTIONS.index("parrot at 1"), ["you", "search"]
    assert move_text(state, action, names) == "parrot: out with search's hippo (place 2)"
    after = rules.play(state, action, config)
    assert named_turn_text(state, action, after, names) == (
        "You play parrot: out with search's hippo (place 2). Out: search's hippo."
    )
    text = named_turn_text(state, action, after, ["ann", "bob"])
    assert text.startswith("Ann plays parrot: out with bob's hippo")


def test_colours_only_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    state = State(
        [(0, "lion"), (1, "zebra")], [{"skunk"}, {"seal"}], [[], []], [set(), set()], [set(), set()]
    )
    for plain, out in ((False, Terminal()), (True, io.StringIO())):
        Page(["you", "search"], out).table(state, Config())
        assert ("\x1b[" not in out.getvalue()) == plain
    monkeypatch.setenv("NO_COLOR", "")
    assert not Page(["you", "search"], Terminal()).coloured
    assert np.all([name in EFFECTS for name in ("lion", "skunk")]) and len(EFFECTS) == 12


def test_exported_agent_is_the_default_opponent(
    run_game: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(make(Config(), 1).spec.roles["player"], NetworkConfig(hidden=(8,)), "agent")
    policy.initialise(1)
    role_spec = {
        "game": "beasty", "role": "player", "columns": list(policy.role.columns), "iteration": 0,
        "learner": "ppo", "network": settings.tree(policy.config), "world": settings.tree(Config()),
    }  # fmt: skip
    monkeypatch.setattr(terminal, "AGENT", tmp_path / "none")
    assert "against search." in run_game("q\n")
    monkeypatch.setattr(
        terminal, "AGENT", policy_files.write(tmp_path, "agent", policy.arrays(), role_spec, False)
    )
    text = run_game("1\n" * 20, "--seed", "3", "--thought", "5")
    assert text.startswith("Beasty Bar against agent.") and "Agent plays " in text and "Review" in text
    for flags in (("--players", "3"), ("--scoring", "count")):  # rules that the agent was not trained with
        assert "against search" in run_game("q\n", *flags)
