"""List the worlds and the recipes of this installation, and describe one world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rematch import recipes
from rematch.core import config as settings
from rematch.core.config import known_name
from rematch.core.errors import ConfigError
from rematch.core.spec import Field, Role, Spec
from rematch.core.system import user_code
from rematch.reporting.result import Block, Printable, Table, wrapped
from rematch.verbs.settings import SettingInfo, settings_table
from rematch.worlds import registry

MOST_NAMES = 12  # actions that are printed by name
MOST_LISTED = 64  # names that the page of one world lists in full


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
                 tuple(game.bot_names(role_name)))
        for role_name, role in roles.items()))


# --- one world ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FieldInfo:
    """A field of an observation: its columns, and the bounds of their values."""

    name: str
    columns: tuple[str, ...]
    bounds: str
    shape: tuple[int, ...] = ()
    privileged: bool = False  # for learners only

    def cells(self) -> tuple[str, str, str, str]:
        size = " x ".join(map(str, self.shape)) or str(len(self.columns))
        name = f"{self.name} (privileged)" if self.privileged else self.name
        return name, size, self.bounds, few_names(self.columns)


@dataclass(frozen=True, kw_only=True)
class RolePage:
    """All that a role observes and does."""

    name: str
    seats: tuple[int, ...]
    fields: tuple[FieldInfo, ...]
    hidden: tuple[str, ...]
    action_kind: str
    actions: tuple[str, ...]
    scripted: tuple[str, ...]

    def blocks(self) -> Iterator[Block]:
        seats = f"seat{'s' if len(self.seats) > 1 else ''} {', '.join(map(str, self.seats))}"
        yield ""
        yield f"Role {self.name} ({seats})"
        head = ("field", "numbers", "values", "columns")
        yield Table([head, *(field.cells() for field in self.fields)], right=(1,))
        kind = "one of" if self.action_kind == "discrete" else "numbers from -1 to 1, which the world scales:"
        yield f"actions: {self.action_kind}, {kind} {few_names(self.actions)}"
        yield f"scripted players: {', '.join(self.scripted) or 'none'}"
        if self.hidden:
            yield f"not observed: {', '.join(self.hidden)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class WorldPage(Printable):
    """One world: its rules in short, roles, settings and capabilities."""

    name: str
    summary: str
    facts: tuple[str, ...]
    roles: tuple[RolePage, ...]
    settings: tuple[SettingInfo, ...]
    capabilities: tuple[str, ...]

    def blocks(self) -> Iterator[Block]:
        yield f"{self.name}: {self.summary}" if self.summary else self.name
        yield "; ".join(self.facts)
        for role in self.roles:
            yield from role.blocks()
        yield ""
        if self.settings:
            rows = [(f"--world.{row.key}", row.value, row.meaning) for row in self.settings]
            yield Table([("setting", "value", "meaning"), *rows])
        else:
            yield "settings: none"
        yield ""
        yield f"capabilities: {', '.join(self.capabilities) or 'none'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


CAPABILITIES = {  # attribute of a Game -> what it makes possible
    "renderer": "films (rematch film)", "levels": "a curriculum of levels", "human": "rematch play",
    "savestates": "episodes from savestates", "search": "search (RUN+search:BUDGET)",
    "solver": "exact NashConv",
}  # fmt: skip


def few_names(names: Sequence[str]) -> str:
    """All names, or the first where there are too many to read."""
    if len(names) <= MOST_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])}, ... ({len(names)} in all)"


def typed_world(word: str) -> str:
    """The name of the world that a user typed, in upper or lower case, or the path of a file with a game."""
    return registry.typed_name(registry.present_name(known_name(word, registry.names())))


def describe_world(world: str, changes: Mapping[str, Any] | None = None) -> WorldPage:
    """A world's observation columns, actions, scripted players, settings and capabilities.

    `world` is a name, or the path of a Python file with a game; `changes` are settings of the world.
    """
    name = typed_world(world)
    game = registry.find(name)
    default = game.Config()
    config = settings.apply(default, dict(changes or {}), "command line", text=True, prefix="world.")
    settings.validate(config)
    with user_code.one_line_errors():
        spec, random = game.spec(config), game.random(config)
    return WorldPage(
        name=registry.title(name), summary=game.summary, facts=tuple(_facts(spec, random)),
        roles=tuple(_role_page(role, game.bot_names(role.name)) for role in spec.roles.values()),
        settings=settings_table("", config, default, {}).settings,
        capabilities=tuple(text for key, text in CAPABILITIES.items() if getattr(game, key) is not None),
    )


def _facts(spec: Spec, random: bool) -> Iterator[str]:
    yield f"{spec.seats} seat{'s' if spec.seats > 1 else ''}"
    yield "games differ by chance or start" if random else "nothing in the rules is random"
    if spec.seats > 1:
        yield "zero-sum" if spec.zero_sum else "rewards do not cancel (general-sum)"
    yield "games can be cut off undecided" if spec.cutoffs else "every game is decided"
    resumed = {"state": "an exact resume restores states", "replay": "an exact resume replays the actions",
               "episode": "a resumed run starts new games and is not exact"}
    yield resumed[spec.resume]


def _role_page(role: Role, bots: Sequence[str]) -> RolePage:
    shown = [(f, False) for f in role.fields] + [(f, True) for f in role.privileged]
    fields = tuple(FieldInfo(f.name, f.columns, _bounds(f), f.shape, hidden) for f, hidden in shown)
    return RolePage(name=role.name, seats=role.seats, fields=fields, hidden=role.hidden,
                    action_kind=role.actions.kind, actions=role.actions.names, scripted=tuple(bots))


def _bounds(field: Field) -> str:
    if not field.categories:
        return f"{field.low:g} to {field.high:g}"
    sizes = sorted(set(field.categories))
    return f"categories: {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "")


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
