"""Checks of what games come to: rewards and outcomes in many games, and the effect of each seat's actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rematch.core.world import RUNNING, World
from rematch.worlds.conformance.playback import Arrays, WorldUnderTest, happened, seen, short

FEWEST_GAMES = 20  # finished games from which a result that never occurred counts as missing
MOST_GAMES = 200  # finished games after which the search for one ends
FEWEST_CHOICES = 20  # decisions from which an action without any effect counts as ignored


def check_results(test: WorldUnderTest) -> None:
    """In many games of random play some reward is not 0, and not all outcomes are the same."""
    world, finished, rewarded = test.world(), 0, False
    outcomes: set[tuple[float, ...]] = set()
    within_time = test.timer()
    for step in range(test.trial.bound):
        view = world.step(test.actions(world, step))
        ended = view.ended != RUNNING
        finished += int(ended.sum())
        rewarded |= bool(view.reward.any())
        outcomes |= set(map(tuple, view.outcome[ended].tolist()))
        if finished >= MOST_GAMES or (rewarded and len(outcomes) > 1) or not within_time():
            break
    if rewarded and len(outcomes) > 1:
        return
    if finished < FEWEST_GAMES or test.trial.rare_results:
        why = "it may be rare" if test.trial.rare_results else f"only {finished} games of random play ended"
        test.skipped.append(f"that some reward is not 0, and that outcomes differ ({why})")
        return
    unless = "; if random play seldom leads to one, set GAME.defaults = Defaults(rare_results=True)"
    test.require(
        rewarded,
        f"every reward in {finished} games of random play is 0, so there is nothing to learn: write "
        f"view.reward, for example 2 * outcome - 1 where a game ends{unless}",
        name="rewards",
    )
    (outcome,) = outcomes
    undecided = len(set(outcome)) == 1  # all seats have the same outcome
    if test.spec.seats == 1 or (len(test.spec.roles) > 1 and not undecided):
        test.skipped.append(f"that outcomes differ (all {finished} games of random play: {short(outcome)})")
        return
    test.require(
        False,
        f"the outcome of all {finished} games of random play is {short(outcome)}, so no score can differ: "
        f"write view.outcome where a game ends, for each seat 1 (won), 0 (lost) or 0.5 (drawn){unless}",
        name="outcomes",
    )


def check_turns(test: WorldUnderTest) -> None:
    """The actions of the seats that are to move have an effect, and not of one of them at a time."""
    world, seats = test.world(), test.spec.seats
    scratch = test.copy(world, world.save(test.all_rows))
    choices, effects = np.zeros(seats, int), np.zeros(seats, int)
    shared = together = 0  # decisions of several seats at once; those in which several actions had an effect
    for step in range(test.trial.steps):
        moves, states = test.actions(world, step), world.save(test.all_rows)
        free = several_choices(world)
        reference = result_of(test, scratch, states, moves)
        effect = np.zeros_like(free)
        for seat in np.flatnonzero(free.any(0)).tolist():
            changed = result_of(test, scratch, states, with_other_action(test, world, moves, seat))
            effect[:, seat] = free[:, seat] & rows_that_differ(reference, changed)
        choices += free.sum(0)
        effects += effect.sum(0)
        shared += int((free.sum(1) > 1).sum())
        together += int((effect.sum(1) > 1).sum())
        world.step(moves)
    for seat in range(seats):
        test.require(
            choices[seat] < FEWEST_CHOICES or bool(effects[seat]),
            f"seat {seat} was to move {choices[seat]} times with several legal actions, and its action never "
            "changed anything: read actions in apply_actions, and write in view.acting whose turn it is",
        )
    test.require(
        shared < FEWEST_CHOICES or bool(together),
        f"view.acting says {shared} times that several seats are to move at once, but never more than one of "
        "their actions has an effect: write view.acting in write_observations, 1 for the seat whose turn it "
        "is and 0 for the others",
    )


def several_choices(world: World) -> NDArray[np.bool_]:
    """[N, seats] where a seat is to move and has several legal actions."""
    free: NDArray[np.bool_] = world.view.acting != 0
    for role in world.spec.roles.values():
        seats = list(role.seats)
        if role.name in world.view.mask:
            free[:, seats] &= world.view.mask[role.name].sum(-1) > 1
        elif role.actions.kind == "discrete":
            free[:, seats] &= role.actions.size > 1
    return free


def with_other_action(test: WorldUnderTest, world: World, moves: Arrays, seat: int) -> Arrays:
    """The same actions, with another legal one of this seat in every game."""
    role = test.spec.role_of(seat)
    index, own = role.seats.index(seat), moves[role.name].copy()
    if role.actions.kind == "continuous":
        own[:, index] = np.where(own[:, index] > 0, own[:, index] - 1, own[:, index] + 1)
    else:
        mask = world.view.mask.get(role.name, np.ones((*own.shape, role.actions.size), np.uint8))[:, index]
        following = (own[:, index, None] + np.arange(1, role.actions.size + 1)) % role.actions.size
        legal = np.take_along_axis(mask, following, 1)
        own[:, index] = np.take_along_axis(following, legal.argmax(1)[:, None], 1)[:, 0]
    return moves | {role.name: own}


def result_of(test: WorldUnderTest, scratch: World, states: NDArray[np.uint8], moves: Arrays) -> Arrays:
    """Everything that can be read after a step from these states."""
    scratch.load(test.all_rows, states)
    scratch.step(moves)
    return seen(scratch) | happened(scratch) | {"state": scratch.save(test.all_rows)}


def rows_that_differ(one: Arrays, other: Arrays) -> NDArray[np.bool_]:
    """[N] games in which any array differs."""
    different = [(array != other[name]).reshape(len(array), -1).any(1) for name, array in one.items()]
    return np.asarray(np.logical_or.reduce(different))
