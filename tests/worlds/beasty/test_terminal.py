"""Playing in the terminal: scripted games from a pipe, read as a person would read them."""

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
from rematch.worlds.beasty.describe import EFFECTS, happened, label, move_in_words
from rematch.worlds.beasty.reference import rules
from rematch.worlds.beasty.state import State
from rematch.worlds.beasty.terminal import Page, chosen
from rematch.worlds.beasty.world import make


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def at_table(typed: str, *flags: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main.main(["play", "beasty", *flags]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return at_table


EASY = ("--against", "random", "--thought", "20")


@pytest.mark.parametrize("players", ["2", "3", "4"])
def test_a_whole_game_from_a_pipe(sit: Any, players: str) -> None:
    text = sit("1\n" * 20, *EASY, "--seed", "3", "--players", players)
    assert re.search(r"^(You win|You lose|A draw): you \d+ points, random", text, re.M)
    assert "\x1b" not in text and "Review of your moves" in text
    turns = [int(n) for n in re.findall(r"^--- turn (\d+):", text, re.M)]
    assert turns == sorted(turns) and 10 <= len(turns) <= 12
    assert text.count("You play ") == len(turns)
    for block in text.split("--- turn")[1:]:  # every page has the line, the hand and numbered moves
        assert ("GATE <" in block or "line is empty" in block) and "Your hand: " in block
        assert re.search(r"^   1  .*-> ", block, re.M)
    assert sit("1\n" * 20, *EASY, "--seed", "3", "--players", players) == text  # a deal plays the same again
    assert sit("1\n" * 20, *EASY, "--seed", "5", "--players", players) != text


def test_undo_goes_back_to_my_last_decision(sit: Any) -> None:
    text = sit("1\n2\nu\n3\nq\n", *EASY, "--seed", "3")
    pages = text.split("--- ")[1:]
    assert pages[1].splitlines()[:8] == pages[3].splitlines()[:8]  # the same page before and after
    assert "Taken back: " in text
    assert "There is nothing to undo" in sit("u\nq\n", *EASY, "--seed", "3")


def test_hint_names_moves_of_the_list_best_first(sit: Any) -> None:
    text = sit("h\nq\n", *EASY, "--seed", "3")
    (hint,) = re.findall(r"^Hint, by search: (.*); about the chance to win\.", text, re.M)
    listed = dict(re.findall(r"^ +(\d+)  (\w+)", text, re.M))
    action_probs = []
    for said in hint.split("; "):
        number, name, chance = re.fullmatch(r"(\d+) (\w+)[^(]* \((\d+) %\)", said).groups()  # type: ignore[union-attr]
        assert listed[number] == name
        action_probs.append(int(chance))
    assert action_probs == sorted(action_probs, reverse=True)
    late = sit("1\n" * 8 + "h\n" + "1\n" * 9, *EASY, "--seed", "3")
    assert "Hint, exact: " in late


def test_resign_quit_and_the_end_of_the_input(sit: Any) -> None:
    text = sit("1\nr\n", *EASY, "--seed", "3")
    assert "You resign." in text and "Review" in text and "You lose" not in text
    for typed, said in (("1\nq\n", "Left unfinished."), ("1\n", "The input ended: left unfinished.")):
        text = sit(typed, *EASY, "--seed", "3")
        assert text.rstrip().endswith(said) and "Review" not in text
    assert sit("q\n", *EASY).startswith("Beasty Bar against random. Deal ")  # a deal of its own


def test_bad_input_is_told_and_the_game_goes_on(sit: Any) -> None:
    text = sit("0\n99\nlyon\n\n?\n" + "1\n" * 20, *EASY, "--seed", "3")
    assert "0: expected a number from 1 to 4." in text and "99: expected a number" in text
    assert "'lyon' is no move here: a number or a name" in text
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
        ("pursuit", "expected rematch play WORLD"),
        ("", "expected rematch play WORLD"),
    ],
)
def test_wrong_words(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["play", *words.split()]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said) and said.count("\n") == 1


def test_names_are_as_good_as_numbers() -> None:
    legal = [ACTIONS.index(name) for name in ("zebra", "parrot at 0", "parrot at 1", "lion")]
    assert chosen("2", legal) == legal[1] and chosen("zebra", legal) == legal[0]
    assert chosen("parrot at 2", legal) == legal[2] and chosen("li", legal) == legal[3]
    assert chosen("parrot", legal) == "parrot: which one? 2 parrot at 1, 3 parrot at 2."
    assert "Nearest: zebra" in str(chosen("zebar", legal))
    assert len({label(a) for a in range(len(ACTIONS))}) == len(ACTIONS)


def test_what_happened_in_words() -> None:
    config = Config()
    orders = [["parrot", "zebra", "lion", "seal"], ["hippo", "skunk", "snake", "monkey"]]
    full = [[*order, *(name for name in SPECIES if name not in order)] for order in orders]
    state = rules.play(rules.deal(full, config), ACTIONS.index("zebra"), config)
    state = rules.play(state, ACTIONS.index("hippo"), config)
    action, names = ACTIONS.index("parrot at 1"), ["you", "search"]
    assert move_in_words(state, action, names) == "parrot: out with search's hippo (place 2)"
    after = rules.play(state, action, config)
    assert happened(state, action, after, names) == (
        "You play parrot: out with search's hippo (place 2). Out: search's hippo."
    )
    assert happened(state, action, after, ["ann", "bob"]).startswith("Ann plays parrot: out with bob's hippo")


def test_colours_only_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_shipped_agent_is_the_usual_opponent(
    sit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(make(Config(), 1).spec.roles["player"], NetworkConfig(hidden=(8,)), "agent")
    policy.initialise(1)
    role_spec = {
        "game": "beasty", "role": "player", "columns": list(policy.role.columns), "iteration": 0,
        "learner": "ppo", "network": settings.tree(policy.config), "world": settings.tree(Config()),
    }  # fmt: skip
    monkeypatch.setattr(terminal, "AGENT", tmp_path / "none")
    assert "against search." in sit("q\n")
    monkeypatch.setattr(
        terminal, "AGENT", policy_files.write(tmp_path, "agent", policy.arrays(), role_spec, False)
    )
    text = sit("1\n" * 20, "--seed", "3", "--thought", "5")
    assert text.startswith("Beasty Bar against agent.") and "Agent plays " in text and "Review" in text
    for flags in (("--players", "3"), ("--scoring", "count")):  # it never learnt these
        assert "against search" in sit("q\n", *flags)
