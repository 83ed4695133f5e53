"""Collects rollouts whose games are played in other processes, on this machine or on others.

Each part of the games has a player somewhere (`PartPlayers`). Per rollout the weights in all slots are sent
once for all parts. Each part is sent what its games restart from, and the states of its games where its
player does not have them already; the columns of the rollout and the states after it come back. A player that
dies or hangs is replaced: the states from before the rollout are sent to the new one, which plays the same
games again. So the bytes depend neither on the number of parts nor on which players were lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Tree, stored_array, stored_int, stored_texts
from rematch.core.component import PlayState
from rematch.core.errors import ConfigError
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.rollout_columns import load_columns, load_events
from rematch.storage.tree_bytes import decode, encode
from rematch.worlds.remote_world import RESULTS, PlayedPart, RemoteWorld

POLL_SECONDS = 0.5  # between two checks for a stop request
END_SECONDS = 5.0  # for threads that give up
ATTEMPTS = 8  # times that a part of one rollout is played again after its player was lost
NEEDS_STATES, ERROR = "needs_states", "error"  # keys of a reply without a rollout


class PlayerLost(Exception):
    """The player of a part died or hung, and was replaced: the new one has no games yet."""


class Dropped(Exception):
    """The rollout was given up."""


class PartPlayers(Protocol):
    """The players of all parts of the games."""

    def share(self, message: bytes) -> Any:
        """Send a message to all; returns what `play` takes."""

    def play(self, part: int, shared: Any, message: bytes, check: Callable[[], None]) -> bytes:
        """Play the games of a part; calls `check`, which may raise, while it waits. Raises PlayerLost."""

    def check(self) -> None:
        """Raise ConfigError where no player can play any more."""


class RemoteCollector(ThreadCollector):
    """Plays rollouts with `players`, one for each of `count` parts.

    `play_states`: component -> its PlayState. `unpack` reads a savestate.
    """

    world: RemoteWorld  # type: ignore[assignment]

    def connect(
        self, make_players: Callable[[Sequence[slice]], PartPlayers], play_states: Mapping[str, PlayState],
        unpack: Callable[[bytes], Any],
    ) -> None:  # fmt: skip
        """Before any rollout. `make_players` gets the games of all parts; it is called when the first rollout
        starts: then every player is seated."""
        self.make_players, self.play_states, self.unpack = make_players, play_states, unpack
        self.players: PartPlayers | None = None
        self.submissions = 0  # number of the newest; players name the states of their games by it
        self.played = 0  # the submission whose result the world holds
        self.replies: list[Tree] = []

    def _divide(self, threads: int) -> None:
        """Parts of equal size, as World.parts has them; a thread for each waits for its player."""
        edges = part_edges(self.world.games, threads)
        self.rows = [slice(low, high) for low, high in pairwise(edges)]

    def set_lag(self, lag: int) -> None:
        self.lag = lag
        self.buffers += [self._buffer() for _ in range(lag)]
        for buffer in self.buffers[1:]:
            buffer.share_reads(self.buffers[0].reads)

    # --- one rollout ---

    def _start(self, iteration: int) -> None:
        self.submissions += 1
        if self.players is None:
            self.players = self.make_players(self.rows)
        shared = self.players.share(encode(self._shared()))
        inputs = [self._inputs(part, iteration) for part in range(len(self.rows))]
        jobs: list[Any] = [in_thread(self._play_part, part, shared, tree) for part, tree in enumerate(inputs)]
        self.jobs = jobs
        if not self.lag:
            self._wait()

    def _shared(self) -> Tree:
        """What the games of all parts need."""
        weights = {role: seats.packed for role, seats in self.seating.items()}
        play = {name: state.shared() for name, state in self.play_states.items()}
        return {"weights": weights, "play": play}

    def _inputs(self, part: int, iteration: int) -> Tree:
        """What the games of one part need, without their states."""
        rows, after = self.rows[part], self.world.next
        play = {name: state.inputs(rows) for name, state in self.play_states.items()}
        return {"iteration": iteration, "submission": self.submissions, "play": play,
                "next": {"seed": after.seed[rows], "slot": after.slot[rows], "stage": after.stage[rows]}}

    def _states(self, part: int) -> Tree:
        """The games of one part as they stand before the rollout."""
        rows, view = self.rows[part], self.world.view
        if not self.world.changed_here:
            states = self.world.parts_played[rows.start].states
        else:
            states = self.world.save(np.arange(rows.start, rows.stop, dtype=np.int32))
        return {"states": states, "ended": view.ended[rows], "length": view.length[rows]}

    def _play_part(self, part: int, shared: Any, inputs: Tree) -> Tree:
        """The reply of the player of a part; another player plays the same games if the first is lost."""
        at_player = 0 if self.world.changed_here else self.played
        reason = ""
        assert self.players is not None
        for _ in range(ATTEMPTS):
            games = {"from": at_player} if at_player else self._states(part)
            try:
                data = self.players.play(part, shared, encode(inputs | games), self._check)
            except PlayerLost as lost:
                reason, at_player = str(lost), 0
                continue
            reply = decode(data, f"the reply of part {part}")
            if NEEDS_STATES not in reply:
                if ERROR in reply:
                    raise ConfigError(str(reply[ERROR]))
                return reply
            at_player = 0
        raise ConfigError(f"the games of part {part} were lost {ATTEMPTS} times: {reason}; the run can be "
                          "resumed")

    def _check(self) -> None:
        """While a thread waits: raises StopRequested, or Dropped where the rollout was given up."""
        self.before_step()
        if self.dropping:
            raise Dropped

    def _wait(self) -> None:
        """Wait for all parts, then take their games; all of them, or none."""
        jobs: list[Any] = self.jobs
        self.jobs = []
        if not jobs:
            return
        replies: list[Tree] = []
        try:
            while wait(jobs, POLL_SECONDS, FIRST_EXCEPTION).not_done and not any(map(_failed, jobs)):
                self._check()
                if self.players is not None:
                    self.players.check()
            replies = [job.result() for job in jobs]
        finally:
            self.dropping = len(replies) < len(jobs)  # the other threads need not wait for their players
            if self.dropping:
                self._end(jobs)
        for rows, reply in zip(self.rows, replies):
            self._take(rows, reply)
        self.played = self.submissions

    def _end(self, jobs: Sequence[Any]) -> None:
        """Wait until the threads have given up, unless one waits for a machine that has vanished."""
        wait(jobs, END_SECONDS)
        self.dropping = False

    def drop(self) -> None:
        self.dropping = True
        self._end(self.jobs)
        self.jobs = []

    def _take(self, rows: slice, reply: Tree) -> None:
        """Write the rollout and the games of one part."""
        rollout, world = self.filling, self.world
        try:
            load_columns(rollout, rows, reply["columns"])
            load_events(rollout, rows, reply["lists"], lambda file: self.unpack(file.tobytes()))
            world.next.seed[rows] = stored_array(reply, "seed", world.next.seed[rows])
            results = {name: stored_array(reply["results"], name, getattr(world.view, name)[rows])
                       for name in RESULTS}
            counters = {str(name): stored_int(reply["counters"], name) for name in reply["counters"]}
            world.store(rows, PlayedPart(reply["states"], reply["slot"], results, counters,
                                         stored_texts(reply, "bands")))
            for name, state in self.play_states.items():
                state.load_results(reply["play"][name], rows)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"the reply about games {rows.start} to {rows.stop - 1} is no rollout of this "
                              f"run: {error}") from None


def _failed(job: Any) -> bool:
    return bool(job.done() and job.exception() is not None)


def in_thread(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function in a thread that does not keep the process alive: it may wait for a lost machine."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as error:  # the caller of `result` gets it
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def part_edges(games: int, parts: int) -> list[int]:
    """The first game of each part, and the number of games."""
    count = max(1, min(parts, games))
    return [games * n // count for n in range(count + 1)]
