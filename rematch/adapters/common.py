"""Our worlds in the dress of other libraries: gymnasium_env.py and pettingzoo_env.py.

Neither library is needed here or anywhere else in the package. What an adapter hands out when a game ends:
our worlds restart at once, so the sight after the last step is that of the next game already. The last
observation of a game that was cut off (`truncated`) is the sight at the cut, `View.final`; that of a decided
game (`terminated`) is the sight before the final move, and nothing may bootstrap from it. `info["outcome"]`
says who won.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def game_of(game: str | Game) -> Game:
    """A game by its name, or the game itself."""
    return registry.find(game) if isinstance(game, str) else game


def role_of(spec: Spec, name: str) -> Role:
    """The role called `name`, or the only one."""
    if not name and len(spec.roles) == 1:
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


class Opponents:
    """Everybody but the learner: one player per other seat, a bot by name or any Player."""

    def __init__(self, game: Game, spec: Spec, learner: int, opponent: str | Player) -> None:
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

    def clear(self, ended: NDArray[np.bool_]) -> None:
        """Ended games [N]: the recurrent states of their players start again."""
        self.seated.clear(ended)

    def act(self, world: World, actions: dict[str, NDArray[Any]]) -> None:
        """Write the actions of all opponents that are to move into `actions`."""
        self.seated.act(world, actions, self.step)
        self.step += 1


def _bot(game: Game, role: str, name: str) -> Player:
    known = game.bots.get(role, ())
    if name not in known:
        near = nearest(name, list(known))
        hint = f"; nearest: {near}" if near else ""
        raise ConfigError(f"opponent = {name!r}: expected a bot for {role}: {', '.join(known)}{hint}")
    return game.bot(name, role)


def check_legal(world: World, role: Role, place: int, actions: NDArray[Any]) -> None:
    """One line for a choice [N] that the mask of the role's seat number `place` forbids."""
    mask = world.view.mask.get(role.name)
    if mask is None:
        return
    illegal = np.flatnonzero(mask[np.arange(world.games), place, actions] == 0)
    if illegal.size:
        game = illegal[0]
        legal = f"the action_mask of game {game} is {mask[game, place].tolist()}"
        raise ConfigError(f"{role.name}: action {actions[game]} is not legal now: {legal}")
