"""The hierarchical agent: Q-learning from a replay of sequences (rematch/engine/learners/)."""

from rematch.engine.learners.dqn import Dqn as HierarchicalAgent
from rematch.engine.learners.dqn import DqnConfig
from rematch.engine.learners.qpolicy import Explorer, QPlayer
from rematch.engine.learners.replay import Replay as ReplayBuffer

__all__ = ["DqnConfig", "Explorer", "HierarchicalAgent", "QPlayer", "ReplayBuffer"]
