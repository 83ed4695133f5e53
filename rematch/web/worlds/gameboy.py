"""The page of gameboy: world map, games, savestates, milestones; and games that a person plays from there."""

from __future__ import annotations

import re
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from rematch.core.recording import Replay
from rematch.curriculum import archive_files
from rematch.evaluation.text import clean
from rematch.reporting.html.stored_map import StoredGame, StoredMap, StoredState, read_map, read_savestates
from rematch.reporting.untrusted_folder import Unreadable
from rematch.training.components.world_map import FILE
from rematch.web.answers import Refused
from rematch.web.replay_routes import read_replay, replay_names, require_world, stored_entries
from rematch.web.run_data import RunData
from rematch.web.world_page import Get, Post, WorldPage
from rematch.web.worlds import gameboy_map
from rematch.web.worlds.gameboy_map import Json
from rematch.web.worlds.gameboy_play import MOST_AT_ONCE, MOST_REPLAYED, Console, Session, Sessions
from rematch.worlds.gameboy.cartridge.constants import ACTIONS

WORLD = "gameboy"
CLIENT = re.compile(r"[0-9a-f]{32}")
SESSIONS: weakref.WeakKeyDictionary[RunData, Sessions] = weakref.WeakKeyDictionary()


def sessions(data: RunData) -> Sessions:
    return SESSIONS.setdefault(data, Sessions())


# --- the map ----------------------------------------------------------------------------------------------


def overview(data: RunData, request: Request) -> Json:
    """Everything that the page draws; it opens no emulator."""
    run = request.path_params["run"]
    require_world(WORLD, data, run)
    folder = data.folder(run)
    index = folder / archive_files.FOLDER / archive_files.INDEX
    stored = data.cached_file(index, partial(read_savestates, folder))
    out = {
        "run": run, "name": data.name(run), "actions": list(ACTIONS), "problem": "", "step": None,
        "maps": [], "games": [], "frontier": [], "most_at_once": MOST_AT_ONCE,
        "savestates": [dict(one.entry) for one in stored],
        "milestones": gameboy_map.milestones(folder),
        "lines": [clean(line)[:300] for line in archive_files.summary_lines(folder)],
        "replays": stored_entries(WORLD, data, folder),
    }  # fmt: skip
    try:
        stored_map: StoredMap = data.cached_file(folder / FILE, partial(read_map, folder))
    except Unreadable as error:
        return out | {"problem": str(error)}
    for entry in out["savestates"]:
        entry["place"] = stored_map.places.get(entry["id"])
    games = [shown_game(number, game) for number, game in enumerate(stored_map.games)]
    facts = {"step": stored_map.step, "maps": stored_map.maps, "frontier": stored_map.frontier}
    return out | facts | {"games": games}


def shown_game(number: int, game: StoredGame) -> Json:
    replayable = game.inputs is not None and len(game.inputs) <= MOST_REPLAYED
    actions = None if game.inputs is None else len(game.inputs)
    return {"game": number, "group": game.group, "start": game.start or None, "actions": actions,
            "path": [list(place) for place in game.path], "replayable": replayable}  # fmt: skip


# --- playing ----------------------------------------------------------------------------------------------


def open_game(data: RunData, request: Request, body: Json) -> Json:
    """Open a game at a savestate (its SHA-256), where a training game is (its number), at a step of a stored
    replay (its name), or at power-on.
    """
    run = request.path_params["run"]
    require_world(WORLD, data, run)
    if body.keys() == {"client", "replay", "step"}:
        return open_replay(data, run, body)
    if body.keys() != {"client", "savestate", "game"}:
        raise Refused("expected client, and savestate and game, or replay and step")
    client, savestate, number = body["client"], body["savestate"], body["game"]
    if not isinstance(client, str) or not CLIENT.fullmatch(client):
        raise Refused("client: expected 32 hexadecimal digits")
    if savestate is not None and number is not None:
        raise Refused("expected a savestate or a game, not both")
    folder = data.folder(run)
    game = None if number is None else training_game(folder, number)
    start = stored_state(folder, savestate if game is None else game.start or None)
    session = sessions(data).open(client, run, folder)
    try:
        with session.lock:
            session.console.load(start)
            if game is not None:
                session.note = replay(session.console, game, start is None)
            return session.to_json()
    except Refused:
        sessions(data).close(session)
        raise


