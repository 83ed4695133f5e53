"""The child process of a game that a person plays on the page (played_games.py).

It reads one request, then one action per line, and writes one JSON object per line: the present state, at the
end the replay of the game. It ends when nothing comes for IDLE_SECONDS, and with the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import warnings
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from rematch.core.errors import ConfigError
from rematch.core.player import Decision, Player, RngKey, Seat
from rematch.core.spec import Actions
from rematch.core.system import user_code
from rematch.web.world_page import PlayedWorld

Json = dict[str, Any]

IDLE_SECONDS = 300.0  # without an action, after which the game ends
NICENESS = 10


class Gone(Exception):
    """Nobody plays any more."""


class PagePerson:
    """A player that shows its state to the page and gets its actions from there."""

    name = "you"

    def __init__(self, world: PlayedWorld, say: Any) -> None:
        self.world, self.say, self.step = world, say, 0

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        board = self.world.board(seat.world) if self.step == 0 else {}
        self.say(board | {"step": self.step, "frame": self.world.frame(seat.world)})
        self.step += 1
        action = checked(seat.role.actions, read_line())
        return Decision(np.array([self.world.action(seat.world, action)]))


def checked(actions: Actions, value: Any) -> Any:
    """An action of the page: a whole number, or numbers from -1 to 1; ConfigError for anything else."""
    if actions.kind == "discrete":
        if type(value) is int and 0 <= value < actions.size:
            return np.int32(value)
        raise ConfigError(f"action: expected a whole number from 0 to {actions.size - 1}")
    numbers: list[Any] = value if isinstance(value, list) and len(value) == actions.size else [None]
    if all(type(number) in (int, float) and -1 <= number <= 1 for number in numbers):
        return np.array(numbers, np.float32)
    raise ConfigError(f"action: expected {actions.size} numbers from -1 to 1")


def read_line() -> Any:
    """The next line of the server: a JSON value. A request has one line, so nothing waits in the buffer."""
    ready, _, _ = select.select([sys.stdin], [], [], IDLE_SECONDS)
    line = sys.stdin.readline() if ready else ""
    if not line:
        raise Gone
    return json.loads(line)


def play(request: Json, say: Any) -> None:
    """The whole game: `seat` is the person's, the other seats are the opponent's."""
    from rematch import api
    from rematch.evaluation import replay as recording
    from rematch.training.player_lookup import find_player
    from rematch.web.replay_routes import labelled, new_scene
    from rematch.web.worlds import PAGES

    world = next(page.played for page in PAGES if page.world == request["world"])
    assert world is not None
    trained, seed = api.load(request["folder"]), int(request["seed"])
    rules, person = trained.config.world, PagePerson(world, say)
    made = api.world_builder(trained.config, trained.curriculum)(1, 0, seed)
    players: list[Player] = [
        person if seat == request["seat"]
        else find_player(request["opponent"], request["world"], rules, made.spec.role_of(seat).name)
        for seat in range(made.spec.seats)
    ]  # fmt: skip
    labels = [person.name if player is person else request["label"] for player in players]
    match = recording.Match(world=request["world"], config=rules, seed=seed, step=trained.step)
    replay = labelled(recording.record(made, players, match)[0], labels)
    say({"over": True, "scene": new_scene(world.scene, replay)})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def say(value: Json, file: TextIO = answers) -> None:
        print(json.dumps(value, allow_nan=False), file=file, flush=True)

    user_code.allow_everything(user_code.FLAG in sys.argv)
    warnings.simplefilter("ignore")
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    try:
        play(read_line(), say)
    except (ConfigError, ImportError) as error:
        say({"error": str(error)})
    except Gone:
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
