"""The way's reward: what it pays against a slow reference, once at most; it survives a restore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import savestate_runs

from rematch import api
from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, RUNNING
from rematch.curriculum.demo_progress import Way
from rematch.curriculum.demonstrations import OFF, Practice, Stretch
from rematch.curriculum.start_states import POWER_ON, SwarmConfig
from rematch.rollout.rollout_buffer import Tape
from rematch.training.trainer import Session

ROLE = Role(name="joypad", fields=(Field(name="a", columns=("x", "y")),),
            actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))
SPEC = Spec(world="toy", roles={"joypad": ROLE})
CONFIG = SwarmConfig(practice=True, way=1.0, way_columns=("x",), way_window=4)
GAMES, STEPS = 3, 5


def whole(way: bytes) -> dict[int, Stretch]:
    return {POWER_ON: Stretch(POWER_ON, len(way), len(way), way)}


def tape(sights: list[list[int]], ended: list[list[int]]) -> Tape:
    """sights [T][N]: what x is; y is noise that no place is made of."""
    made = Tape(SPEC, len(sights), len(sights[0]))
    made["joypad"].sight[:, :, 0, 0] = sights
    made["joypad"].sight[:, :, 0, 1] = np.arange(len(sights))[:, None]
    made.ended[:] = ended
    return made


def led(way: bytes, places: list[int], games: int = 1) -> tuple[Way, Practice]:
    """A way that one game was led along from its beginning to its end; places [len(way) + 1] are there."""
    practice, bonus = Practice(games, len(places)), Way(CONFIG, ROLE, games)
    bonus.practice = practice
    practice.plan(way, whole(way), np.full(games, POWER_ON), np.zeros(games))
    practice.index[:, 0] = np.arange(len(places))
    practice.index[:, 1:] = OFF
    ended = [[RUNNING] * games for _ in places]
    ended[-1] = [CUT_OFF] * games
    bonus.score(tape([[place] * games for place in places], ended), 0)
    return bonus, practice


def test_a_game_that_is_led_is_paid_its_way_and_shows_where_places_lie() -> None:
    way = bytes([0, 1, 0, 1])
    bonus, practice = Way(CONFIG, ROLE, 1), Practice(1, 5)
    bonus.practice = practice
    practice.plan(way, whole(way), np.array([POWER_ON]), np.zeros(1))
    practice.index[:, 0] = range(5)
    paid = bonus.score(tape([[7], [8], [9], [7], [5]], [[0], [0], [0], [0], [2]]), 0)
    assert paid[:, 0].tolist() == [0, 1, 1, 1, 1], "the first sight was nobody's doing"
    practice.index[:, 0] = [0, OFF, OFF, OFF, OFF]
    again = bonus.score(tape([[7], [8], [4], [5], [9]], [[0]] * 5), 1)
    # The way comes by 7 again at its third input, within the window: it is further on than it seemed.
    assert again[:, 0].tolist() == [0, 0, 0, 1, 0]
    assert bonus.at[0] == 4


@given(st.data())
def test_pay_is_what_a_slow_reference_says_and_never_more_than_the_way(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 20))
    way = bytes(data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)))
    places = data.draw(st.lists(st.integers(0, 6), min_size=length + 1, max_size=length + 1))
    bonus, practice = led(way, places, GAMES)
    at, over, total = [OFF] * GAMES, [True] * GAMES, [0.0] * GAMES
    for iteration in range(6):
        sights = [[data.draw(st.integers(0, 7)) for _ in range(GAMES)] for _ in range(STEPS)]
        ends = [[data.draw(st.sampled_from([RUNNING, RUNNING, CUT_OFF])) for _ in range(GAMES)]
                for _ in range(STEPS)]  # fmt: skip
        practice.index = np.full((STEPS, GAMES), OFF)
        wanted = np.zeros((STEPS, GAMES))
        for t in range(STEPS):
            for game in range(GAMES):
                if over[game]:
                    at[game], total[game] = data.draw(st.integers(OFF, length)), 0.0
                    practice.index[t, game] = at[game]
                    if at[game] != OFF:
                        sights[t][game] = places[at[game]]
                ahead = [j for j in range(at[game] + 1, min(length, at[game] + CONFIG.way_window) + 1)
                         if at[game] != OFF and places[j] == sights[t][game]]  # fmt: skip
                now = max(ahead, default=at[game])
                wanted[t, game] = 0 if over[game] else now - at[game]
                at[game], over[game] = now, ends[t][game] != RUNNING
                total[game] += wanted[t, game]
                assert total[game] <= length
        if data.draw(st.booleans()):  # stopped and resumed
            other = Way(CONFIG, ROLE, GAMES)
            other.restore({name: np.array(value) for name, value in bonus.state().items()})
            other.practice, bonus = practice, other
        assert np.array_equal(bonus.score(tape(sights, ends), iteration), wanted)
        assert bonus.at.tolist() == at


def test_of_another_way_only_what_both_begin_with_is_known() -> None:
    bonus, practice = led(bytes([0, 1, 0, 1]), [1, 2, 3, 4, 5])
    bonus.at[0], bonus.over[0] = 2, False
    longer = bytes([0, 1, 0, 1, 1])
    practice.plan(longer, whole(longer), np.array([POWER_ON]), np.zeros(1))
    practice.index = np.full((1, 1), OFF)
    assert bonus.score(tape([[4]], [[0]]), 1)[0, 0] == 1, "one that goes on: nothing is forgotten"
    other = bytes([0, 1, 1, 1])
    practice.plan(other, whole(other), np.array([POWER_ON]), np.zeros(1))
    assert bonus.score(tape([[5]], [[0]]), 2)[0, 0] == 0 and bonus.at[0] == OFF
    assert [bool(place) for place in bonus.places] == [True, True, True, False, False]


def marked(sights: list[tuple[int, int]], ends: bool = False) -> Tape:
    """One game's sights, each a place and what was reached by then."""
    made = tape([[x] for x, _ in sights], [[RUNNING]] * len(sights))
    made["joypad"].sight[:, 0, 0, 1] = [y for _, y in sights]
    made.ended[-1] = CUT_OFF if ends else RUNNING
    return made


