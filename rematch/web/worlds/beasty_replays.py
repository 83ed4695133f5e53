"""Stored games of Beasty Bar runs on the page: every position of a replay, and its review by search."""

from __future__ import annotations

import threading

from starlette.requests import Request

from rematch.core.errors import ConfigError, Damaged
from rematch.core.player import Player
from rematch.core.recording import Replay
from rematch.evaluation.replay import Playback
from rematch.evaluation.text import clean
from rematch.web.answers import Refused
from rematch.web.replay_routes import Progress, facts, file_job, read_replay, replay_names, stored_routes
from rematch.web.run_data import Json, RunData
from rematch.web.world_page import Get
from rematch.web.worlds.beasty_players import WORLD, AbsentPlayer
from rematch.worlds.beasty.play import seat_view
from rematch.worlds.beasty.play.saved_games import TEXT
from rematch.worlds.beasty.play.session import ROW, IllegalMove, PlaySession, Table, seat_names

COMPLETIONS = 400  # deals that the search samples for hints and reviews
BUSY = threading.Semaphore(2)  # computations at a time in the server


def replayed(replay: Replay) -> PlaySession:
    """The game of a replay as a session without a person: all hands are open."""
    playback = Playback(replay)
    rules = playback.config
    if rules.earlier_rules:
        raise ConfigError("games with earlier_rules = true are shown by `rematch film` only")
    names = seat_names([clean(player.name)[:TEXT] or "?" for player in replay.players])
    absent: list[Player | None] = [AbsentPlayer(name, "it is a recorded game") for name in names]
    session = PlaySession(Table(rules=rules, seed=0, players=tuple(absent), names=names,
                                completions=COMPLETIONS))
    session.world.load(ROW, replay.start[None])
    session.state = session.world.read(ROW)[0]
    (actions,) = replay.actions.values()
    try:
        for row in actions.tolist():
            session.play(row[session.state.turn])
    except IllegalMove:
        raise Damaged("the replay holds a move that is not legal") from None
    return session


def scene(replay: Replay) -> Json:
    """Every position with the turn that led to it."""
    session = replayed(replay)
    return facts(replay) | seat_view.history_json(session) | {
        "names": list(session.table.names), "scoring": session.table.rules.scoring,
        "outcomes": session.outcomes(),
    }  # fmt: skip


def review(data: RunData, request: Request) -> Json:
    """Chance to win and mistakes of the first seat."""
    folder, name = data.folder(request.path_params["run"]), request.path_params["replay"]
    if name not in replay_names(folder):
        raise Refused("there is no such replay (any more)")
    with BUSY:
        return seat_view.review_json(replayed(read_replay(folder, name, WORLD)))


def shown_file(request: Json, progress: Progress) -> Json:
    """The job that shows a replay file of the user, with its review."""
    from rematch.storage import replay_files

    shown = file_job(WORLD, scene, request, progress)
    progress("the search looks at the moves")
    game = replayed(replay_files.decode(request["file"].encode(), "this file"))
    return shown | {"review": seat_view.review_json(game)}


ROUTES = (
    *stored_routes(WORLD, scene),
    Get(path="/runs/{run}/replays/{replay}/review", read=review),
)
JOBS = {"file": shown_file}