def open_replay(data: RunData, run: str, body: Json) -> Json:
    """Open a stored game before its action number `step`; with its actions, for the page to go on."""
    client, name, step = body["client"], body["replay"], body["step"]
    if not isinstance(client, str) or not CLIENT.fullmatch(client):
        raise Refused("client: expected 32 hexadecimal digits")
    folder = data.folder(run)
    if not isinstance(name, str) or name not in replay_names(folder):
        raise Refused("there is no such replay (any more)")
    game = read_replay(folder, name, WORLD)
    actions = recorded_actions(game)
    if type(step) is not int or not 0 <= step <= len(actions):
        raise Refused(f"step: expected a whole number from 0 to {len(actions)}")
    session = sessions(data).open(client, run, folder)
    try:
        with session.lock:
            session.console.load_bytes(game.start.tobytes())
            for action in actions[:step]:
                session.console.press(action)
            return session.to_json() | {"recorded": actions, "step": step}
    except Refused:
        sessions(data).close(session)
        raise


def recorded_actions(game: Replay) -> list[int]:
    """The inputs of a stored game."""
    (column,) = game.actions.values()
    actions: list[int] = column.reshape(-1).tolist()
    if column.shape != (game.length, 1) or column.dtype.kind != "i":
        raise Refused("the replay is not one of this game")
    if any(not 0 <= action < len(ACTIONS) for action in actions):
        raise Refused("the replay names inputs that this game has not")
    if len(actions) > MOST_REPLAYED:
        raise Refused(f"this game has {len(actions)} actions; at most {MOST_REPLAYED} are replayed")
    return actions


def stored_state(folder: Path, sha256: object) -> StoredState | None:
    """The savestate of this digest; None is power-on."""
    if sha256 is None:
        return None
    for stored in read_savestates(folder):
        if stored.sha256 == sha256:
            return stored
    raise Refused("there is no such savestate (any more)")


def training_game(folder: Path, number: Any) -> StoredGame:
    """A game of the newest map whose inputs are known."""
    try:
        games = read_map(folder).games
    except Unreadable as error:
        raise Refused(str(error)) from None
    if type(number) is not int or not 0 <= number < len(games):
        raise Refused("there is no such game (any more)")
    game = games[number]
    if game.inputs is None:
        raise Refused("this game began before the run's first step: its screen is known from its next "
                      "episode on")
    if any(number >= len(ACTIONS) for number in game.inputs):
        raise Refused("the map names inputs that this game has not")
    if len(game.inputs) > MOST_REPLAYED:
        raise Refused(f"this game has {len(game.inputs)} actions; at most {MOST_REPLAYED} are replayed")
    return game


def replay(console: Console, game: StoredGame, from_power_on: bool) -> str:
    """Play the inputs of a training game; a note where they lead to another place."""
    if from_power_on:
        console.restart()
    for action in game.inputs or ():
        console.press(action)
    same = console.picture()["place"] == list(game.path[-1])
    return "" if same else "the replayed game stands in another place than the one on the map"


def held(data: RunData, request: Request, body: Json, keys: set[str]) -> Session:
    """The session of a request whose body has these keys."""
    if body.keys() != keys:
        raise Refused(f"expected {' and '.join(sorted(keys))}")
    return sessions(data).find(request.path_params["session"], body["client"])


def press(data: RunData, request: Request, body: Json) -> Json:
    """Press buttons, one action of 24 frames each."""
    session = held(data, request, body, {"client", "actions"})
    actions = body["actions"]
    if not isinstance(actions, list) or not 1 <= len(actions) <= MOST_AT_ONCE:
        raise Refused(f"actions: expected a list of 1 to {MOST_AT_ONCE}")
    if not all(type(action) is int and 0 <= action < len(ACTIONS) for action in actions):
        raise Refused(f"actions: expected whole numbers from 0 to {len(ACTIONS) - 1}")
    with session.lock:
        session.press(actions)
        return session.to_json()


def close_game(data: RunData, request: Request, body: Json) -> Json:
    session = held(data, request, body, {"client"})
    sessions(data).close(session)
    return {}


PAGE = WorldPage(
    world=WORLD,
    title="World map and play",
    routes=(
        Get(path="/runs/{run}", read=overview),
        Post(path="/runs/{run}/open", act=open_game),
        Post(path="/sessions/{session}/press", act=press),
        Post(path="/sessions/{session}/close", act=close_game),
    ),
    files=("gameboy_map.js", "gameboy_play.js", "gameboy_milestones.js", "replay_lists.js",
           "replay_player.js", "replay.css", "gameboy.css"),
)  # fmt: skip
