"""Replays on the page of a world: stored games of a run, and new games between players of one's choice.

A client names replays and players by identifiers of lists that the server made, never by paths.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from rematch.core.errors import ConfigError, Damaged
from rematch.core.recording import Replay
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.past_policies import evenly_spaced
from rematch.evaluation.replay_choice import Choice
from rematch.evaluation.text import clean
from rematch.reporting import untrusted_folder
from rematch.storage import atomic_files, policy_files, replay_files
from rematch.storage.run_folder import PAST_FOLDER, REPLAY_FILE, REPLAY_FOLDER
from rematch.verbs.arguments import MOST_SEED
from rematch.web.jobs import Refused
from rematch.web.run_data import Json, RunData, UnknownRun
from rematch.web.world_page import Get, Post
from rematch.worlds import registry

ITERATION = re.compile("[0-9]{1,12}")  # name of the policies of an earlier iteration
MOST_LISTED = 500  # replays of a run
MOST_RUNS = 30  # other runs whose players are offered
MOST_PAST = 64  # earlier iterations of a run that are offered, evenly spaced
MOST_GAMES = 200  # games of one job
MOST_FILE = 1 << 20  # bytes of a replay that a user opens
ANY_WORLD = ""  # of a page that shows the replays of every world
Scene = Callable[[Replay], Json]
Progress = Callable[[str], None]


def replay_routes(world: str, scene: Scene) -> tuple[Get | Post, ...]:
    """Routes of the page of a world; `scene` is what its script draws of a replay."""
    return (
        *stored_routes(world, scene),
        Post(path="/runs/{run}/match", act=partial(start_match, world)),
    )


def stored_routes(world: str, scene: Scene) -> tuple[Get | Post, ...]:
    """The routes that show games without playing new ones: those of a run, and a file of the user."""
    return (
        Get(path="/runs/{run}", read=partial(overview, world)),
        Get(path="/runs/{run}/replays/{replay}", read=partial(stored_scene, world, scene)),
        Post(path="/file", act=partial(start_file, world), most_bytes=2 * MOST_FILE),
    )


# --- stored games -----------------------------------------------------------------------------------------


def replay_names(folder: Path) -> list[str]:
    """The replays of a run, oldest first: ITERATION-NUMBER."""
    inner = folder / REPLAY_FOLDER
    try:
        if not untrusted_folder.is_folder(inner):
            return []
        matches = [match for name in os.listdir(inner) if (match := REPLAY_FILE.fullmatch(name))]
    except OSError:
        return []
    ordered = sorted(matches, key=lambda match: (int(match[1]), int(match[2])))
    return [match[0].removesuffix(replay_files.SUFFIX) for match in ordered[-MOST_LISTED:]]


def read_replay(folder: Path, name: str, world: str) -> Replay:
    """A stored replay of this world; Damaged where it is none."""
    if name not in replay_names(folder):
        raise UnknownRun(name)
    path = folder / REPLAY_FOLDER / f"{name}{replay_files.SUFFIX}"
    replay = replay_files.decode(atomic_files.read_regular_file(path, replay_files.MOST_FILE), path.name)
    return of_world(replay, world, path.name)


def of_world(replay: Replay, world: str, name: str) -> Replay:
    if world != ANY_WORLD and replay.world != world:
        raise Damaged(f"{name} is a game of {clean(replay.world)[:60]}, not of {world}")
    return replay


def entry(folder: Path, name: str, world: str) -> Json:
    """A line of the list of replays."""
    try:
        replay = read_replay(folder, name, world)
    except (Damaged, UnknownRun) as error:
        return {"id": name, "problem": clean(str(error))[:300]}
    return {"id": name, "iteration": int(name.partition("-")[0])} | facts(replay)


def stored_entries(world: str, data: RunData, folder: Path) -> list[Json]:
    """The list of a run's replays, oldest first; each file is read once."""
    inner = folder / REPLAY_FOLDER
    return [data.cached_file(inner / f"{name}{replay_files.SUFFIX}", partial(entry, folder, name, world))
            for name in replay_names(folder)]  # fmt: skip


def facts(replay: Replay) -> Json:
    """What the page says of a game in words and numbers."""
    return {
        "caption": clean(replay.caption()), "step": replay.step, "length": replay.length, "end": replay.end,
        "outcome": list(replay.outcome), "seed": str(replay.seed),
        "players": [{"role": p.role, "name": clean(p.name)[:100], "digest": p.digest[:16]}
                    for p in replay.players],
    }  # fmt: skip


def overview(world: str, data: RunData, request: Request) -> Json:
    """The stored replays of a run, and the players that can meet."""
    run = request.path_params["run"]
    folder = data.folder(run)
    require_world(world, data, run)
    replays = stored_entries(world, data, folder)
    roles = list(registry.find(world).bots)
    players = {role: list(player_choices(world, data, run, role).values()) for role in roles}
    return {"run": run, "name": data.name(run), "roles": roles, "replays": replays, "players": players}


def require_world(world: str, data: RunData, run: str) -> None:
    if data.world(run) != world:
        raise Refused(f"this is not a run of {world}")


def stored_scene(world: str, scene: Scene, data: RunData, request: Request) -> Json:
    folder, name = data.folder(request.path_params["run"]), request.path_params["replay"]
    if name not in replay_names(folder):
        raise Refused("there is no such replay (any more)")
    return scene(read_replay(folder, name, world))


# --- a file of the user -----------------------------------------------------------------------------------


