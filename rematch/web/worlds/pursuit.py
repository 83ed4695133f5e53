"""The page of pursuit: games on a canvas, with sight lines, LiDAR, actions and values."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from rematch.core.errors import ConfigError
from rematch.core.recording import Replay
from rematch.evaluation.replay import Playback
from rematch.web.played_games import play_routes
from rematch.web.replay_routes import facts, file_job, match_job, replay_routes
from rematch.web.run_data import Json
from rematch.web.scenes import action_rows, value_rows
from rematch.web.world_page import PlayedWorld, WorldPage

ROLES = ("pursuer", "evader")
MOST_STEPS = 20_000
OBSTACLE = ("obstacle_x", "obstacle_y", "obstacle_radius")
Point = tuple[float, float]


def scene(replay: Replay) -> Json:
    """The game as columns over steps: metres, radians, LiDAR as shares of its range."""
    if replay.length > MOST_STEPS:
        raise ConfigError(f"the replay has {replay.length} steps; the page shows at most {MOST_STEPS}")
    playback = Playback(replay)
    world: Any = playback.world
    frames = [frame(world) for _ in playback.steps()]
    columns = {key: [one[key] for one in frames] for key in ("x", "y", "theta", "sight")}
    lidar = None
    if not world.config.full_obs:
        lidar = {role: [one["lidar"][role] for one in frames] for role in ROLES}
    obstacles = frames[-1]["obstacles"] if frames else []
    return facts(replay) | board(world) | columns | {
        "obstacles": obstacles, "lidar": lidar, "actions": action_rows(replay, world.spec),
        "values": value_rows(replay),
    }  # fmt: skip


def board(world: Any) -> Json:
    """What stays the same during a game."""
    config, sensors = world.config, not world.config.full_obs
    view = {"range": config.view_range, "half_angle": config.view_half_angle, "kind": config.visibility}
    return {
        "world": "pursuit", "dt": config.dt, "arena": [config.arena_width, config.arena_height],
        "capture_radius": config.capture_radius, "robot_radius": config.robot_radius,
        "lidar_range": config.lidar_range if sensors else None, "view": view if sensors else None,
        "max_steps": config.max_steps, "fixed_speed": config.fixed_speed,
    }  # fmt: skip


def frame(world: Any) -> Json:
    """The present state: metres, radians, LiDAR as shares of its range."""
    state = world.state_of(0)
    obstacles = [[round(float(state[key][k]), 4) for key in OBSTACLE] for k in range(state["obstacles"])]
    out: Json = {key: [round(float(value), 4) for value in state[key][:2]] for key in ("x", "y", "theta")}
    ends = [(float(state["x"][seat]), float(state["y"][seat])) for seat in (0, 1)]
    out |= {"obstacles": obstacles, "sight": int(free_line(ends[0], ends[1], obstacles)), "lidar": None}
    if not world.config.full_obs:
        out["lidar"] = {role: [round(float(share), 3) for share in world.view[role]["lidar"][0, 0]]
                        for role in ROLES}
    return out


def free_line(start: Point, end: Point, obstacles: list[list[float]]) -> bool:
    """Whether no obstacle lies between two points."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = dx * dx + dy * dy
    for x, y, radius in obstacles:
        share = 0.0 if length == 0 else ((x - start[0]) * dx + (y - start[1]) * dy) / length
        share = min(1.0, max(0.0, share))
        if math.dist((x, y), (start[0] + share * dx, start[1] + share * dy)) < radius:
            return False
    return True


PAGE = WorldPage(
    world="pursuit",
    title="Replays",
    routes=(*replay_routes("pursuit", scene), *play_routes("pursuit")),
    jobs={"file": partial(file_job, "pursuit", scene), "match": partial(match_job, scene)},
    files=("replay_player.js", "replay_lists.js", "played_game.js", "replay.css"),
    played=PlayedWorld(board=board, frame=frame, scene=scene),
)
