"""Finds a short solution of a cartridge, and a lower bound on the length of every solution.

`solve` searches the states of the model with A*, badge by badge. The heuristic is `RelaxedGame`: the exact
cost of the same game without encounters and damage, for every place and set of defeated rivals, collected
items and opened locks. `lower_bound` is the cost of an even easier game; no solution is shorter.
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
    new_game,
)  # fmt: skip
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS, GRASS, SOLID, Atlas, Event, Place

TOWN_SHIFT = (
    48  # second part of a Node: bits of tracked events; from this bit on 1 + the map of the last town
)
EVENT_MASK = (1 << TOWN_SHIFT) - 1
Node = tuple[Place, int]
UNREACHABLE = 1 << 20
MIN_LOSS_COST, TYPICAL_LOSS_COST = (
    3,
    18,
)  # presses that losing a match costs: a lower bound, a typical value
MAX_VARIANTS = 3  # states that differ only in HP and random byte and are expanded
MOVES = ((DOWN, 1, 0), (LEFT, 0, -1), (RIGHT, 0, 1), (UP, -1, 0))


def strong_move(species: int) -> int:
    return (species + 1) % 3


def menu_distance(cursor: int, other: int) -> int:
    """Presses that move the menu cursor from one position to another."""
    return (cursor ^ other).bit_count()


def turns_to_win(hp: int, level: int) -> int:
    return -(-hp // constants.damage(level, constants.STRONG))


def match_cost(team: list[int], hp: int, level: tuple[int, int], cursor: int, closing_presses: int) -> int:
    """Presses from the open menu to the end of the last text.

    `hp` belongs to the first creature of `team`; `level` is (player's, enemy's).
    """
    cost = 0
    for index, species in enumerate(team):
        if index:
            hp = constants.enemy_hp(level[1])
        cost += menu_distance(cursor, strong_move(species)) + 2 * turns_to_win(hp, level[0])
        cursor = strong_move(species)
    return cost - 1 + closing_presses


@dataclass
class RelaxedGame:
    """The game without encounters and damage: presses to a goal from every place and set of done events.

    Tracked events block their place until they are done; events that are not tracked never block.
    """

    atlas: Atlas
    tracked: list[Event]
    goal: Event
    required_rivals: int  # tracked rivals that must be defeated before a leader accepts a match
    max_rivals: int  # states with more defeated rivals are not explored
    optimistic: bool = False  # lower bounds instead of typical costs
    cost_to_goal: dict[Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = {id(event): 1 << index for index, event in enumerate(self.tracked)}
        self.rivals = sum(self.bits[id(e)] for e in self.tracked if e.kind == "rival")
        self.leaders = sum(self.bits[id(e)] for e in self.tracked if e.kind == "leader")
        self.items = {e.arguments[0]: self.bits[id(e)] for e in self.tracked if e.kind == "item"}
        self.event_costs = {id(event): self.event_cost(event) for event in self.tracked}
        self.neighbours: dict[Place, tuple[list[Place], list[Event], int]] = {}
        walkable = set(self.atlas.walkable())
        for game_map in self.atlas.maps:
            events = {(e.y, e.x): e for e in game_map.events}
            for number, y, x in sorted(place for place in walkable if place[0] == game_map.number):
                steps: list[Place] = []
                talkable = []
                for _, dy, dx in MOVES:
                    event = events.get((y + dy, x + dx))
                    if event is not None and event.kind == "warp":
                        steps.append(event.arguments)
                    elif (number, y + dy, x + dx) in walkable:
                        steps.append((number, y + dy, x + dx))
                    if event is not None and id(event) in self.bits:
                        talkable.append(event)
                blocking_event = events.get((y, x))
                self.neighbours[number, y, x] = (steps, talkable, self.bits.get(id(blocking_event), 0))
        self.loss_places = self.find_loss_places()

    def find_loss_places(self) -> dict[Place, int]:
        """Places where a match can be lost, which brings the player home -> bit of its event (0: none).

        A match with that event is possible until the event is done.

        All grass; the places beside rivals and leaders only for the lower bound.
        """
        places: dict[Place, int] = {}
        for game_map in self.atlas.maps:
            for event in game_map.events if self.optimistic else ():
                if event.kind in ("rival", "leader"):
                    for _, dy, dx in MOVES:
                        places[game_map.number, event.y + dy, event.x + dx] = self.bits.get(id(event), 0)
            for y, row in enumerate(game_map.rows):
                places |= {
                    (game_map.number, y, x): 0 for x, block in enumerate(row) if BLOCKS[block][1] == GRASS
                }
        return places

    def event_cost(self, event: Event) -> int:
        """Presses from the start of an event to the end of its last text."""
        if event.kind == "trophy":
            return 1
        if event.kind not in ("leader", "rival"):
            return 2 + event.texts[-1].count("//")
        leader = event.kind == "leader"
        team = list(constants.leader_team(event.arguments[0])) if leader else [event.arguments[0]]
        if self.optimistic:  # one move defeats each creature, and the cursor is already on it
            return 3 + 2 * len(team) + 1
        level = max(event.arguments[1], constants.START_LEVEL)
        text_presses = event.texts[leader].count("//") + 3
        return text_presses + match_cost(
            team, constants.enemy_hp(event.arguments[1]), (level, event.arguments[1]), 0, 2
        )

    def is_possible(self, event: Event, done: int) -> bool:
        if event.kind == "lock":
            return bool(done & self.items.get(event.arguments[0], -1))
        if event.kind == "gate":
            return done & self.leaders == self.leaders
        if event.kind == "leader":
            return (done & self.rivals).bit_count() >= self.required_rivals
        return event.kind != "rival" or (done & self.rivals).bit_count() < self.max_rivals

    def town_bits(self, place: Place, bits: int) -> int:
        """Bits of the last town at `place`: a new value if it is in a town, otherwise `bits`."""
        return place[0] + 1 << TOWN_SHIFT if self.atlas.maps[place[0]].kind == "town" else bits

    def compute_costs(self, root: Place, town: int) -> bool:
        """Fills `cost_to_goal`: breadth-first over reachable nodes, then Dijkstra's algorithm from the goal.

        Returns whether the goal can be reached.
        """
        start = (root, town + 1 << TOWN_SHIFT)
        predecessors: dict[Node, list[tuple[Node, int]]] = {start: []}
        queue = deque(predecessors)
        goal = self.bits[id(self.goal)]
        while queue:
            node = queue.popleft()
            place, done = node
            if done & goal:
                continue
            steps, talkable, _ = self.neighbours[place]
            events, last_town = done & EVENT_MASK, done & ~EVENT_MASK
            transitions = [
                ((target, events | self.town_bits(target, last_town)), 1)
                for target in steps
                if not self.neighbours[target][2] & ~done
            ]
            if place in self.loss_places and not done & self.loss_places[place]:
                home = (last_town >> TOWN_SHIFT) - 1
                transitions.append(
                    (
                        ((home, *self.atlas.maps[home].home), done),
                        MIN_LOSS_COST if self.optimistic else TYPICAL_LOSS_COST,
                    )
                )
            for event in talkable:
                bit = self.bits[id(event)]
                if not done & bit and self.is_possible(event, done):
                    transitions.append(((place, done | bit), self.event_costs[id(event)]))
            for target, cost in transitions:
                if target not in predecessors:
                    predecessors[target] = []
                    queue.append(target)
                predecessors[target].append((node, cost))
        heap = sorted((0, node) for node in predecessors if node[1] & goal)
        while heap:
            distance, node = heapq.heappop(heap)
            if node in self.cost_to_goal:
                continue
            self.cost_to_goal[node] = distance
            for previous, cost in predecessors[node]:
                if previous not in self.cost_to_goal:
                    heapq.heappush(heap, (distance + cost, previous))
        return start in self.cost_to_goal

    # --- heuristic ---

    def done_bits(self, game: Game) -> int:
        bits = 0
        for event in self.tracked:
            if is_done(event, game):
                bits |= self.bits[id(event)]
        return bits

    def estimate(self, game: Game) -> int:
        """Estimated presses to the goal; UNREACHABLE if there is no path."""
        done, place = self.done_bits(game), (game.map, game.y, game.x)
        done |= game.blackout_map + 1 << TOWN_SHIFT
        presses = game.pages + 1 if game.mode == TEXT else 0
        if presses and game.after_text == BLACKOUT:
            place = (game.blackout_map, *self.atlas.maps[game.blackout_map].home)
        event = game.event
        if not game.battle or (game.mode == TEXT and game.after_text not in (OPEN_MENU, NEXT)):
            if game.mode == TEXT and game.after_text == START_MATCH and event is not None:  # count it as won
                done |= self.bits.get(id(event), 0)
                presses += self.event_costs.get(id(event), 2) - 2
            return presses + self.cost_to_goal.get((place, done), UNREACHABLE)
        if game.battle == 1 or event is None:
            return presses + 2 + self.cost_to_goal.get((place, done), UNREACHABLE)
        leader = event.kind == "leader"
        team = [*constants.leader_team(event.arguments[0])[game.team_index :]] if leader else [game.species]
        hp = game.enemy_hp
        if not hp:  # the next creature follows this text
            team, hp = team[1:], constants.enemy_hp(game.enemy_level)
        presses = presses + match_cost(team, hp, (game.level, game.enemy_level), game.cursor, 2)
        return presses + self.cost_to_goal.get((place, done | self.bits.get(id(event), 0)), UNREACHABLE)


def is_done(event: Event, game: Game) -> bool:
    if event.kind == "leader":
        return bool(game.badges >> event.arguments[0] & 1)
    return bool(game.hall) if event.kind == "trophy" else game.is_removed(event)


def all_events(atlas: Atlas) -> list[Event]:
    return [event for game_map in atlas.maps for event in game_map.events]


def next_goal(game: Game) -> RelaxedGame:
    """Costs to the next badge, or to the trophy: with as many rivals as the level needs, or up to 3 more."""
    events = [
        e for e in all_events(game.atlas) if e.kind not in ("warp", "sign", "nurse") and not is_done(e, game)
    ]
    leaders = sorted((e for e in events if e.kind == "leader"), key=lambda e: e.arguments[0])
    goal = leaders[0] if leaders else next(e for e in events if e.kind == "trophy")
    tracked = [e for e in events if e.kind not in ("leader", "trophy") or e is goal]
    missing_xp = constants.XP_PER_LEVEL * (goal.arguments[2] - game.level) - game.xp if leaders else 0
    rivals_needed = max(0, -(-missing_xp // constants.XP_PER_LEVEL))
    for fewer in range(rivals_needed + 1):  # too few rivals: wild creatures give the rest
        for more in range(4):
            relaxed = RelaxedGame(game.atlas, tracked, goal, rivals_needed - fewer, rivals_needed + more)
            if relaxed.compute_costs((game.map, game.y, game.x), game.blackout_map):
                return relaxed
    raise ConfigError("this world cannot be finished: expected a way to every badge and to the trophy")


def useful_actions(game: Game) -> tuple[int, ...]:
    """Actions that can change the state in a useful way."""
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
    actions = [A] if faces_event(game) else []
    events = game.terrain[game.map].events
    for action, dy, dx in MOVES:
        place = (game.y + dy, game.x + dx)
        event = events.get(place)
        if game.kind_at(*place) != SOLID or (
            event is not None and event.kind != "sign" and not game.is_removed(event)
        ):
            actions.append(action)
    return tuple(actions)


def faces_event(game: Game) -> bool:
    dy, dx = constants.FACING_OFFSETS[game.facing]
    event = game.terrain[game.map].events.get((game.y + dy, game.x + dx))
    return event is not None and event.kind not in ("warp", "sign") and not game.is_removed(event)


def state_key(game: Game) -> tuple[object, ...]:
    """The game's key, without the facing if the player faces no event."""
    if game.mode != WORLD or faces_event(game):
        return game.key()
    full_key = game.key()
    return (*full_key[:3], -1, *full_key[4:])