def start_file(world: str, data: RunData, request: Request, body: Json) -> Json:
    """Start a job that shows a replay file: the page sends its text, never its place."""
    text = body.get("file")
    if body.keys() != {"file"} or not isinstance(text, str) or not is_unicode(text):
        raise Refused("expected file, the text of a replay file")
    if len(text) > MOST_FILE:
        raise Refused(f"the file is larger than {MOST_FILE >> 20} MiB")
    return data.jobs.start(world, "file", {"file": text})


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold a text: JSON can name half of a pair of surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def file_job(world: str, scene: Scene, request: Json, progress: Progress) -> Json:
    """The job of `start_file`, in the child process: step the rules through the game."""
    progress("stepping through the game")
    name = "this file"
    replay = of_world(replay_files.decode(request["file"].encode(), name), world, name)
    return scene(replay) | {"file": request["file"]}


# --- new games --------------------------------------------------------------------------------------------


def player_choices(world: str, data: RunData, run: str, role: str) -> dict[str, Json]:
    """identifier -> {"id", "label"} of the players that a role can have."""
    folder = data.folder(run)
    out: dict[str, Json] = {}

    def offer(identifier: str, label: str, group: str = "this run") -> None:
        out[identifier] = {"id": identifier, "label": label, "group": group}

    offer("newest", "newest policy of this run")
    for name in sorted(untrusted_folder.policy_names(folder, policy_files.POLICY_FOLDER)):
        if name.startswith(f"{role}@"):
            offer(f"policy:{name}", f"policy {name}")
    for iteration in past_iterations(folder):
        offer(f"past:{iteration}", f"iteration {iteration}")
    for bot in registry.find(world).bot_names(role):
        offer(f"bot:{bot}", f"scripted: {bot}", "scripted players")
    others = [other for other in data.scan() if other != run and data.world(other) == world]
    for other in others[:MOST_RUNS]:
        name = data.name(other)
        offer(f"run:{other}", f"run {name}", f"run {name}")
        for iteration in past_iterations(data.folder(other)):
            offer(f"run:{other}@{iteration}", f"run {name}, iteration {iteration}", f"run {name}")
    return out


def past_iterations(folder: Path) -> list[int]:
    """The earlier iterations of a run that are offered, the first and the newest among them."""
    names = untrusted_folder.policy_names(folder, PAST_FOLDER)
    return evenly_spaced(sorted({int(name) for name in names if ITERATION.fullmatch(name)}), MOST_PAST)


def player_name(data: RunData, run: str, choice: str) -> str:
    """The name by which `find_player` knows a player of `player_choices`."""
    kind, _, name = choice.partition(":")
    folder = data.folder(run)
    if kind == "policy":
        return str(folder / policy_files.POLICY_FOLDER / f"{name}.safetensors")
    if kind == "run":
        other, at, iteration = name.partition("@")
        return f"{data.folder(other)}{at}{iteration}"
    return {"newest": str(folder), "past": f"{folder}@{name}", "bot": name}[kind]


def start_match(world: str, data: RunData, request: Request, body: Json) -> Json:
    """Start a job that plays games until one ends as wanted."""
    run = request.path_params["run"]
    require_world(world, data, run)
    if not body.keys() <= {"players", "choose", "seed"}:
        raise Refused("expected players, choose and seed")
    roles = list(registry.find(world).bots)
    chosen, choose, seed = body.get("players"), body.get("choose", ""), body.get("seed", 0)
    if not isinstance(chosen, list) or len(chosen) != len(roles):
        raise Refused(f"expected a player for each of {', '.join(roles)}")
    labels = chosen_labels(roles, chosen, [player_choices(world, data, run, role) for role in roles])
    if not isinstance(choose, str) or len(choose) > 80:
        raise Refused("choose: expected a text")
    if choose:
        Choice.parse(choose)
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise Refused(f"seed: expected a whole number from 0 to {MOST_SEED}")
    return data.jobs.start(world, "match", {
        "folder": str(data.folder(run)), "players": [player_name(data, run, choice) for choice in chosen],
        "labels": labels, "choose": choose, "seed": seed,
    })  # fmt: skip


def chosen_labels(roles: list[str], chosen: list[Any], choices: list[dict[str, Json]]) -> list[str]:
    """The labels of the chosen players; Refused where one is not on the list of its role."""
    for role, choice, known in zip(roles, chosen, choices):
        if not isinstance(choice, str) or choice not in known:
            raise Refused(f"there is no such {role} (any more)")
    return [known[choice]["label"] for choice, known in zip(chosen, choices)]


def labelled(replay: Replay, labels: list[str]) -> Replay:
    """The replay with the labels of its players as their names, which may be paths of this machine."""
    players = tuple(dataclasses.replace(p, name=label) for p, label in zip(replay.players, labels))
    return dataclasses.replace(replay, players=players)


def new_scene(scene: Scene, replay: Replay) -> Json:
    """The scene of a game that no run stores, with the text of its replay file for the user to save."""
    return scene(replay) | {"file": replay_files.encode(replay).decode()}


def match_job(scene: Scene, request: Json, progress: Progress) -> Json:
    """The job of `start_match`, in the child process: play, and return the scene of the game."""
    from rematch.verbs.replays import GameChoice, new_game

    progress("loading the players")
    wanted = GameChoice(players=request["players"], choose=request["choose"], seed=request["seed"],
                    games=MOST_GAMES)  # fmt: skip
    try:
        with PROGRESS.shown_by(lambda share, text: progress(text)):
            replay = new_game(request["folder"], wanted)
        return new_scene(scene, labelled(replay, request["labels"]))
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("--choose = ").partition("; try more")[0]) from None
