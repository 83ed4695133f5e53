"""Practice: stretches of a way, who is led how far, and what counts of it, against slow references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gameboy_worlds
from support.archive_world import Shelf

from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, RUNNING
from rematch.curriculum.demonstrations import (
    ALONE,
    BEYOND,
    FREE,
    HELPED,
    LEAVE,
    LED,
    MOST,
    OFF,
    SLOWER,
    Practice,
    Stretch,
    stretches,
)
from rematch.curriculum.savestate_archive import Swarm
from rematch.curriculum.start_states import POWER_ON, Start, SwarmConfig
from rematch.exploration.milestone_bonus import Milestones, MilestonesConfig
from rematch.rollout.rollout_buffer import Tape

NAMES = ("town", "badge", "end")
ROLE = Role(name="joypad", fields=(Field(name="a", columns=("x", *(f"milestone_{n}" for n in NAMES))),),
            actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))
SPEC = Spec(world="toy", roles={"joypad": ROLE})
WAYS = st.lists(st.integers(0, 6), min_size=1, max_size=30)


# --- stretches ----------------------------------------------------------------------------------------


@given(WAYS, st.data())
def test_starts_on_a_way_cut_it_in_order_and_cover_it(way: list[int], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(way))))
    on = {number: way[:at] for number, at in enumerate(data.draw(st.permutations(sorted(cuts))))}
    aside = data.draw(st.lists(WAYS.filter(lambda other: other != way[: len(other)]), max_size=4))
    marked = {number: data.draw(st.booleans()) for number in on} | {POWER_ON: True}
    known = [(POWER_ON, [], True), *((number, inputs, marked[number]) for number, inputs in on.items()),
             *((100 + i, other, True) for i, other in enumerate(aside))]  # fmt: skip
    found = stretches(way, data.draw(st.permutations(known)))
    where = {POWER_ON: [], **on}
    assert [part.start for part in found] == sorted(
        (number for number, inputs in where.items() if len(inputs) < len(way)), key=lambda n: len(where[n])
    ), "all that lie on it, in order; nobody practises from its end on"
    walked: list[int] = []
    for part in found:
        assert walked == where[part.start] and list(part.inputs) == way[len(walked) :]
        goals = [len(on[n]) for n in on if marked[n] and len(on[n]) > len(walked)]
        assert part.ahead == min([*goals, len(way)]) - len(walked), "the next that is at a milestone"
        walked += part.inputs[: part.length]
    assert walked == way


# --- leading ------------------------------------------------------------------------------------------


def parts_of(draw: np.random.Generator) -> dict[int, Stretch]:
    """Of a way of twelve to forty inputs, cut twice."""
    way = draw.integers(0, 7, int(draw.integers(12, 40))).tolist()
    first, second = sorted(draw.choice(np.arange(1, len(way)), 2, replace=False).tolist())
    known = [(POWER_ON, [], True), (0, way[:first], bool(draw.random() < 0.5)), (1, way[:second], True)]
    return {part.start: part for part in stretches(way, known)}


@given(st.integers(0, 1 << 32))
def test_plans_are_parts_of_a_stretch_and_leave_time_for_the_rest(seed: int) -> None:
    draw = np.random.default_rng(seed)
    parts, starts, luck = parts_of(draw), draw.integers(-1, 3, 50), draw.random(50)
    luck[draw.random(50) < 0.2] = -1
    made = Practice(50, 4)
    way = parts[POWER_ON].inputs
    patience = made.plan(way, parts, starts, luck)
    for game, start in enumerate(starts.tolist()):
        led = made.next[game]
        assert made.next_at[game] == (OFF if start not in parts else len(way) - len(parts[start].inputs))
        if start not in parts or luck[game] < 0:
            assert led == b"" and patience[game] == 0
            continue
        part = parts[start]
        assert part.inputs.startswith(led) and len(led) < len(part.inputs)
        assert len(led) <= BEYOND * part.length + 1
        rest = LEAVE + int(SLOWER * max(0, part.ahead - len(led)))
        assert patience[game] == len(led) + min(MOST, rest)
    whole = Practice(50, 4)
    whole.plan(way, parts, np.full(50, POWER_ON), np.linspace(0, 1, 50, endpoint=False))
    lengths = [len(led) for led in whole.next]
    assert lengths == sorted(lengths) and lengths[0] == 0 and max(lengths) >= parts[POWER_ON].length - 1


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.floats(0.02, 0.9))
def test_an_episode_is_led_as_it_was_planned_when_it_began(seed: int, steps: int, ending: float) -> None:
    """Whenever episodes end, twice in a rollout or with it; with a stop and a restore between rollouts."""
    draw, games = np.random.default_rng(seed), 6
    made = Practice(games, steps)
    planned: list[bytes] = [b""] * games  # of the episode that runs, as a slow reference keeps it
    passed = [0] * games
    ended = np.zeros(games, bool)
    for iteration in range(12):
        if draw.random() < 0.4:  # killed and resumed: `next` is planned anew, the world says nobody ended
            again = Practice(games, steps)
            again.restore({name: np.array(value) for name, value in made.state().items()})
            made, ended = again, np.zeros(games, bool)
        parts = parts_of(draw)
        made.plan(parts[POWER_ON].inputs, parts, draw.integers(-1, 3, games), draw.random(games) - 0.2)
        tape = Tape(SPEC, steps, games)
        told = []
        for t in range(steps):
            step = iteration * steps + t
            halves = (np.arange(0, 2), np.arange(2, games))  # parts of the world ask apart
            out = np.concatenate([made.lead(half, ended[half], step) for half in halves])
            for game in range(games):
                left = planned[game][passed[game] :]
                assert out[game] == (left[0] if left else FREE)
                assert made.how[t, game] == (LED if left else HELPED if planned[game] else ALONE)
                passed[game] += 1
                tape.events.append((t, game, "town"))
                told += [] if left else [(t, game, "town")]
            ended = draw.random(games) < ending
            tape.ended[t] = np.where(ended, CUT_OFF, RUNNING)
            for game in np.flatnonzero(ended).tolist():
                planned[game], passed[game] = made.next[game], 0
        made.judge(tape)
        assert tape.events == told and len(tape.led) == steps * games - len(told)


def test_a_state_holds_what_is_left_to_be_led() -> None:
    made = Practice(3, 2)
    parts = parts_of(np.random.default_rng(1))
    starts, luck = np.array([POWER_ON, 0, 5]), np.array([0.9, 0.5, 0.5])
    made.plan(parts[POWER_ON].inputs, parts, starts, luck)
    tape = Tape(SPEC, 2, 3)
    tape.ended[-1] = CUT_OFF
    made.judge(tape)
    made.lead(np.arange(3), np.ones(3, bool), 2)
    assert made.left[0] and made.helped.tolist() == [True, True, False]
    other = Practice(3, 2)
    other.restore({name: np.array(value) for name, value in made.state().items()})
    assert other.left == made.left and np.array_equal(other.helped, made.helped)
    assert other.way == made.way and np.array_equal(other.at, made.at) and made.at[0] == 1


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.floats(0.02, 0.9))
def test_where_on_the_way_a_game_is_led_is_known(seed: int, steps: int, ending: float) -> None:
    """At its first step and as long as it is led, unless another way has taken the place of its own."""
    draw, games = np.random.default_rng(seed), 5
    made, parts, ended = Practice(games, steps), {}, np.zeros(games, bool)  # type: ignore[var-annotated]
    where = [OFF] * games  # a slow reference: where each game stands on `way`
    for _ in range(10):
        before = made.way
        if not parts or draw.random() < 0.3:
            parts = parts_of(draw)
        way = parts[POWER_ON].inputs
        if not way.startswith(before):
            where = [OFF] * games
        made.plan(way, parts, draw.integers(-1, 3, games), draw.random(games) - 0.2)
        tape = Tape(SPEC, steps, games)
        for t in range(steps):
            if t:
                where = [int(made.next_at[g]) if ended[g] else where[g] for g in range(games)]
            out = made.lead(np.arange(games), ended, t)
            assert made.index[t].tolist() == where
            for game, action in enumerate(out.tolist()):
                on = where[game]
                assert action == FREE or on == OFF or way[on] == action, "led along the way, from there"
                where[game] = on + 1 if on != OFF and action != FREE else OFF
            ended = draw.random(games) < ending
            tape.ended[t] = np.where(ended, CUT_OFF, RUNNING)
        made.judge(tape)
        where = [int(made.next_at[g]) if ended[g] else where[g] for g in range(games)]


# --- what counts --------------------------------------------------------------------------------------


def test_only_who_had_no_help_at_all_came_from_power_on_alone() -> None:
    """Three games from power-on (alone, helped before, led there) and one from a savestate."""
    names = gameboy_worlds.world(1).spec.role_of(0).milestones
    swarm = Swarm("bands", SwarmConfig(practice=True), Shelf(4), 5, 0.98, 3)
    swarm.starts.append(Start("s.state", "x", 1, 0, "mid", "map", (names[9],), POWER_ON, "s"))
    swarm.beliefs.grow()
    swarm.at[:] = POWER_ON, POWER_ON, POWER_ON, 0
    practice = swarm.practice
    assert practice is not None
    practice.how[:] = np.array([[ALONE, HELPED, LED, ALONE], [ALONE, HELPED, LED, ALONE], [ALONE] * 4])
    tape = Tape(swarm.world.spec, 3, 4)
    tape.events[:] = [(1, game, names[game]) for game in range(4)]
    lines = swarm.report(tape, 0)
    assert {name: set(times) for name, times in swarm.reached.items()} == {
        names[0]: {"frontier", "cold"}, names[1]: {"frontier"}, names[3]: {"frontier"}}
    assert [(start.successes, start.visits) for start in (swarm.power_on, *swarm.starts)] == [(2, 4), (1, 0)]
    assert len(lines) == 3 and tape.led == [(1, 2, names[2])]


@pytest.mark.parametrize("last", [False, True])
def test_who_is_led_to_a_milestone_makes_no_trial_of_it(last: bool) -> None:
    """Also where the episode ends with that very step. What comes after it is tried."""
    made, tape = Milestones(MilestonesConfig(weight=1.0), ROLE, 2), Tape(SPEC, 4, 2)
    tape.length[:] = 1 + np.arange(4)[:, None]
    practice = Practice(2, 4)
    practice.how[:3, 0], practice.how[3:, 0] = LED, HELPED
    tape.events[:] = [(2, 0, "town"), (2, 1, "town")]
    tape["joypad"].sight[3:, :, 0, 1] = 0.0 if last else 1.0
    tape.ended[2 if last else 3] = CUT_OFF
    practice.judge(tape)
    out = made.score(tape, 0)
    assert made.trials.tolist() == [1, 2, 2], "game 1 came to town by itself, both tried the others"
    assert made.beliefs.alpha.tolist() == [2.0, 1.0, 1.0]
    assert not out[:, 0].any() and bool(out[:, 1].any()) == (not last), "r_env alone pays an end"


# --- a swarm that practises ---------------------------------------------------------------------------


def practising(games: int, **changes: Any) -> Swarm:
    """With the first two milestones of the solution as starts, one aside, and the third as the frontier."""
    from rematch.worlds.gameboy.world import Config, make

    world: Any = make(Config(cartridge="tiny", max_steps=300), 1)
    shelf: Any = Shelf(games)
    shelf.library = world.library
    swarm = Swarm("bands", SwarmConfig(practice=True, **changes), shelf, 5, 0.98, 4)
    world.watch(lambda *asked: True)
    for t, action in enumerate(gameboy_worlds.tiny().solution):
        gameboy_worlds.press(world, action)
        for bundle in world.captured.values():
            about = {"milestone": bundle.milestones[-1], "step": t, "game": 0, "parent": POWER_ON}
            swarm.keep(bundle, False, about)
        if len(swarm.starts) == 3:
            return swarm
    raise AssertionError


def test_games_begin_on_the_way_and_those_at_power_on_are_never_led() -> None:
    swarm = practising(40, power_on=0.25)
    aside = swarm.world.library[0]
    lost = Start("lost.state", "x", 0, 0, "early", "map", ("y",), POWER_ON, "lost")
    swarm.starts.append(lost)  # a fourth, not on the way
    swarm.world.library.bundles.append(replace(aside, inputs=b"\x01\x02"))
    swarm.beliefs.grow()
    assert swarm.practice is not None
    drawn, alone = set(), set(range(40))
    for iteration in range(10):
        stage = swarm.stage(iteration)
        drawn |= set(stage[:, 0].astype(int).tolist())
        assert (stage[:, 1][[bool(led) for led in swarm.practice.next]] > 0).all()
        alone &= set(np.flatnonzero(stage[:, 1] == 0).tolist())
    assert drawn == {POWER_ON, 0, 1}, "neither from the frontier itself nor from aside"
    assert len(alone) == 10
    swarm.world.library.quarantine.update({start.sha256: "crashes" for start in swarm.starts})
    assert not (swarm.stage(10) != [POWER_ON, 0]).any()
    assert not any(swarm.practice.next), "who begins at power-on is not led along another's way"


def test_what_fails_is_practised_more() -> None:
    swarm = practising(4)
    for _ in range(30):
        swarm.beliefs.judge(1, True)
        swarm.beliefs.judge(2, False)
    _, mastered, failing, _ = swarm.weights().tolist()
    assert failing > 5 * mastered


def test_a_band_that_is_mastered_leaves_its_games_to_the_others() -> None:
    swarm = practising(100, power_on=0.1, early=0.45, mid=0.55, late=0.0)
    assert {start.band for start in swarm.starts} == {"early", "mid"}
    bands = [["early", "mid"].index(swarm.start(int(n)).band) for n in swarm.stage(0)[:, 0]]
    assert sum(bands) == round(90 * 0.55 / (0.55 + 2 * 0.45)), "nothing known: by quota and number of starts"
    for _ in range(100):
        swarm.beliefs.judge(0, True)
        swarm.beliefs.judge(1, True)
    begun = swarm.stage(1)[:, 0].astype(int).tolist()
    later = sum(swarm.start(n).band == "mid" for n in begun)
    failing = 1.05 - swarm.beliefs.mean
    share = 0.55 * failing[2] / (0.55 * failing[2] + 0.45 * failing[:2].sum())
    assert later == pytest.approx(90 * share, abs=1) and later > 70 and 100 - later >= 11
    whole = practising(10, power_on=1.0)
    assert set(whole.stage(0)[:, 0].tolist()) == {POWER_ON}


def test_practice_needs_a_learner_that_learns_from_others_moves() -> None:
    from support import savestate_runs

    with pytest.raises(ConfigError, match=r"bands\.practice = True: .*expected learner dqn"):
        savestate_runs.config(learner="ppo", bands__practice=True)
