"""Bots that users write in Python, with names such as `mymodule:MyBot`.

    class MyBot:
        def act(self, state, legal, key):
            return legal[0]

`state` is a `State`: `state.turn` is the bot's seat. Cards that it cannot see (its deck, the hands and decks
of the others) are resampled for every decision, so it can try moves with `reference.play`. `legal` are ids of
actions (names in `config.ACTIONS`). `key` is a seed for random numbers; the same decision gets the same one.
`self.config` holds the rules. One object plays many games at the same time, so a bot must not keep state. A
bot runs in its own process. If it raises, takes too long or returns no legal action, it resigns that game.

Run as a module, this file is that process: one line of JSON per request and per reply.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import operator
import os
import queue
import signal
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

MOVE_SECONDS = 10.0  # default time limit of a move
START_SECONDS = 60.0  # time limit of the import
MAX_CRASHES = 3  # hangs or deaths of its process, after which the bot resigns all games


class UserBotPlayer:
    """A bot in its own process, as a player; `errors` are one-line messages by game."""

    def __init__(self, name: str, config: Config, seconds: float = MOVE_SECONDS) -> None:
        self.name, self.config, self.seconds = name, config, seconds
        self.errors: dict[tuple[int, int, int], str] = {}  # (seed, step, game) -> message
        self._crashes = 0
        self._lock = threading.Lock()  # several threads may play parts of a match
        self._process: subprocess.Popen[str] | None = None
        self._start()

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        numbers = seat.rows + world.first
        seed = rng.key(rng_key.seed, rng_key.stream, seat.seat)
        resample_key = rng.key(seed, rng.RESET, 0, rng_key.step)  # independent of the true cards
        bot_seeds = rng.words(seed, rng.BOT, int(numbers.max()) + 1, rng_key.step)
        assert seat.mask is not None
        action = seat.mask.argmax(1).astype(np.int32)
        resigned = np.zeros(len(action), bool)
        for i, number in enumerate(numbers.tolist()):
            resampled = world.resample(seat.rows[i : i + 1], seat.seat, resample_key)
            state = unpack(resampled, self.config)[0]
            legal = np.flatnonzero(seat.mask[i]).tolist()
            with self._lock:
                choice = self._query(state, legal, int(bot_seeds[number]))
                if isinstance(choice, str):
                    self.errors[rng_key.seed, rng_key.step, number] = choice
                    resigned[i] = True
                else:
                    action[i] = choice
        return Decision(action, resigned=resigned)

    def _query(self, state: State, legal: list[int], key: int) -> int | str:
        """The action of the bot, or an error message in one line."""
        if self._crashes >= MAX_CRASHES:
            return f"hung or died {MAX_CRASHES} times: it resigns all further games"
        if self._process is None:
            self._start()
        try:
            reply = self._exchange({"state": state_to_json(state), "legal": legal, "key": key}, self.seconds)
        except TimeoutError:
            self._crashes += 1
            return f"took longer than {self.seconds:g} s for a move"
        except EOFError as error:
            self._crashes += 1
            return str(error)
        if "failed" in reply:
            return str(reply["failed"])
        if reply.get("action") not in legal or isinstance(reply["action"], bool):
            names = ", ".join(f"{action} ({ACTIONS[action]})" for action in legal[:3])
            return f"answered {reply.get('shown', '')}: expected a legal action, such as {names}"
        return int(reply["action"])

    # --- its process ---

    def _start(self) -> None:
        package = str(Path(__file__).parents[3])  # the child imports the same package, from any folder
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": path}, process_group=0,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(self._process, self._lines), daemon=True).start()
        try:
            rules = self.config.values() | {"scoring": self.config.scoring}
            reply = self._exchange({"rules": rules}, START_SECONDS)
        except (TimeoutError, EOFError) as error:
            raise ConfigError(f"{self.name}: cannot be started: {error or 'it took too long'}") from None
        if "refused" in reply:
            self.close()
            raise ConfigError(str(reply["refused"]))

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and read the reply; a process that exceeds the time limit is killed."""
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the process ended: an empty line follows
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            line = self._lines.get(timeout=seconds)
            reply = json.loads(line) if line else None
        except queue.Empty:
            self.close()
            raise TimeoutError from None
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            self.close()
            raise EOFError(f"its process ended with exit code {process.returncode}")
        return reply

    def close(self) -> None:
        """Kill the process and all that it started; the next request starts another one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its number is free only after `wait`
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Put the output lines of the process into a queue, and an empty line at the end."""
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:
            lines.put(line)
    lines.put("")


