"""The readable rules, bots and search of Beasty Bar that the C code is compared with.

Bots of users may call the rules: `reference.play(state, action, config)`.
"""

from .rules import deal, is_over, legal, outcomes, play, score, stages, unseen

__all__ = ["deal", "is_over", "legal", "outcomes", "play", "score", "stages", "unseen"]
