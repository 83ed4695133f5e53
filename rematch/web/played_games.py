"""Games that a person plays on the page of a world, against a policy or a scripted player.

Each game is a child process with low priority (play_process.py). A client has one game; a server has at most
MOST_GAMES. The page sends an action and gets the next state; the last answer is the replay of the game.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import secrets
import subprocess
import sys
import threading
import weakref
from functools import partial
from typing import Any

from starlette.requests import Request

from rematch.core.system import user_code
from rematch.evaluation.text import clean
from rematch.verbs.arguments import MOST_SEED
from rematch.web.jobs import Refused
from rematch.web.replay_routes import player_choices, player_name, require_world
from rematch.web.run_data import Json, RunData
from rematch.web.world_page import Post
from rematch.worlds import registry

MOST_GAMES = 4  # of a server
PATIENCE = 60.0  # seconds for one answer; the first one loads the policies
CLIENT = re.compile("[0-9a-f]{32}")
COMMAND = (sys.executable, "-m", "rematch.web.play_process")
ENDED = "this game has ended: it was idle, or you started another one"


class PlayedGame:
    """One child process."""

    def __init__(self, client: str) -> None:
        self.id, self.client = secrets.token_hex(16), client
        self._child = subprocess.Popen(
            [*COMMAND, *user_code.child_flags()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self._answers: queue.Queue[str] = queue.Queue()
        self._asking = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._answers.put(line)
        self._answers.put("")  # the process has ended
        self._child.wait()

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def ask(self, value: Any) -> Json:
        """Send a line and wait for the answer; Refused with the reason where the game cannot go on."""
        assert self._child.stdin is not None
        with self._asking:
            with contextlib.suppress(OSError):
                self._child.stdin.write(json.dumps(value) + "\n")
                self._child.stdin.flush()
            try:
                line = self._answers.get(timeout=PATIENCE)
            except queue.Empty:
                self.close()
                line = ""
        if not line:
            raise Refused(ENDED)
        answer: Json = json.loads(line)
        if "error" in answer:
            raise Refused(clean(str(answer["error"]))[:1000])
        return {"game": self.id, **answer}

    def close(self) -> None:
        self._child.kill()


class PlayedGames:
    """The games of a server by client."""

    def __init__(self) -> None:
        self._games: dict[str, PlayedGame] = {}
        self._lock = threading.Lock()

    def open(self, client: str) -> PlayedGame:
        """A new game of a client; its earlier one ends."""
        with self._lock:
            if (before := self._games.pop(client, None)) is not None:
                before.close()
            self._games = {name: game for name, game in self._games.items() if game.alive}
            if len(self._games) >= MOST_GAMES:
                raise Refused(f"{MOST_GAMES} games are being played here: wait until one of them ends")
            self._games[client] = PlayedGame(client)
            return self._games[client]

    def find(self, identifier: str, client: object) -> PlayedGame:
        with self._lock:
            game = self._games.get(client) if isinstance(client, str) else None
            if game is None or game.id != identifier:
                raise Refused(ENDED)
            return game

    def close(self, game: PlayedGame) -> None:
        with self._lock:
            if self._games.get(game.client) is game:
                del self._games[game.client]
        game.close()


GAMES: weakref.WeakKeyDictionary[RunData, PlayedGames] = weakref.WeakKeyDictionary()


def games_of(data: RunData) -> PlayedGames:
    return GAMES.setdefault(data, PlayedGames())


# --- requests -----------------------------------------------------------------------------------------------


def play_routes(world: str) -> tuple[Post, ...]:
    """The routes of a world with a `PlayedWorld`."""
    return (
        Post(path="/runs/{run}/play", act=partial(start, world)),
        Post(path="/games/{game}/act", act=act),
        Post(path="/games/{game}/close", act=close),
    )


def start(world: str, data: RunData, request: Request, body: Json) -> Json:
    """Start a game under the rules of a run and answer its first state."""
    run = request.path_params["run"]
    require_world(world, data, run)
    if body.keys() != {"client", "role", "opponent", "seed"}:
        raise Refused("expected client, role, opponent and seed")
    client, role, opponent, seed = (body[key] for key in ("client", "role", "opponent", "seed"))
    if not isinstance(client, str) or not CLIENT.fullmatch(client):
        raise Refused("client: expected 32 hexadecimal digits")
    roles = list(registry.find(world).bots)
    if role not in roles:
        raise Refused(f"role: expected one of {', '.join(roles)}")
    other = roles[1 - roles.index(role)]
    known = player_choices(world, data, run, other)
    if not isinstance(opponent, str) or opponent not in known:
        raise Refused(f"there is no such {other} (any more)")
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise Refused(f"seed: expected a whole number from 0 to {MOST_SEED}")
    game = games_of(data).open(client)
    return game.ask({
        "world": world, "folder": str(data.folder(run)), "seat": roles.index(role), "seed": seed,
        "opponent": player_name(data, run, opponent), "label": known[opponent]["label"],
    })  # fmt: skip


def act(data: RunData, request: Request, body: Json) -> Json:
    """Play an action and answer the next state, or the replay of the game that has ended."""
    if body.keys() != {"client", "action"}:
        raise Refused("expected client and action")
    game = games_of(data).find(request.path_params["game"], body["client"])
    answer = game.ask(body["action"])
    if answer.get("over"):
        games_of(data).close(game)
    return answer


def close(data: RunData, request: Request, body: Json) -> Json:
    """End a game that its player has left."""
    games_of(data).close(games_of(data).find(request.path_params["game"], body.get("client")))
    return {}
