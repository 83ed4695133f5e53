"""Bots that people write in Python, entered by name: `mymodule:MyBot`.

    class MyBot:
        def act(self, state, legal, key):
            return legal[0]

`state` is a `State` as the bot's seat sees it: `state.turn` is the bot, and the cards that it cannot see are
dealt anew for every decision (its own deck, the others' hands and decks), so that it may try moves with
`reference.play`. `legal` are ids of actions (`rules.ACTIONS` names them), `key` is a number to draw luck
from: the same decision gets the same one. `self.config` holds the rules. Games are played side by side by one
object, so a bot must not remember. A bot runs in a process of its own. One that raises, takes too long or
answers with anything but a legal action resigns that game.

Run as a module, this file is that process: a line of JSON in, a line of JSON out.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import operator
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat

from .config import ACTIONS, STRENGTH, Config
from .state import State, unpack

MOVE_SECONDS = 10.0  # a move may take, unless told otherwise
START_SECONDS = 60.0  # until it has been imported
PATIENCE = 3  # times that its process may hang or die: then it resigns what is left without being asked


class GuestPlayer:
    """A bot in its own process, as a player; `troubles` are the first lines of what went wrong, by game."""

    def __init__(self, name: str, config: Config, seconds: float = MOVE_SECONDS) -> None:
        self.name, self.config, self.seconds = name, config, seconds
        self.troubles: dict[tuple[int, int, int], str] = {}  # (luck, step, game) -> what happened
        self._lost = 0
        self._turn = threading.Lock()  # several threads may play parts of a match
        self._process: subprocess.Popen[str] | None = None
        self._start()

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        numbers = seat.rows + world.first
        seed = rng.key(rng_key.seed, rng_key.stream, seat.seat)
        deals = rng.key(seed, rng.RESET, 0, rng_key.step)  # tells nothing of the true cards
        luck = rng.words(seed, rng.BOT, int(numbers.max()) + 1, rng_key.step)
        assert seat.mask is not None
        action = seat.mask.argmax(1).astype(np.int32)
        resigned = np.zeros(len(action), bool)
        for i, number in enumerate(numbers.tolist()):
            hidden = world.resample(seat.rows[i : i + 1], seat.seat, deals)
            state = unpack(hidden, self.config)[0]
            legal = np.flatnonzero(seat.mask[i]).tolist()
            with self._turn:
                answer = self._ask(state, legal, int(luck[number]))
                if isinstance(answer, str):
                    self.troubles[rng_key.seed, rng_key.step, number] = answer
                    resigned[i] = True
                else:
                    action[i] = answer
        return Decision(action, resigned=resigned)

    def _ask(self, state: State, legal: list[int], key: int) -> int | str:
        """The bot's action, or what went wrong in one line."""
        if self._lost >= PATIENCE:
            return f"hung or died {PATIENCE} times, and is not asked any more"
        if self._process is None:
            self._start()
        try:
            heard = self._talk({"state": written(state), "legal": legal, "key": key}, self.seconds)
        except TimeoutError:
            self._lost += 1
            return f"took longer than {self.seconds:g} s for a move"
        except EOFError as error:
            self._lost += 1
            return str(error)
        if "failed" in heard:
            return str(heard["failed"])
        if heard.get("action") not in legal or isinstance(heard["action"], bool):
            names = ", ".join(f"{action} ({ACTIONS[action]})" for action in legal[:3])
            return f"answered {heard.get('shown', '')}: expected a legal action, such as {names}"
        return int(heard["action"])

    # --- its process ---

    def _start(self) -> None:
        ours = str(Path(__file__).parents[3])  # the same package as here, wherever the bot lies
        path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": path}, process_group=0,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self._process, self._lines), daemon=True).start()
        try:
            heard = self._talk(
                {"rules": self.config.values() | {"scoring": self.config.scoring}}, START_SECONDS
            )
        except (TimeoutError, EOFError) as error:
            raise ConfigError(f"{self.name}: cannot be started: {error or 'it took too long'}") from None
        if "refused" in heard:
            self.close()
            raise ConfigError(str(heard["refused"]))

    def _talk(self, said: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One line there, one line back; a process that does not answer in time is ended."""
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it is over: the empty line says so
                process.stdin.write(json.dumps(said) + "\n")
                process.stdin.flush()
            line = self._lines.get(timeout=seconds)
            heard = json.loads(line) if line else None
        except queue.Empty:
            self.close()
            raise TimeoutError from None
        except ValueError:
            heard = None
        if not isinstance(heard, dict):
            self.close()
            raise EOFError(f"its process ended with exit code {process.returncode}")
        return heard

    def close(self) -> None:
        """End its process; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _listen(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Pass on what the process says; an empty line at its end."""
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:
            lines.put(line)
    lines.put("")


# --- a state as text ----------------------------------------------------------------------------------


def written(state: State) -> dict[str, Any]:
    """As JSON holds it."""

    def piles(sets: list[set[str]]) -> list[list[str]]:
        return [sorted(pile, key=lambda name: STRENGTH[name]) for pile in sets]

    return {"line": state.line, "hands": piles(state.hands), "decks": state.decks, "bar": piles(state.bar),
            "thats_it": piles(state.thats_it), "turn": state.turn}  # fmt: skip


def read(text: dict[str, Any]) -> State:
    """The state that `written` wrote."""
    line = [(int(owner), str(name)) for owner, name in text["line"]]
    hands, bar, out = ([set(pile) for pile in text[name]] for name in ("hands", "bar", "thats_it"))
    return State(line, hands, [list(deck) for deck in text["decks"]], bar, out, text["turn"])


# --- in the bot's own process ---------------------------------------------------------------------------


def _first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}"[:300] if said else type(error).__name__


def find(name: str) -> Any:
    """The class that `module:Class` names; what is wrong is a ConfigError."""
    where, _, what = name.partition(":")
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name == where:
            raise ConfigError(f"{name}: there is no module {where} in this folder or installed") from None
        raise ConfigError(f"{name}: {where} cannot be imported: {_first_line(error)}") from None
    except BaseException as error:
        raise ConfigError(f"{name}: {where} cannot be imported: {_first_line(error)}") from None
    found = getattr(module, what, None)
    if not inspect.isclass(found) or not callable(getattr(found, "act", None)):
        able = [
            key for key, value in vars(module).items() if inspect.isclass(value) and hasattr(value, "act")
        ]
        near = nearest(what, able)
        wrong = (
            "has no method act(state, legal, key)" if inspect.isclass(found) else f"is no class of {where}"
        )
        raise ConfigError(f"{name}: {what} {wrong}" + (f"; nearest: {near}" if near else ""))
    return found


def _leave_with(parent: int) -> None:
    """A bot that hangs must not outlive whoever asked it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def serve(name: str) -> None:
    """Answer until nobody asks; what the bot prints goes nowhere."""
    asked, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout, sys.stdin = sys.stderr, open(os.devnull)  # noqa: SIM115

    def say(words: dict[str, Any]) -> None:
        answers.write(json.dumps(words) + "\n")
        answers.flush()

    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    rules = json.loads(asked.readline())["rules"]
    config = Config(players=rules["players"], scoring=rules["scoring"], first=rules["first"],
                    document_variant=bool(rules["document_variant"]))  # fmt: skip
    try:
        bot = find(name)()
        bot.config = config
    except ConfigError as error:
        say({"refused": str(error)})
        return
    except BaseException as error:
        say({"refused": f"{name}: cannot be made: {_first_line(error)}"})
        return
    say({"ready": True})
    for line in asked:
        question = json.loads(line)
        try:
            answer = bot.act(read(question["state"]), question["legal"], question["key"])
            whole = not isinstance(answer, bool) and hasattr(answer, "__index__")
            told = {"action": operator.index(answer) if whole else None, "shown": repr(answer)[:60]}
        except BaseException as error:
            told = {"failed": _first_line(error)}
        say(told)


if __name__ == "__main__":
    serve(sys.argv[1])
