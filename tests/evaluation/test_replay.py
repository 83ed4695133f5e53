"""Replays: the rules reproduce every recorded game to the byte, and a foreign file is one line."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recorded_games import all_recorded, recorded

from rematch.core import config as settings
from rematch.core.errors import ConfigError, Damaged
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.recording import BROKEN_OFF, RESIGNED, Replay
from rematch.core.system import user_code
from rematch.evaluation.match import play
from rematch.evaluation.replay import Match, Playback, record
from rematch.evaluation.replay_choice import Choice
from rematch.storage import atomic_files, replay_files
from rematch.worlds import registry

OWN_GAME = f"{Path(__file__).parents[2] / 'examples/tic_tac_toe.py'}:GAME"
WORLDS: list[tuple[str, dict[str, Any]]] = [
    ("pursuit", {}),
    ("pursuit", {"full_obs": False}),
    ("pursuit", {"acceleration": 2.0}),
    ("lattice", {"n": 7}),
    ("beasty", {"players": 2}),
    ("beasty", {"players": 4}),
    ("gameboy", {"cartridge": "tiny", "max_steps": 60}),
    ("gymnasium", {"id": "CartPole-v1"}),
    ("gymnasium", {"id": "Pendulum-v1"}),
    ("openspiel", {"game": "leduc_poker"}),
    (OWN_GAME, {}),
]


def title(value: Any) -> str:
    text = registry.title(value) if isinstance(value, str) else "-".join(map(str, value.values()))
    return text or "default"


def playable(world: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings that the world has; skips where its library is not installed."""
    if world == "openspiel" and importlib.util.find_spec("pyspiel") is None:
        pytest.skip("OpenSpiel is not installed")
    if registry.is_file(world):
        user_code.allow([world])
    keys = {key for key, _, _ in settings.leaves(registry.find(world).Config())}
    return {key: value for key, value in changes.items() if key in keys}


@pytest.mark.parametrize(("world", "changes"), WORLDS, ids=title)
def test_every_world_reproduces_a_replay_to_the_byte(world: str, changes: dict[str, Any]) -> None:
    """Also from a file, and in another row of another batch than the recorded one."""
    for replay in all_recorded(world, limit=120, games=3, **playable(world, changes)):
        raw = replay_files.encode(replay)
        same = replay_files.decode(raw, "x.replay")
        assert replay_files.encode(same) == raw and replay_files.encode(replay) == raw
        Playback(same).verify()
        assert len(raw) < 40_000, "a replay is small"
        if replay.length > 1:
            role = next(iter(replay.actions))
            other = {name: array.copy() for name, array in replay.actions.items()}
            other[role][: replay.length - 1] = other[role][: replay.length - 1][::-1].copy()
            if not np.array_equal(other[role], replay.actions[role]):
                with pytest.raises(ConfigError):
                    Playback(replace(replay, actions=other)).verify()


def test_states_while_stepping_are_those_of_the_recorded_game() -> None:
    game = registry.find("pursuit")
    world = game.make(game.Config(), 1, 0, 5)
    rows, states = np.zeros(1, np.int32), []
    players = [game.bot("lion", "pursuer"), game.bot("wall_runner", "evader")]
    match = Match(world="pursuit", config=game.Config(), seed=5)
    replay = record(world, players, match, 50, lambda step: states.append(world.save(rows).tobytes()))[0]
    playback = Playback(replay)
    assert [playback.world.save(rows).tobytes() for _ in playback.steps()] == states and len(states) == 50


class Noted:
    """A player of lattice with a value, probabilities and, after some moves, the wish to resign."""

    name, resigns_at = "noted", 1000

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
        n = len(seat.rows)
        return Decision(np.ones(n, np.int32), value=np.full(n, rng_key.step, np.float32),
                        resigned=np.full(n, rng_key.step >= self.resigns_at))

    def action_probs(self, seat: Seat) -> Any:
        return np.tile(np.array([0.2, 0.5, 0.3], np.float32), (len(seat.rows), 1))


def lattice_game(player: Any, limit: int = 30) -> Replay:
    game = registry.find("lattice")
    world = game.make(game.Config(), 1, 0, 0)
    players = [player, game.bot("random", "evader")]
    return record(world, players, Match(world="lattice", config=game.Config(), seed=1), limit)[0]