def is_crowded(seen: dict[tuple[object, ...], list[int]], state: tuple[object, ...], hp: int) -> bool:
    """Whether MAX_VARIANTS states that differ only in HP and random byte, with no less HP, came earlier."""
    hit_points = seen.setdefault((*state[:8], *state[10:]), [])
    if sum(earlier_hp >= hp for earlier_hp in hit_points) >= MAX_VARIANTS:
        return True
    hit_points.append(hp)
    return False


def search_leg(game: Game, relaxed: RelaxedGame, max_states: int) -> tuple[list[int], Game]:
    """A* to the goal of `relaxed`: inputs up to the end of its last text, and the game after them."""
    number = 0
    heap: list[tuple[int, int, int, Game]] = [(relaxed.estimate(game), 0, 0, game)]
    parents: dict[tuple[object, ...], tuple[tuple[object, ...] | None, int]] = {state_key(game): (None, -1)}
    best = {state_key(game): 0}
    seen: dict[tuple[object, ...], list[int]] = {}
    while heap:
        _, _, cost, current = heapq.heappop(heap)
        state = state_key(current)
        if -cost != best[state] or is_crowded(seen, state, current.hp):
            continue
        if is_done(relaxed.goal, current) and not current.battle:
            actions = []
            ancestor: tuple[object, ...] | None = state
            while ancestor is not None:
                ancestor, action = parents[ancestor]
                actions.append(action)
            return actions[-2::-1], current
        for action in useful_actions(current):
            new = current.copy()
            new.press(action)
            new_state, new_cost = state_key(new), -cost + 1
            if new_cost >= best.get(new_state, UNREACHABLE):
                continue
            remaining = relaxed.estimate(new)
            if remaining >= UNREACHABLE:
                continue
            best[new_state], parents[new_state] = new_cost, (state, action)
            number += 1
            if number > max_states:
                raise ConfigError(
                    f"no solution within {max_states} states: expected a world that can be finished"
                )
            heapq.heappush(heap, (new_cost + remaining, number, -new_cost, new))
    raise ConfigError("this world cannot be finished: expected a way to every badge and to the trophy")


