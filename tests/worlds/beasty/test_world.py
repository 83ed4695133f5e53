"""Beasty Bar as a world: settings, observations, threads, saved games, errors, pictures, adapters, speed."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from support.beasty_positions import DOCUMENT, PLAIN, position

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.worlds import conformance
from rematch.worlds.beasty import bench, native
from rematch.worlds.beasty import config as rules
from rematch.worlds.beasty.config import ACTIONS, SPECIES, STRENGTH, Config
from rematch.worlds.beasty.game import draw, short
from rematch.worlds.beasty.reference import rules as reference
from rematch.worlds.beasty.reference.compare import positions
from rematch.worlds.beasty.state import State, pack, unpack
from rematch.worlds.beasty.world import ROLE, BeastyWorld, make
from rematch.worlds.conformance import Subject, Trial
from rematch.worlds.registry import find

RULES = [PLAIN, DOCUMENT, Config(players=3, first=-1, scoring="count"), Config(players=4, first=3)]
NAMES = ["two", "document", "three", "four"]


def actions(world: BeastyWorld, step: int) -> dict[str, Any]:
    """Random legal actions, by game number and step; other seats get an invalid action."""
    uniform = rng.units(step, rng.ACT, 33 * (world.first + world.games)).reshape(-1, 33)[world.first :]
    chosen = np.where(world.view.mask[ROLE].any(1), uniform, -1).argmax(1)
    out = np.full((world.games, world.config.players), 99, np.int32)
    mover = world.view.acting.argmax(1)
    out[np.arange(world.games), mover] = chosen
    return {ROLE: out}


def play_bytes(world: BeastyWorld, steps: int, threads: int = 1) -> bytes:
    """All bytes that these steps write."""
    out = []
    for step in range(steps):
        view = world.step(actions(world, step), threads)
        out += [array.tobytes() for array in view[ROLE].values()]
        out += [
            a.tobytes()
            for a in (view.mask[ROLE], view.acting, view.reward, view.ended, view.outcome, view.length)
        ]
    return b"".join(out) + world.save(np.arange(world.games, dtype=np.int32)).tobytes()


# --- settings


@pytest.mark.parametrize(("wrong", "words"), [
    ({"players": 1}, "players = 1: expected a whole number from 2"),
    ({"players": 5}, "players = 5: expected"),
    ({"first": 2}, "first = 2: expected less than players = 2, or -1"), ({"first": -2}, "first = -2"),
    ({"scoring": "animals"}, "scoring = 'animals'"), ({"earlier_rules": 1}, "earlier_rules"),
    ({"earlier_rules": True, "players": 3}, "earlier_rules = true: expected players = 2"),
    ({"earlier_rules": True, "scoring": "count"}, "as its engine has them; found 2, 0 and count"),
])  # fmt: skip
def test_impossible_settings_are_refused_in_one_line(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(Config(**wrong), 4)
    assert words in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="games = 0: expected at least 1"):
        make(Config(), 0)


def test_every_setting_has_an_effect() -> None:
    others = {"players": 3, "scoring": "count", "earlier_rules": True, "first": 1}
    assert set(others) == {field.name for field in dataclasses.fields(Config)} == set(native.RULES)
    before, three = play_bytes(make(Config(), 100), 30), play_bytes(make(Config(players=3), 300), 40)
    for name, value in others.items():
        if name == "scoring":  # two players: the scorings rarely differ
            assert play_bytes(make(Config(players=3, scoring="count"), 300), 40) != three
        else:
            assert play_bytes(make(Config(**{name: value}), 100), 30) != before, name  # type: ignore[arg-type]
    assert short(PLAIN) == PLAIN


def test_struct_and_dataclass_are_the_same() -> None:
    assert native.GAME_TYPE.itemsize == 72 and native.GAME_TYPE.fields["seed"][1] == 40  # type: ignore[index]
    with pytest.raises(ImportError, match=r"setting hands is absent in config\.py"):
        rules.compare_with_struct(native.RULES | {"hands": "int32_t"})


def test_first_player_is_uniform() -> None:
    world = make(Config(players=3, first=-1), 3000)
    frequency = world.view.acting.sum(0) / 3000
    assert np.abs(frequency - 1 / 3).max() < 0.04


def test_deals_are_uniform() -> None:
    """Every animal is equally frequent in the first hand and in each place of the deck."""
    games = make(PLAIN, 6000).save(np.arange(6000, dtype=np.int32)).view(native.GAME_TYPE)[:, 0]
    for player in (0, 1):
        for strength in STRENGTH.values():
            assert abs((games["hand"][:, player] >> strength & 1).mean() - 1 / 3) < 0.03
            assert abs((games["deck"][:, player] & 15 == strength).mean() - 1 / 12) < 0.02
            assert abs((games["deck"][:, player] >> 28 == strength).mean() - 1 / 12) < 0.02


# --- observations


def expected_observation(state: State, seat: int, config: Config) -> list[float]:
    """The observation of a seat, computed from the readable state."""
    players = [(seat + k) % config.players for k in range(config.players)]

    def bits(cards: set[str]) -> list[float]:
        return [float(name in cards) for name in SPECIES]

    out: list[float] = []
    for place in range(4):
        card = state.line[place] if place < len(state.line) else None
        out.append(float(12 * players.index(card[0]) + STRENGTH[card[1]]) if card else 0.0)
    out += bits(state.hands[seat])
    for p in players:
        out += bits(set(state.decks[p]) if p == seat else reference.unseen(state, p))
        out += bits(state.bar[p]) + bits(state.thats_it[p])
    for p in players:
        out += [
            state.points(p) / 36,
            len(state.bar[p]) / 12,
            len(state.decks[p]) / 8,
            len(state.hands[p]) / 4,
        ]
        out += [float(state.turn == p)]
    return [*out, len(state.line) / 4, 1 - state.step / (12 * config.players)]


@pytest.mark.parametrize("config", RULES, ids=NAMES)
def test_observations_match_their_columns(config: Config) -> None:
    states = positions(config, 200, seed=1)
    world = make(config, 200)
    rows = np.arange(200, dtype=np.int32)
    world.load(rows, states)
    role = world.spec.roles[ROLE]
    assert role.size == 4 + 12 * (1 + 3 * config.players) + 5 * config.players + 2 and role.size <= 400
    obs = np.concatenate([world.view[ROLE][f.name] for f in role.fields], 2)
    for row, state in enumerate(world.read(rows)):
        for seat in range(config.players):
            assert obs[row, seat] == pytest.approx(expected_observation(state, seat, config), abs=1e-6)
            mask = world.view.mask[ROLE][row, seat]
            legal = reference.legal(state, config) if state.turn == seat else []
            assert np.flatnonzero(mask).tolist() == legal and world.view.acting[row, seat] == (
                state.turn == seat
            )
            if legal:
                assert world.legal(row) == legal


@pytest.mark.parametrize("config", RULES, ids=NAMES)
def test_privileged_observations(config: Config) -> None:
    states = positions(config, 50, seed=2)
    world = make(config, 50)
    rows = np.arange(50, dtype=np.int32)
    world.load(rows, states)
    fields = world.view[ROLE]
    for f in world.spec.roles[ROLE].privileged:
        assert f.name not in world.observe(rows)[ROLE]
        assert fields[f.name].shape == (50, config.players, f.size)
    for row, state in enumerate(world.read(rows)):
        for seat in range(config.players):
            players = [(seat + k) % config.players for k in range(config.players)]
            hands = [float(name in state.hands[p]) for p in players[1:] for name in SPECIES]
            nexts = [STRENGTH[state.decks[p][0]] if state.decks[p] else 0 for p in players]
            assert fields["hands"][row, seat].tolist() == hands
            assert fields["next"][row, seat].tolist() == nexts


def flip_bits(name: str, player: int, bits: int) -> Any:
    def apply(states: Any) -> Any:
        states.view(native.GAME_TYPE)[:, 0][name][:, player] ^= bits
        return states

    return apply


def test_all_rules_pass_the_conformance_test() -> None:
    for config in RULES[1:]:
        report = conformance.check(make, config, trial=Trial(steps=20))
        assert {"resample", "parts", "invalid states"} <= set(report.passed)
    module = find("beasty")
    slots = flip_bits("slot", 0, 1)
    hidden = Subject(name="slot", role=ROLE, field="", change=slots)
    assert "subject slot for player" in conformance.check_game(module, moves=[hidden]).passed


# --- stepping


@pytest.mark.parametrize("config", RULES, ids=NAMES)
def test_threads_and_parts_change_nothing(config: Config) -> None:
    reference_bytes = play_bytes(make(config, 65), 60)
    for threads in (2, 3, 64):
        assert play_bytes(make(config, 65), 60, threads) == reference_bytes


def test_rewards_and_outcomes() -> None:
    for config in RULES:
        world = make(config, 100)
        ended_games = 0
        for step in range(50):
            before = world.read(np.arange(100, dtype=np.int32)) if step % 12 > 8 or step > 40 else []
            chosen = actions(world, step)
            view = world.step(chosen)
            for row in np.flatnonzero(view.ended) if before else ():
                mover = before[row].turn
                after = reference.play(before[row], int(chosen[ROLE][row, mover]), config)
                outcome = reference.outcomes(after, config)
                assert view.outcome[row].tolist() == outcome and abs(view.reward[row].sum()) < 1e-6
                if 1.0 in outcome:
                    lost = -1 / (config.players - 1)
                    assert view.reward[row] == pytest.approx([1.0 if w else lost for w in outcome])
                elif config.players == 2:
                    assert view.reward[row].tolist() == [0, 0]
                assert view.length[row] == after.step
                ended_games += 1
            assert (view.reward[view.ended == 0] == 0).all()
        assert ended_games > 30


def test_illegal_actions_are_refused_in_one_line() -> None:
    world = make(PLAIN, 3, first=10)
    before = world.save(np.arange(3, dtype=np.int32))
    for illegal in (33, -1, 10**6, int(np.flatnonzero(world.view.mask[ROLE][1, 0] == 0)[0])):
        moves = actions(world, 0)
        moves[ROLE] = moves[ROLE].astype(np.int64)
        moves[ROLE][1, 0] = illegal
        with pytest.raises(ConfigError, match=r"game 11: action .* of player 0 is not legal; legal are \d"):
            world.step(moves)
        assert np.array_equal(world.save(np.arange(3, dtype=np.int32)), before)
    for wrong in ({}, {ROLE: np.zeros((3, 1), np.int32)}, {ROLE: np.zeros((3, 2), np.float32)}):
        with pytest.raises(ConfigError, match="actions of player: expected whole numbers"):
            world.step(wrong)


# --- positions


def test_states_are_written_and_read_back() -> None:
    world, rows = make(PLAIN, 2), np.array([1], np.int32)
    puzzle = position("1 lion, 0 zebra, 1 seal", "parrot monkey")
    world.write(rows, [puzzle])
    assert world.read(rows) == [puzzle] and world.state_of(1)["step"] == puzzle.step
    moves = {ROLE: np.zeros((2, 2), np.int32)}
    moves[ROLE][0, 0] = world.legal(0)[0]
    moves[ROLE][1, 0] = ACTIONS.index("parrot at 0")
    world.step(moves)
    assert world.read(rows)[0].line == [(0, "zebra"), (1, "seal"), (0, "parrot")]


@pytest.mark.parametrize(("change", "words"), [
    (("hand", 0, 2 << 11), "player 0"), (("line", 0, 0x30), "owner"),
    (("mark", 0, 1), "no game of this world"),
    (("bar", 0, 2), "player 0"), (("slot", 0, 1 << 31), "no game of this world"),
])  # fmt: skip
def test_invalid_saved_games_are_refused_with_the_reason(
    change: tuple[str, int, int], words: str
) -> None:
    states = pack([position("1 seal, 0 snake", "lion")] * 2, PLAIN)
    name, at, bits = change
    column = states.view(native.GAME_TYPE)[:, 0][name].reshape(2, -1)
    column[1, at] = np.asarray(int(column[1, at]) ^ bits).astype(np.int64).astype(column.dtype)
    with pytest.raises(ConfigError, match=f"saved games: 1: .*{words}"):
        make(PLAIN, 2).load(np.arange(2, dtype=np.int32), states)


def test_saved_games_of_other_rules_are_refused() -> None:
    three = make(Config(players=3), 2)
    rows = np.arange(2, dtype=np.int32)
    with pytest.raises(ConfigError, match="saved games: 0"):
        make(PLAIN, 2).load(rows, three.save(rows))
    with pytest.raises(ConfigError, match=r"rows 2 to 2: expected from 0 to 1"):
        three.save(np.array([2], np.int32))
    with pytest.raises(ConfigError, match="parts = 3"):
        three.parts(3)


# --- pictures, adapters, speed


def test_pictures() -> None:
    trail: list[Any] = []
    world = make(Config(players=4), 2)
    sizes = set()
    for step in range(30):
        image = draw(world, 1, trail)
        sizes.add(image.size)
        world.step(actions(world, step))
    assert len(trail) == 30 and len(sizes) == 1
    assert len(image.getcolors(10**6) or ()) > 50
    assert draw(make(PLAIN, 1), 0, []).size[0] == image.size[0]


def test_pettingzoo_accepts() -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import api_test, seed_test

    from rematch.adapters.pettingzoo_env import ZooTurns

    for config in (None, Config(players=3, first=-1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            api_test(ZooTurns("beasty", config), num_cycles=120)
            seed_test(lambda c=config: ZooTurns("beasty", c), num_cycles=40)
    env = ZooTurns("beasty")
    env.reset(seed=1)
    assert env.agents == ["player_0", "player_1"]
    illegal = int(np.flatnonzero(env.observe("player_0")["action_mask"] == 0)[0])
    env.step(illegal)
    assert env.terminations["player_0"] and env._cumulative_rewards["player_0"] == -1, "it loses the game"
    strict = ZooTurns("beasty", illegal="error")
    strict.reset(seed=1)
    with pytest.raises(ConfigError, match="is not legal now"):
        strict.step(illegal)


def test_benchmark_subjects_play_games() -> None:
    for config in (PLAIN, Config(players=4)):
        subjects = {(subject.key, subject.threads): subject for subject in bench.subjects(config)}
        expected = {("random", 1), ("random", 2), ("observed", 1), ("observed", 2), ("heuristic", 1),
                  ("outcome_heuristic", 1)}  # fmt: skip
        assert set(subjects) == (expected | {("search", 1)} if config.players == 2 else expected)
        for (key, threads), subject in subjects.items():
            assert subject.run(0.0) + subject.run(0.0) > 0 and len(subject.works) in (1, threads)
            turns = subject.settings["decisions_per_game"]
            assert key == "search" or 10 * config.players < turns < 13 * config.players or key == "observed"
    assert {subject.key for subject in bench.subjects()} == set(bench.TARGETS)


def test_random_steps_leave_valid_games() -> None:
    """Random steps of the benchmark leave valid games and count the ended ones."""
    world = make(PLAIN, 50)
    ended = world.random_steps(60, seed=4)
    assert 50 <= ended <= 150 and len(unpack(world.save(np.arange(50, dtype=np.int32)), PLAIN)) == 50
    other = make(PLAIN, 50)
    assert other.random_steps(60, seed=4, threads=3) == ended
    rows = np.arange(50, dtype=np.int32)
    assert np.array_equal(world.save(rows), other.save(rows))
    assert all(
        np.array_equal(world.observe(rows)[ROLE][name], world.view[ROLE][name]) for name in ("line", "cards")
    )
