"""Finds a short way through a cartridge, and proves how short it could be at best.

`solve` searches the model's states with A*, badge by badge, guided by `Relaxed`: the exact cost of the
same game without grass and wounds, for every place and set of rivals, items and locks. `bound` is the
cost of a game that is easier still; no solution is shorter.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge.game_model import (
    BLACKOUT,
    BOOT,
    DOWN,
    END,
    INTRO_PAGES,
    LEFT,
    MENU,
    NEXT,
    OPEN_MENU,
    RIGHT,
    START,
    START_MATCH,
    TEXT,
    TITLE,
    UP,
    WORLD,
    A,
    B,
    Game,
    start,
)  # fmt: skip
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS, GRASS, SOLID, Atlas, Event, Place

TOWN = 48  # a node's number: bits of tracked events, and from here on 1 + the last town's map
EVENTS = (1 << TOWN) - 1
Node = tuple[Place, int]
FAR = 1 << 20
CERTAIN, USUAL = 3, 18  # presses to lose a match on purpose: at the very least, and by experience
VARIANTS = 3  # games that differ in nothing but the random byte are followed at one place
STRIDES = ((DOWN, 1, 0), (LEFT, 0, -1), (RIGHT, 0, 1), (UP, -1, 0))


def strong_move(species: int) -> int:
    return (species + 1) % 3


def apart(cursor: int, other: int) -> int:
    """Presses from one place of the menu to another."""
    return (cursor ^ other).bit_count()


def turns(hp: int, level: int) -> int:
    return -(-hp // constants.hit(level, constants.STRONG))


def match_cost(team: list[int], hp: int, level: tuple[int, int], cursor: int, last: int) -> int:
    """Presses from an open menu to the end of the last text: the first one's `hp`, levels (own, theirs)."""
    cost = 0
    for index, species in enumerate(team):
        if index:
            hp = constants.enemy_hp(level[1])
        cost += apart(cursor, strong_move(species)) + 2 * turns(hp, level[0])
        cursor = strong_move(species)
    return cost - 1 + last