def solve(atlas: Atlas, seed: int, max_states: int = 2_000_000) -> tuple[int, ...]:
    """Inputs from power-on to the hall of fame, as indices into constants.ACTIONS."""
    game = new_game(atlas, seed)
    actions: list[int] = []
    while game.mode == TITLE or game.mode == TEXT:
        action = useful_actions(game)[0]
        game.press(action)
        actions.append(action)
    while game.mode != END:
        leg_actions, game = search_leg(game, next_goal(game), max_states)
        actions += leg_actions
    return tuple(actions)


def lower_bound(atlas: Atlas) -> int:
    """A number of actions; no sequence of inputs finishes the game in fewer.

    The player walks as if there were no rivals and no damage, and a lost match brings it home for 3 presses.
    A point of experience costs at least half a press: a rival gives 10 for 5, a wild creature 3 for 3.
    Of more than three gyms, the player walks only to the last two, with the last key; the others cost only
    their matches.
    """
    events = all_events(atlas)
    leaders = sorted((e for e in events if e.kind == "leader"), key=lambda e: e.arguments[0])
    partial = len(leaders) > 3
    visited = leaders[-2:] if partial else leaders
    last_item = max((e.arguments[0] for e in events if e.kind == "lock"), default=0)
    items_and_locks = [
        e for e in events if e.kind in ("item", "lock") and (not partial or e.arguments[0] == last_item)
    ]
    tracked = [*visited, *items_and_locks, *(e for e in events if e.kind in ("gate", "trophy"))]
    relaxed = RelaxedGame(
        atlas, tracked, next(e for e in events if e.kind == "trophy"), 0, 0, optimistic=True
    )
    home = (0, *atlas.maps[0].home)
    relaxed.compute_costs(home, 0)
    skipped_matches = sum(relaxed.event_cost(e) for e in leaders if e not in visited)
    experience = constants.XP_PER_LEVEL * (max(e.arguments[2] for e in leaders) - constants.START_LEVEL) // 2
    return (
        BOOT
        + 1
        + INTRO_PAGES
        + relaxed.cost_to_goal[home, 1 << TOWN_SHIFT]
        + skipped_matches
        + max(0, experience)
    )
