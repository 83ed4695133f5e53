"""The readable rules, bots and search of Beasty Bar that the C code is compared with.

The rules are offered here, for bots of one's own: `reference.play(state, action, config)`.
"""

from .rules import deal, is_over, legal, outcomes, play, score, unseen

__all__ = ["deal", "is_over", "legal", "outcomes", "play", "score", "unseen"]
