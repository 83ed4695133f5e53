"""The page of beasty: games against any agent or bot, with hints, review and saved games.

A saved game is a file of the served folder (worlds/beasty/play/saved_games.py). The sessions in memory are
copies of files, at most OPEN_SESSIONS; a session is made again when its file has changed.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from rematch.core.errors import ConfigError, Damaged
from rematch.core.player import Player
from rematch.evaluation.text import clean
from rematch.web.answers import Refused
from rematch.web.run_data import RunData
from rematch.web.world_page import Get, Post, WorldPage
from rematch.web.worlds import beasty_replays
from rematch.web.worlds.beasty_players import WORLD, AbsentPlayer, choices, seat_player
from rematch.web.worlds.beasty_replays import BUSY, COMPLETIONS
from rematch.worlds.beasty.config import SCORINGS, Config
from rematch.worlds.beasty.play import seat_view
from rematch.worlds.beasty.play.saved_games import MOST_SEED, SavedGame, SavedGames
from rematch.worlds.beasty.play.session import YOU, IllegalMove, PlaySession, Table, Turn, seat_names

Json = dict[str, Any]

OPEN_SESSIONS = 64  # sessions held in memory
LISTED = 100  # saved games in the list


# --- the games of one served folder -------------------------------------------------------------------------


class GameRoom:
    """The games of one served folder: sessions by identifier, each a copy of its file."""

    def __init__(self, data: RunData) -> None:
        self.data, self.saved = data, SavedGames(data.root)
        self._sessions: OrderedDict[str, tuple[Any, SavedGame, PlaySession]] = OrderedDict()
        self._summaries: dict[str, tuple[Any, Json]] = {}
        self._lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(32)]  # by identifier

    @contextmanager
    def opened(self, identifier: str) -> Iterator[tuple[SavedGame, PlaySession]]:
        """The saved game and its session, for one request at a time."""
        with self._locks[hash(identifier) % len(self._locks)]:
            stamp = self.saved.stamp(identifier)
            with self._lock:
                entry = self._sessions.get(identifier)
            if entry is None or entry[0] != stamp:
                game = self.saved.load(identifier)
                entry = stamp, game, self.session(game)
                self._keep(identifier, entry)
            yield entry[1], entry[2]

    def _keep(self, identifier: str, entry: tuple[Any, SavedGame, PlaySession]) -> None:
        with self._lock:
            self._sessions[identifier] = entry
            self._sessions.move_to_end(identifier)
            while len(self._sessions) > OPEN_SESSIONS:
                self._sessions.popitem(last=False)

    def session(self, game: SavedGame, seated: bool = True) -> PlaySession:
        """The session of a saved game; with `seated` false its opponents cannot move."""
        rules = Config(players=len(game.seats), scoring=game.scoring, first=-1)
        players = list[Player | None]()
        for key, name in zip(game.seats, game.names):
            absent = None if key == YOU else AbsentPlayer(name, "it is not seated")
            players.append(seat_player(self.data, key, name, rules) if seated else absent)
        session = PlaySession(Table(rules=rules, seed=game.seed, players=tuple(players), names=game.names,
                                    completions=COMPLETIONS))
        try:
            session.replay(game.actions)
        except IllegalMove:
            raise Damaged("the saved game holds a move that is not legal") from None
        session.resigned, session.forfeit = game.resigned, game.forfeit
        return session

    def store(self, identifier: str, game: SavedGame, session: PlaySession) -> None:
        """Write what was played."""
        actions = tuple(turn.action for turn in session.turns)
        game = replace(game, actions=actions, resigned=session.resigned, forfeit=session.forfeit)
        with self._lock:
            self._sessions.pop(identifier, None)  # where the write fails, the file is read again
        self.saved.store(identifier, game)
        self._keep(identifier, (self.saved.stamp(identifier), game, session))

    def start(self, game: SavedGame) -> Json:
        """Store a game and play the turns of the opponents who are to move."""
        session = self.session(game)
        identifier = self.saved.add(game)
        return self.play_on(identifier, game, session, [])

    def play_on(self, identifier: str, game: SavedGame, session: PlaySession, fresh: list[Turn]) -> Json:
        """The turns of the opponents; they and `fresh` are stored, whatever happens."""
        first = session.step
        try:
            with BUSY:
                session.play_opponents()
        finally:
            self.store(identifier, game, session)
        return {"id": identifier, **seat_view.game_json(session, [*fresh, *session.turns[first:]])}

    def summary(self, identifier: str) -> Json:
        """The entry of a game in the list."""
        try:
            stamp = self.saved.stamp(identifier)
            cached = self._summaries.get(identifier)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            game = self.saved.load(identifier)
            session = self.session(game, seated=False)
        except ConfigError as error:
            return {"id": identifier, "problem": clean(error)[:200]}
        points = [session.state.points(seat) for seat in range(len(game.seats))]
        entry = {"id": identifier, "names": list(game.names), "points": points, "step": session.step,
                 "over": session.is_over, "end": seat_view.end_text(session), "written": game.written}
        if len(self._summaries) > 10 * LISTED:
            self._summaries.clear()
        self._summaries[identifier] = stamp, entry
        return entry


ROOMS: weakref.WeakKeyDictionary[RunData, GameRoom] = weakref.WeakKeyDictionary()


def room(data: RunData) -> GameRoom:
    return ROOMS.setdefault(data, GameRoom(data))


# --- requests -----------------------------------------------------------------------------------------------


def integer(body: Json, key: str, high: int) -> int:
    """A whole number of a request from 0 to `high`."""
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise Refused(f"{key}: expected a whole number from 0 to {high}")
    return value


def options(data: RunData, request: Request) -> Json:
    """What the page needs before the first game."""
    return {"choices": [vars(choice) for choice in choices(data)], "animals": seat_view.animals(),
            "scorings": list(SCORINGS)}


def new_game(data: RunData, request: Request, body: Json) -> Json:
    """Start a game: seats (keys of `choices`), scoring, deal (null: a random one)."""
    known = {choice.key: choice for choice in choices(data)}
    seats, scoring = body.get("seats"), body.get("scoring", SCORINGS[0])
    if not isinstance(seats, list) or not 2 <= len(seats) <= 4:
        raise Refused("seats: expected a list of 2 to 4 players")
    if not all(isinstance(key, str) and key in known for key in seats):
        raise Refused("seats: a player is not in the list that the page offers")
    if seats.count(YOU) > 1:
        raise Refused("seats: expected one seat for you at most")
    if scoring not in SCORINGS:
        raise Refused(f"scoring: expected one of {', '.join(SCORINGS)}")
    seed = secrets.randbelow(MOST_SEED)
    if body.get("deal") is not None:
        seed = integer(body, "deal", MOST_SEED)
    rules = Config(players=len(seats), scoring=scoring, first=-1)
    names = seat_names([known[key].title for key in seats])
    for key, name in zip(seats, names):
        player = seat_player(data, key, name, rules)
        if isinstance(player, AbsentPlayer):
            raise Refused(f"{name} cannot play: {player.reason}")
    return room(data).start(SavedGame(seats=tuple(seats), names=names, scoring=scoring, seed=seed))


def game_list(data: RunData, request: Request) -> Json:
    identifiers = room(data).saved.identifiers()
    entries = [room(data).summary(identifier) for identifier in identifiers[:LISTED]]
    return {"games": entries, "more": max(0, len(identifiers) - LISTED)}


Reading = Callable[[PlaySession], Json]


def shown(read: Reading) -> Callable[[RunData, Request], Json]:
    """A request that reads one game."""

    def answer(data: RunData, request: Request) -> Json:
        identifier = request.path_params["game"]
        with room(data).opened(identifier) as (_, session), BUSY:
            return {"id": identifier, **read(session)}

    return answer


def at_step(session: PlaySession, body: Json) -> None:
    """Refuse a request that was made for an earlier position, in another window or by a double click."""
    if integer(body, "step", 100) != session.step:
        raise Refused("the game has moved on: load it again")


def move(data: RunData, request: Request, body: Json) -> Json:
    """Play an action of the person, then the opponents."""
    identifier = request.path_params["game"]
    with room(data).opened(identifier) as (game, session):
        at_step(session, body)
        action = integer(body, "action", 100)
        if not session.is_persons_turn:
            raise Refused("it is not your turn")
        return room(data).play_on(identifier, game, session, [session.play(action)])


def play_on(data: RunData, request: Request, body: Json) -> Json:
    """Let the opponents play where one of them is to move."""
    identifier = request.path_params["game"]
    with room(data).opened(identifier) as (game, session):
        return room(data).play_on(identifier, game, session, [])


def undo(data: RunData, request: Request, body: Json) -> Json:
    """Take the last move of the person back."""
    identifier = request.path_params["game"]
    with room(data).opened(identifier) as (game, session):
        at_step(session, body)
        if session.table.person is None or session.undo() is None:
            raise Refused("there is nothing to take back")
        room(data).store(identifier, game, session)
        return {"id": identifier, **seat_view.game_json(session)}


def resign(data: RunData, request: Request, body: Json) -> Json:
    identifier = request.path_params["game"]
    with room(data).opened(identifier) as (game, session):
        if not session.is_persons_turn:
            raise Refused("it is not your turn")
        session.resign()
        room(data).store(identifier, game, session)
        return {"id": identifier, **seat_view.game_json(session)}


def retry(data: RunData, request: Request, body: Json) -> Json:
    """A new game that begins with the position before one of the person's moves."""
    with room(data).opened(request.path_params["game"]) as (game, session):
        step = integer(body, "step", 100)
        if session.table.person is None or step not in session.decisions():
            raise Refused("step: expected one of your moves")
        copy = replace(game, actions=game.actions[:step], resigned=False, forfeit=None)
    return room(data).start(copy)


