"""Worlds are real games: long, wide, with a way back, hard for random buttons. Ten seeds of `small`."""

from __future__ import annotations

from collections import deque

import pytest

from rematch.worlds.gameboy.cartridge import check, game_model, solver
from rematch.worlds.gameboy.cartridge.compiler import compile_world
from rematch.worlds.gameboy.cartridge.world_generator import generate
from rematch.worlds.gameboy.cartridge.world_text import Atlas, parse

SEEDS = range(10)


def reached(atlas: Atlas, without: int) -> set[int]:
    """Maps that can be entered from the start through doors, never through one map."""
    seen, queue = {0} - {without}, deque([0] if without else [])
    while queue:
        for event in atlas.maps[queue.popleft()].events:
            if event.kind == "warp" and event.arguments[0] not in seen | {without}:
                seen.add(event.arguments[0])
                queue.append(event.arguments[0])
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_small_is_no_corridor(seed: int) -> None:
    atlas = parse(generate("small", seed))
    assert solver.bound(atlas) >= 600, "no solution is shorter"
    assert len(reachable(atlas)) >= 400
    where = {event.kind: one.number for one in atlas.maps for event in one.events}
    assert where["item"] not in reached(atlas, where["lock"]), (
        "the way to the key passes the lock: one comes back"
    )
    assert where["gate"] == 0 and where["lock"] != 0


def reachable(atlas: Atlas) -> set[tuple[int, int, int]]:
    """Tiles that a player can stand on once nothing is in the way."""
    relaxed = solver.Relaxed(atlas, [], solver.all_events(atlas)[0], 0, 0)
    home = (0, *atlas.maps[0].home)
    seen, queue = {home}, deque([home])
    while queue:
        for to in relaxed.near[queue.popleft()][0]:
            if to not in seen:
                seen.add(to)
                queue.append(to)
    return seen


def test_everything_can_be_reached() -> None:
    for size in ("tiny", "mid", "small", "kanto-ish"):
        atlas = parse(generate(size, 4))
        there = reachable(atlas)
        for one in atlas.maps:
            for event in one.events:
                beside = [
                    (one.number, event.y + dy, event.x + dx) for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0))
                ]
                assert there & set(beside), f"{size}: {event} on {one.name}"


def test_random_buttons_win_little_and_no_badge() -> None:
    """A million steps a seed is the command's job (--check 1000000); here a share of it."""
    walks = [check.random_walk(parse(generate("small", seed)), seed, 60_000) for seed in SEEDS]
    assert sum(walk.badges for walk in walks) == 0
    assert sum(walk.matches for walk in walks) > 100
    assert sum(walk.won for walk in walks) < 0.2 * sum(walk.matches for walk in walks)


def play(atlas: Atlas, seed: int, actions: tuple[int, ...]) -> game_model.Game:
    game = game_model.start(atlas, seed)
    for action in actions:
        game.press(action)
    return game


@pytest.mark.parametrize(("size", "seed"), [("tiny", 0), ("tiny", 5), ("mid", 0)])
def test_solutions_end_the_game_between_bound_and_slack(size: str, seed: int) -> None:
    atlas = parse(generate(size, seed))
    actions = solver.solve(atlas, seed)
    assert play(atlas, seed, actions).mode == game_model.END
    assert play(atlas, seed, actions[:-1]).mode != game_model.END
    assert solver.bound(atlas) <= len(actions) <= 1.5 * solver.bound(atlas)


LITTLE = """
map A
kind town
|TTTTTTT|
|T@.r.LT|
|T...gHT|
|TTTTTTT|
r rival CINDER 5 10 : HI!
L leader 0 4 6 : NO. || YES. || OH.
g gate : NO. || YES.
H trophy
"""


def test_a_little_world_is_solved_as_breadth_first_search_does() -> None:
    """Every state in order of distance: slow, simple, and certainly the shortest."""
    made = compile_world(LITTLE)
    game = game_model.start(made.atlas, 0)
    seen, layer, depth = {(*game.key(), game.actions)}, [game], 0
    while not any(one.hall for one in layer):
        depth += 1
        following = []
        for one in layer:
            for action in range(7):
                new = one.copy()
                new.press(action)
                sign = (*new.key(), min(new.actions, game_model.BOOT + 1), new.bag)
                if sign not in seen:
                    seen.add(sign)
                    following.append(new)
        layer = following
    assert depth == len(made.solution)
    assert solver.bound(made.atlas) <= depth