# --- states as JSON -----------------------------------------------------------------------------------


def state_to_json(state: State) -> dict[str, Any]:
    """A state as JSON values."""

    def piles(sets: list[set[str]]) -> list[list[str]]:
        return [sorted(pile, key=lambda name: STRENGTH[name]) for pile in sets]

    return {"line": state.line, "hands": piles(state.hands), "decks": state.decks, "bar": piles(state.bar),
            "thats_it": piles(state.thats_it), "turn": state.turn}  # fmt: skip


def state_from_json(tree: dict[str, Any]) -> State:
    """The state that `state_to_json` wrote."""
    line = [(int(owner), str(name)) for owner, name in tree["line"]]
    hands, bar, out = ([set(pile) for pile in tree[name]] for name in ("hands", "bar", "thats_it"))
    return State(line, hands, [list(deck) for deck in tree["decks"]], bar, out, tree["turn"])


# --- in the process of the bot --------------------------------------------------------------------------


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__


def find(name: str) -> Any:
    """The class `module:Class`; ConfigError where there is none with a method `act`."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name:
            message = f"{name}: there is no module {module_name} in this folder or installed"
            raise ConfigError(message) from None
        raise ConfigError(f"{name}: {module_name} cannot be imported: {_first_line(error)}") from None
    except BaseException as error:
        raise ConfigError(f"{name}: {module_name} cannot be imported: {_first_line(error)}") from None
    bot_class = getattr(module, class_name, None)
    is_class = inspect.isclass(bot_class)
    if not is_class or not callable(getattr(bot_class, "act", None)):
        classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
        near = nearest(class_name, [key for key, value in classes.items() if hasattr(value, "act")])
        reason = "has no method act(state, legal, key)" if is_class else f"is no class of {module_name}"
        raise ConfigError(f"{name}: {class_name} {reason}" + (f"; nearest: {near}" if near else ""))
    return bot_class


def _exit_with_parent(parent: int) -> None:
    """End this process group when its parent has ended, even if the bot hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    _end_group()


def _end_group() -> None:
    """Kill this process and all that the bot started; only as the leader of their process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def serve(name: str) -> None:
    """Answer requests until the input ends; the output of the bot itself is discarded."""
    requests, replies = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout, sys.stdin = sys.stderr, open(os.devnull)  # noqa: SIM115

    def send(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    rules = json.loads(requests.readline())["rules"]
    config = Config(players=rules["players"], scoring=rules["scoring"], first=rules["first"],
                    earlier_rules=bool(rules["earlier_rules"]))  # fmt: skip
    try:
        bot = find(name)()
        bot.config = config
    except ConfigError as error:
        send({"refused": str(error)})
        return
    except BaseException as error:
        send({"refused": f"{name}: cannot be made: {_first_line(error)}"})
        return
    send({"ready": True})
    for line in requests:
        request = json.loads(line)
        try:
            action = bot.act(state_from_json(request["state"]), request["legal"], request["key"])
            is_int = not isinstance(action, bool) and hasattr(action, "__index__")
            reply = {"action": operator.index(action) if is_int else None, "shown": repr(action)[:60]}
        except BaseException as error:
            reply = {"failed": _first_line(error)}
        send(reply)


if __name__ == "__main__":
    try:
        serve(sys.argv[1])
    finally:
        _end_group()
