"""The rules of the game in Python, one call per action, equal to the cartridge; for the solver and tests.

An action is a button held for 8 of 24 ticks; everything that it starts ends within the 24. `Game.press`
changes the state as the cartridge does, and `Game.wram` returns the bytes at the addresses of
ram_addresses.py; a test presses random buttons on both and compares them after each action.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge import ram_addresses as ram
from rematch.worlds.gameboy.cartridge.tiles import SPECIES
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS, GRASS, SOLID, TILESETS, WARP, Atlas, Event

TITLE, WORLD, TEXT, MENU, END = range(5)
CLOSE, START_MATCH, OPEN_MENU, NEXT, LEAVE, BLACKOUT = range(6)  # values of Game.after_text
DOWN, LEFT, RIGHT, UP, A, B, START = range(7)  # indices into constants.ACTIONS
FACING = {DOWN: 0, UP: 1, LEFT: 2, RIGHT: 3}
INTRO_PAGES = 4
BOOT = 4  # actions after power-on before the title screen accepts input
LEADER_FLAG = 1  # event flag of the first leader


@dataclass
class Terrain:
    """Block kinds and events of a map."""

    kinds: list[list[int]]  # [height][width] WALK, SOLID, GRASS or WARP, without events
    events: dict[tuple[int, int], Event]


def load_terrain(atlas: Atlas) -> list[Terrain]:
    terrain = []
    for game_map in atlas.maps:
        kinds = [[BLOCKS[block][1] for block in row] for row in game_map.rows]
        terrain.append(Terrain(kinds, {(event.y, event.x): event for event in game_map.events}))
    return terrain


@dataclass
class Game:
    """State of one game. `key` is the part that determines its future: not money, not play time."""

    atlas: Atlas
    random_byte: int
    terrain: list[Terrain] = field(repr=False)
    mode: int = TITLE
    map: int = 0
    y: int = 0
    x: int = 0
    facing: int = 0
    last_map: int = 0
    blackout_map: int = 0
    towns: int = 0
    level: int = 0
    xp: int = 0
    hp: int = 0
    badges: int = 0
    flags: int = 0  # event flags, one bit each
    bag: tuple[int, ...] = ()
    money: int = 0
    hall: int = 0
    pages: int = 0  # remaining pages of the open text
    after_text: int = CLOSE
    battle: int = 0
    species: int = 0
    enemy_level: int = 0
    enemy_hp: int = 0
    cursor: int = 0
    team_index: int = 0
    event: Event | None = None
    actions: int = 0  # since power-on

    # --- copies and keys ---

    def copy(self) -> Game:
        new = object.__new__(Game)
        new.__dict__.update(self.__dict__)
        return new

    def key(self) -> tuple[int | tuple[int, ...] | None, ...]:
        """Games with equal keys have the same future."""
        if self.mode == WORLD:
            return (
                self.map,
                self.y,
                self.x,
                self.facing,
                self.flags,
                self.badges,
                self.level,
                self.xp,
                self.hp,
                self.random_byte,
            )
        event_place = (self.event.y, self.event.x) if self.event else None
        match_state = (
            self.mode,
            self.pages,
            self.after_text,
            self.battle,
            self.species,
            self.enemy_level,
            self.enemy_hp,
            self.cursor,
        )
        world_state = (
            self.map,
            self.y,
            self.x,
            self.facing,
            self.flags,
            self.badges,
            self.level,
            self.xp,
            self.hp,
            self.random_byte,
        )
        return (*world_state, *match_state, self.team_index, event_place, self.hall)

    # --- one action ---

    def press(self, action: int) -> None:
        self.actions += 1
        if self.mode == WORLD:
            if action in FACING:
                self.walk(FACING[action])
            elif action == A:
                self.interact()
            elif action == START:
                self.open_text(1, CLOSE)
        elif self.mode == TEXT:
            if action in (A, B):
                self.turn_page()
        elif self.mode == MENU:
            self.choose_move(action)
        elif self.mode == TITLE and action in (A, START) and self.actions > BOOT:
            self.start_game()

    def start_game(self) -> None:
        self.level = constants.START_LEVEL
        self.hp = constants.max_hp(self.level)
        self.y, self.x = self.atlas.maps[0].home
        self.enter_map()
        self.open_text(INTRO_PAGES, CLOSE)

    def open_text(self, pages: int, after_text: int) -> None:
        self.mode, self.pages, self.after_text = TEXT, pages - 1, after_text

    def turn_page(self) -> None:
        if self.pages:
            self.pages -= 1
        elif self.after_text == CLOSE:
            self.mode = WORLD
        elif self.after_text == START_MATCH:
            assert self.event is not None
            self.team_index = 0
            self.choose_creature(self.event)
            self.enemy_level = self.event.arguments[1]
            self.start_match(2)
        elif self.after_text == OPEN_MENU:
            self.mode = MENU
        elif self.after_text == NEXT:
            assert self.event is not None
            self.team_index += 1
            self.choose_creature(self.event)
            self.enemy_hp = constants.enemy_hp(self.enemy_level)
            self.mode = MENU
        elif self.after_text == LEAVE:
            self.battle, self.mode = 0, WORLD
        else:
            self.hp, self.battle, self.money = constants.max_hp(self.level), 0, 0
            self.last_map, self.map = self.map, self.blackout_map
            self.y, self.x = self.atlas.maps[self.map].home
            self.enter_map()

    def enter_map(self) -> None:
        """Arrives on the map `self.map`."""
        self.mode = WORLD
        game_map = self.atlas.maps[self.map]
        if game_map.kind == "town":
            self.blackout_map, self.towns = self.map, self.towns | 1 << game_map.town

    def is_removed(self, event: Event) -> bool:
        return bool(event.flag and self.flags >> event.flag & 1)

    def kind_at(self, y: int, x: int) -> int:
        terrain = self.terrain[self.map]
        event = terrain.events.get((y, x))
        if event is not None and not self.is_removed(event):
            return WARP if event.kind == "warp" else SOLID
        if 0 <= y < len(terrain.kinds) and 0 <= x < len(terrain.kinds[0]):
            return terrain.kinds[y][x]
        return SOLID  # the border

    def walk(self, facing: int) -> None:
        self.facing = facing
        dy, dx = constants.FACING_OFFSETS[facing]
        y, x = self.y + dy, self.x + dx
        kind = self.kind_at(y, x)
        if kind == SOLID:
            return
        self.y, self.x = y, x
        if kind == WARP:
            self.last_map = self.map
            self.map, self.y, self.x = self.terrain[self.map].events[y, x].arguments
            self.enter_map()
        elif kind == GRASS:
            self.random_byte = constants.next_random(self.random_byte)
            if self.random_byte < constants.ENCOUNTER:
                wild = self.atlas.maps[self.map].wild
                self.species, self.enemy_level = wild[self.random_byte & 1], wild[2]
                self.start_match(1)

    def interact(self) -> None:
        dy, dx = constants.FACING_OFFSETS[self.facing]
        event = self.terrain[self.map].events.get((self.y + dy, self.x + dx))
        if event is None or self.is_removed(event):
            return
        self.event = event
        kind, text_index = event.kind, 0
        if kind == "trophy":
            self.hall, self.mode = 1, END
            return
        if kind == "warp":
            return
        if kind == "leader" and self.badges >> event.arguments[0] & 1:
            text_index = 2
        elif kind == "leader" and self.level >= event.arguments[2]:
            text_index = 1
        elif kind == "nurse":
            self.hp = constants.max_hp(self.level)
        elif kind == "item":
            self.flags |= 1 << event.flag
            self.bag = (*self.bag, event.arguments[0])
        elif (kind == "lock" and event.arguments[0] in self.bag) or (
            kind == "gate" and self.badges == (1 << self.atlas.badges) - 1
        ):
            self.flags |= 1 << event.flag
            text_index = 1
        starts_match = kind == "rival" or (kind == "leader" and text_index == 1)
        self.open_text(event.texts[text_index].count("//") + 1, START_MATCH if starts_match else CLOSE)

    # --- matches ---

    def choose_creature(self, event: Event) -> None:
        leader = event.kind == "leader"
        self.species = (
            constants.leader_team(event.arguments[0])[self.team_index] if leader else event.arguments[0]
        )

    def start_match(self, kind: int) -> None:
        self.battle, self.cursor, self.enemy_hp = kind, 0, constants.enemy_hp(self.enemy_level)
        self.open_text(1, OPEN_MENU)

    def choose_move(self, action: int) -> None:
        if action == B or (action == A and self.cursor == 3):
            if self.battle == 1:
                self.open_text(1, LEAVE)
            else:
                self.hit_back()
        elif action == A:
            self.enemy_hp -= min(
                self.enemy_hp,
                constants.damage(self.level, constants.effectiveness(self.cursor, self.species)),
            )
            if self.enemy_hp:
                self.hit_back()
            else:
                self.defeat_enemy()
        elif action == RIGHT:
            self.cursor |= 1
        elif action == LEFT:
            self.cursor &= 2
        elif action == UP:
            self.cursor &= 1
        elif action == DOWN:
            self.cursor |= 2

    def hit_back(self) -> None:
        self.hp -= min(self.hp, constants.enemy_damage(self.enemy_level))
        if self.hp:
            self.open_text(1, OPEN_MENU)
        else:
            self.battle = 0xFF
            self.open_text(1, BLACKOUT)

    def defeat_enemy(self) -> None:
        event = self.event
        if self.battle == 1:
            self.gain_xp(constants.WILD_XP if self.enemy_level >= self.level else 0)
            return
        assert event is not None
        if event.kind == "rival":
            self.flags |= 1 << event.flag
            self.money += 100
            self.gain_xp(event.arguments[2])
        elif self.team_index < constants.CREATURES - 1:
            self.open_text(1, NEXT)
        else:
            self.badges |= 1 << event.arguments[0]
            self.flags |= 1 << LEADER_FLAG + event.arguments[0]
            self.money += 500
            self.open_text(2, LEAVE)

    def gain_xp(self, xp: int) -> None:
        self.xp += xp
        levels_gained = self.xp >= constants.XP_PER_LEVEL
        if levels_gained:
            self.xp -= constants.XP_PER_LEVEL
            self.level += 1
            self.hp += constants.HP_STEP
        self.open_text(1 + levels_gained, LEAVE)

    # --- work RAM ---

    def wram(self) -> dict[int, int]:
        """Address to byte, without play time and screen; on the title screen only four bytes."""
        if self.mode == TITLE:
            return {ram.PARTY_COUNT: 0, ram.MAP: 0, ram.IN_BATTLE: 0, ram.TEXT_BOX: 0}
        game_map = self.atlas.maps[self.map]
        digits = f"{self.money:06d}"
        values = {
            ram.MAP: self.map, ram.Y: self.y, ram.X: self.x, ram.LAST_MAP: self.last_map,
            ram.TILESET: TILESETS.index(game_map.kind),
            ram.MAP_HEIGHT: game_map.height, ram.MAP_WIDTH: game_map.width,
            ram.FACING: 4 * self.facing, ram.BADGES: self.badges, ram.PARTY_COUNT: 1,
            ram.PARTY_SPECIES: len(SPECIES), ram.PARTY_SPECIES + 1: 0xFF,
            ram.PARTY + ram.HP: 0, ram.PARTY + ram.HP + 1: self.hp, ram.PARTY + ram.LEVEL: self.level,
            ram.PARTY + ram.MAX_HP: 0, ram.PARTY + ram.MAX_HP + 1: constants.max_hp(self.level),
            ram.PARTY + ram.EXPERIENCE + 2: self.xp, ram.BAG_COUNT: len(self.bag),
            ram.IN_BATTLE: self.battle, ram.ENEMY_HP: 0, ram.ENEMY_HP + 1: self.enemy_hp,
            ram.ENEMY_LEVEL: self.enemy_level, ram.ENEMY_SPECIES: self.species, ram.MENU_ITEM: self.cursor,
            ram.JOYPAD_IGNORE: int(self.mode == END),
            ram.TEXT_BOX: {TEXT: 1, MENU: 2}.get(self.mode, 0), ram.BLACKOUT_MAP: self.blackout_map,
            ram.TOWNS_VISITED: self.towns & 0xFF, ram.TOWNS_VISITED + 1: self.towns >> 8,
            ram.HALL_OF_FAME: self.hall,
        }  # fmt: skip
        values |= {ram.MONEY + i: int(digits[2 * i : 2 * i + 2], 16) for i in range(3)}
        for index, item in enumerate(self.bag):
            values |= {ram.BAG + 2 * index: item, ram.BAG + 2 * index + 1: 1}
        values[ram.BAG + 2 * len(self.bag)] = 0xFF
        values |= {ram.EVENTS + i: self.flags >> 8 * i & 0xFF for i in range(ram.EVENTS_BYTES)}
        return values


def new_game(atlas: Atlas, seed: int) -> Game:
    """A game at the title screen."""
    return Game(atlas, seed % 256, load_terrain(atlas))
