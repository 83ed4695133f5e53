"""The page of lattice: exact value and regret as heat maps, and games from any start."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request

from rematch import api
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.recording import Replay
from rematch.evaluation.replay import Match, Playback, record
from rematch.training.player_lookup import find_player
from rematch.verbs.arguments import MOST_SEED
from rematch.web.jobs import Refused
from rematch.web.played_games import play_routes
from rematch.web.replay_routes import (
    Progress,
    chosen_labels,
    facts,
    file_job,
    labelled,
    match_job,
    new_scene,
    player_choices,
    player_name,
    replay_routes,
    require_world,
)
from rematch.web.run_data import Json, RunData
from rematch.web.scenes import action_rows, prob_rows, value_rows
from rematch.web.world_page import PlayedWorld, Post, WorldPage
from rematch.worlds.lattice.config import Config, free_cells, start_pairs
from rematch.worlds.lattice.exploitability import evaluate_exactly
from rematch.worlds.lattice.optimal_player import OptimalPlayer

WORLD, ROLES, OPTIMAL = "lattice", ("pursuer", "evader"), "optimal"
RIGHT = 2  # the last of the actions left, straight, right
LARGEST = 24  # cells of a side that the page shows


def scene(replay: Replay) -> Json:
    """The game as columns over moves: cells, headings (eighths of a turn from +x), moves left."""
    playback = Playback(replay)
    world: Any = playback.world
    frames = frames_of(playback)
    columns = {key: [one[key] for one in frames] for key in ("cells", "headings", "moves_left")}
    return facts(replay) | columns | board(world.config) | {
        "actions": on_board(action_rows(replay, world.spec), frames), "values": value_rows(replay),
        "probs": [rows and [row[::-1] if one["mirrored"] else row for row, one in zip(rows, frames)]
                  for rows in prob_rows(replay)],
    }  # fmt: skip


def frames_of(playback: Playback) -> list[Json]:
    return [frame(playback.world) for _ in playback.steps()]


def on_board(actions: list[Json], frames: list[Json]) -> list[Json]:
    """Actions as the board shows them: in a reflection (`world.mirrored`), the policy's left is right."""
    return [seat | {"rows": [RIGHT - action if one["mirrored"] else action
                             for action, one in zip(seat["rows"], frames)]} for seat in actions]


def board(config: Config) -> Json:
    return {"world": WORLD, "n": config.n, "free": free_cells(config).astype(int).tolist(),
            "radius": config.radius, "horizon": config.horizon}  # fmt: skip


