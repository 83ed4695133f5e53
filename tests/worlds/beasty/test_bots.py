"""The ten bots: equal to their references, with scores by hand, and of known strength."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.beasty_positions import DOCUMENT, PLAIN, position

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.worlds.beasty import native
from rematch.worlds.beasty.bots import BOTS, bot
from rematch.worlds.beasty.config import ACTIONS, Config
from rematch.worlds.beasty.reference import bots as slow
from rematch.worlds.beasty.reference.compare import Difference, compare_bots, match, positions
from rematch.worlds.beasty.state import pack, unpack
from rematch.worlds.beasty.world import make

RULES = [PLAIN, DOCUMENT, Config(players=3, first=-1), Config(players=4)]


def tool() -> ModuleType:
    place = Path(__file__).parents[3] / "tools/checks/beasty_check.py"
    spec = importlib.util.spec_from_file_location("beasty_check", place)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("config", RULES, ids=["two", "document", "three", "four"])
def test_every_bot_equals_its_reference(config: Config) -> None:
    """Every score to the bit and every decision: 10 bots over 7000 positions."""
    count = 3000 if config.players == 2 else 500
    assert compare_bots(config, count, seed=2) == 10 * count


def test_comparison_detects_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(slow.TERMS, "lion", lambda trial: 2.0000001 if slow._place(trial) == 0 else 0.0)
    with pytest.raises(Difference, match="heuristic scores"):
        compare_bots(PLAIN, 200, seed=2)


def score(line: str, action: str, bot: str, config: Config = PLAIN) -> float:
    """The score of an action by a bot, in C."""
    number = ACTIONS.index(action)
    state = position(line, slow.ACTS[number].card, config)
    scores = native.Core(config.values()).scores(
        pack([state], config), np.zeros(1, np.int32), slow.BOTS.index(bot), (1, rng.BOT, 0)
    )
    return float(scores[0, number])


def test_scores_by_hand() -> None:
    """A skunk after the lion and snake of the other player, computed by hand."""
    state = position("1 lion, 1 snake", "skunk")
    assert state.thats_it == [{"parrot", "kangaroo"}, set()]  # what player 0 had to have played
    hand = 0.1 * sum(slow.POINTS[name] for name in state.hands[0] - {"skunk"})
    material = 1.1 * 4 - 0.5 * 8 + 0.5 * 4 + hand  # alone in line; 8 points of mine out, 4 of theirs
    assert score("1 lion, 1 snake", "skunk", "heuristic") == pytest.approx(material + 1.5)
    assert score("1 lion, 1 snake", "skunk", "queue") == pytest.approx(material + 0.9 * 4 + 1.5)
    assert score("1 lion, 1 snake", "skunk", "skunk") == pytest.approx(material + 1.1 * 4 + 1.5)
    assert score("1 lion, 1 snake", "skunk", "aggressive") == pytest.approx(
        1.1 * 4 - 0.2 * 8 + 0.8 * 4 + hand + 1.5
    )
    assert score("1 lion, 1 snake", "skunk", "aggressive", DOCUMENT) == pytest.approx(material + 1.5)
    assert score("1 lion, 1 snake", "skunk", "online") == pytest.approx(material + 4.0)
    before = -0.6 * (0.53 * 2 + 0.37 * 2)
    outcome = 2.0 * 4 + 1.5 * (0.53 * 4 - before) + 2.0 + 1.5 * 1 + 0.5 * 4
    assert score("1 lion, 1 snake", "skunk", "outcome_heuristic") == pytest.approx(outcome)


def test_parrot_removes_the_most_valuable_target() -> None:
    gain = [score("1 zebra, 1 lion, 0 seal", f"parrot at {i}", "outcome_heuristic") for i in range(3)]
    assert gain[0] > gain[1] > gain[2]


def test_ties_are_random_and_weighted_in_the_earlier_rules() -> None:
    """Two seals in line are one action to copy; earlier_rules counts them twice."""
    line, hand = "1 seal, 0 seal, 1 lion", "chameleon skunk zebra kangaroo"
    for config, share in ((PLAIN, 1 / 6), (DOCUMENT, 2 / 7)):
        state = position(line, hand, config, turn=1)
        games = np.repeat(pack([state], config), 6000, 0)
        numbers = np.arange(len(games), dtype=np.int32)
        actions = native.Core(config.values()).decide(games, numbers, 0, (7, rng.BOT, 3))
        scores = {ACTIONS[a]: int(n) for a, n in zip(*np.unique(actions, return_counts=True), strict=True)}
        assert set(scores) == {"chameleon as seal", "chameleon as lion", "skunk", "zebra",
                              "kangaroo over 1", "kangaroo over 2"}  # fmt: skip
        assert abs(scores["chameleon as seal"] / 6000 - share) < 0.025
        assert abs(scores["zebra"] / 6000 - (1 - share) / 5) < 0.025


def test_noise_is_normal() -> None:
    state = position("1 seal", "lion")
    rules, games = native.Core(PLAIN.values()), np.repeat(pack([state], PLAIN), 4000, 0)
    numbers, lion = np.arange(4000, dtype=np.int32), ACTIONS.index("lion")
    noisy, plain = (rules.scores(games, numbers, slow.BOTS.index(name), (5, rng.BOT, 9))[:, lion]
                    for name in ("noisy", "heuristic"))  # fmt: skip
    rng_key = (noisy - plain) / 0.15
    assert abs(rng_key.mean()) < 0.06 and abs(rng_key.std() - 1) < 0.04 and np.abs(rng_key).max() > 3


@pytest.mark.parametrize("names", tool().EXPECTED_RATES, ids="-".join)
def test_known_match_results(names: tuple[str, str]) -> None:
    """Win, draw, loss in the earlier project's variant, 8000 mirrored games, as measured there."""
    assert 100 * match(DOCUMENT, names, 4000, seed=3) == pytest.approx(
        tool().EXPECTED_RATES[names], abs=tool().TOLERANCE
    )