def delete(data: RunData, request: Request, body: Json) -> Json:
    room(data).saved.remove(request.path_params["game"])
    return {}


def hint(session: PlaySession) -> Json:
    if not session.is_persons_turn:
        raise Refused("it is not your turn")
    return seat_view.hint_json(session)


PAGE = WorldPage(
    world=WORLD,
    title="Play Beasty Bar",
    without_run=True,
    files=("beasty.css", "beasty_cards.js", "beasty_animals.svg", "beasty_review.js", "beasty_table.js",
           "beasty_replays.js", "replay_lists.js", "replay_player.js", "replay.css"),
    jobs=beasty_replays.JOBS,
    routes=(
        *beasty_replays.ROUTES,
        Get(path="/options", read=options),
        Get(path="/games", read=game_list),
        Post(path="/games", act=new_game),
        Get(path="/games/{game}", read=shown(seat_view.game_json)),
        Get(path="/games/{game}/hint", read=shown(hint)),
        Get(path="/games/{game}/history", read=shown(seat_view.history_json)),
        Get(path="/games/{game}/review", read=shown(seat_view.review_json)),
        Post(path="/games/{game}/move", act=move),
        Post(path="/games/{game}/continue", act=play_on),
        Post(path="/games/{game}/undo", act=undo),
        Post(path="/games/{game}/resign", act=resign),
        Post(path="/games/{game}/retry", act=retry),
        Post(path="/games/{game}/delete", act=delete),
    ),
)
