"""Any PettingZoo game: `--world.id classic.connect_four_v3`.

A world holds N games, Python objects that are stepped one after another. A state stores the seed and the
actions of the game; `load` plays them again. PettingZoo has no winners: the outcome of a seat is the share of
the other seats whose return is smaller, where an equal return counts half. A game is decided where an agent
was terminated; where all were truncated, or after `max_steps`, it is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core.errors import ConfigError
from rematch.core.spec import Field, Role, Spec
from rematch.core.world import CUT_OFF, RUNNING, View
from rematch.worlds.gymnasium_spaces import episode_seed, one_line
from rematch.worlds.numpy_world import States
from rematch.worlds.replayed_world import ReplayedWorld

from .config import Config
from .factory import RoleDescription
from .match import legal

NAME = __name__.split(".")[-2]  # name of this folder, so that a copied folder is another game
SEAT = "seat"  # field: which seat of its role a player has


class PettingZooWorld(ReplayedWorld):
    """See rematch.core.world.World. A part shares its game objects with the whole world."""

    config: Config

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        description = config.describe()
        roles = {}
        for entry in description.roles:
            fields: tuple[Field, ...] = (entry.encoder.field,)
            if len(entry.seats) > 1:
                columns = tuple(description.agents[seat] for seat in entry.seats)
                fields = (Field(name=SEAT, columns=columns, low=0.0, high=1.0), *fields)
            roles[entry.name] = Role(name=entry.name, fields=fields, actions=entry.decoder.actions,
                                     seats=entry.seats)
        return Spec(
            world=NAME,
            roles=roles,
            resume="replay" if description.reproducible else "episode",
            cutoffs=True,
            zero_sum=description.zero_sum,
            reward_scale=config.reward_scale,
        )

    def layout(self) -> list[Any]:
        columns: list[Any] = [("returns", "f8", (len(self.description.agents),))]
        for role in self.description.roles if self.description.reproducible else ():
            size = () if role.decoder.discrete else (role.decoder.actions.size,)
            shape = (self.description.max_steps, len(role.seats), *size)
            columns.append((stored_name(role), role.decoder.dtype.newbyteorder("="), shape))
        return columns

    def __init__(self, config: Config, games: int, first: int = 0, seed: int = 0) -> None:
        self.description = config.describe()
        self.masked = self.description.masked
        super().__init__(config, games, first, seed)

    def make_environments(self) -> None:
        description, games = self.description, self.games
        self.matches = [description.make() for _ in range(games)]
        self.acting = np.zeros((games, len(description.agents)), np.uint8)
        self.raw = {role.name: np.zeros((games, len(role.seats), role.encoder.field.size), np.float32)
                    for role in description.roles}
        self.legal = {role.name: np.ones((games, len(role.seats), role.decoder.actions.size), np.uint8)
                      for role in description.roles}

    # --- stepping ---

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state, description = self.view, self.state, self.description
        decoded = {}
        for role in description.roles:
            stored = self._stored(role, np.asarray(actions[role.name]))
            if description.reproducible:
                state[stored_name(role)][np.arange(self.games), state["time"]] = stored
            flat = stored.reshape(-1, *stored.shape[2:])
            decoded[role.name] = role.decoder.decode(flat)
        state["time"] += 1
        view.ended[:], view.outcome[:], view.reward[:] = RUNNING, 0, 0
        for row in range(self.games):
            view.ended[row] = self._step_match(row, decoded)
        view.length[:] = state["time"]
        ended = np.flatnonzero(view.ended)
        view.outcome[ended] = outcomes(state["returns"][ended])
        cut = view.ended == CUT_OFF
        if cut.any():
            self.write_observations()
            for name, fields in view.final.items():
                for field, last in fields.items():
                    last[cut] = view.fields[name][field][cut]
        self._restart(ended)
        self.write_observations()
        return view

    def _stored(self, role: RoleDescription, action: NDArray[Any]) -> NDArray[Any]:
        """The actions of a role [N, k] or [N, k, A] as states store them; 0 where a seat waits."""
        size = role.decoder.actions.size
        shape = (self.games, len(role.seats)) + (() if role.decoder.discrete else (size,))
        if action.shape != shape:
            raise ConfigError(f"actions of {role.name}: expected an array {list(shape)}, found "
                              f"{list(action.shape)}")
        waiting = self.acting[:, list(role.seats)] == 0
        chosen = np.where(waiting if role.decoder.discrete else waiting[..., None], 0, action)
        if role.decoder.discrete:
            inside = (chosen >= 0) & (chosen < size)
            index = np.where(inside, chosen, 0).astype(np.intp)
            allowed = np.take_along_axis(self.legal[role.name], index[..., None], 2)[..., 0] == 1
            illegal = np.argwhere(~waiting & ~(inside & allowed))
            if illegal.size:
                row, place = illegal[0].tolist()
                agent = self.description.agents[role.seats[place]]
                raise ConfigError(f"{self.description.id}: {agent} of game {self.first + row} chose action "
                                  f"{chosen[row, place]}, which is not legal")
        flat = role.decoder.to_stored(chosen.reshape(-1, *chosen.shape[2:]))
        return flat.reshape(chosen.shape)

    def _step_match(self, row: int, decoded: Mapping[str, list[Any]]) -> int:
        """Step one game: writes its rewards and observations; RUNNING, DECIDED or CUT_OFF."""
        moves = {}
        for role in self.description.roles:
            for place, seat in enumerate(role.seats):
                if self.acting[row, seat]:
                    moves[seat] = decoded[role.name][row * len(role.seats) + place]
        try:
            rewards, ended = self.matches[row].step(moves)
            self._look(row)
        except Exception as error:
            raise ConfigError(f"{self.description.id}: game {self.first + row} failed in a step: "
                              f"{one_line(error)}") from None
        if not np.isfinite(rewards).all():
            raise ConfigError(f"{self.description.id}: a reward of game {self.first + row} is not finite")
        self.state["returns"][row] += rewards
        self.view.reward[row] = np.asarray(rewards) * self.config.reward_scale
        if not ended and self.state["time"][row] >= self.description.max_steps:
            return CUT_OFF
        return ended

    def _look(self, row: int) -> None:
        """Read observations, masks and turns of one game."""
        match = self.matches[row]
        self.acting[row] = 0
        self.acting[row, match.acting()] = 1
        for role in self.description.roles:
            encoder = role.encoder
            for place, seat in enumerate(role.seats):
                seen = match.seen(seat)
                mask = self.legal[role.name][row, place]
                mask[:] = 1
                if seen is None:
                    self.raw[role.name][row, place] = 0
                    continue
                start = encoder.starts if encoder.categorical else 0
                self.raw[role.name][row, place] = np.ravel(seen[0]) - start
                if self.acting[row, seat]:
                    mask[:] = legal(seen[1], len(mask))

    def write_observations(self) -> None:
        view = self.view
        np.copyto(view.acting, self.acting)
        for role in self.description.roles:
            encoder, raw = role.encoder, self.raw[role.name]
            flat = raw.reshape(-1, raw.shape[2])
            outside = encoder.outside(flat)
            if outside.any():
                reason = "is outside its space" if encoder.categorical else "is not finite"
                game = self.first + int(np.flatnonzero(outside)[0]) // len(role.seats)
                raise ConfigError(f"{self.description.id}: an observation of game {game} {reason}")
            out = np.empty_like(flat)
            encoder.encode(flat, out)
            view.fields[role.name][encoder.field.name][:] = out.reshape(raw.shape)
            if len(role.seats) > 1:
                view.fields[role.name][SEAT][:] = np.eye(len(role.seats), dtype=np.float32)
            if self.masked:
                view.mask[role.name][:] = self.legal[role.name]

    # --- states ---

    def reset_environment(self, row: int) -> None:
        seed = episode_seed(int(self.state["seed"][row]), int(self.state["episode"][row]))
        try:
            self.matches[row].reset(seed)
            self._look(row)
        except Exception as error:
            raise ConfigError(f"{self.description.id}: game {self.first + row} failed in a reset: "
                              f"{one_line(error)}") from None

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        valid = (states["time"] < self.description.max_steps) & (states["slot"] >= 0).all(1)
        valid &= np.isfinite(states["returns"]).all(1)
        for role in self.description.roles if self.description.reproducible else ():
            actions, size = states[stored_name(role)], role.decoder.actions.size
            possible = actions < size if role.decoder.discrete else np.abs(actions) <= 1  # false for NaN
            valid &= possible.reshape(len(states), -1).all(1)
        return np.asarray(valid)

    def replay(self, row: int) -> bool:
        self.reset_environment(row)
        returns = np.zeros(len(self.description.agents))
        for time in range(int(self.state["time"][row])):
            moves = self._stored_moves(row, time)
            if moves is None:
                return False
            rewards, ended = self.matches[row].step(moves)
            returns += rewards
            if ended:
                return False
            self._look(row)
        if self.spec.resume == "episode":
            self.state["returns"][row] = 0
            return True
        return bool((self.state["returns"][row] == returns).all())

    def _stored_moves(self, row: int, time: int) -> dict[int, Any] | None:
        """Seat -> the action of a step of the running game; None where one is not legal."""
        moves = {}
        for role in self.description.roles:
            stored = self.state[stored_name(role)][row, time]
            for place, seat in enumerate(role.seats):
                if not self.acting[row, seat]:
                    continue
                if role.decoder.discrete and not self.legal[role.name][row, place, int(stored[place])]:
                    return None
                moves[seat] = role.decoder.decode(stored[place : place + 1])[0]
        return moves

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.description, part.masked = self.description, self.masked
        part.matches, part.acting = self.matches[cut], self.acting[cut]
        part.raw = {name: array[cut] for name, array in self.raw.items()}
        part.legal = {name: array[cut] for name, array in self.legal.items()}
        return part


def stored_name(role: RoleDescription) -> str:
    """The column of a state that holds the actions of a role."""
    return f"actions_{role.name}"


def outcomes(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, seats] the share of the other seats with a smaller return, equal ones half; 0.5 for one seat."""
    seats = returns.shape[1]
    if seats == 1:
        return np.full(returns.shape, 0.5)
    ahead = (np.sign(returns[:, :, None] - returns[:, None, :]) + 1) / 2  # [n, seats, seats], 0.5 of itself
    return np.asarray((ahead.sum(2) - 0.5) / (seats - 1))
