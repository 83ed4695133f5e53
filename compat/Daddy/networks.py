"""CNN, GRU, LSTM, SSM and the Q head in series; train_big.MODEL_CONFIGS is the table of their sizes."""

from rematch.engine.learners.qpolicy import QPolicy
from rematch.engine.nets.hierarchy import Hierarchy as HierarchicalQNetwork

__all__ = ["HierarchicalQNetwork", "QPolicy"]