def test_with_marks_nothing_may_be_left_out_and_another_order_is_as_good() -> None:
    """The way goes to 3, where something is won, back to 1, and on; eight inputs to go on lead to 9."""
    steps = [(1, 0), (2, 0), (3, 0), (3, 1), (2, 1), (1, 1), (5, 1), (6, 1), (7, 3), (8, 3), (9, 3)]
    way = bytes(len(steps) - 1)
    paid = {}
    for marks in ((), ("y",)):
        practice, bonus = Practice(1, len(steps)), Way(replace(CONFIG, way_marks=marks), ROLE, 1)
        bonus.practice = practice
        practice.plan(way, whole(way), np.array([POWER_ON]), np.zeros(1))
        practice.index[:, 0] = range(len(steps))
        bonus.score(marked(steps, ends=True), 0)
        bonus.restore({name: np.array(value) for name, value in bonus.state().items()})
        practice.index[:, 0] = OFF
        practice.index[0, 0] = 0
        walks = {"leaves it out": [(1, 0), (2, 0), (5, 0), (6, 0), (1, 0), (3, 0), (3, 1)],
                 "in another order": [(1, 0), (2, 0), (7, 2), (8, 2), (8, 3), (9, 3)]}
        for name, walk in walks.items():
            paid[name, marks] = bonus.score(marked(walk, ends=True), 1)[:, 0].tolist()
    assert paid["leaves it out", ()] == [0, 4, 2, 1, 0, 0, 0], "as far as the window reaches"
    assert paid["leaves it out", ("y",)] == [0, 1, 0, 0, 0, 1, 1]
    assert paid["in another order", ("y",)] == [0, 1, 0, 0, 8, 1]


@pytest.mark.parametrize("change", [{"way_columns": ("y",)}, {"way_window": 1}, {"way_marks": ("y",)}])
def test_its_settings_change_what_is_paid(change: dict[str, Any]) -> None:
    """Of the first sights of an episode that skips places; y goes up by one in every sight."""
    paid = []
    for config in (CONFIG, replace(CONFIG, **change)):
        bonus = Way(config, ROLE, 1)
        bonus.take_over(led(bytes([0, 1, 0]), [1, 2, 3, 4])[0])
        paid.append(bonus.score(tape([[1], [3], [4]], [[0]] * 3), 0)[:, 0].tolist())
    assert paid[0] == [0, 2, 1] != paid[1]


def test_a_run_pays_it_by_its_weight(tmp_path: Path) -> None:
    made = savestate_runs.config(**savestate_runs.SCOUTED)
    session = savestate_runs.go_on(tmp_path / "run", made, astray=None).session
    (learner,) = session.learners.values()
    assert isinstance(learner, Dqn) and learner.weights[COMPONENTS.index("way")] == np.float32(0.02)
    (bonus,) = (bonus for bonus in learner.bonuses if isinstance(bonus, Way))
    assert bonus.practice is session.swarm.practice and bonus.way == bytes(session.swarm.frontier.actions)
    rows = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any(row["joypad/r_way"] > 0 for row in rows)


def test_a_film_knows_the_way_and_begins_with_it() -> None:
    bonus, _ = led(bytes([0, 1, 0]), [1, 2, 3, 4])
    copy = Way(CONFIG, ROLE, 1)
    copy.take_over(bonus)
    assert copy.score(tape([[1], [2], [9], [4]], [[0]] * 4), 0)[:, 0].tolist() == [0, 1, 0, 2]
    assert bonus.found == copy.found and copy.at[0] == 3


def test_a_way_needs_practice_and_columns_that_are_there() -> None:
    with pytest.raises(ConfigError, match=r"bands\.way = 0\.5 has no effect: bands\.practice is False"):
        api.configure("small", changes={"bands.practice": False, "bands.way": 0.5})
    wrong = savestate_runs.config(bands__practice=True, bands__way=0.5, bands__way_columns=("mapp",))
    with pytest.raises(ConfigError, match=r"bands\.way_columns = 'mapp': .*nearest: .*map"):
        Session(wrong)
