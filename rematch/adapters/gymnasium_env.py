"""A world as a Gymnasium environment: `GymEnv`, one game, and `GymVector`, a batch at the world's own speed.

One seat is the learner's, the others are played by a scripted bot or any other Player.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.adapters.common import (
    ERROR,
    ILLEGAL_REWARD,
    LOSE,
    Opponents,
    StoredWorld,
    action_mask,
    bounds,
    check_illegal_option,
    config_of,
    flat,
    game_of,
    illegal_action,
    last_obs,
    role_of,
)
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.player import Player
from rematch.core.spec import Role
from rematch.core.stepping import empty_actions
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.worlds import registry

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError:
    raise NotInstalled("Gymnasium", "gymnasium") from None

Info = dict[str, Any]


def observation_space(role: Role) -> gymnasium.spaces.Space[Any]:
    low, high = bounds(role)
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def action_space(role: Role) -> gymnasium.spaces.Space[Any]:
    if role.actions.kind == "discrete":
        return gymnasium.spaces.Discrete(role.actions.size)
    return gymnasium.spaces.Box(-1.0, 1.0, (role.actions.size,), np.float32)


class GymEnv(StoredWorld, gymnasium.Env[Floats, Any]):
    """One game from the learner's seat. In turn-based worlds a step lasts until it is to move again.

    Rewards that come to the seat in the meantime belong to its last decision and are added to it. `config` is
    a Config of the game or a mapping of its settings; `role` is the first one by default. An illegal action
    ends the game as lost, with the reward -1 (`illegal="lose"`), or raises ConfigError (`illegal="error"`).
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own attribute)

    def __init__(
        self,
        world: Any,
        config: Any = None,
        role: str = "",
        opponent: str | Player = "random",
        illegal: str = LOSE,
    ) -> None:
        self.game = game_of(world)
        self.config = config_of(self.game, config)
        self.illegal = check_illegal_option(illegal)
        self.make_world(1, 0)
        self.role = role_of(self.world.spec, role)
        self.seat = self.role.seats[0]
        self.opponents = Opponents(self.game, self.world.spec, self.seat, opponent)
        self.observation_space = observation_space(self.role)
        self.action_space = action_space(self.role)
        self.over = True  # whether `reset` must come next
        self.fresh = False  # whether the running game has not been returned by `reset` yet

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        """A new game. After an end it is the one that the world has already begun."""
        super().reset(seed=seed)
        if seed is not None or not self.fresh:
            start = int(self.np_random.integers(2**63))
            self.make_world(1, start)
            self.opponents.begin(start)
            self._await_turn()
        self.over = self.fresh = False
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, Info]:
        if self.over:
            raise ConfigError("step: the game has ended; call reset first")
        if not self.action_space.contains(action):
            raise ConfigError(f"step: action {action!r} is not in {self.action_space}")
        moves, before = empty_actions(self.world), self._obs()
        moves[self.role.name][0, 0] = action
        if line := illegal_action(self.world, self.role, 0, moves[self.role.name][:, 0]):
            return self._end_illegally(line, before)
        reward = self._advance(moves)
        while self.world.view.ended[0] == RUNNING and not self.world.view.acting[0, self.seat]:
            before = self._obs()
            reward += self._advance(empty_actions(self.world))
        view = self.world.view
        ended = int(view.ended[0])
        if ended == RUNNING:
            return self._obs(), reward, False, False, self._info()
        info = {"outcome": float(view.outcome[0, self.seat]), "length": int(view.length[0])}
        last = last_obs(view, self.role, 0, before[None])[0]
        self.over = self.fresh = True
        self._await_turn()
        return last, reward, ended == DECIDED, ended == CUT_OFF, info

    def _end_illegally(self, line: str, before: Floats) -> tuple[Floats, float, bool, bool, Info]:
        if self.illegal == ERROR:
            raise ConfigError(line)
        self.over = True
        info = {"outcome": 0.0, "length": int(self.world.view.length[0]) + 1, "illegal_action": line}
        return before, ILLEGAL_REWARD, True, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """[A] the legal actions, for MaskablePPO of sb3-contrib."""
        return np.asarray(action_mask(self.world, self.role, 0)[0])

    def _advance(self, moves: dict[str, NDArray[Any]]) -> float:
        self.opponents.act(self.world, moves)
        view = self.world.step(moves)
        self.opponents.clear(view.ended != RUNNING)
        return float(view.reward[0, self.seat])

    def _await_turn(self) -> None:
        """Let the others open the game (a game that ends before the learner's first move is not counted)."""
        while not self.world.view.acting[0, self.seat]:
            self._advance(empty_actions(self.world))

    def _obs(self) -> Floats:
        seen: Floats = flat(self.world.view.fields, self.role, 0)[0]
        return seen

    def _info(self) -> Info:
        mask = self.world.view.mask.get(self.role.name)
        return {} if mask is None else {"action_mask": mask[0, 0].copy()}


