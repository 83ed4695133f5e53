"""Collects rollouts whose games are played in other processes, on this machine or on others.

Each part of the games has a player somewhere (`PartPlayers`). Per rollout the weights in all slots are sent
once for all parts, and each part is sent what its games restart from; the columns of the rollout come back.
The states of the games stay with the player: they are most of the bytes. They come here when playing the
rollouts since then again would take too long (`SinceStates`), and when a caller asks for them (a checkpoint).
A player that dies or hangs is replaced: the new one gets the newest states that are here, and plays the
rollouts since then again. So the bytes depend neither on the number of parts nor on which players were lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Tree, part_edges, stored_array, stored_int, stored_texts
from rematch.core.component import PlayState
from rematch.core.errors import ConfigError
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.rollout_columns import load_columns, load_events
from rematch.storage.tree_bytes import decode, encode
from rematch.worlds.remote_world import RESULTS, PlayedPart, RemoteWorld

POLL_SECONDS = 0.5  # between two checks for a stop request
END_SECONDS = 5.0  # for threads that give up
ATTEMPTS = 16  # times that a part of one rollout is played again after its player was lost
# What a lost player may cost: this many rollouts, or seconds since the states of its games were here; until
# then the messages of these rollouts are kept, in the memory of a cluster too.
MOST_ROLLOUTS, MOST_SECONDS, MOST_BYTES = 16, 10.0, 32 << 20
LOAD, SAVE, WORK = "load", "save", "work"  # keys of a message that is no rollout; WORK: of a learner
NEEDS_STATES, ERROR = "needs_states", "error"  # keys of a reply without a rollout
Message = tuple[Any, bytes]  # what `PartPlayers.play` takes


class PlayerLost(Exception):
    """The player of a part died or hung, and was replaced: the new one has no games yet."""


class Dropped(Exception):
    """The rollout was given up."""


class PartPlayers(Protocol):
    """The players of all parts of the games."""

    def share(self, message: bytes) -> Any:
        """Send a message to all; returns what `play` takes."""

    def play(self, part: int, shared: Any, message: bytes, check: Callable[[], None]) -> bytes:
        """The reply to a message; calls `check`, which may raise, while it waits. Raises PlayerLost."""

    def check(self) -> None:
        """Raise ConfigError where no player can play any more."""

    def close(self) -> None:
        """End all players."""


@dataclass
class SinceStates:
    """What has been played since the states of all games were here."""

    rollouts: int = 0
    size: int = 0  # bytes of the messages for all parts
    began: float = field(default_factory=time.monotonic)

    def add(self, message: bytes) -> None:
        """One more rollout."""
        self.rollouts += 1
        self.size += len(message)

    @property
    def too_long(self) -> bool:
        return bool(self.rollouts >= MOST_ROLLOUTS or self.size >= MOST_BYTES
                    or time.monotonic() - self.began >= MOST_SECONDS)


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
        self.past: list[list[Message]] = [[] for _ in self.rows]  # how a new player gets the games of a part
        self.newest: list[Message] = [(None, b"") for _ in self.rows]  # of the newest submission
        self.since, self.with_states = SinceStates(), False  # whether the newest submission asks for states
        self.locks = [threading.Lock() for _ in self.rows]  # one thread at a time talks to a player
        self.world.fetch = self._fetch

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
        message = encode(self._shared())
        self.since.add(message)
        # With a lag every submission saves the world, and some worlds cannot play a rollout again.
        self.with_states = bool(self.lag or self.world.spec.resume == "episode" or self.since.too_long)
        shared = self.players.share(message)
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
        """What the games of one part need beside their states."""
        rows, after = self.rows[part], self.world.next
        play = {name: state.inputs(rows) for name, state in self.play_states.items()}
        return {"iteration": iteration, "submission": self.submissions, "from": self.played, "play": play,
                "states": self.with_states,
                "next": {"seed": after.seed[rows], "slot": after.slot[rows], "stage": after.stage[rows]}}

    def _games(self, part: int, shared: Any, states: Any) -> Message:
        """The message that gives a player the games of a part as they stand before the next rollout. They
        may refer to what is `shared`: a game started from a savestate of the library."""
        rows, view = self.rows[part], self.world.view
        return shared, encode({LOAD: self.played, "states": states, "ended": view.ended[rows],
                             "length": view.length[rows]})

    def _play_part(self, part: int, shared: Any, inputs: Tree) -> Tree:
        """The rollout of a part."""
        rows, new = self.rows[part], self.world.changed_here
        if new:
            states = self.world.save(np.arange(rows.start, rows.stop, dtype=np.int32))
            self.past[part] = [self._games(part, shared, states)]
        self.newest[part] = shared, encode(inputs)
        return self._reply(part, self.newest[part], new)

    def _reply(self, part: int, message: Message, new: bool = False) -> Tree:
        """The reply of the player of a part. A player that has other games (`new`), or that replaces a lost
        one, gets all messages since the newest states first."""
        reason = ""
        with self.locks[part]:
            for _ in range(ATTEMPTS):
                try:
                    if new:
                        self._restore(part)
                    return self._ask(part, message, self._check)
                except PlayerLost as lost:
                    reason, new = str(lost), True
        raise ConfigError(f"the games of part {part} were lost {ATTEMPTS} times: {reason}; the run can be "
                          "resumed")

    def _restore(self, part: int) -> None:
        """Give a player the games of a part as they stand before the newest rollout."""
        for message in self.past[part]:
            self._ask(part, message, self._check)
        if len(self.past[part]) > 1:  # one that is lost next has less to play again
            reply = self._ask(part, (None, encode({SAVE: self.played})), self._check)
            self.past[part] = [self._games(part, self.past[part][-1][0], reply["states"])]

    def _ask(self, part: int, message: Message, check: Callable[[], None]) -> Tree:
        assert self.players is not None
        reply = decode(self.players.play(part, *message, check), f"the reply of part {part}")
        if ERROR in reply:
            raise ConfigError(str(reply[ERROR]))
        if NEEDS_STATES in reply:
            raise PlayerLost("the player has other games")
        return reply

    def work(self, role: str, shared: Tree, requests: Sequence[Tree]) -> list[Tree]:
        """The replies of the learners of a role in the players' processes, which each get a request.

        Their games stay as they are. A stop request waits for the replies: learning is not interrupted.
        """
        assert self.players is not None, "a learner learns from a rollout"
        whole = self.players.share(encode(shared))
        jobs: list[Future[Tree]] = []
        for part, request in enumerate(requests):
            jobs.append(in_thread(self._work, part, (whole, encode({WORK: role} | request))))
        while wait(jobs, POLL_SECONDS, FIRST_EXCEPTION).not_done and not any(map(_failed, jobs)):
            self.players.check()
        return [job.result() for job in jobs if job.done()]

    def _work(self, part: int, message: Message) -> Tree:
        """The reply of one player, or of the one that replaces it: such a request refers to no game."""
        reason = ""
        with self.locks[part]:
            for _ in range(ATTEMPTS):
                try:
                    return self._ask(part, message, lambda: None)
                except PlayerLost as lost:
                    reason = str(lost)
        raise ConfigError(f"the work of part {part} was lost {ATTEMPTS} times: {reason}; the run can be "
                          "resumed")

    def _fetch(self) -> None:
        """Ask the players for the states of their games, which the world needs now."""
        message = None, encode({SAVE: self.played})
        replies = self._results([in_thread(self._reply, part, message) for part in range(len(self.rows))])
        for part, reply in enumerate(replies):
            self._take_states(part, reply)
        self.since = SinceStates()

    def _take_states(self, part: int, reply: Tree) -> None:
        """A player that is lost from now on is replaced from these states."""
        states = self.world.parts_played[self.rows[part].start].states = reply["states"]
        self.past[part] = [self._games(part, self.newest[part][0], states)]

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
        replies = self._results(jobs)
        self.played = self.submissions
        for rows, reply in zip(self.rows, replies):
            self._take(rows, reply)
        for part, reply in enumerate(replies):
            self.past[part].append(self.newest[part])
            if "states" in reply:
                self._take_states(part, reply)
        if self.with_states:
            self.since = SinceStates()

    def _results(self, jobs: Sequence[Future[Tree]]) -> list[Tree]:
        """The replies of all parts; where one fails, the other threads give up."""
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
        return replies

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
            bands = stored_texts(reply, "bands")
            world.store(rows, PlayedPart(None, reply["slot"], results, counters, bands))
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
