"""Makes environments by id, with one-line errors, and describes their spaces and reproducibility."""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import Any

import numpy as np

from rematch.core.config import nearest
from rematch.core.errors import ConfigError, NotInstalled
from rematch.worlds.gymnasium_spaces import (
    ActionDecoder,
    ObservationEncoder,
    action_decoder,
    installed_version,
    observation_encoder,
    one_line,
    read_options,
)

PROBE = 60  # steps of the trial episode that must be reproduced


def library() -> ModuleType:
    try:
        import gymnasium
    except ImportError:
        raise NotInstalled("Gymnasium", "gymnasium") from None
    return gymnasium


def present() -> bool:
    with contextlib.suppress(ConfigError):
        return bool(library())
    return False


def installed() -> str:
    """The installed version of Gymnasium: an exact resume needs the same version."""
    return installed_version("gymnasium")


def find(name: str) -> Any:
    """The registered specification of an id. `package:Id-v0` imports the package first.

    Only installed packages are imported: the id may come from an untrusted run folder with any files.
    """
    registry = library().registry
    package, colon, short = name.rpartition(":")
    if colon:
        if not package.isidentifier() or package not in packages_distributions():
            raise ConfigError(f"id = {name!r}: no package {package!r} is installed")
        try:
            importlib.import_module(package)
        except Exception as error:
            raise ConfigError(f"id = {name!r}: cannot import {package}: {one_line(error)}") from None
    if short not in registry:
        ids = list(registry)
        prefix = short.lower().split("-v")[0] + "-v"
        versions = [each for each in ids if each.lower().startswith(prefix)]
        near = versions[-1] if versions else nearest(short, ids)
        raise ConfigError(
            f"id = {name!r}: expected the id of a Gymnasium environment, such as CartPole-v1"
            + (f"; nearest: {near}" if near else "")
        )
    return registry[short]


@dataclass(frozen=True)
class EnvDescription:
    """What a world needs to know about an environment."""

    id: str
    options: tuple[str, ...]
    max_steps: int  # steps after which an episode is cut off
    encoder: ObservationEncoder
    decoder: ActionDecoder
    reproducible: bool  # whether the seed and the actions determine the episode

    def make(self) -> Any:
        return make_env(self.id, self.options, self.max_steps)


def make_env(name: str, options: tuple[str, ...], max_steps: int | None) -> Any:
    spec = find(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation of old versions: the user chose the id
            limit = {} if max_steps is None else {"max_episode_steps": max_steps}
            return library().make(spec, disable_env_checker=True, **limit, **read_options(options))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"world.id = {name!r}: Gymnasium cannot make it: {one_line(error)}") from None


@functools.lru_cache(maxsize=64)
def describe(name: str, options: tuple[str, ...], max_steps: int, scale: str) -> EnvDescription:
    """The description of the environment `name`; ConfigError where it cannot be a world."""
    spec = find(name)
    limit = max_steps or int(spec.max_episode_steps or 0)
    if limit < 1:
        raise ConfigError(f"world.id = {name!r}: it has no step limit; expected world.max_steps")
    env = make_env(name, options, limit)
    try:
        try:
            description = EnvDescription(
                name,
                options,
                limit,
                observation_encoder(env.observation_space, scale),
                action_decoder(env.action_space),
                not spec.nondeterministic,
            )
        except ConfigError as error:
            raise ConfigError(f"world.id = {name!r}: {error}") from None
        if description.reproducible and not is_reproducible(description, env):
            description = replace(description, reproducible=False)
    finally:
        env.close()
    return description


def is_reproducible(description: EnvDescription, used: Any) -> bool:
    """Whether a new environment and a used one play the same episode, bit for bit, from the same seed."""
    fresh = description.make()
    try:
        trace(description, used, 1)
        return trace(description, used, 2) == trace(description, fresh, 2)
    except Exception as error:
        raise ConfigError(
            f"world.id = {description.id!r}: it failed in a trial episode: {one_line(error)}"
        ) from None
    finally:
        fresh.close()


def trace(description: EnvDescription, env: Any, seed: int) -> list[bytes]:
    """The bytes of all observations, rewards and ends of a short episode with random actions."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    decoder = description.decoder
    size = decoder.actions.size
    if decoder.discrete:
        stored = decoder.to_stored(generator.integers(0, size, PROBE))
    else:
        stored = decoder.to_stored(2 * generator.random((PROBE, size)) - 1)
    out = [np.asarray(env.reset(seed=seed)[0]).tobytes()]
    for action in decoder.decode(stored):
        obs, reward, terminated, truncated, _ = env.step(action)
        ends = bytes([bool(terminated), bool(truncated)])
        out.append(np.asarray(obs).tobytes() + np.float64(reward).tobytes() + ends)
        if terminated or truncated:
            break
    return out
