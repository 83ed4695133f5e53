"""All settings of a run in one dataclass: a section per component, assembled from the list of components."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Collection, Sequence
from typing import Any

from rematch.core.component import Component, user_errors_named
from rematch.core.config import class_problem, get, has_effect, part, untracked
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config as Config
from rematch.core.spec import Spec
from rematch.core.system.user_code import load_class
from rematch.curriculum.levels import too_few_games
from rematch.rollout.reward_term import RewardTermComponent
from rematch.training.component_list import COMPONENTS
from rematch.training.setup import RunSetup
from rematch.worlds import registry

LARGEST_ROLLOUT = 64 * 2**30  # bytes


class WholeConfig(Config):
    """A run's settings with the sections of its components."""

    component_classes: tuple[type[Component], ...]  # of the class that `config_class` makes

    @property
    def iterations(self) -> int:
        steps, roles = self.games * self.steps, registry.find(self.game).role_count(self.world)
        return min(-(-self.total_steps // steps), self.schedule.iterations(roles, steps) or sys.maxsize)

    def check(self) -> None:
        if self.start_iteration >= self.iterations:
            raise ConfigError(f"start_iteration = {self.start_iteration}: expected less than the run's "
                              f"{self.iterations} iterations (total_steps / (games x steps))")
        need = self.games * self.steps * 4 * 64
        if need > LARGEST_ROLLOUT:
            raise ConfigError(
                f"games = {self.games}: a rollout of {need / 2**30:.0f} GiB; expected fewer games or steps"
            )
        setup = RunSetup(self)
        for kind in self.component_classes:
            with user_errors_named(kind.name, "check"):
                kind.check(section(self, kind), setup)


def section(config: Config, kind: type[Component]) -> Any:
    """The settings of a component."""
    return getattr(config, kind.name, None)


@functools.cache
def config_class(components: tuple[type[Component], ...] = COMPONENTS) -> type[WholeConfig]:
    """The dataclass of a run with these components."""
    fields: list[tuple[str, Any, Any]] = []
    for component in components:
        for name, (config, needs) in component.configs().items():
            fields.append((name, config, part(config, needs)))
    names = [name for name, _, _ in fields]
    for name in names:
        if names.count(name) > 1 or name in {f.name for f in dataclasses.fields(Config)}:
            raise ConfigError(f"two components have the name {name!r}; expected different names")
    kind = dataclasses.make_dataclass("RunConfig", fields, bases=(WholeConfig,), frozen=True, kw_only=True)
    kind.__annotations__ = dict(kind.__annotations__)
    kind.component_classes = components  # type: ignore[attr-defined]
    return kind


def with_user_code(components: Sequence[str], reward_terms: Sequence[str]) -> tuple[type[Component], ...]:
    """The components with those of the user: reward terms before the learners, others before the last one."""
    terms = [_load(name, RewardTermComponent, "reward_terms") for name in reward_terms]
    others = [_load(name, Component, "components") for name in components]
    terms += [kind for kind in others if issubclass(kind, RewardTermComponent)]
    others = [kind for kind in others if kind not in terms]
    last_term = max(i for i, kind in enumerate(COMPONENTS) if issubclass(kind, RewardTermComponent))
    return (*COMPONENTS[: last_term + 1], *terms, *COMPONENTS[last_term + 1 : -1], *others, COMPONENTS[-1])


def _load(reference: str, base: type[Component], setting: str) -> type[Component]:
    """A component of the user; ConfigError where its name or its settings cannot become flags."""
    kind: type[Component] = load_class(reference, base, setting)
    if problem := _class_problem(kind):
        raise ConfigError(f"{setting} = {reference}: {problem}")
    return kind


def _class_problem(kind: Any) -> str:
    name, settings = getattr(kind, "name", None), getattr(kind, "Config", None)
    if name is None:
        return 'the class has no name; expected name = "..."'
    if not (isinstance(name, str) and name.isidentifier()):
        return f"name = {name!r}: expected an identifier, such as my_term"
    if settings is None:
        return "the class has no Config; expected a frozen dataclass of its settings"
    if problem := class_problem(settings):
        return problem
    has_weight = any(f.name == "weight" for f in dataclasses.fields(settings))
    if issubclass(kind, RewardTermComponent) and not has_weight:
        return "Config has no field weight; expected weight: float = knob(0.0, ...), where 0 is off"
    return ""


def unused_code(config: Config, setup: RunSetup, set_keys: Collection[str]) -> str:
    """A component of the user that is off though no setting of its section was set, with the reason."""
    for setting, base in (("components", Component), ("reward_terms", RewardTermComponent)):
        for reference in get(config, setting):
            kind = _load(reference, base, setting)
            untouched = not any(key.startswith(f"{kind.name}.") for key in set_keys)
            if untouched and (why := kind.off(section(config, kind), setup)):
                return (f"{setting} = {reference} has no effect: {why}; --help {kind.name} explains its "
                        "settings")
    return ""


def default(game: str, components: Sequence[str] = (), reward_terms: Sequence[str] = ()) -> Config:
    """The default settings for a world, with sections for the user's components."""
    kind = config_class(with_user_code(components, reward_terms))
    return kind(game=registry.present_name(game), world=registry.find(game).Config())


def defaults_of(config: Config) -> Config:
    """The default settings for the world and the components of this run."""
    return type(untracked(config))(game=config.game, world=registry.find(config.game).Config())


def no_effect(config: Config, key: str, setup: RunSetup | None = None) -> str:
    """Why a setting has no effect in this world or with the other settings; empty if it has an effect."""
    setup = setup or RunSetup(config)
    head, _, leaf = key.partition(".")
    for kind in components_of(config):
        if head in kind.configs():
            return kind.no_effect(leaf if head == kind.name else key, section(config, kind), setup)
    return ""


def components_of(config: Config) -> Sequence[type[Component]]:
    return getattr(config, "component_classes", COMPONENTS)


# --- notes ------------------------------------------------------------------------------------------------

GENERAL_SUM = "Rewards are general-sum: the roles' rewards do not cancel"
EPISODE = "Games of this world cannot be restored: a resumed run starts new games and ends with other bits"
ONLY_WARMUP = "All of this run is its warm-up phase: the other role never learns; expected fewer warmup_steps"
ONE_SEAT = "league.opponent_share has no effect: the world has one seat, and so no opponents"


def start_notes(config: Config, spec: Spec) -> list[str]:
    """Warnings about a run before it starts: the first lines of its log."""
    one_seat, schedule = spec.seats == 1, config.schedule
    only_warmup = schedule.kind != "simultaneous" and schedule.warmup_steps >= config.total_steps
    unused_league = one_seat and config.league.opponent_share > 0 and not has_effect(
        config, "league.opponent_share")
    notes = {GENERAL_SUM: not spec.zero_sum and not one_seat, EPISODE: spec.resume == "episode",
             ONLY_WARMUP: only_warmup, ONE_SEAT: unused_league}
    games = too_few_games(config.curriculum, config.evaluation.games)
    return [note for note, applies in notes.items() if applies] + ([games] if games else [])