def frame(world: Any) -> Json:
    """The present state: a robot is its cell and its heading, in eighths of a turn from +x."""
    state = world.state_of(0)
    return {"cells": [int(robot) // 8 for robot in state["robot"]],
            "headings": [int(robot) % 8 for robot in state["robot"]], "moves_left": int(state["moves_left"]),
            "mirrored": bool(world.mirrored[0])}


def as_observed(world: Any, action: Any) -> Any:
    """A person sees the board, a policy its canonical frame: in a reflection, left is right."""
    return RIGHT - action if world.mirrored[0] else action


# --- exact tables -----------------------------------------------------------------------------------------


def start_exact(data: RunData, request: Request, body: Json) -> Json:
    """Start the job that computes value and regret of a run's policies at every start."""
    run = request.path_params["run"]
    require_world(WORLD, data, run)
    if body:
        raise Refused("expected an empty object")
    return data.jobs.start(WORLD, "exact", {"folder": str(data.folder(run))})


def exact_job(request: Json, progress: Progress) -> Json:
    """Exact value, and regret of each role, by the cells of pursuer and evader; null where no game starts."""
    progress("loading the policies")
    trained = api.load(request["folder"])
    config = trained.config.world
    if config.n > LARGEST:
        raise ConfigError(f"n = {config.n}: the page shows boards of at most {LARGEST}; "
                          "`rematch eval --picture` draws larger ones")
    progress("solving the board and the best responses")
    exact = evaluate_exactly(config, trained.policies, 1)
    starts = start_pairs(config)
    tables = {"value": exact.value, "played": exact.played, **exact.regret}
    return board(config) | {
        "summary": {name: float(value) for name, value in exact.summary().items()},
        "tables": {name: by_cells(exact.board.by_cells(table), starts) for name, table in tables.items()},
        "step": trained.step,
    }  # fmt: skip


def by_cells(table: Any, starts: Any) -> list[list[float | None]]:
    """[n * n, n * n] numbers; None for pairs of cells that are no start."""
    shown = np.where(starts, table, np.nan)
    return [[None if np.isnan(value) else round(float(value), 4) for value in row] for row in shown]


# --- games from a start -----------------------------------------------------------------------------------


def start_game(data: RunData, request: Request, body: Json) -> Json:
    """Start the job that plays one game from a pair of cells."""
    run = request.path_params["run"]
    require_world(WORLD, data, run)
    if body.keys() != {"cells", "players", "seed"}:
        raise Refused("expected cells, players and seed")
    cells, chosen, seed = body["cells"], body["players"], body["seed"]
    for pair in (cells, chosen):
        if not isinstance(pair, list) or len(pair) != 2:
            raise Refused("expected two cells and two players")
    if not all(type(cell) is int and 0 <= cell < LARGEST**2 for cell in cells):
        raise Refused("cells: expected two numbers of cells")
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise Refused(f"seed: expected a whole number from 0 to {MOST_SEED}")
    optimal: dict[str, Json] = {OPTIMAL: {"id": OPTIMAL, "label": "optimal play"}}
    choices = [optimal | player_choices(WORLD, data, run, role) for role in ROLES]
    labels = chosen_labels(list(ROLES), chosen, choices)
    names = [OPTIMAL if choice == OPTIMAL else player_name(data, run, choice) for choice in chosen]
    return data.jobs.start(WORLD, "game", {
        "folder": str(data.folder(run)), "cells": cells, "players": names, "labels": labels,
        "seed": seed})  # fmt: skip


def game_job(request: Json, progress: Progress) -> Json:
    """Play one game from a pair of cells, with headings drawn from the seed."""
    progress("loading the players")
    trained, seed = api.load(request["folder"]), int(request["seed"])
    config = trained.config.world
    pursuer, evader = request["cells"]
    if max(pursuer, evader) >= config.n**2 or not start_pairs(config)[pursuer, evader]:
        raise ConfigError("no game starts from these two cells: they are too close, too far apart or blocked")
    players: list[Any] = [
        OptimalPlayer() if name == OPTIMAL else find_player(name, WORLD, config, role)
        for name, role in zip(request["players"], ROLES)
    ]
    if OPTIMAL in request["players"]:
        progress("solving the board")
    world: Any = api.world_builder(trained.config)(1, 0, seed)
    headings = rng.generator(seed, rng.EVALUATION).integers(0, 8, 2)
    robots = [np.array([8 * cell + heading]) for cell, heading in zip((pursuer, evader), headings)]
    world.load(np.zeros(1, np.int32), world.position(*robots, np.array([config.horizon])))
    match = Match(world=WORLD, config=config, seed=seed, step=trained.step)
    return new_scene(scene, labelled(record(world, players, match)[0], request["labels"]))


PAGE = WorldPage(
    world=WORLD,
    title="Exact values and replays",
    routes=(
        *replay_routes(WORLD, scene),
        *play_routes(WORLD),
        Post(path="/runs/{run}/exact", act=start_exact),
        Post(path="/runs/{run}/game", act=start_game),
    ),
    jobs={"file": partial(file_job, WORLD, scene), "match": partial(match_job, scene), "exact": exact_job,
          "game": game_job},
    files=("pursuit.js", "replay_player.js", "replay_lists.js", "played_game.js", "replay.css"),
    played=PlayedWorld(board=lambda world: board(world.config), frame=frame, scene=scene,
                       action=as_observed),
)
