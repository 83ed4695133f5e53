"""Makes environments by their id, in one clear line where that fails, and finds out what they promise."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from types import ModuleType
from typing import Any

import numpy as np

from rematch.core.config import nearest
from rematch.core.errors import ConfigError, NotInstalled

from .spaces import Acting, Looking, acting, looking

PROBE = 60  # steps over which an environment must repeat itself


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
    """Which Gymnasium is here: a run goes on to the same bits only under the same rules."""
    try:
        return f"gymnasium {version('gymnasium')}"
    except PackageNotFoundError:
        return ""


def find(name: str) -> Any:
    """The registered specification of an id. `package:Id-v0` imports the package first, if it is installed.

    Only installed packages: the id may come from a stranger's run, beside which any file may lie.
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
        among = list(registry)
        same = [known for known in among if known.lower().startswith(short.lower().split("-v")[0] + "-v")]
        near = same[-1] if same else nearest(short, among)
        raise ConfigError(
            f"id = {name!r}: expected the id of a Gymnasium environment, such as CartPole-v1"
            + (f"; nearest: {near}" if near else "")
        )
    return registry[short]


def one_line(error: BaseException) -> str:
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()
    return f"{type(error).__name__}: {' '.join(words)}"[:300]


def read_options(options: Sequence[str]) -> dict[str, Any]:
    """("gravity=5", "is_slippery=false") -> what the environment's constructor takes."""
    out: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier() or name in out or name in ("id", "max_episode_steps"):
            raise ConfigError(f"options = {option!r}: expected name=value, each name once")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = {"True": True, "False": False, "None": None}.get(text, text)
        out[name] = value
    return out


@dataclass(frozen=True)
class About:
    """One environment's promises, found out once."""

    id: str
    options: tuple[str, ...]
    bound: int  # steps after which an episode is cut off
    looking: Looking
    acting: Acting
    repeats: bool  # whether seed and actions name everything that happens

    def make(self) -> Any:
        return made(self.id, self.options, self.bound)


def made(name: str, options: tuple[str, ...], limit: int | None) -> Any:
    spec = find(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old versions; the id says which one was asked for
            more = {} if limit is None else {"max_episode_steps": limit}
            return library().make(spec, disable_env_checker=True, **more, **read_options(options))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"world.id = {name!r}: Gymnasium cannot make it: {one_line(error)}") from None


@functools.lru_cache(maxsize=64)
def look(name: str, options: tuple[str, ...], max_steps: int, scale: str) -> About:
    """What the environment `name` promises; ConfigError where it is none that can be a world."""
    spec = find(name)
    bound = max_steps or int(spec.max_episode_steps or 0)
    if bound < 1:
        raise ConfigError(
            f"world.id = {name!r}: it has no limit of steps of its own; expected world.max_steps"
        )
    env = made(name, options, bound)
    try:
        try:
            about = About(
                name,
                options,
                bound,
                looking(env.observation_space, scale),
                acting(env.action_space),
                not spec.nondeterministic,
            )
        except ConfigError as error:
            raise ConfigError(f"world.id = {name!r}: {error}") from None
        if about.repeats and not repeats(about, env):
            about = About(name, options, bound, about.looking, about.acting, False)
    finally:
        env.close()
    return about


def repeats(about: About, used: Any) -> bool:
    """Whether a fresh environment and one that has played agree to the last bit, seed and actions alike."""
    fresh = about.make()
    try:
        trace(about, used, 1)
        return trace(about, used, 2) == trace(about, fresh, 2)
    except Exception as error:
        raise ConfigError(
            f"world.id = {about.id!r}: it failed while being tried: {one_line(error)}"
        ) from None
    finally:
        fresh.close()


def trace(about: About, env: Any, seed: int) -> list[bytes]:
    """All that a short episode of random actions shows, bit for bit."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    size = about.acting.actions.size
    if about.acting.discrete:
        kept = about.acting.kept(draw.integers(0, size, PROBE))
    else:
        kept = about.acting.kept(2 * draw.random((PROBE, size)) - 1)
    out = [np.asarray(env.reset(seed=seed)[0]).tobytes()]
    for action in about.acting.given(kept):
        seen, reward, over, cut, _ = env.step(action)
        out.append(np.asarray(seen).tobytes() + np.float64(reward).tobytes() + bytes([bool(over), bool(cut)]))
        if over or cut:
            break
    return out
