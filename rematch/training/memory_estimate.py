"""How much memory a run will need, and whether this machine has it: said before anything is allocated."""

from __future__ import annotations

import numpy as np

from rematch.agents.learners.dqn import replay_bytes
from rematch.agents.networks.layout import layout
from rematch.core.errors import ConfigError
from rematch.core.system_memory import total_bytes
from rematch.core.world import World
from rematch.training.trainer import Config
from rematch.worlds import registry

NATIVE, TORCH = 160 << 20, 640 << 20  # bytes of Python and its libraries while a run ends with its pictures


def tape(config: Config, world: World) -> int:
    """Bytes that grow with the games: the tape, what the update makes of it, and the worlds' states."""
    decision = 0
    for role in world.spec.roles.values():
        # tape.Track: sight, action, six numbers, flags; ppo.Ppo: advantages, targets and the shuffled order
        decision += len(role.seats) * (4 * role.size + 4 * role.actions.size + 25 + 5 * 4 + 2 * 8)
        if config.network.reads_aside:
            decision += 4 * len(role.seats) * role.aside_size
    if config.rnd.coef:  # the bonus beside the rewards; sights, targets and predictions of its decisions
        decision += max(len(role.seats) * (4 * role.size + 4 * 3 * config.rnd.embed)
                        for role in world.spec.roles.values())
    state = int(world.save(np.zeros(1, np.int32)).shape[1])
    view = sum(
        4 * len(role.seats) * (role.size + role.aside_size) for role in world.spec.roles.values()
    )
    return config.games * (config.steps * decision + 3 * state + 2 * view)


def networks(config: Config, world: World) -> int:
    """Bytes that grow with the network: each role's weights, optimiser, gradients, slots and snapshots."""
    total = 0
    for role in world.spec.roles.values():
        size = sum(int(np.prod(shape)) for _, shape, _ in layout(role, config.network))
        copies = 8 + config.threads  # weights, packed, two moments, magnet, gradient and its parts, scratch
        copies += 2 * 4  # a checkpoint's, before it is written: as bytes, and what they are made of
        copies += 3 if config.ppo.average else 0
        if config.league.history:
            copies += 2 * (config.league.slots + 1) + config.league.size
        copies += 4 * config.rollback.keep if config.rollback.back else 0
        total += 4 * size * copies
    if config.learner == "dqn":
        (role,) = world.spec.roles.values()
        total += replay_bytes(config, role)
    if config.learner == "lookahead":
        total += 4 * config.lookahead.replay * (world.spec.role_of(0).size + 3)
    if config.learner == "expert":
        state = int(world.save(np.zeros(1, np.int32)).shape[1])
        total += config.expert.replay * (state + 4 * world.spec.role_of(0).actions.size + 4)
        total += config.games * config.steps * state
    return total


def process(config: Config) -> int:
    """Bytes that a whole process of this run takes at its height."""
    world: World = registry.find(config.game).make(config.world, 1, 0, 0)
    in_torch = config.ppo.gradient == "torch" or config.learner == "dqn" or config.network.in_torch
    libraries = TORCH if in_torch else NATIVE
    return libraries + tape(config, world) + networks(config, world)


def check(config: Config) -> None:
    """Refuse a run that cannot fit, naming what makes it so large."""
    world: World = registry.find(config.game).make(config.world, 1, 0, 0)
    games, network, have = tape(config, world), networks(config, world), total_bytes()
    if games + network <= have:
        return
    gib = f"{(games + network) / 2**30:.1f} GiB"
    need = f"this run needs about {gib} of memory, this machine has {have / 2**30:.1f}"
    if games >= network:
        what = f"games = {config.games}, steps = {config.steps}"
        raise ConfigError(f"{what}: {need}; expected fewer games or steps")
    if config.learner == "dqn":
        raise ConfigError(f"dqn.replay = {config.dqn.replay}: {need}; expected fewer steps")
    raise ConfigError(f"network.hidden = {list(config.network.hidden)}: {need}; expected narrower layers"
                      + (f", or league.size below {config.league.size}" if config.league.history else ""))
