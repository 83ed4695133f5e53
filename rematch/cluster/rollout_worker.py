"""Plays a part of a run's training games in a process of its own. It knows nothing of Ray.

It builds the components that rollouts need (`Component.in_play`) with a world of its own games. Everything
else (learning, evaluation, files) stays where the run is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.core import config as settings
from rematch.core.arrays import Tree, stored_array, stored_bool, stored_int, stored_text
from rematch.core.errors import ConfigError
from rematch.core.system import user_code
from rematch.rollout.remote_collector import ERROR, LOAD, NEEDS_STATES, SAVE, WORK
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.rollout_columns import columns, events
from rematch.storage.tree_bytes import decode, encode
from rematch.training.config import components_of, section
from rematch.training.fingerprint import fingerprint
from rematch.training.recipes import config_of_text
from rematch.training.setup import RunSetup
from rematch.worlds.remote_world import RESULTS

NO_GAMES = -1  # in place of the number of a submission


def work_order(setup: RunSetup, games: slice) -> bytes:
    """What a RolloutWorker needs to be built."""
    players = {role: [player.name for player in seats.others] for role, seats in setup.seating.items()}
    return encode({"config": settings.to_yaml(setup.config), "first": games.start,
                   "games": games.stop - games.start, "columns": sorted(setup.columns), "players": players,
                   "allow_code": bool(user_code.child_flags())})


class RolloutWorker:
    """Plays rollouts of `games` games, of which `first` is the first one."""

    def __init__(self, order: bytes) -> None:
        tree = decode(order, "the order for a part of the games")
        user_code.allow_everything(stored_bool(tree, "allow_code"))
        self.config = config_of_text(stored_text(tree, "config"), "the settings of the run")
        first, games = stored_int(tree, "first"), stored_int(tree, "games", 1)
        self.games, self.rows = slice(first, first + games), np.arange(games, dtype=np.int32)
        config = settings.replace(self.config, {"threads": 1, "lag": 0, "device": "cpu"})
        setup = self.setup = RunSetup(config)
        setup.world = setup.make_world(games, first, config.seed)
        setup.build([kind for kind in components_of(config) if kind.in_play], section)
        setup.collector.allocate(tree["columns"])
        setup.collector.before_step = self._count
        self.steps = 0  # played so far; a worker whose number stands still hangs
        self.submission = NO_GAMES  # that left the games as they stand
        seated = {role: [player.name for player in seats.others] for role, seats in setup.seating.items()}
        if seated != tree["players"]:
            raise ConfigError("a component of the run seats players that other processes do not know; "
                              "expected no --cluster for its rollouts")

    def _count(self) -> None:
        self.steps += 1

    def fingerprint(self) -> dict[str, str]:
        """Versions and processor on which the bits depend; torch's version is a class of its own."""
        return {name: str(entry) for name, entry in fingerprint(self.config).items()}

    def play(self, shared: bytes | None, message: bytes) -> bytes:
        """Answer a message: load the games, save them, work for a learner, or play a rollout with what is
        `shared`. A reply with `error` where that failed."""
        try:
            inputs = decode(message)
            if WORK in inputs:
                assert shared is not None, "it has the weights"
                learner = self.setup.learners[stored_text(inputs, WORK)]
                return encode(learner.answer(decode(shared), inputs, self._count))
            if LOAD in inputs:
                assert shared is not None, "games may refer to it"
                self._load_shared(decode(shared))
                self._load_games(inputs)
                return encode({})
            before = stored_int(inputs, SAVE if SAVE in inputs else "from")
            if before != self.submission:
                return encode({NEEDS_STATES: True})
            if SAVE in inputs:
                return encode({"states": self.setup.world.save(self.rows)})
            self.submission = NO_GAMES
            assert shared is not None, "every rollout has weights"
            self._load(decode(shared), inputs)
            rollout = self.setup.collector.collect(inputs["iteration"])
            self.submission = stored_int(inputs, "submission")
            return encode(self._reply(rollout, stored_bool(inputs, "states")))
        except (ConfigError, OSError, MemoryError, ValueError, KeyError, TypeError) as error:
            return encode({ERROR: str(error) or type(error).__name__})

    def _load_games(self, tree: Tree) -> None:
        """The games as they stood after an earlier rollout."""
        world = self.setup.world
        self.submission = NO_GAMES
        world.load(self.rows, tree["states"])
        world.view.ended[:] = stored_array(tree, "ended", world.view.ended)
        world.view.length[:] = stored_array(tree, "length", world.view.length)
        self.submission = stored_int(tree, LOAD)

    def _load_shared(self, shared: Tree) -> None:
        """What the games of all parts read."""
        for role, seats in self.setup.seating.items():
            seats.packed[:] = stored_array(shared["weights"], role, seats.packed)
        for part in self.setup.built:
            part.play_state().load_shared(shared["play"][part.name])

    def _load(self, shared: Tree, inputs: Tree) -> None:
        """Everything that the next rollout reads."""
        self._load_shared(shared)
        world = self.setup.world
        for part in self.setup.built:
            part.play_state().load_inputs(inputs["play"][part.name], self.games)
        for name in ("seed", "slot", "stage"):
            column = getattr(world.next, name)
            column[:] = stored_array(inputs["next"], name, column)

    def _reply(self, rollout: RolloutBuffer, with_states: bool) -> Tree:
        """The rollout, and the games after it."""
        setup, world = self.setup, self.setup.world
        rollout.events.extend(rollout.forced_events)  # the run's own collector tells them apart again
        log: Any = world.event_log
        return {
            "columns": columns(rollout, slice(0, world.games)), "lists": events(rollout, self._pack),
            "slot": np.ascontiguousarray(world.slot),
            "seed": world.next.seed, "results": {name: getattr(world.view, name) for name in RESULTS},
            "counters": dict(world.counters), "bands": [] if log is None else log.bands(),
            "play": {part.name: part.play_state().results(self.games) for part in setup.built},
        } | ({"states": world.save(self.rows)} if with_states else {})  # fmt: skip

    def _pack(self, savestate: Any) -> Any:
        form = self.setup.game.savestates
        assert form is not None, "a world that captures games has savestates"
        return np.frombuffer(form.pack(savestate), np.uint8)
