"""Bots in Python: their view of the game, and bots that raise, hang, die or return illegal actions."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from support.patience import PATIENCE, wait_until

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.worlds.beasty import user_bots
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.compare import positions
from rematch.worlds.beasty.state import check, unpack
from rematch.worlds.beasty.user_bots import UserBotPlayer, state_from_json, state_to_json
from rematch.worlds.beasty.world import make

BOTS = '''
import json, os, time
from rematch.worlds.beasty import reference

class First:
    def act(self, state, legal, key):
        print("output is discarded")
        return legal[0]

class Looks:
    """Records its arguments and tries all moves."""
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

class Starts:
    """Starts a process at every move."""
    def act(self, state, legal, key):
        import subprocess
        child = subprocess.Popen(["sleep", "200"])
        with open("children.txt", "a") as file:
            file.write(f"{child.pid}\\n")
        return legal[0]

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


def act(
    name: str, games: int = 2, seconds: float = 20.0, config: Config | None = None
) -> tuple[UserBotPlayer, np.ndarray]:
    """The bot's resignations at the first move of some games."""
    world = make(config or Config(), games, seed=5)
    player = UserBotPlayer(name, config or Config(), seconds)
    move = player.act(seat_at(world, 0, np.arange(games, dtype=np.int32)), RngKey(1, rng.ACT, 0))
    player.close()
    legal = seat_at(world, 0, np.arange(games, dtype=np.int32)).mask
    assert legal is not None and legal[np.arange(games), move.action].all()
    assert move.resigned is not None
    return player, move.resigned


def test_states_travel_as_text() -> None:
    for config in (Config(), Config(players=4, first=-1)):
        for state in unpack(positions(config, 40, 3), config):
            assert state_from_json(state_to_json(state)) == state


def test_bot_never_sees_hidden_cards(folder: Path) -> None:
    """The state of a bot is possible and does not depend on the hidden cards."""
    config, rows = Config(players=3), np.arange(4, dtype=np.int32)
    world, player = make(config, 4, seed=5), UserBotPlayer("mine:Looks", config)
    truth, seen = world.read(rows), []
    for key in (None, 1, 2):
        if key is not None:
            world.load(rows, world.resample(rows, 0, key))
        (folder / "seen.txt").unlink(missing_ok=True)
        player.act(seat_at(world, 0, rows), RngKey(1, rng.ACT, 0))
        seen.append((folder / "seen.txt").read_text())
    player.close()
    assert seen[0] == seen[1] == seen[2] and not player.errors
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
    members = {}
    for keyword in call.keywords:
        text = ast.unparse(keyword.value).replace("set()", "[]")
        members[keyword.arg] = ast.literal_eval(text)
    for name in ("hands", "bar", "thats_it"):
        members[name] = [set(pile) for pile in members[name]]
    return kind(**members)


def test_decisions_do_not_depend_on_the_batch() -> None:
    world, player = make(Config(), 6, seed=5), UserBotPlayer("mine:Looks", Config())
    rows, rng_key = np.arange(6, dtype=np.int32), RngKey(3, rng.ACT, 0)
    whole = player.act(seat_at(world, 0, rows), rng_key).action
    for part in world.parts(3):
        own = np.arange(2, dtype=np.int32)
        assert (player.act(seat_at(part, 0, own), rng_key).action == whole[part.first : part.first + 2]).all()
    player.close()
    assert len(set(whole.tolist())) > 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "ValueError: no idea"),
        ("Text", "answered 'lion': expected a legal action, such as "),
        ("Truth", "answered True: expected a legal action"),
        ("Far", "answered 99: expected a legal action"),
        ("Nothing", "answered None: expected a legal action"),
        ("Shy", "RuntimeError: unspeakable"),
    ],
)
def test_error_is_one_line_and_loses_the_game(name: str, message: str) -> None:
    player, resigned = act(f"mine:{name}")
    assert resigned.all() and len(player.errors) == 2
    assert all(error.startswith(message) and "\n" not in error for error in player.errors.values())


def test_bot_that_hangs_or_dies_resigns_all_games() -> None:
    for name, seconds, message in (
        ("Hangs", 0.2, "took longer than 0.2 s for a move"),
        ("Dies", 20.0, "its process ended with exit code 7"),
    ):
        player, resigned = act(f"mine:{name}", games=8, seconds=seconds)
        assert resigned.all()
        messages = [player.errors[at] for at in sorted(player.errors)]
        assert messages[: user_bots.MAX_CRASHES] == [message] * user_bots.MAX_CRASHES
        later = set(messages[user_bots.MAX_CRASHES :])
        assert later == {"hung or died 3 times: it resigns all further games"}
        assert player._process is None


def test_valid_bot_does_not_resign() -> None:
    player, resigned = act("mine:First", games=3)
    assert not resigned.any() and not player.errors


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
def test_invalid_bot_is_refused_at_the_start(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        UserBotPlayer(name, Config())


def test_close_ends_the_process() -> None:
    player = UserBotPlayer("mine:First", Config())
    assert player._process is not None
    number = player._process.pid
    player.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def running(number: int) -> bool:
    """Whether a process exists and is not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", ["close", "input ends"])
def test_processes_of_a_bot_end_with_it(folder: Path, ending: str) -> None:
    world = make(Config(), 2, seed=5)
    player = UserBotPlayer("mine:Starts", Config())
    player.act(seat_at(world, 0, np.arange(2, dtype=np.int32)), RngKey(1, rng.ACT, 0))
    children = [int(word) for word in (folder / "children.txt").read_text().split()]
    assert len(children) == 2 and all(map(running, children))
    if ending == "close":
        player.close()
    else:
        assert player._process is not None and player._process.stdin is not None
        player._process.stdin.close()  # as when the parent is killed
        player._process.wait(PATIENCE)
    wait_until(lambda: not any(map(running, children)), "a process is left")
