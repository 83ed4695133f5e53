"""The numbers of the game, once: the assembly gets them as constants, the model computes with them."""

from __future__ import annotations

ACTIONS = ("down", "left", "right", "up", "a", "b", "start")  # one is pressed for 8 of 24 ticks
PRESS, TICKS = 8, 24
STEPS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # y, x by facing

START_LEVEL = 5
HP_BASE, HP_STEP = 10, 3  # most HP of level L: HP_BASE + HP_STEP L
XP_PER_LEVEL = 10
WILD_XP = 3  # while the wild one's level is at least one's own
ENCOUNTER = 24  # of 256: how often a step on tall grass meets somebody
CREATURES = 3  # of a leader
MOVES = ("EMBER", "SPLASH", "THORN")  # fire, water, leaf: each beats the one before it, cyclically
ELEMENTS = ("FIRE", "WATER", "LEAF")
STRONG, PLAIN, WEAK = range(3)


def most_hp(level: int) -> int:
    return HP_BASE + HP_STEP * level


def enemy_hp(level: int) -> int:
    return 3 * level + 3


def enemy_hit(level: int) -> int:
    return level // 2 + 2


def effect(move: int, species: int) -> int:
    """How a move fares against a creature."""
    element = species % 3
    return WEAK if move == element else STRONG if move == (element + 1) % 3 else PLAIN


def hit(level: int, how: int) -> int:
    return {STRONG: 2 * (level + 2), PLAIN: (level + 2) // 2, WEAK: (level + 2) // 4}[how]


def following(random: int) -> int:
    """The generator's next byte. It moves only when a step ends on tall grass, so waiting changes nothing."""
    return (5 * random + 113) % 256


def leader_team(badge: int) -> tuple[int, int, int]:
    """Species of a leader's creatures: one of each element, in an order of the leader's own."""
    order = ((0, 4, 2), (1, 2, 3), (5, 0, 1), (4, 3, 2), (2, 1, 0), (3, 5, 4), (0, 2, 4), (5, 4, 3))
    return order[badge]
