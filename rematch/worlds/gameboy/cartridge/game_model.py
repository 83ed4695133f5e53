"""The game's logic in Python, one call an action: exactly what the cartridge does, for solving and for
checking.

An action is a button held for 8 of 24 ticks; whatever it starts is over when the 24 are. `Game.press`
makes the same change that the cartridge makes to work RAM, and `Game.wram` says what is then at the
addresses of ram_addresses.py; a test presses random buttons on both and compares after each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge import ram_addresses as ram
from rematch.worlds.gameboy.cartridge.tiles import SPECIES
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS, GRASS, SOLID, TILESETS, WARP, Atlas, Event

TITLE, WORLD, TEXT, MENU, END = range(5)
CLOSE, START_MATCH, OPEN_MENU, NEXT, LEAVE, BLACKOUT = range(6)  # what follows a text
DOWN, LEFT, RIGHT, UP, A, B, START = range(7)  # rules.ACTIONS
FACING = {DOWN: 0, UP: 1, LEFT: 2, RIGHT: 3}
INTRO_PAGES = 4
BOOT = 4  # actions after power-on that pass before the title listens
LEADER_FLAG = 1  # event flag of the first leader


@dataclass
class Ground:
    """A map as the walker meets it."""

    kinds: list[list[int]]  # of the terrain alone
    events: dict[tuple[int, int], Event]


def grounds(atlas: Atlas) -> list[Ground]:
    out = []
    for one in atlas.maps:
        kinds = [[BLOCKS[block][1] for block in row] for row in one.rows]
        out.append(Ground(kinds, {(event.y, event.x): event for event in one.events}))
    return out


@dataclass
class Game:
    """One game. `key` is all that decides its future; play time and money are beside it."""

    atlas: Atlas
    random: int
    grounds: list[Ground] = field(repr=False)
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
    flags: int = 0  # event flags, bit by number
    bag: tuple[int, ...] = ()
    money: int = 0
    hall: int = 0
    pages: int = 0  # of the open text that are still to come
    after: int = CLOSE
    battle: int = 0
    species: int = 0
    enemy_level: int = 0
    enemy_hp: int = 0
    cursor: int = 0
    team: int = 0
    event: Event | None = None
    actions: int = 0  # since power-on

    # --- copies and keys ---

    def copy(self) -> Game:
        new = object.__new__(Game)
        new.__dict__.update(self.__dict__)
        return new

    def key(self) -> tuple[int | tuple[int, ...] | None, ...]:
        """Two games with the same key have the same future."""
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
                self.random,
            )
        where = (self.event.y, self.event.x) if self.event else None
        enemy = (
            self.mode,
            self.pages,
            self.after,
            self.battle,
            self.species,
            self.enemy_level,
            self.enemy_hp,
            self.cursor,
        )
        place = (
            self.map,
            self.y,
            self.x,
            self.facing,
            self.flags,
            self.badges,
            self.level,
            self.xp,
            self.hp,
            self.random,
        )
        return (*place, *enemy, self.team, where, self.hall)

    # --- one action ---

    def press(self, action: int) -> None:
        self.actions += 1
        if self.mode == WORLD:
            if action in FACING:
                self.walk(FACING[action])
            elif action == A:
                self.speak()
            elif action == START:
                self.say(1, CLOSE)
        elif self.mode == TEXT:
            if action in (A, B):
                self.turn_page()
        elif self.mode == MENU:
            self.choose(action)
        elif self.mode == TITLE and action in (A, START) and self.actions > BOOT:
            self.begin()

    def begin(self) -> None:
        self.level = constants.START_LEVEL
        self.hp = constants.most_hp(self.level)
        self.y, self.x = self.atlas.maps[0].home
        self.enter()
        self.say(INTRO_PAGES, CLOSE)

    def say(self, pages: int, after: int) -> None:
        self.mode, self.pages, self.after = TEXT, pages - 1, after

    def turn_page(self) -> None:
        if self.pages:
            self.pages -= 1
        elif self.after == CLOSE:
            self.mode = WORLD
        elif self.after == START_MATCH:
            assert self.event is not None
            self.team = 0
            self.choose_creature(self.event)
            self.enemy_level = self.event.arguments[1]
            self.begin_match(2)
        elif self.after == OPEN_MENU:
            self.mode = MENU
        elif self.after == NEXT:
            assert self.event is not None
            self.team += 1
            self.choose_creature(self.event)
            self.enemy_hp = constants.enemy_hp(self.enemy_level)
            self.mode = MENU
        elif self.after == LEAVE:
            self.battle, self.mode = 0, WORLD
        else:
            self.hp, self.battle, self.money = constants.most_hp(self.level), 0, 0
            self.last_map, self.map = self.map, self.blackout_map
            self.y, self.x = self.atlas.maps[self.map].home
            self.enter()

    def enter(self) -> None:
        """Arrives on a map."""
        self.mode = WORLD
        here = self.atlas.maps[self.map]
        if here.kind == "town":
            self.blackout_map, self.towns = self.map, self.towns | 1 << here.town

    def gone(self, event: Event) -> bool:
        return bool(event.flag and self.flags >> event.flag & 1)

    def kind_at(self, y: int, x: int) -> int:
        ground = self.grounds[self.map]
        event = ground.events.get((y, x))
        if event is not None and not self.gone(event):
            return WARP if event.kind == "warp" else SOLID
        if 0 <= y < len(ground.kinds) and 0 <= x < len(ground.kinds[0]):
            return ground.kinds[y][x]
        return SOLID  # the border

    def walk(self, facing: int) -> None:
        self.facing = facing
        dy, dx = constants.STEPS[facing]
        y, x = self.y + dy, self.x + dx
        kind = self.kind_at(y, x)
        if kind == SOLID:
            return
        self.y, self.x = y, x
        if kind == WARP:
            self.last_map = self.map
            self.map, self.y, self.x = self.grounds[self.map].events[y, x].arguments
            self.enter()
        elif kind == GRASS:
            self.random = constants.following(self.random)
            if self.random < constants.ENCOUNTER:
                wild = self.atlas.maps[self.map].wild
                self.species, self.enemy_level = wild[self.random & 1], wild[2]
                self.begin_match(1)

    def speak(self) -> None:
        dy, dx = constants.STEPS[self.facing]
        event = self.grounds[self.map].events.get((self.y + dy, self.x + dx))
        if event is None or self.gone(event):
            return
        self.event = event
        kind, which = event.kind, 0
        if kind == "trophy":
            self.hall, self.mode = 1, END
            return
        if kind == "warp":
            return
        if kind == "leader" and self.badges >> event.arguments[0] & 1:
            which = 2
        elif kind == "leader" and self.level >= event.arguments[2]:
            which = 1
        elif kind == "nurse":
            self.hp = constants.most_hp(self.level)
        elif kind == "item":
            self.flags |= 1 << event.flag
            self.bag = (*self.bag, event.arguments[0])
        elif (kind == "lock" and event.arguments[0] in self.bag) or (
            kind == "gate" and self.badges == (1 << self.atlas.badges) - 1
        ):
            self.flags |= 1 << event.flag
            which = 1
        match = kind == "rival" or (kind == "leader" and which == 1)
        self.say(event.texts[which].count("//") + 1, START_MATCH if match else CLOSE)

    # --- matches ---

    def choose_creature(self, event: Event) -> None:
        leader = event.kind == "leader"
        self.species = constants.leader_team(event.arguments[0])[self.team] if leader else event.arguments[0]

    def begin_match(self, kind: int) -> None:
        self.battle, self.cursor, self.enemy_hp = kind, 0, constants.enemy_hp(self.enemy_level)
        self.say(1, OPEN_MENU)

    def choose(self, action: int) -> None:
        if action == B or (action == A and self.cursor == 3):
            if self.battle == 1:
                self.say(1, LEAVE)
            else:
                self.hit_back()
        elif action == A:
            self.enemy_hp -= min(
                self.enemy_hp, constants.hit(self.level, constants.effect(self.cursor, self.species))
            )
            if self.enemy_hp:
                self.hit_back()
            else:
                self.fallen()
        elif action == RIGHT:
            self.cursor |= 1
        elif action == LEFT:
            self.cursor &= 2
        elif action == UP:
            self.cursor &= 1
        elif action == DOWN:
            self.cursor |= 2

    def hit_back(self) -> None:
        self.hp -= min(self.hp, constants.enemy_hit(self.enemy_level))
        if self.hp:
            self.say(1, OPEN_MENU)
        else:
            self.battle = 0xFF
            self.say(1, BLACKOUT)

    def fallen(self) -> None:
        event = self.event
        if self.battle == 1:
            self.gain(constants.WILD_XP if self.enemy_level >= self.level else 0)
            return
        assert event is not None
        if event.kind == "rival":
            self.flags |= 1 << event.flag
            self.money += 100
            self.gain(event.arguments[2])
        elif self.team < constants.CREATURES - 1:
            self.say(1, NEXT)
        else:
            self.badges |= 1 << event.arguments[0]
            self.flags |= 1 << LEADER_FLAG + event.arguments[0]
            self.money += 500
            self.say(2, LEAVE)

    def gain(self, xp: int) -> None:
        self.xp += xp
        grown = self.xp >= constants.XP_PER_LEVEL
        if grown:
            self.xp -= constants.XP_PER_LEVEL
            self.level += 1
            self.hp += constants.HP_STEP
        self.say(1 + grown, LEAVE)

    # --- what the cartridge's memory holds ---

    def wram(self) -> dict[int, int]:
        """Bytes by address, all but play time and the screen; empty at the title."""
        if self.mode == TITLE:
            return {ram.PARTY_COUNT: 0, ram.MAP: 0, ram.IN_BATTLE: 0, ram.TEXT_BOX: 0}
        here = self.atlas.maps[self.map]
        digits = f"{self.money:06d}"
        out = {
            ram.MAP: self.map, ram.Y: self.y, ram.X: self.x, ram.LAST_MAP: self.last_map,
            ram.TILESET: TILESETS.index(here.kind), ram.MAP_HEIGHT: here.height, ram.MAP_WIDTH: here.width,
            ram.FACING: 4 * self.facing, ram.BADGES: self.badges, ram.PARTY_COUNT: 1,
            ram.PARTY_SPECIES: len(SPECIES), ram.PARTY_SPECIES + 1: 0xFF,
            ram.PARTY + ram.HP: 0, ram.PARTY + ram.HP + 1: self.hp, ram.PARTY + ram.LEVEL: self.level,
            ram.PARTY + ram.MAX_HP: 0, ram.PARTY + ram.MAX_HP + 1: constants.most_hp(self.level),
            ram.PARTY + ram.EXPERIENCE + 2: self.xp, ram.BAG_COUNT: len(self.bag),
            ram.IN_BATTLE: self.battle, ram.ENEMY_HP: 0, ram.ENEMY_HP + 1: self.enemy_hp,
            ram.ENEMY_LEVEL: self.enemy_level, ram.ENEMY_SPECIES: self.species, ram.MENU_ITEM: self.cursor,
            ram.JOYPAD_IGNORE: int(self.mode == END),
            ram.TEXT_BOX: {TEXT: 1, MENU: 2}.get(self.mode, 0), ram.BLACKOUT_MAP: self.blackout_map,
            ram.TOWNS_VISITED: self.towns & 0xFF, ram.TOWNS_VISITED + 1: self.towns >> 8,
            ram.HALL_OF_FAME: self.hall,
        }  # fmt: skip
        out |= {ram.MONEY + i: int(digits[2 * i : 2 * i + 2], 16) for i in range(3)}
        for index, item in enumerate(self.bag):
            out |= {ram.BAG + 2 * index: item, ram.BAG + 2 * index + 1: 1}
        out[ram.BAG + 2 * len(self.bag)] = 0xFF
        out |= {ram.EVENTS + i: self.flags >> 8 * i & 0xFF for i in range(ram.EVENTS_BYTES)}
        return out


def start(atlas: Atlas, seed: int) -> Game:
    """The title screen of a cartridge with this seed."""
    return Game(atlas, seed % 256, grounds(atlas))