@dataclass
class Relaxed:
    """The same game without grass and wounds: presses to a goal from every place and set of tracked events.

    Tracked events stand in the way until they are done; those that are not tracked are taken as gone.
    """

    atlas: Atlas
    tracked: list[Event]
    goal: Event
    gives: int  # rivals that must be beaten before a leader accepts, of those tracked
    most: int  # rivals beyond that number are not worth a search
    cautious: bool = False
    reach: dict[Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = {id(event): 1 << index for index, event in enumerate(self.tracked)}
        self.rivals = sum(self.bits[id(e)] for e in self.tracked if e.kind == "rival")
        self.leaders = sum(self.bits[id(e)] for e in self.tracked if e.kind == "leader")
        self.items = {e.arguments[0]: self.bits[id(e)] for e in self.tracked if e.kind == "item"}
        self.prices = {id(event): self.price(event) for event in self.tracked}
        self.near: dict[Place, tuple[list[Place], list[Event], int]] = {}
        free = set(self.atlas.walkable())
        for one in self.atlas.maps:
            events = {(e.y, e.x): e for e in one.events}
            for number, y, x in sorted(place for place in free if place[0] == one.number):
                steps: list[Place] = []
                spoken = []
                for _, dy, dx in STRIDES:
                    event = events.get((y + dy, x + dx))
                    if event is not None and event.kind == "warp":
                        steps.append(event.arguments)
                    elif (number, y + dy, x + dx) in free:
                        steps.append((number, y + dy, x + dx))
                    if event is not None and id(event) in self.bits:
                        spoken.append(event)
                mine = events.get((y, x))
                self.near[number, y, x] = (steps, spoken, self.bits.get(id(mine), 0))
        self.lost = self.losing()

    def losing(self) -> dict[Place, int]:
        """Places where a match can be lost, which leads home, and the event that must not be over (0: none).

        On grass sooner or later; beside rivals and leaders only the bound counts on it.
        """
        out: dict[Place, int] = {}
        for one in self.atlas.maps:
            for event in one.events if self.cautious else ():
                if event.kind in ("rival", "leader"):
                    for _, dy, dx in STRIDES:
                        out[one.number, event.y + dy, event.x + dx] = self.bits.get(id(event), 0)
            for y, row in enumerate(one.rows):
                out |= {(one.number, y, x): 0 for x, block in enumerate(row) if BLOCKS[block][1] == GRASS}
        return out

    def price(self, event: Event) -> int:
        """Presses from the first word to the last."""
        if event.kind == "trophy":
            return 1
        if event.kind not in ("leader", "rival"):
            return 2 + event.texts[-1].count("//")
        leader = event.kind == "leader"
        team = list(constants.leader_team(event.arguments[0])) if leader else [event.arguments[0]]
        if self.cautious:  # each creature falls to one move, which the cursor already shows
            return 3 + 2 * len(team) + 1
        own = max(event.arguments[1], constants.START_LEVEL)
        words = event.texts[leader].count("//") + 3
        return words + match_cost(
            team, constants.enemy_hp(event.arguments[1]), (own, event.arguments[1]), 0, 2
        )

    def may(self, event: Event, done: int) -> bool:
        if event.kind == "lock":
            return bool(done & self.items.get(event.arguments[0], -1))
        if event.kind == "gate":
            return done & self.leaders == self.leaders
        if event.kind == "leader":
            return (done & self.rivals).bit_count() >= self.gives
        return event.kind != "rival" or (done & self.rivals).bit_count() < self.most

    def entered(self, to: Place, town: int) -> int:
        """The last town, shifted, once one stands there."""
        return to[0] + 1 << TOWN if self.atlas.maps[to[0]].kind == "town" else town

    def measure(self, root: Place, town: int) -> bool:
        """Fills `reach`: forward over all that can be reached, back from the goal by Dijkstra's method."""
        first = (root, town + 1 << TOWN)
        back: dict[Node, list[tuple[Node, int]]] = {first: []}
        queue = deque(back)
        goal = self.bits[id(self.goal)]
        while queue:
            node = queue.popleft()
            place, done = node
            if done & goal:
                continue
            steps, spoken, _ = self.near[place]
            events, last = done & EVENTS, done & ~EVENTS
            ways = [
                ((to, events | self.entered(to, last)), 1) for to in steps if not self.near[to][2] & ~done
            ]
            if place in self.lost and not done & self.lost[place]:
                home = (last >> TOWN) - 1
                ways.append(
                    (((home, *self.atlas.maps[home].home), done), CERTAIN if self.cautious else USUAL)
                )
            for event in spoken:
                bit = self.bits[id(event)]
                if not done & bit and self.may(event, done):
                    ways.append(((place, done | bit), self.prices[id(event)]))
            for to, price in ways:
                if to not in back:
                    back[to] = []
                    queue.append(to)
                back[to].append((node, price))
        heap = sorted((0, node) for node in back if node[1] & goal)
        while heap:
            far, node = heapq.heappop(heap)
            if node in self.reach:
                continue
            self.reach[node] = far
            for before, price in back[node]:
                if before not in self.reach:
                    heapq.heappush(heap, (far + price, before))
        return first in self.reach

    # --- for a game ---

    def done(self, game: Game) -> int:
        out = 0
        for event in self.tracked:
            if is_done(event, game):
                out |= self.bits[id(event)]
        return out

    def left(self, game: Game) -> int:
        """Presses to the goal, by estimate; FAR where there is no way."""
        done, place = self.done(game), (game.map, game.y, game.x)
        done |= game.blackout_map + 1 << TOWN
        texts = game.pages + 1 if game.mode == TEXT else 0
        if texts and game.after == BLACKOUT:
            place = (game.blackout_map, *self.atlas.maps[game.blackout_map].home)
        event = game.event
        if not game.battle or (game.mode == TEXT and game.after not in (OPEN_MENU, NEXT)):
            if game.mode == TEXT and game.after == START_MATCH and event is not None:  # as if it were over
                done |= self.bits.get(id(event), 0)
                texts += self.prices.get(id(event), 2) - 2
            return texts + self.reach.get((place, done), FAR)
        if game.battle == 1 or event is None:
            return texts + 2 + self.reach.get((place, done), FAR)
        leader = event.kind == "leader"
        team = [*constants.leader_team(event.arguments[0])[game.team :]] if leader else [game.species]
        hp = game.enemy_hp
        if not hp:  # the next one comes out after this text
            team, hp = team[1:], constants.enemy_hp(game.enemy_level)
        rest = texts + match_cost(team, hp, (game.level, game.enemy_level), game.cursor, 2)
        return rest + self.reach.get((place, done | self.bits.get(id(event), 0)), FAR)


def is_done(event: Event, game: Game) -> bool:
    if event.kind == "leader":
        return bool(game.badges >> event.arguments[0] & 1)
    return bool(game.hall) if event.kind == "trophy" else game.gone(event)


def all_events(atlas: Atlas) -> list[Event]:
    return [event for one in atlas.maps for event in one.events]


def next_goal(game: Game) -> Relaxed:
    """The way to the next badge, or to the end: through the rivals that its level takes, or some more."""
    events = [
        e for e in all_events(game.atlas) if e.kind not in ("warp", "sign", "nurse") and not is_done(e, game)
    ]
    leaders = sorted((e for e in events if e.kind == "leader"), key=lambda e: e.arguments[0])
    goal = leaders[0] if leaders else next(e for e in events if e.kind == "trophy")
    tracked = [e for e in events if e.kind not in ("leader", "trophy") or e is goal]
    lacking = constants.XP_PER_LEVEL * (goal.arguments[2] - game.level) - game.xp if leaders else 0
    need = max(0, -(-lacking // constants.XP_PER_LEVEL))
    for fewer in range(need + 1):  # where rivals are too few, wild ones must do
        for more in range(4):
            relaxed = Relaxed(game.atlas, tracked, goal, need - fewer, need + more)
            if relaxed.measure((game.map, game.y, game.x), game.blackout_map):
                return relaxed
    raise ConfigError("this world cannot be finished: expected a way to every badge and to the trophy")


def choices(game: Game) -> tuple[int, ...]:
    """The actions that can matter now."""
    if game.mode == TEXT:
        return (A,)
    if game.mode == MENU:
        useful = [
            action
            for action, changed in (
                (DOWN, ~game.cursor & 2),
                (UP, game.cursor & 2),
                (LEFT, game.cursor & 1),
                (RIGHT, ~game.cursor & 1),
            )
            if changed
        ]
        return (A, *((B,) if game.battle == 1 else ()), *useful)
    if game.mode == TITLE:
        return (START,) if game.actions >= BOOT else (B,)
    out = [A] if faces_something(game) else []
    events = game.grounds[game.map].events
    for action, dy, dx in STRIDES:
        place = (game.y + dy, game.x + dx)
        event = events.get(place)
        if game.kind_at(*place) != SOLID or (
            event is not None and event.kind != "sign" and not game.gone(event)
        ):
            out.append(action)
    return tuple(out)


def faces_something(game: Game) -> bool:
    dy, dx = constants.STEPS[game.facing]
    event = game.grounds[game.map].events.get((game.y + dy, game.x + dx))
    return event is not None and event.kind not in ("warp", "sign") and not game.gone(event)


def key(game: Game) -> tuple[object, ...]:
    """The game's key, without a facing that faces nothing."""
    if game.mode != WORLD or faces_something(game):
        return game.key()
    found = game.key()
    return (*found[:3], -1, *found[4:])


def crowded(seen: dict[tuple[object, ...], list[int]], at: tuple[object, ...], hp: int) -> bool:
    """Whether VARIANTS games that differ only in luck stood here before, none later, none more wounded."""
    others = seen.setdefault((*at[:8], *at[10:]), [])
    if sum(other >= hp for other in others) >= VARIANTS:
        return True
    others.append(hp)
    return False


def leg(game: Game, relaxed: Relaxed, most: int) -> tuple[list[int], Game]:
    """The shortest inputs found to the goal, the last text closed."""
    number = 0
    heap: list[tuple[int, int, int, Game]] = [(relaxed.left(game), 0, 0, game)]
    came: dict[tuple[object, ...], tuple[tuple[object, ...] | None, int]] = {key(game): (None, -1)}
    best = {key(game): 0}
    seen: dict[tuple[object, ...], list[int]] = {}
    while heap:
        _, _, cost, now = heapq.heappop(heap)
        at = key(now)
        if -cost != best[at] or crowded(seen, at, now.hp):
            continue
        if is_done(relaxed.goal, now) and not now.battle:
            out = []
            step: tuple[object, ...] | None = at
            while step is not None:
                step, action = came[step]
                out.append(action)
            return out[-2::-1], now
        for action in choices(now):
            new = now.copy()
            new.press(action)
            there, price = key(new), -cost + 1
            if price >= best.get(there, FAR):
                continue
            left = relaxed.left(new)
            if left >= FAR:
                continue
            best[there], came[there] = price, (at, action)
            number += 1
            if number > most:
                raise ConfigError(f"no solution within {most} states: expected a world that can be finished")
            heapq.heappush(heap, (price + left, number, -price, new))
    raise ConfigError("this world cannot be finished: expected a way to every badge and to the trophy")


def solve(atlas: Atlas, seed: int, most: int = 2_000_000) -> tuple[int, ...]:
    """Inputs from power-on to the hall of fame: rules.ACTIONS by number."""
    game = start(atlas, seed)
    actions: list[int] = []
    while game.mode == TITLE or game.mode == TEXT:
        action = choices(game)[0]
        game.press(action)
        actions.append(action)
    while game.mode != END:
        more, game = leg(game, next_goal(game), most)
        actions += more
    return tuple(actions)


def bound(atlas: Atlas) -> int:
    """No sequence of inputs finishes the game in fewer actions.

    It walks as in the game without rivals and wounds, and is carried home by a lost match for three presses.
    Experience costs half a press a point at least: a rival gives 10 for five presses, a wild one 3 for three.
    Of more than three gyms the two last are walked to, with the last key; the others only cost their matches.
    """
    events = all_events(atlas)
    leaders = sorted((e for e in events if e.kind == "leader"), key=lambda e: e.arguments[0])
    many = len(leaders) > 3
    visited = leaders[-2:] if many else leaders
    last = max((e.arguments[0] for e in events if e.kind == "lock"), default=0)
    things = [e for e in events if e.kind in ("item", "lock") and (not many or e.arguments[0] == last)]
    tracked = [*visited, *things, *(e for e in events if e.kind in ("gate", "trophy"))]
    relaxed = Relaxed(atlas, tracked, next(e for e in events if e.kind == "trophy"), 0, 0, cautious=True)
    home = (0, *atlas.maps[0].home)
    relaxed.measure(home, 0)
    passed = sum(relaxed.price(e) for e in leaders if e not in visited)
    experience = constants.XP_PER_LEVEL * (max(e.arguments[2] for e in leaders) - constants.START_LEVEL) // 2
    return BOOT + 1 + INTRO_PAGES + relaxed.reach[home, 1 << TOWN] + passed + max(0, experience)
