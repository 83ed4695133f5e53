"""Generated worlds are long and wide, need backtracking and are hard for random buttons; solver and bound."""

from __future__ import annotations

from collections import deque

import pytest

from rematch.worlds.gameboy.cartridge import check, game_model, solver
from rematch.worlds.gameboy.cartridge.compiler import compile_world
from rematch.worlds.gameboy.cartridge.world_generator import generate
from rematch.worlds.gameboy.cartridge.world_text import Atlas, parse

SEEDS = range(10)


def reachable_maps(atlas: Atlas, without: int) -> set[int]:
    """Maps that can be reached from the start through doors without entering map `without`."""
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
    assert solver.lower_bound(atlas) >= 600, "no solution is shorter"
    assert len(reachable_places(atlas)) >= 400
    map_of = {event.kind: game_map.number for game_map in atlas.maps for event in game_map.events}
    assert map_of["item"] not in reachable_maps(atlas, map_of["lock"]), (
        "the path to the key passes the lock: the player must come back"
    )
    assert map_of["gate"] == 0 and map_of["lock"] != 0


def reachable_places(atlas: Atlas) -> set[tuple[int, int, int]]:
    """Places that a player can reach if no event blocks."""
    relaxed = solver.RelaxedGame(atlas, [], solver.all_events(atlas)[0], 0, 0)
    home = (0, *atlas.maps[0].home)
    seen, queue = {home}, deque([home])
    while queue:
        for place in relaxed.neighbours[queue.popleft()][0]:
            if place not in seen:
                seen.add(place)
                queue.append(place)
    return seen


def test_everything_can_be_reached() -> None:
    for size in ("tiny", "mid", "small", "kanto-ish"):
        atlas = parse(generate(size, 4))
        reachable = reachable_places(atlas)
        for game_map in atlas.maps:
            for event in game_map.events:
                beside = [
                    (game_map.number, event.y + dy, event.x + dx)
                    for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0))
                ]
                assert reachable & set(beside), f"{size}: {event} on {game_map.name}"


def test_random_buttons_win_little_and_no_badge() -> None:
    """60 000 steps per seed; `--check 1000000` on the command line runs a million."""
    walks = [check.random_walk(parse(generate("small", seed)), seed, 60_000) for seed in SEEDS]
    assert sum(walk.badges for walk in walks) == 0
    assert sum(walk.matches for walk in walks) > 100
    assert sum(walk.won for walk in walks) < 0.2 * sum(walk.matches for walk in walks)


def play(atlas: Atlas, seed: int, actions: tuple[int, ...]) -> game_model.Game:
    game = game_model.new_game(atlas, seed)
    for action in actions:
        game.press(action)
    return game


@pytest.mark.parametrize(("size", "seed"), [("tiny", 0), ("tiny", 5), ("mid", 0)])
def test_solutions_end_the_game_between_bound_and_slack(size: str, seed: int) -> None:
    atlas = parse(generate(size, seed))
    actions = solver.solve(atlas, seed)
    assert play(atlas, seed, actions).mode == game_model.END
    assert play(atlas, seed, actions[:-1]).mode != game_model.END
    assert solver.lower_bound(atlas) <= len(actions) <= 1.5 * solver.lower_bound(atlas)


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
    """Breadth-first search over all states is slow, simple and exact."""
    cartridge = compile_world(LITTLE)
    game = game_model.new_game(cartridge.atlas, 0)
    seen, layer, depth = {(*game.key(), game.actions)}, [game], 0
    while not any(state.hall for state in layer):
        depth += 1
        next_layer = []
        for state in layer:
            for action in range(7):
                new = state.copy()
                new.press(action)
                key = (*new.key(), min(new.actions, game_model.BOOT + 1), new.bag)
                if key not in seen:
                    seen.add(key)
                    next_layer.append(new)
        layer = next_layer
    assert depth == len(cartridge.solution)
    assert solver.lower_bound(cartridge.atlas) <= depth
