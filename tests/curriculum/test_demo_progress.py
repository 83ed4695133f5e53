"""Reward for advancing along a demonstration: against a slow reference, once at most, after a restore."""

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
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, RUNNING
from rematch.curriculum.demo_progress import DemonstrationPlaces, DemoProgress, DemoProgressConfig
from rematch.curriculum.demonstrations import Demonstrations
from rematch.curriculum.savestates import Savestates
from rematch.rollout.forced_actions import OFF
from rematch.rollout.rollout_buffer import RolloutBuffer

ROLE = Role(name="joypad", fields=(Field(name="a", columns=("x", "y")),),
            actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))
SPEC = Spec(world="toy", roles={"joypad": ROLE})
CONFIG = DemoProgressConfig(weight=1.0, columns=("x",), window=4)
GAMES, STEPS = 3, 5


def rollout(observations: list[list[int]], ended: list[list[int]], index: Any = OFF) -> RolloutBuffer:
    """sights [T][N]: what x is; y is noise that no place is made of. index: where games are forced to be."""
    made = RolloutBuffer(SPEC, len(observations), len(observations[0]))
    made["joypad"].obs[:, :, 0, 0] = observations
    made["joypad"].obs[:, :, 0, 1] = np.arange(len(observations))[:, None]
    made.ended[:] = ended
    made.demo_index = np.full((made.steps, made.games), OFF, np.int64)
    made.demo_index[:] = index
    return made


def forced(demonstration: bytes, places: list[int], games: int = 1) -> DemonstrationPlaces:
    """A way that one game was led along from its beginning to its end; places [len(way) + 1] are there."""
    bonus = DemonstrationPlaces(CONFIG, ROLE, games)
    bonus.newest = demonstration
    ended = [[RUNNING] * games for _ in places]
    ended[-1] = [CUT_OFF] * games
    index = np.full((len(places), games), OFF)
    index[:, 0] = np.arange(len(places))
    bonus.score(rollout([[place] * games for place in places], ended, index), 0)
    return bonus


def copied(bonus: DemonstrationPlaces) -> dict[str, Any]:
    return {name: np.array(value) for name, value in bonus.state_dict().items()}


def test_forced_game_is_rewarded_along_the_demonstration_and_locates_its_places() -> None:
    bonus = DemonstrationPlaces(CONFIG, ROLE, 1)
    bonus.newest = bytes([0, 1, 0, 1])
    observations = rollout([[7], [8], [9], [7], [5]], [[0], [0], [0], [0], [2]], [[0], [1], [2], [3], [4]])
    paid = bonus.score(observations, 0)
    assert paid.shape == (5, 1, 1)
    assert paid[:, 0, 0].tolist() == [0, 1, 1, 1, 1], "the first sight was nobody's doing"
    again = bonus.score(rollout([[7], [8], [4], [5], [9]], [[0]] * 5, [[0], [OFF], [OFF], [OFF], [OFF]]), 1)
    # The way comes by 7 again at its third input, within the window: it is further on than it seemed.
    assert again[:, 0, 0].tolist() == [0, 0, 0, 1, 0]
    assert bonus.progress[0] == 4


@given(st.data())
def test_reward_equals_a_slow_reference_and_never_exceeds_the_demonstration(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 20))
    demonstration = bytes(data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)))
    places = data.draw(st.lists(st.integers(0, 6), min_size=length + 1, max_size=length + 1))
    bonus = forced(demonstration, places, GAMES)
    at, over, total = [OFF] * GAMES, [True] * GAMES, [0.0] * GAMES
    for iteration in range(6):
        observations = [[data.draw(st.integers(0, 7)) for _ in range(GAMES)] for _ in range(STEPS)]
        ends = [[data.draw(st.sampled_from([RUNNING, RUNNING, CUT_OFF])) for _ in range(GAMES)]
                for _ in range(STEPS)]  # fmt: skip
        index = np.full((STEPS, GAMES), OFF)
        wanted = np.zeros((STEPS, GAMES))
        for t in range(STEPS):
            for game in range(GAMES):
                if over[game]:
                    at[game], total[game] = data.draw(st.integers(OFF, length)), 0.0
                    index[t, game] = at[game]
                    if at[game] != OFF:
                        observations[t][game] = places[at[game]]
                ahead = [j for j in range(at[game] + 1, min(length, at[game] + CONFIG.window) + 1)
                         if at[game] != OFF and places[j] == observations[t][game]]  # fmt: skip
                now = max(ahead, default=at[game])
                wanted[t, game] = 0 if over[game] else now - at[game]
                at[game], over[game] = now, ends[t][game] != RUNNING
                total[game] += wanted[t, game]
                assert total[game] <= length
        if data.draw(st.booleans()):  # stopped and resumed
            other = DemonstrationPlaces(CONFIG, ROLE, GAMES)
            other.load_state_dict(copied(bonus))
            other.newest, bonus = demonstration, other
        assert np.array_equal(bonus.score(rollout(observations, ends, index), iteration)[:, :, 0], wanted)
        assert bonus.progress.tolist() == at