class GymVector(StoredWorld, VectorEnv[Floats, Any, NDArray[Any]]):
    """N games in one call, for worlds in which the learner's seat moves at every step.

    Autoreset is SAME_STEP: the step that ends a game returns the next game's first observation, and
    `info["final_obs"]` [N, F] holds the last one of the games marked in `info["_final_obs"]` [N], as
    `info["outcome"]`, `info["length"]` do. All are plain arrays: nothing here loops over games. An illegal
    action raises ConfigError: masks are in `info["action_mask"]` and `action_masks()`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (Gymnasium's own)

    def __init__(
        self,
        world: Any,
        config: Any = None,
        role: str = "",
        opponent: str | Player = "random",
        games: int = 64,
    ) -> None:
        self.game = game_of(world)
        self.config = config_of(self.game, config)
        self.num_envs = games
        self.make_world(games, 0)
        self.role = role_of(self.world.spec, role)
        self.seat = self.role.seats[0]
        self.opponents = Opponents(self.game, self.world.spec, self.seat, opponent)
        self.single_observation_space = observation_space(self.role)
        self.single_action_space = action_space(self.role)
        self.observation_space = batch_space(self.single_observation_space, games)
        self.action_space = batch_space(self.single_action_space, games)
        self.moves = empty_actions(self.world)
        self.obs = flat(self.world.view.fields, self.role, 0)
        self._all_to_move()

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Floats, Info]:
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ConfigError(f"reset: seed = {seed!r}: expected one whole number for the whole batch")
        super().reset(seed=None if seed is None else int(seed))
        start = int(self.np_random.integers(2**63))
        self.make_world(self.num_envs, start)
        self.opponents.begin(start)
        self._all_to_move()
        flat(self.world.view.fields, self.role, 0, out=self.obs)
        return self.obs.copy(), self._masks()

    def step(self, actions: Any) -> tuple[Floats, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        moves, seat = self.moves[self.role.name], self.seat
        moves[:, 0] = actions
        if line := illegal_action(self.world, self.role, 0, moves[:, 0]):
            raise ConfigError(line)
        self.opponents.act(self.world, self.moves)
        view = self.world.step(self.moves)
        self._all_to_move()
        over = view.ended != RUNNING
        info: Info = {}
        if over.any():
            self.opponents.clear(over)
            info["final_obs"] = last_obs(view, self.role, 0, self.obs)
            info["outcome"], info["length"] = view.outcome[:, seat].copy(), view.length.copy()
            info |= dict.fromkeys(("_final_obs", "_outcome", "_length"), over)
        flat(view.fields, self.role, 0, out=self.obs)
        terminated, truncated = view.ended == DECIDED, view.ended == CUT_OFF
        return self.obs.copy(), view.reward[:, seat].copy(), terminated, truncated, info | self._masks()

    def action_masks(self) -> NDArray[np.bool_]:
        """[N, A] the legal actions."""
        return action_mask(self.world, self.role, 0)

    def _masks(self) -> Info:
        mask = self.world.view.mask.get(self.role.name)
        return {} if mask is None else {"action_mask": mask[:, 0].copy()}

    def _all_to_move(self) -> None:
        if not self.world.view.acting[:, self.seat].all():
            raise ConfigError(
                f"{self.world.spec.world} is turn-based: GymVector needs a learner that moves at every "
                "step; use GymEnv"
            )


def make_vector(
    world: Any, num_envs: int = 1, config: Any = None, role: str = "", opponent: str | Player = "random"
) -> GymVector:
    """The batch that `gymnasium.make_vec` makes from a registered id."""
    return GymVector(world, config, role, opponent, num_envs)


def env_id(world: str) -> str:
    """The id of a world in Gymnasium's registry: pursuit -> rematch/Pursuit-v0."""
    words = {"openspiel": "OpenSpiel", "gameboy": "GameBoy"}
    return f"rematch/{words.get(world) or world.title().replace('_', '')}-v0"


def register() -> None:
    """Register all worlds but `gymnasium`; each is imported when its first environment is made."""
    for world in registry.names():
        if world != "gymnasium" and env_id(world) not in gymnasium.registry:
            gymnasium.register(
                env_id(world),
                entry_point=f"{__name__}:{GymEnv.__name__}",
                vector_entry_point=f"{__name__}:{make_vector.__name__}",
                kwargs={"world": world},
            )


register()