def test_check_tool_reports_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main(["--games", "20", "--positions", "3", "--decisions", "10", "--deals", "0"]) == 0
    output = capsys.readouterr().out
    assert output.count("are equal") == 4 and "two players: " in output


# --- as players


@pytest.mark.parametrize("name", [name for name in BOTS["player"] if name != "search"])
def test_bots_ignore_hidden_cards(name: str) -> None:
    """Resampled hidden cards change no move."""
    config = PLAIN
    states = positions(config, 300, seed=4)
    world, other = make(config, 300), make(config, 300)
    rows = np.arange(300, dtype=np.int32)
    world.load(rows, states)
    player, rng_key = bot(name, "player"), RngKey(3, rng.BOT, 11)
    for seat in range(config.players):
        acting_rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        expected = player.act(seat_at(world, seat, acting_rows), rng_key).action
        for key in range(3):
            resampled = world.resample(rows, seat, key)
            assert not np.array_equal(resampled, states)
            other.load(rows, resampled)
            assert np.array_equal(player.act(seat_at(other, seat, acting_rows), rng_key).action, expected)


def test_bot_equals_the_decision_of_the_reference() -> None:
    """A bot of a world makes the decision of the reference."""
    states = positions(PLAIN, 40, seed=6)
    world = make(PLAIN, 40, first=5)
    rows = np.arange(40, dtype=np.int32)
    world.load(rows, states)
    for seat in (0, 1):
        acting_rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        moves = bot("noisy", "player").act(seat_at(world, seat, acting_rows), RngKey(1, rng.BOT, 4)).action
        key = rng.key(1, rng.BOT, seat)
        for row, move in zip(acting_rows.tolist(), moves.tolist(), strict=True):
            state = unpack(states[row : row + 1], PLAIN)[0]
            assert slow.decide(state, "noisy", slow.BotKey(key, 5 + row, rng.BOT, 4), PLAIN) == move


@pytest.mark.parametrize(("name", "role", "words"), [
    ("heuristics", "player", "nearest: heuristic"),
    ("random", "joker", "role = joker: expected one of player"),
])  # fmt: skip
def test_unknown_names_are_one_line(name: str, role: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bot(name, role)


def test_names_of_the_bots() -> None:
    bots: Any = BOTS["player"]
    assert bots == (*slow.BOTS, "search") and len(slow.BOTS) == 10
