"""Demonstrations: stretches of a way, how far games are forced along it, and what counts of it, against slow
references."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import gameboy_worlds
from support.archive_world import ArchiveWorld

from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, RUNNING
from rematch.curriculum.demonstrations import (
    BASE_PATIENCE,
    MAX_FORCED,
    MAX_PATIENCE,
    PATIENCE_PER_ACTION,
    Demonstrations,
    DemonstrationsConfig,
    Section,
    cut_into_sections,
)
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.start_states import POWER_ON, SavestatesConfig, Start
from rematch.exploration.milestone_bonus import MilestonePosteriors, MilestonesConfig
from rematch.rollout.forced_actions import OFF, ForcedActions
from rematch.rollout.rollout_buffer import FORCED, HELPED, POLICY, RolloutBuffer

NAMES = ("town", "badge", "end")
ROLE = Role(name="joypad", fields=(Field(name="a", columns=("x", *(f"milestone_{n}" for n in NAMES))),),
            actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))
SPEC = Spec(world="toy", roles={"joypad": ROLE})
DEMONSTRATIONS = st.lists(st.integers(0, 6), min_size=1, max_size=30)


# --- stretches ----------------------------------------------------------------------------------------


@given(DEMONSTRATIONS, st.data())
def test_demonstration_starts_are_ordered_and_cover_it(demonstration: list[int], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(demonstration))))
    on = {number: demonstration[:at] for number, at in enumerate(data.draw(st.permutations(sorted(cuts))))}
    elsewhere = DEMONSTRATIONS.filter(lambda other: other != demonstration[: len(other)])
    privileged = data.draw(st.lists(elsewhere, max_size=4))
    marked = {number: data.draw(st.booleans()) for number in on} | {POWER_ON: True}
    known = [(POWER_ON, [], True), *((number, inputs, marked[number]) for number, inputs in on.items()),
             *((100 + i, other, True) for i, other in enumerate(privileged))]  # fmt: skip
    result = cut_into_sections(demonstration, data.draw(st.permutations(known)))
    where = {POWER_ON: [], **on}
    assert [part.start for part in result] == sorted(
        (number for number, inputs in where.items() if len(inputs) < len(demonstration)),
        key=lambda n: len(where[n]),
    ), "all that lie on it, in order; nobody practises from its end on"
    walked: list[int] = []
    for part in result:
        assert walked == where[part.start] and list(part.inputs) == demonstration[len(walked) :]
        goals = [len(on[n]) for n in on if marked[n] and len(on[n]) > len(walked)]
        assert part.to_milestone == min([*goals, len(demonstration)]) - len(walked), "the next milestone"
        walked += part.inputs[: part.length]
    assert walked == demonstration


# --- forcing ------------------------------------------------------------------------------------------


FREE = 9  # what a policy would do: no input of a way is this


def demonstrations(games: int, steps: int) -> Demonstrations:
    config = SimpleNamespace(steps=steps, lag=0)
    setup: Any = SimpleNamespace(world=SimpleNamespace(games=games), config=config)
    return Demonstrations(DemonstrationsConfig(enabled=True), setup)


def planned_bytes(forced: ForcedActions) -> list[bytes]:
    """By game: what its next episode is forced to do."""
    bounds = zip(forced.next_from, forced.next_until)
    return [forced.actions[low:high].tobytes() for low, high in bounds]


def left_bytes(forced: ForcedActions) -> list[bytes]:
    """By game: what its running episode is still forced to do."""
    return [forced.actions[low:high].tobytes() for low, high in zip(forced.cursor, forced.until)]


def asked(forced: ForcedActions, games: Any, started: Any, t: int) -> NDArray[np.int32]:
    """The actions of these games in step t; FREE where a policy chooses."""
    action = np.full(len(games), FREE, np.int32)
    forced.apply(games.astype(np.int32), started, t, action)
    return action


def ended_rollout(forced: ForcedActions, rollout: RolloutBuffer) -> None:
    """As a collector ends a rollout."""
    rollout.split_events(forced.forced)
    forced.end_rollout(rollout.ended[-1])


def copied(made: Demonstrations) -> dict[str, Any]:
    return {name: np.array(value) for name, value in made.state_dict().items()}


def parts_of(draw: np.random.Generator) -> dict[int, Section]:
    """Of a way of twelve to forty inputs, cut twice."""
    demonstration = draw.integers(0, 7, int(draw.integers(12, 40))).tolist()
    first, second = sorted(draw.choice(np.arange(1, len(demonstration)), 2, replace=False).tolist())
    known = [(POWER_ON, [], True), (0, demonstration[:first], bool(draw.random() < 0.5)),
             (1, demonstration[:second], True)]  # fmt: skip
    return {part.start: part for part in cut_into_sections(demonstration, known)}


@given(st.integers(0, 1 << 32))
def test_plans_are_parts_of_a_stretch_and_leave_time_for_the_rest(seed: int) -> None:
    draw = np.random.default_rng(seed)
    parts, starts, uniform = parts_of(draw), draw.integers(-1, 3, 50), draw.random(50)
    uniform[draw.random(50) < 0.2] = -1
    made = demonstrations(50, 4)
    demonstration = parts[POWER_ON].inputs
    patience = made.plan(demonstration, parts, starts, uniform)
    planned = planned_bytes(made.forced)
    for game, start in enumerate(starts.tolist()):
        forced_inputs = planned[game]
        on = OFF if start not in parts else len(demonstration) - len(parts[start].inputs)
        assert made.forced.next_index[game] == on
        if start not in parts or uniform[game] < 0:
            assert forced_inputs == b"" and patience[game] == 0
            continue
        part = parts[start]
        assert part.inputs.startswith(forced_inputs) and len(forced_inputs) < len(part.inputs)
        assert len(forced_inputs) <= MAX_FORCED * part.length + 1
        rest = BASE_PATIENCE + int(PATIENCE_PER_ACTION * max(0, part.to_milestone - len(forced_inputs)))
        assert patience[game] == len(forced_inputs) + min(MAX_PATIENCE, rest)
    whole = demonstrations(50, 4)
    whole.plan(demonstration, parts, np.full(50, POWER_ON), np.linspace(0, 1, 50, endpoint=False))
    lengths = [len(forced_inputs) for forced_inputs in planned_bytes(whole.forced)]
    assert lengths == sorted(lengths) and lengths[0] == 0 and max(lengths) >= parts[POWER_ON].length - 1


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.floats(0.02, 0.9))
def test_episode_is_forced_as_planned_at_its_start(seed: int, steps: int, ending: float) -> None:
    """Whenever episodes end, twice in a rollout or with it; with a stop and a restore between rollouts."""
    draw, games = np.random.default_rng(seed), 6
    made = demonstrations(games, steps)
    planned: list[bytes] = [b""] * games  # of the episode that runs, as a slow reference keeps it
    passed = [0] * games
    ended = np.zeros(games, bool)
    for _ in range(12):
        if draw.random() < 0.4:  # killed and resumed: the next episodes are planned anew, no game has ended
            again = demonstrations(games, steps)
            again.load_state_dict(copied(made))
            made, ended = again, np.zeros(games, bool)
        parts = parts_of(draw)
        made.plan(parts[POWER_ON].inputs, parts, draw.integers(-1, 3, games), draw.random(games) - 0.2)
        rollout, summary = RolloutBuffer(SPEC, steps, games), []
        for t in range(steps):
            halves = (np.arange(0, 2), np.arange(2, games))  # parts of the world ask apart
            out = np.concatenate([asked(made.forced, half, ended[half], t) for half in halves])
            for game in range(games):
                left = planned[game][passed[game] :]
                assert out[game] == (left[0] if left else FREE)
                kind = FORCED if left else HELPED if planned[game] else POLICY
                assert made.forced.forced[t, game] == kind
                passed[game] += 1
                rollout.events.append((t, game, "town"))
                summary += [] if left else [(t, game, "town")]
            ended = draw.random(games) < ending
            rollout.ended[t] = np.where(ended, CUT_OFF, RUNNING)
            for game in np.flatnonzero(ended).tolist():
                planned[game], passed[game] = planned_bytes(made.forced)[game], 0
        ended_rollout(made.forced, rollout)
        assert rollout.events == summary and len(rollout.forced_events) == steps * games - len(summary)


def test_state_holds_the_remaining_forced_actions() -> None:
    made = demonstrations(3, 2)
    parts = parts_of(np.random.default_rng(1))
    starts, uniform = np.array([POWER_ON, 0, 5]), np.array([0.9, 0.5, 0.5])
    made.plan(parts[POWER_ON].inputs, parts, starts, uniform)
    rollout = RolloutBuffer(SPEC, 2, 3)
    rollout.ended[-1] = CUT_OFF
    ended_rollout(made.forced, rollout)
    asked(made.forced, np.arange(3), np.ones(3, bool), 0)
    forced = made.forced
    assert left_bytes(forced)[0] and forced.helped.tolist() == [True, True, False]
    other = demonstrations(3, 2)
    other.load_state_dict(copied(made))
    assert left_bytes(other.forced) == left_bytes(forced)
    assert np.array_equal(other.forced.helped, forced.helped)
    assert other.demonstration == made.demonstration
    assert np.array_equal(other.forced.index, forced.index) and forced.index[0] == 1


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.floats(0.02, 0.9))
def test_demo_index_of_a_forced_game_is_recorded(seed: int, steps: int, ending: float) -> None:
    """At its first step and as long as it is led, unless another way has taken the place of its own."""
    draw, games = np.random.default_rng(seed), 5
    made, ended = demonstrations(games, steps), np.zeros(games, bool)
    parts: dict[int, Section] = {}
    forced, where = made.forced, [OFF] * games  # a slow reference: where each game stands on `way`
    for _ in range(10):
        before = made.demonstration
        if not parts or draw.random() < 0.3:
            parts = parts_of(draw)
        demonstration = parts[POWER_ON].inputs
        if not demonstration.startswith(before):
            where = [OFF] * games
        made.plan(demonstration, parts, draw.integers(-1, 3, games), draw.random(games) - 0.2)
        rollout = RolloutBuffer(SPEC, steps, games)
        for t in range(steps):
            if t:
                where = [int(forced.next_index[g]) if ended[g] else where[g] for g in range(games)]
            out = asked(forced, np.arange(games), ended, t)
            assert forced.demo_index[t].tolist() == where
            for game, action in enumerate(out.tolist()):
                on = where[game]
                assert action == FREE or on == OFF or demonstration[on] == action, "forced along it"
                where[game] = on + 1 if on != OFF and action != FREE else OFF
            ended = draw.random(games) < ending
            rollout.ended[t] = np.where(ended, CUT_OFF, RUNNING)
        ended_rollout(forced, rollout)
        where = [int(forced.next_index[g]) if ended[g] else where[g] for g in range(games)]


# --- what counts --------------------------------------------------------------------------------------


def test_only_who_had_no_help_at_all_came_from_power_on_alone() -> None:
    """Three games from power-on (alone, helped before, led there) and one from a savestate."""
    names = gameboy_worlds.world(1).spec.role_of(0).milestones
    world: Any = ArchiveWorld(4)
    archive = Archive(SavestatesConfig(mode="bands"), world, 5, 0.98)
    archive.starts.append(Start("s.state", "x", 1, 0, "mid", "map", (names[9],), POWER_ON, "s"))
    archive.posteriors.append()
    archive.episode_start[:] = POWER_ON, POWER_ON, POWER_ON, 0
    archive.demonstrations = demonstrations(4, 3)
    forced = archive.demonstrations.forced
    kinds = [POLICY, HELPED, FORCED, POLICY]
    forced.forced[:] = np.array([kinds, kinds, [POLICY] * 4])
    rollout = RolloutBuffer(world.spec, 3, 4)
    rollout.forced = forced.forced
    rollout.events[:] = [(1, game, names[game]) for game in range(4)]
    ended_rollout(forced, rollout)
    lines = archive.record_rollout(rollout, 0)
    assert {name: set(times) for name, times in archive.first_steps.items()} == {
        names[0]: {"frontier", "cold"}, names[1]: {"frontier"}, names[3]: {"frontier"}}
    starts = (archive.power_on, *archive.starts)
    assert [(start.successes, start.visits) for start in starts] == [(2, 4), (1, 0)]
    assert len(lines) == 3 and rollout.forced_events == [(1, 2, names[2])]


@pytest.mark.parametrize("last", [False, True])
def test_milestone_reached_by_forced_actions_is_no_trial(last: bool) -> None:
    """Also where the episode ends with that very step. What comes after it is tried."""
    made, rollout = MilestonePosteriors(MilestonesConfig(weight=1.0), ROLE, 2), RolloutBuffer(SPEC, 4, 2)
    rollout.length[:] = 1 + np.arange(4)[:, None]
    forced = ForcedActions(2, 4)
    forced.forced[:3, 0], forced.forced[3:, 0] = FORCED, HELPED
    rollout.events[:] = [(2, 0, "town"), (2, 1, "town")]
    rollout["joypad"].obs[3:, :, 0, 1] = 0.0 if last else 1.0
    rollout.ended[2 if last else 3] = CUT_OFF
    ended_rollout(forced, rollout)
    out = made.score(rollout, 0)[:, :, 0]
    assert made.trials.tolist() == [1, 2, 2], "game 1 came to town by itself, both tried the others"
    assert made.beliefs.alpha.tolist() == [2.0, 1.0, 1.0]
    assert not out[:, 0].any() and bool(out[:, 1].any()) == (not last), "r_env alone pays an end"


# --- an archive with demonstrations ------------------------------------------------------------------


def archive_with_demonstrations(games: int, **changes: Any) -> Archive:
    """With the first two milestones of the solution as starts, one aside, and the third as the frontier."""
    from rematch.worlds.gameboy.config import Config
    from rematch.worlds.gameboy.world import GameboyWorld

    world: Any = GameboyWorld(Config(cartridge="tiny", max_steps=300), 1)
    store: Any = ArchiveWorld(games)
    store.library = world.library
    archive = Archive(SavestatesConfig(mode="bands", **changes), store, 5, 0.98)
    archive.demonstrations = demonstrations(games, 4)
    world.set_capture_rule(lambda *asked: True)
    for t, action in enumerate(gameboy_worlds.tiny().solution):
        gameboy_worlds.press(world, action)
        for bundle in world.captured.values():
            role_spec = {"milestone": bundle.milestones[-1], "step": t, "game": 0, "parent": POWER_ON}
            archive.add(bundle, False, role_spec)
        if len(archive.starts) == 3:
            return archive
    raise AssertionError


def test_games_start_on_the_demonstration_and_power_on_games_are_never_forced() -> None:
    archive = archive_with_demonstrations(40, power_on=0.25)
    privileged = archive.world.library[0]
    lost = Start("lost.state", "x", 0, 0, "early", "map", ("y",), POWER_ON, "lost")
    archive.starts.append(lost)  # a fourth, not on the way
    archive.world.library.bundles.append(replace(privileged, inputs=b"\x01\x02"))
    archive.posteriors.append()
    assert archive.demonstrations is not None
    drawn, alone = set(), set(range(40))
    for iteration in range(10):
        next_stage = archive.next_stage(iteration)
        drawn |= set(next_stage[:, 0].astype(int).tolist())
        forced = [bool(actions) for actions in planned_bytes(archive.demonstrations.forced)]
        assert (next_stage[:, 1][forced] > 0).all()
        alone &= set(np.flatnonzero(next_stage[:, 1] == 0).tolist())
    assert drawn == {POWER_ON, 0, 1}, "neither from the frontier itself nor from aside"
    assert len(alone) == 10
    archive.world.library.quarantine.update({start.sha256: "crashes" for start in archive.starts})
    assert not (archive.next_stage(10) != [POWER_ON, 0]).any()
    planned = planned_bytes(archive.demonstrations.forced)
    assert not any(planned), "who begins at power-on is not led along another's way"


def test_what_fails_is_practised_more() -> None:
    archive = archive_with_demonstrations(4)
    for _ in range(30):
        archive.posteriors.update(1, True)
        archive.posteriors.update(2, False)
    _, mastered, failing, _ = archive.start_weights().tolist()
    assert failing > 5 * mastered


def test_mastered_start_group_leaves_its_games_to_the_others() -> None:
    archive = archive_with_demonstrations(100, power_on=0.1, early=0.45, mid=0.55, late=0.0)
    assert {start.start_group for start in archive.starts} == {"early", "mid"}
    bands = [["early", "mid"].index(archive.start(int(n)).start_group) for n in archive.next_stage(0)[:, 0]]
    assert sum(bands) == round(90 * 0.55 / (0.55 + 2 * 0.45)), "nothing known: by quota and number of starts"
    for _ in range(100):
        archive.posteriors.update(0, True)
        archive.posteriors.update(1, True)
    begun = archive.next_stage(1)[:, 0].astype(int).tolist()
    later = sum(archive.start(n).start_group == "mid" for n in begun)
    failing = 1.05 - archive.posteriors.mean
    share = 0.55 * failing[2] / (0.55 * failing[2] + 0.45 * failing[:2].sum())
    assert later == pytest.approx(90 * share, abs=1) and later > 70 and 100 - later >= 11
    whole = archive_with_demonstrations(10, power_on=1.0)
    assert set(whole.next_stage(0)[:, 0].tolist()) == {POWER_ON}


def test_practice_needs_a_learner_that_learns_from_others_moves() -> None:
    from support import savestate_runs

    with pytest.raises(ConfigError, match=r"demonstrations\.enabled = True: .*expected learner dqn"):
        savestate_runs.config(learner="ppo", demonstrations__enabled=True)
