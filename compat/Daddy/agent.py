"""The hierarchical agent: Q-learning with a replay buffer of sequences (rematch/agents/learners/)."""

from rematch.agents.learners.dqn import Dqn as HierarchicalAgent
from rematch.agents.learners.dqn import DqnConfig
from rematch.agents.learners.q_policy import EpsilonGreedyPlayer as Explorer
from rematch.agents.learners.q_policy import QPlayer
from rematch.agents.learners.replay_buffer import Replay as ReplayBuffer

__all__ = ["DqnConfig", "Explorer", "HierarchicalAgent", "QPlayer", "ReplayBuffer"]
