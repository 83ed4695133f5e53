"""List the worlds and the recipes of this installation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rematch import recipes
from rematch.core.errors import ConfigError
from rematch.reporting.result import Block, Printable, Table, wrapped
from rematch.worlds import registry

MOST_NAMES = 12  # actions that are printed by name


@dataclass(frozen=True)
class RoleInfo:
    """A role of a world: the size of its observation, its actions, its scripted players."""

    name: str
    observation_size: int
    action_kind: str
    actions: tuple[str, ...]
    scripted: tuple[str, ...]

    def text(self) -> str:
        shown = self.actions[:MOST_NAMES]
        more = f", ... ({len(self.actions)} in all)" if len(self.actions) > MOST_NAMES else ""
        return (f"sees {self.observation_size} numbers, {self.action_kind} actions {', '.join(shown)}{more}; "
                f"scripted: {', '.join(self.scripted) or 'none'}")


@dataclass(frozen=True)
class WorldInfo:
    """A world; `problem` is the reason why its roles are unknown, such as a library that is not installed."""

    name: str
    summary: str
    roles: tuple[RoleInfo, ...] = ()
    problem: str = ""


@dataclass(frozen=True, repr=False)
class WorldList(Printable):
    """The worlds of this installation."""

    worlds: tuple[WorldInfo, ...]

    def __iter__(self) -> Iterator[WorldInfo]:
        return iter(self.worlds)

    def __len__(self) -> int:
        return len(self.worlds)

    def lines(self, width: int | None = None) -> list[str]:
        out = []
        for world in self.worlds:
            out += wrapped(f"{world.name}: {world.summary}", width, "    ")
            out += wrapped(f"  {world.problem}", width, "    ") if world.problem else []
            for role in world.roles:
                out += wrapped(f"  {role.name}: {role.text()}", width, "    ")
        return out

    def blocks(self) -> Iterator[Block]:
        rows = [(world.name, "", world.problem or world.summary) for world in self.worlds]
        rows += [(world.name, role.name, role.text()) for world in self.worlds for role in world.roles]
        names = [world.name for world in self.worlds]
        yield Table([("world", "role", ""), *sorted(rows, key=lambda row: names.index(row[0]))])

    def to_dict(self) -> dict[str, Any]:
        return {"worlds": [asdict(world) for world in self.worlds]}


def list_worlds() -> WorldList:
    """The worlds of this installation, with those of other packages (entry points)."""
    return WorldList(tuple(world_info(name) for name in registry.names()))


def world_info(name: str) -> WorldInfo:
    game = registry.find(name)
    try:
        roles = game.spec(game.Config()).roles
    except ConfigError as error:  # a library that is not installed
        return WorldInfo(name, game.summary, problem=str(error))
    return WorldInfo(name, game.summary, tuple(
        RoleInfo(role_name, role.size, role.actions.kind, tuple(role.actions.names),
                 tuple(game.bots.get(role_name, ())))
        for role_name, role in roles.items()))


# --- recipes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecipeInfo:
    """A recipe, the world it trains in, and the first sentence of its comment."""

    name: str
    world: str
    summary: str


@dataclass(frozen=True, repr=False)
class RecipeList(Printable):
    """The recipes, grouped by world."""

    recipes: tuple[RecipeInfo, ...]

    def __iter__(self) -> Iterator[RecipeInfo]:
        return iter(self.recipes)

    def __len__(self) -> int:
        return len(self.recipes)

    def blocks(self) -> Iterator[Block]:
        rows = [(recipe.name, recipe.world, recipe.summary) for recipe in self.recipes]
        yield Table([("recipe", "world", "what it trains"), *rows])

    def to_dict(self) -> dict[str, Any]:
        return {"recipes": [asdict(recipe) for recipe in self.recipes]}


def list_recipes() -> RecipeList:
    """The recipes that come with Rematch, sorted by world and name."""
    names = recipes.recipe_texts()
    infos = [RecipeInfo(name, recipes.world_of(name), recipes.summary(name)) for name in names]
    return RecipeList(tuple(sorted(infos, key=lambda info: (info.world, info.name))))
