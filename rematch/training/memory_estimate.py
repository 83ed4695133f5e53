"""The memory that a run needs, summed over its components, compared with this machine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rematch.core import config as settings
from rematch.core.component import user_errors_named
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system.gpu_errors import gpu_error, is_gpu_error
from rematch.core.system.system_memory import total_bytes
from rematch.training.components.learners import Learners
from rematch.training.config import components_of, section
from rematch.training.setup import RunSetup

NATIVE, TORCH = 160 << 20, 640 << 20  # bytes of Python and its libraries at the end of a run


def component_bytes(config: Config) -> dict[str, int]:
    """Bytes by component, without those that need none."""
    setup = RunSetup(config)
    sizes: dict[str, int] = {}
    for kind in components_of(config):
        with user_errors_named(kind.name, "memory_bytes"):
            sizes[kind.name] = kind.memory_bytes(section(config, kind), setup)
    return {name: size for name, size in sizes.items() if size}


def process_bytes(config: Config) -> int:
    """Peak bytes of the whole process of this run."""
    libraries = TORCH if RunSetup(config).learner_class.uses_torch(config) else NATIVE
    return libraries + sum(component_bytes(config).values())


@contextmanager
def gpu_errors(config: Config) -> Iterator[None]:
    """An error of the GPU within the block is one line, with the memory that the run is known to need."""
    try:
        yield
    except Exception as error:
        if not is_gpu_error(error):
            raise
        raise gpu_error(error, sum(component_bytes(config).values())) from error


def check(config: Config) -> None:
    """ConfigError for a run that does not fit into memory, with the settings that cause it."""
    sizes, available = component_bytes(config), total_bytes()
    total = sum(sizes.values())
    if total <= available:
        return
    need = f"this run needs about {total / 2**30:.1f} GiB of memory, this machine has {available / 2**30:.1f}"
    learner = RunSetup(config).learner_class
    replay = learner.memory_bytes(getattr(config, learner.name), RunSetup(config))
    copying = [kind for kind in components_of(config) if kind.copies_setting and sizes.get(kind.name)]
    networks = sizes[Learners.name] - replay + sum(sizes[kind.name] for kind in copying)
    if 2 * (networks + replay) <= total:
        games = f"games = {config.games}, steps = {config.steps}"
        raise ConfigError(f"{games}: {need}; expected fewer games or steps")
    if replay > networks:
        steps = getattr(config, learner.name).replay_size
        raise ConfigError(f"{learner.name}.replay_size = {steps}: {need}; expected fewer steps")
    keys = [f"{kind.name}.{kind.copies_setting}" for kind in copying]
    fewer = [f", or {key} below {settings.get(config, key)}" for key in keys]
    hidden = list(config.network.hidden)
    raise ConfigError(f"network.hidden = {hidden}: {need}; expected narrower layers{''.join(fewer)}")