def test_new_demonstration_keeps_only_the_common_beginning() -> None:
    bonus = forced(bytes([0, 1, 0, 1]), [1, 2, 3, 4, 5])
    bonus.progress[0], bonus.ended[0] = 2, False
    bonus.newest = bytes([0, 1, 0, 1, 1])
    assert bonus.score(rollout([[4]], [[0]]), 1)[0, 0, 0] == 1, "one that goes on: nothing is forgotten"
    bonus.newest = bytes([0, 1, 1, 1])
    assert bonus.score(rollout([[5]], [[0]]), 2)[0, 0, 0] == 0 and bonus.progress[0] == OFF
    assert [bool(place) for place in bonus.places] == [True, True, True, False, False]


def marked(observations: list[tuple[int, int]], index: list[int]) -> RolloutBuffer:
    """One game's sights, each a place and what was reached by then."""
    made = rollout([[x] for x, _ in observations], [[RUNNING]] * len(observations), np.array(index)[:, None])
    made["joypad"].obs[:, 0, 0, 1] = [y for _, y in observations]
    made.ended[-1] = CUT_OFF
    return made


def test_with_marks_nothing_may_be_left_out_and_another_order_is_as_good() -> None:
    """The way goes to 3, where something is won, back to 1, and on; eight inputs to go on lead to 9."""
    steps = [(1, 0), (2, 0), (3, 0), (3, 1), (2, 1), (1, 1), (5, 1), (6, 1), (7, 3), (8, 3), (9, 3)]
    demonstration = bytes(len(steps) - 1)
    paid = {}
    for marks in ((), ("y",)):
        bonus = DemonstrationPlaces(replace(CONFIG, required_milestones=marks), ROLE, 1)
        bonus.newest = demonstration
        bonus.score(marked(steps, list(range(len(steps)))), 0)
        bonus.load_state_dict(copied(bonus))
        walks = {"leaves it out": [(1, 0), (2, 0), (5, 0), (6, 0), (1, 0), (3, 0), (3, 1)],
                 "in another order": [(1, 0), (2, 0), (7, 2), (8, 2), (8, 3), (9, 3)]}
        for name, walk in walks.items():
            index = [0] + [OFF] * (len(walk) - 1)
            paid[name, marks] = bonus.score(marked(walk, index), 1)[:, 0, 0].tolist()
    assert paid["leaves it out", ()] == [0, 4, 2, 1, 0, 0, 0], "as far as the window reaches"
    assert paid["leaves it out", ("y",)] == [0, 1, 0, 0, 0, 1, 1]
    assert paid["in another order", ("y",)] == [0, 1, 0, 0, 8, 1]


@pytest.mark.parametrize("change", [{"columns": ("y",)}, {"window": 1}, {"required_milestones": ("y",)}])
def test_its_settings_change_what_is_paid(change: dict[str, Any]) -> None:
    """Of the first sights of an episode that skips places; y goes up by one in every sight."""
    paid = []
    for config in (CONFIG, replace(CONFIG, **change)):
        bonus = DemonstrationPlaces(config, ROLE, 1)
        bonus.copy_from(forced(bytes([0, 1, 0]), [1, 2, 3, 4]))
        paid.append(bonus.score(rollout([[1], [3], [4]], [[0]] * 3), 0)[:, 0, 0].tolist())
    assert paid[0] == [0, 2, 1] != paid[1]


@pytest.mark.slow
def test_a_run_pays_it_by_its_weight(tmp_path: Path) -> None:
    made = savestate_runs.config(**savestate_runs.SCOUTED)
    trainer = savestate_runs.go_on(tmp_path / "run", made, astray=None).trainer
    (learner,) = trainer.agents.learners.values()
    assert isinstance(learner, Dqn) and learner.term_weights["demo_progress"] == 0.02
    term, demonstrations = trainer.setup.get(DemoProgress), trainer.setup.get(Demonstrations)
    savestates = trainer.setup.get(Savestates)
    assert term is not None and demonstrations is not None and savestates is not None
    bonus, frontier = term.scorers["joypad"], savestates.archive.frontier
    assert isinstance(bonus, DemonstrationPlaces) and frontier is not None
    assert bonus.demonstration == demonstrations.demonstration == bytes(frontier.actions)
    rows = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any(row["joypad/r_demo_progress"] > 0 for row in rows)


def test_film_scorer_copies_the_demonstration() -> None:
    bonus = forced(bytes([0, 1, 0]), [1, 2, 3, 4])
    copy = DemonstrationPlaces(CONFIG, ROLE, 1)
    copy.copy_from(bonus)
    assert copy.score(rollout([[1], [2], [9], [4]], [[0]] * 4), 0)[:, 0, 0].tolist() == [0, 1, 0, 2]
    assert bonus.indices == copy.indices and copy.progress[0] == 3


def test_demo_progress_needs_demonstrations_and_existing_columns() -> None:
    why = r"demo_progress\.weight = 0\.5 has no effect: demonstrations\.enabled is False"
    with pytest.raises(ConfigError, match=why):
        api.configure("small", changes={"demonstrations.enabled": False, "demo_progress.weight": 0.5})
    with pytest.raises(ConfigError, match=r"demo_progress\.columns = 'mapp': .*nearest: .*map"):
        savestate_runs.config(
            demonstrations__enabled=True, demo_progress__weight=0.5, demo_progress__columns=("mapp",)
        )
