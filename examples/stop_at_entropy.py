"""A user-defined component: ends the run when the policy of a role has become almost deterministic.

    rematch train quick --components examples/stop_at_entropy.py:StopAtEntropy --stop_at_entropy.entropy 0.5
"""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.clock import Request
from rematch.core.component import Component, Evidence
from rematch.core.config import knob


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings: each field is a flag, --stop_at_entropy.NAME."""

    entropy: float = knob(-100.0, "entropy per decision, in nats, below which the run ends; -100 is off")
    patience: int = knob(3, "iterations in a row that must be below it", low=1)


class StopAtEntropy(Component):
    """`name` is the key in flags, checkpoint, metrics and `rematch check`."""

    name = "stop_at_entropy"
    Config = Config

    def __init__(self, config, setup):
        super().__init__(config, setup)
        self.count = 0  # iterations in a row below the threshold

    @classmethod
    def off(cls, config, setup):
        return "stop_at_entropy.entropy is -100" if config.entropy <= -100 else ""

    def after_update(self, rollout, metrics, clock):
        values = [value for key, value in metrics.items() if key.endswith("/entropy")]
        self.count = self.count + 1 if values and min(values) < self.config.entropy else 0

    def requests(self, clock):
        return [Request.END] if self.count >= self.config.patience else []

    def metrics(self):
        return {"count": float(self.count)}

    def evidence(self, record):
        yield Evidence(self.name, f"read the entropy of {len(record.metrics)} iterations")

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, tree):
        self.count = int(tree["count"])