def test_only_a_replay_asks_players_for_values(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[bool] = []

    def noted(self: Noted, seat: Seat, *rest: Any) -> Decision:
        wanted.append(seat.value_wanted)
        return act(self, seat, *rest)

    act = Noted.act
    monkeypatch.setattr(Noted, "act", noted)
    length = lattice_game(Noted()).length
    assert wanted == [True] * length
    game = registry.find("lattice")
    play(game.make(game.Config(), 1, 0, 0), [Noted(), game.bot("random", "evader")], 1)
    assert set(wanted[length:]) == {False}


def test_values_probabilities_and_digests_of_players_are_recorded() -> None:
    replay = replay_files.decode(replay_files.encode(lattice_game(Noted())), "x")
    assert list(replay.values) == [0] and replay.values[0].tolist() == list(range(replay.length))
    assert replay.probs[0].shape == (replay.length, 3) and replay.probs[0][-1].tolist() == pytest.approx(
        [0.2, 0.5, 0.3])
    assert [(p.role, p.name, p.digest) for p in replay.players] == [
        ("pursuer", "noted", ""), ("evader", "random", "")]


def test_seat_that_waits_for_its_turn_has_no_value() -> None:
    class Counts(Noted):
        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
            assert seat.mask is not None
            return Decision(seat.mask.argmax(1).astype(np.int32), value=np.ones(len(seat.rows), np.float32))

    game = registry.find("beasty")
    world = game.make(game.Config(), 1, 0, 0)
    players: Any = [Counts(), Counts()]
    Counts.action_probs = lambda self, seat: np.ones_like(seat.mask, np.float32)  # type: ignore[method-assign]
    replay = record(world, players, Match(world="beasty", config=game.Config(), seed=1))[0]
    waits = np.isnan(np.stack([replay.values[0], replay.values[1]]))
    assert (waits.sum(0) == 1).all(), "one seat moves at a time"
    Playback(replay).verify()


def test_player_that_resigns_loses_and_the_replay_ends_before_its_move() -> None:
    player = Noted()
    player.resigns_at = 2
    replay = lattice_game(player)
    assert (replay.end, replay.length, replay.outcome) == (RESIGNED, 2, (0.0, 1.0))
    Playback(replay).verify()


def test_recording_that_is_broken_off_verifies() -> None:
    replay = recorded("pursuit", limit=7)
    assert (replay.end, replay.length) == (BROKEN_OFF, 7)
    Playback(replay).verify()


# --- choice by outcome ------------------------------------------------------------------------------------


def test_games_are_chosen_by_their_outcome() -> None:
    games = all_recorded("lattice", games=40, n=5)
    winners = {"pursuer": [game for game in games if game.outcome[0] == 1],
               "evader": [game for game in games if game.outcome[1] == 1]}  # fmt: skip
    assert all(winners.values())
    assert Choice.parse("evader loses").select(games) is winners["pursuer"][0]
    assert Choice.parse("Evader 1 wins").select(games) is winners["evader"][0]
    assert Choice.parse("random wins").select(games) is games[0], "the name of a player"
    assert Choice.parse("longest").select(games).length == max(g.length for g in games)
    assert Choice.parse("shortest").select(games).length == min(g.length for g in games)
    for text, problem in (("evader flies", "for example"), ("nobody wins", "expected one of"),
                          ("", "expected a role"), ("drawn", "none of 40 games"),
                          ("undecided", "none of 40 games")):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            Choice.parse(text).select(games)


# --- hostile files ----------------------------------------------------------------------------------------


def signed(change: dict[str, Any]) -> bytes:
    """A replay with some keys replaced and a digest that fits."""
    body = json.loads(replay_files.encode(recorded("lattice")))
    del body["sha256"]
    return atomic_files.encode_with_digest(body | change)


BOMB = replay_files._pack(np.zeros(1 << 20, np.uint8))
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"version": 2}, "newer than this Rematch"),
    "version": ({"version": "1"}, "expected 1"),
    "foreign": ({"format": "other"}, "not a replay of Rematch"),
    "unknown key": ({"extra": 1}, "'extra' is missing or unknown"),
    "settings": ({"settings": []}, "settings"),
    "players": ({"players": []}, "players"),
    "player": ({"players": [{"role": "a"}, {"role": "b"}]}, "players"),
    "long name": ({"players": [{"role": "a", "name": "x" * 1000, "digest": ""}] * 2}, "players"),
    "outcome": ({"outcome": [2.0, 0.0]}, "outcome"),
    "outcomes": ({"outcome": [1.0]}, "outcome"),
    "end": ({"end": "?"}, "end"),
    "length": ({"length": 10**9}, "length"),
    "other length": ({"length": 3}, "actions"),
    "seed": ({"seed": -1}, "seed"),
    "digest": ({"final": "x" * 64}, "final"),
    "start": ({"start": "text"}, "start"),
    "dtype": ({"start": {"dtype": "f8", "shape": [1], "data": ""}}, "start"),
    "huge shape": ({"start": {"dtype": "u1", "shape": [10**12], "data": ""}}, "start"),
    "huge product": ({"start": {"dtype": "u1", "shape": [1 << 20, 1 << 20], "data": ""}}, "start"),
    "bomb": ({"start": BOMB | {"shape": [8]}}, "start"),
    "base64": ({"start": {"dtype": "u1", "shape": [4], "data": "???"}}, "decompressed"),
    "actions": ({"actions": {}}, "actions"),
    "values": ({"values": {"7": BOMB}}, "values"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_foreign_values_are_refused_in_one_line(name: str) -> None:
    change, problem = BAD[name]
    with pytest.raises(Damaged, match=problem) as error:
        replay_files.decode(signed(change), "x.replay")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@given(st.data())
def test_damaged_bytes_are_never_read(data: st.DataObject) -> None:
    raw = bytearray(replay_files.encode(recorded("lattice")))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        try:
            replay_files.decode(damaged, "x.replay")
        except Damaged:
            continue
        assert damaged == replay_files.encode(recorded("lattice"))


def test_files_that_are_no_replay_are_refused(tmp_path: Path) -> None:
    huge = tmp_path / "huge.replay"
    with huge.open("wb") as file:
        file.truncate(replay_files.MOST_FILE + 1)
    (tmp_path / "deep.replay").write_bytes(b"[" * 100_000)
    (tmp_path / "binary.replay").write_bytes(os.urandom(1000))
    (tmp_path / "link.replay").symlink_to("/etc/passwd")
    for name, problem in (("huge", "expected at most"), ("deep", "JSON"), ("binary", "JSON"),
                          ("link", "symbolic"), ("none", "no such file")):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            replay_files.read(tmp_path / f"{name}.replay")


@pytest.mark.parametrize(("change", "problem"), [
    ({"world": "nothing"}, "unknown world"),
    ({"settings": {"n": 7, "wrong": 1}}, "unknown setting"),
    ({"settings": {"n": 10**9}}, "expected"),
    ({"world": "pursuit", "settings": {}}, "seats or actions"),
    ({"start": np.zeros(3, np.uint8)}, "expected"),
    ({"actions": {"pursuer": np.full((1, 1), 9, np.int32), "evader": np.zeros((1, 1), np.int32)}},
     "outside its range"),
])  # fmt: skip
def test_replay_of_other_rules_is_one_line(change: dict[str, Any], problem: str) -> None:
    replay = recorded("lattice")
    with pytest.raises(ConfigError, match=problem) as error:
        Playback(replace(replay, **change)).verify()
    assert "\n" not in str(error.value)


def test_illegal_action_of_a_turn_based_game_is_refused_before_it_is_played() -> None:
    replay = recorded("beasty")
    actions = {role: np.full_like(array, 10**6 % 24) for role, array in replay.actions.items()}
    with pytest.raises(ConfigError, match=r"illegal action|outside its range"):
        Playback(replace(replay, actions=actions)).verify()


def test_replay_of_code_that_was_not_allowed_is_refused() -> None:
    replay = recorded("lattice")
    with user_code.nothing_allowed(), pytest.raises(ConfigError, match="--allow-code"):
        Playback(replace(replay, world=OWN_GAME))


def test_other_build_of_the_rules_is_named_where_states_differ() -> None:
    replay = replace(recorded("lattice"), build="an-older-one", states="0" * 64)
    with pytest.raises(ConfigError, match=r"another build .*an-older-one"):
        Playback(replay).verify()


def test_world_that_cannot_repeat_its_games_has_no_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, game = recorded("lattice"), registry.find("lattice")
    spec = replace(game.spec(game.Config()), resume="episode")
    monkeypatch.setattr(type(game), "spec", lambda self, config: spec)
    with pytest.raises(ConfigError, match="do not repeat its games, so it has no replays"):
        Playback(replay)
