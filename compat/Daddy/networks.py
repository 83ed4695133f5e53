"""CNN, GRU, LSTM, SSM and Q head in series; train_big.MODEL_CONFIGS has their sizes."""

from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.networks.q_network import QNetwork as HierarchicalQNetwork

__all__ = ["HierarchicalQNetwork", "QPolicy"]
