"""The page of worlds without a page of their own: stored games, with what each seat observes and does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from rematch.core.errors import ConfigError
from rematch.core.recording import Replay
from rematch.evaluation.replay import Playback
from rematch.evaluation.text import clean
from rematch.web.jobs import Refused
from rematch.web.replay_routes import (
    ANY_WORLD,
    Progress,
    facts,
    file_job,
    read_replay,
    replay_names,
    start_file,
    stored_entries,
)
from rematch.web.run_data import Json, RunData
from rematch.web.scenes import action_rows, number, prob_rows, value_rows
from rematch.web.world_page import Get, Post, WorldPage
from rematch.worlds import registry

OTHER = "other"
MOST_STEPS = 5_000
MOST_COLUMNS = 32  # observed numbers of a seat that the page shows
MOST_TEXT = 4_000  # characters of a state as text
SECONDS, SECONDS_OF_A_TURN = 0.2, 1.0  # of a step, where the world does not say how fast its games are shown


def overview(data: RunData, request: Request) -> Json:
    """The stored replays of a run."""
    run = request.path_params["run"]
    replays = stored_entries(ANY_WORLD, data, data.folder(run))
    return {"run": run, "name": data.name(run), "world": data.world(run), "replays": replays}


def start_show(data: RunData, request: Request, body: Json) -> Json:
    """Start the job that steps through a stored game: the rules of a world may be code of the user."""
    folder, name = data.folder(request.path_params["run"]), body.get("replay")
    if body.keys() != {"replay"} or not isinstance(name, str) or name not in replay_names(folder):
        raise Refused("there is no such replay (any more)")
    return data.jobs.start(OTHER, "show", {"folder": str(folder), "replay": name})


def show_job(request: Json, progress: Progress) -> Json:
    """The job itself, in the child process."""
    progress("stepping through the game")
    return scene(read_replay(Path(request["folder"]), request["replay"], ANY_WORLD))


def scene(replay: Replay) -> Json:
    """The game as columns over steps: what each seat observes, its actions and values, the state as text."""
    if replay.length > MOST_STEPS:
        raise ConfigError(f"the replay has {replay.length} steps; the page shows at most {MOST_STEPS}")
    playback = Playback(replay)
    world, game = playback.world, registry.find(replay.world)
    text, seats = game.defaults.text, range(world.spec.seats)
    observed: list[list[list[float | None]]] = [[] for _ in seats]
    acting: list[list[int]] = []
    texts: list[list[str]] = []
    for _ in playback.steps():
        acting.append([int(seat) for seat in seats if world.view.acting[0, seat]])
        for seat in seats:
            observed[seat].append(observed_numbers(world, seat))
        if text is not None:
            texts.append([clean_lines(text(world, 0, seat)) for seat in seats])
    turns = any(len(seat) < len(seats) for seat in acting)
    seconds = SECONDS_OF_A_TURN if turns else SECONDS
    if game.renderer:
        seconds = 1 / game.renderer.steps_per_second(playback.config)
    columns = [[clean(name)[:60] for field in world.spec.role_of(seat).fields for name in field.columns]
               for seat in seats]  # fmt: skip
    return facts(replay) | {
        "world": OTHER, "title": clean(registry.title(replay.world)), "seconds": seconds, "acting": acting,
        "columns": [names[:MOST_COLUMNS] for names in columns], "observed": observed, "texts": texts,
        "more": [max(0, len(names) - MOST_COLUMNS) for names in columns],
        "actions": action_rows(replay, world.spec), "values": value_rows(replay), "probs": prob_rows(replay),
    }  # fmt: skip


def observed_numbers(world: Any, seat: int) -> list[float | None]:
    """The first MOST_COLUMNS numbers that a seat observes now."""
    role = world.spec.role_of(seat)
    index = role.seats.index(seat)
    numbers: list[float | None] = []
    for field in role.fields:
        if len(numbers) < MOST_COLUMNS:
            numbers += map(number, world.view[role.name][field.name][0, index].ravel()[:MOST_COLUMNS])
    return numbers[:MOST_COLUMNS]


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in str(text)[:MOST_TEXT].splitlines())


PAGE = WorldPage(
    world=OTHER,
    title="Replays",
    routes=(
        Get(path="/runs/{run}", read=overview),
        Post(path="/runs/{run}/show", act=start_show),
        Post(path="/file", act=partial(start_file, OTHER), most_bytes=1 << 21),
    ),
    jobs={"show": show_job, "file": partial(file_job, ANY_WORLD, scene)},
    files=("replay_player.js", "replay_lists.js", "replay.css"),
)
