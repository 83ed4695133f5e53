"""Bots in Python: what they are shown, and what becomes of those that raise, hang, die or talk nonsense."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.worlds.beasty import user_bots
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.compare import positions
from rematch.worlds.beasty.state import check, unpack
from rematch.worlds.beasty.user_bots import GuestPlayer, read, written
from rematch.worlds.beasty.world import make

BOTS = '''
import json, os, time
from rematch.worlds.beasty import reference

class First:
    def act(self, state, legal, key):
        print("whatever is printed goes nowhere")
        return legal[0]

class Looks:
    """Notes what it is shown; tries all moves, as it may."""
    def act(self, state, legal, key):
        assert legal == reference.legal(state, self.config)
        for action in legal:
            reference.play(state, action, self.config)
        with open("seen.txt", "a") as file:
            file.write(repr((state, legal, key)) + "\\n")
        return legal[key % len(legal)]

class Raises:
    def act(self, state, legal, key):
        raise ValueError("no idea\\nand more of it")

class Hangs:
    def act(self, state, legal, key):
        while True: pass

class Dies:
    def act(self, state, legal, key):
        os._exit(7)

class Text:
    def act(self, state, legal, key): return "lion"
class Truth:
    def act(self, state, legal, key): return True
class Far:
    def act(self, state, legal, key): return 99
class Nothing:
    def act(self, state, legal, key): pass
class Shy:
    def act(self, state, legal, key):
        class Odd:
            def __repr__(self): raise RuntimeError("unspeakable")
        return Odd()

class Unmade:
    def __init__(self, needed): pass
    def act(self, state, legal, key): return legal[0]

class Mute: pass
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(BOTS)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(
    name: str, games: int = 2, seconds: float = 20.0, config: Config | None = None
) -> tuple[GuestPlayer, np.ndarray]:
    """The bot's resignations at the first move of some games."""
    world = make(config or Config(), games, seed=5)
    player = GuestPlayer(name, config or Config(), seconds)
    move = player.act(seat_at(world, 0, np.arange(games, dtype=np.int32)), RngKey(1, rng.ACT, 0))
    player.close()
    legal = seat_at(world, 0, np.arange(games, dtype=np.int32)).mask
    assert legal is not None and legal[np.arange(games), move.action].all()
    assert move.resigned is not None
    return player, move.resigned


def test_states_travel_as_text() -> None:
    for config in (Config(), Config(players=4, first=-1)):
        for state in unpack(positions(config, 40, 3), config):
            assert read(written(state)) == state


def test_a_bot_never_sees_what_its_seat_cannot(folder: Path) -> None:
    """Permuting hidden cards changes nothing that it is shown; what it is shown is a state that can be."""
    config, rows = Config(players=3), np.arange(4, dtype=np.int32)
    world, player = make(config, 4, seed=5), GuestPlayer("mine:Looks", config)
    truth, seen = world.read(rows), []
    for key in (None, 1, 2):
        if key is not None:
            world.load(rows, world.resample(rows, 0, key))
        (folder / "seen.txt").unlink(missing_ok=True)
        player.act(seat_at(world, 0, rows), RngKey(1, rng.ACT, 0))
        seen.append((folder / "seen.txt").read_text())
    player.close()
    assert seen[0] == seen[1] == seen[2] and not player.troubles
    from rematch.worlds.beasty.state import State

    shown = [eval_state(line, State) for line in seen[0].splitlines()]
    for state, true in zip(shown, truth, strict=True):
        check(state, config)
        assert state.hands[0] == true.hands[0] and state.line == true.line and state.turn == 0
    assert any(state.hands[1] != true.hands[1] for state, true in zip(shown, truth))
    assert len(set(seen[0].splitlines())) == 4


def eval_state(line: str, kind: type) -> object:
    """The State of `repr((state, legal, key))`."""
    import ast

    call = ast.parse(line, mode="eval").body.elts[0]  # type: ignore[attr-defined]
    given = {}
    for keyword in call.keywords:
        text = ast.unparse(keyword.value).replace("set()", "[]")
        given[keyword.arg] = ast.literal_eval(text)
    for name in ("hands", "bar", "thats_it"):
        given[name] = [set(pile) for pile in given[name]]
    return kind(**given)


def test_the_same_decision_gets_the_same_answer_however_games_are_cut() -> None:
    world, player = make(Config(), 6, seed=5), GuestPlayer("mine:Looks", Config())
    rows, rng_key = np.arange(6, dtype=np.int32), RngKey(3, rng.ACT, 0)
    whole = player.act(seat_at(world, 0, rows), rng_key).action
    for part in world.parts(3):
        own = np.arange(2, dtype=np.int32)
        assert (player.act(seat_at(part, 0, own), rng_key).action == whole[part.first : part.first + 2]).all()
    player.close()
    assert len(set(whole.tolist())) > 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "ValueError: no idea"),
        ("Text", "answered 'lion': expected a legal action, such as "),
        ("Truth", "answered True: expected a legal action"),
        ("Far", "answered 99: expected a legal action"),
        ("Nothing", "answered None: expected a legal action"),
        ("Shy", "RuntimeError: unspeakable"),
    ],
)
def test_what_goes_wrong_is_told_in_one_line_and_costs_the_game(name: str, said: str) -> None:
    player, resigned = ask(f"mine:{name}")
    assert resigned.all() and len(player.troubles) == 2
    assert all(what.startswith(said) and "\n" not in what for what in player.troubles.values())


def test_one_that_hangs_or_dies_is_ended_and_not_asked_for_ever() -> None:
    for name, said in (
        ("Hangs", "took longer than 0.2 s for a move"),
        ("Dies", "its process ended with exit code 7"),
    ):
        began = time.perf_counter()
        player, resigned = ask(f"mine:{name}", games=8, seconds=0.2)
        assert resigned.all() and time.perf_counter() - began < 10
        told = [player.troubles[at] for at in sorted(player.troubles)]
        assert told[: user_bots.PATIENCE] == [said] * user_bots.PATIENCE
        assert set(told[user_bots.PATIENCE :]) == {"hung or died 3 times, and is not asked any more"}
        assert player._process is None


def test_a_fine_bot_plays_on() -> None:
    player, resigned = ask("mine:First", games=3)
    assert not resigned.any() and not player.troubles


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Bot", "there is no module nowhere in this folder or installed"),
        ("mine:Frist", "Frist is no class of mine; nearest: First"),
        ("mine:Mute", r"Mute has no method act\(state, legal, key\)"),
        ("mine:Unmade", "cannot be made: TypeError"),
        ("broken:Bot", "broken cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_bot_is_refused_at_once(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GuestPlayer(name, Config())


def test_processes_do_not_stay() -> None:
    player = GuestPlayer("mine:First", Config())
    assert player._process is not None
    number = player._process.pid
    player.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
