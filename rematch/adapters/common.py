"""What the adapters to Gymnasium and PettingZoo share; neither library is needed here.

Our worlds restart at once, so the observation after the last step already belongs to the next game. The last
observation that an adapter returns is, for a game that was cut off (`truncated`), the observation at the cut
(`View.final`); for a decided game (`terminated`) it is the one before the final move, from which no learner
may bootstrap. `info["outcome"]` is the outcome of the game.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import config as settings
from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Role, Spec
from rematch.core.stepping import SeatedPlayers
from rematch.core.world import CUT_OFF, Observations, View, World
from rematch.worlds import registry
from rematch.worlds.game import Game

LOSE, ERROR = "lose", "error"  # what an illegal action does
ILLEGAL_REWARD = -1.0  # reward of an illegal action that ends the game


def check_illegal_option(illegal: str) -> str:
    if illegal not in (LOSE, ERROR):
        raise ConfigError(f"illegal = {illegal!r}: expected {LOSE} (the game ends as lost) or {ERROR}")
    return illegal


def config_of(game: Game, config: Any) -> Any:
    """The settings of a game: its defaults, those of a mapping {"max_steps": 60}, or a Config object."""
    if config is None or isinstance(config, Mapping):
        default = game.Config()
        changed = settings.apply(default, settings.flatten(config or {}, "config"), "config", prefix="world.")
        settings.validate(changed, "world.")
        return changed
    return config


def game_of(game: str | Game) -> Game:
    """A game by its name, or the game itself."""
    return registry.find(game) if isinstance(game, str) else game


def role_of(spec: Spec, name: str) -> Role:
    """The role called `name`; the first one where the name is empty."""
    if not name:
        return next(iter(spec.roles.values()))
    if name not in spec.roles:
        near = nearest(name, list(spec.roles))
        hint = f"; nearest: {near}" if near else ""
        raise ConfigError(f"role = {name!r}: expected one of {', '.join(spec.roles)}{hint}")
    return spec.roles[name]


def bounds(role: Role) -> tuple[Floats, Floats]:
    """Lowest and highest value of every number that the role sees, [F] each."""
    low = np.concatenate([np.full(f.size, f.low, np.float32) for f in role.fields])
    high = np.concatenate([np.full(f.size, f.high, np.float32) for f in role.fields])
    return low, high


def flat(obs: Observations, role: Role, place: int, out: Floats | None = None) -> Floats:
    """What the role's seat number `place` sees, all fields side by side, [N, F]."""
    shown = obs[role.name]
    blocks = [shown[f.name][:, place].reshape(-1, f.size) for f in role.fields]
    return np.concatenate(blocks, axis=1, out=out)


def last_obs(view: View, role: Role, place: int, before: Floats) -> Floats:
    """Last observations [N, F] of games that have just ended; `before` are those before the move."""
    cut = view.ended == CUT_OFF
    if not cut.any():
        return before.copy()
    return np.where(cut[:, None], flat(view.final, role, place), before)


class StoredWorld:
    """Pickles and deep copies of an environment store its world as saved states and make it again.

    The copy continues the same game with the same random numbers. (A world that cannot save a running game,
    `Spec.resume` "episode", starts a new one.)
    """

    game: Game
    config: Any
    world: World
    seed: int  # of the present world

    def make_world(self, games: int, seed: int) -> None:
        self.seed = seed
        self.world = self.game.make(self.config, games, seed=seed)

    def __getstate__(self) -> dict[str, Any]:
        rows = np.arange(self.world.games, dtype=np.int32)
        return self.__dict__ | {"game": game_reference(self.game), "world": self.world.save(rows).copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.game, states = game_of(state["game"]), state["world"]
        self.make_world(len(states), self.seed)
        self.world.load(np.arange(len(states), dtype=np.int32), states)


def game_reference(game: Game) -> str | Game:
    """The name of a game by which `registry.find` finds it, or the game itself."""
    listed = game.name in registry.names() and registry.find(game.name) is game
    return game.name if listed else game


class Opponents:
    """The players of all seats but the learner's: a bot by name, or any Player."""

    def __init__(self, game: Game, spec: Spec, learner: int, opponent: str | Player) -> None:
        self.game, self.spec, self.learner, self.opponent = game, spec, learner, opponent
        self.players: dict[int, Player] = {}
        for seat in range(spec.seats):
            if seat != learner:
                role = spec.role_of(seat).name
                self.players[seat] = _bot(game, role, opponent) if isinstance(opponent, str) else opponent
        self.begin(0)

    def begin(self, seed: int) -> None:
        """New games: recurrent states are cleared, random numbers come from this seed."""
        self.seed, self.step = seed, 0
        seeds = {seat: rng.key(seed, rng.BOT, seat) for seat in self.players}
        self.seated = SeatedPlayers(self.players, seeds, rng.BOT)

    def __getstate__(self) -> dict[str, Any]:
        names = ("spec", "learner", "opponent", "seed", "step")
        state = {name: getattr(self, name) for name in names} | {"game": game_reference(self.game)}
        return state | {"recurrent_states": self.seated.recurrent_states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Opponents.__init__(self, game_of(state["game"]), state["spec"], state["learner"], state["opponent"])
        self.begin(state["seed"])
        self.step, self.seated.recurrent_states = state["step"], state["recurrent_states"]

    def clear(self, ended: NDArray[np.bool_]) -> None:
        """Ended games [N]: the recurrent states of their players start again."""
        self.seated.clear(ended)

    def act(self, world: World, actions: dict[str, NDArray[Any]]) -> None:
        """Write the actions of all opponents that are to move into `actions`."""
        self.seated.act(world, actions, self.step)
        self.step += 1


def _bot(game: Game, role: str, name: str) -> Player:
    known = game.bot_names(role)
    if name not in known:
        near = nearest(name, list(known))
        hint = f"; nearest: {near}" if near else ""
        raise ConfigError(f"opponent = {name!r}: expected a bot for {role}: {', '.join(known)}{hint}")
    return game.bot(name, role)


def illegal_action(world: World, role: Role, place: int, actions: NDArray[Any]) -> str:
    """One line for an action [N] that the mask of the role's seat number `place` forbids; else empty."""
    mask = world.view.mask.get(role.name)
    if mask is None:
        return ""
    illegal = np.flatnonzero(mask[np.arange(world.games), place, actions] == 0)
    if not illegal.size:
        return ""
    game = illegal[0]
    legal = f"the action_mask of game {game} is {mask[game, place].tolist()}"
    return f"{role.name}: action {actions[game]} is not legal now: {legal}"


def action_mask(world: World, role: Role, place: int) -> NDArray[np.bool_]:
    """[N, A] the legal actions of the role's seat number `place`; all of them in a world without masks."""
    mask = world.view.mask.get(role.name)
    if mask is None:
        return np.ones((world.games, role.actions.size), bool)
    return np.asarray(mask[:, place] != 0)
