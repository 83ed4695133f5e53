"""Numbers of the game: the assembler gets them as constants, the model computes with them."""

from __future__ import annotations

ACTIONS = ("down", "left", "right", "up", "a", "b", "start")  # an action presses one button
PRESS, TICKS = 8, 24  # ticks (frames) that the button is down; ticks of one action
FACING_OFFSETS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # (dy, dx) for facing down, up, left, right

START_LEVEL = 5
HP_BASE, HP_STEP = 10, 3  # maximum HP at level L: HP_BASE + HP_STEP * L
XP_PER_LEVEL = 10
WILD_XP = 3  # if the wild creature's level is at least the player's
ENCOUNTER = 24  # a step on tall grass meets a wild creature if the random byte is below this
CREATURES = 3  # in a leader's team
MOVES = ("EMBER", "SPLASH", "THORN")  # fire, water, leaf: each beats the one before it, cyclically
ELEMENTS = ("FIRE", "WATER", "LEAF")
STRONG, PLAIN, WEAK = range(3)


def max_hp(level: int) -> int:
    return HP_BASE + HP_STEP * level


def enemy_hp(level: int) -> int:
    return 3 * level + 3


def enemy_damage(level: int) -> int:
    return level // 2 + 2


def effectiveness(move: int, species: int) -> int:
    """STRONG, PLAIN or WEAK: the effect of a move on a species."""
    element = species % 3
    return WEAK if move == element else STRONG if move == (element + 1) % 3 else PLAIN


def damage(level: int, effect: int) -> int:
    return {STRONG: 2 * (level + 2), PLAIN: (level + 2) // 2, WEAK: (level + 2) // 4}[effect]


def next_random(random: int) -> int:
    """The next random byte. It changes only when a step ends on tall grass, so waiting changes nothing."""
    return (5 * random + 113) % 256


def leader_team(badge: int) -> tuple[int, int, int]:
    """Species of a leader's creatures: one of each element, in an order that depends on the badge."""
    order = ((0, 4, 2), (1, 2, 3), (5, 0, 1), (4, 3, 2), (2, 1, 0), (3, 5, 4), (0, 2, 4), (5, 4, 3))
    return order[badge]
