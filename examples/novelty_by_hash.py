"""A user-defined reward term: a larger reward for observations that were seen less often.

    rematch train quick --reward_terms examples/novelty_by_hash.py:HashNovelty --hash_novelty.weight 0.01
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematch.core.config import knob
from rematch.rollout.reward_term import RewardTermComponent


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings: each field is a flag, --hash_novelty.NAME."""

    weight: float = knob(0.0, "weight of the reward term; 0: off", low=0)
    bins: int = knob(8, "cells per number of the observation", low=2, high=256, needs="weight")


class Counts:
    """The visit counts of one role: how often each cell of observations occurred."""

    def __init__(self, role, bins):
        self.role, self.bins = role, bins
        self.table = np.zeros(1 << 12, np.int64)

    def score(self, rollout, iteration):
        """[T, N, seats]: 1 / sqrt(visits) of each observation's cell."""
        cells = np.floor(rollout[self.role.name].host("obs") * self.bins).astype(np.int64)
        index = (cells * (2 * np.arange(cells.shape[-1]) + 1)).sum(-1) % len(self.table)
        np.add.at(self.table, index, 1)
        return 1.0 / np.sqrt(self.table[index])

    def state_dict(self):
        return {"table": self.table}

    def load_state_dict(self, tree):
        self.table[:] = tree["table"]

    def copy_from(self, other):
        self.table[:] = other.table


class HashNovelty(RewardTermComponent):
    """The component: its name is its key in flags, checkpoint, metrics and `rematch check`."""

    name = "hash_novelty"
    Config = Config

    @classmethod
    def make_scorer(cls, config, role, games, seed):
        return Counts(role, config.bins)

    def numbers(self, rollout, role):
        return {"hash_novelty_cells": float((self.scorers[role].table > 0).sum())}
