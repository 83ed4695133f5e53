"""Plays one game of Beasty Bar with an exported policy in both seats; illegal cards get probability 0.

    rematch export card --out agent --onnx
    python examples/deploy/beasty.py agent.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

from rematch.agents.deployed_policy import quantities
from rematch.worlds import registry

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = json.loads(session.get_modelmeta().custom_metadata_map["rematch"])

game = registry.find("beasty")
world = game.make(game.Config(**metadata["world"]), games=1, seed=1)
role = world.spec.roles["player"]
units = np.array([[unit.middle, unit.half] for unit in quantities(role)], np.float32)

for _ in range(1000):
    seat = int(world.view.acting[0].argmax())
    numbers = np.concatenate([world.view["player"][field.name][:, seat] for field in role.fields], 1)
    counted = np.rint(units[:, 0] + units[:, 1] * numbers)  # cards, points, turns: whole numbers
    legal = world.view.mask["player"][:, seat]
    best, probabilities = session.run(None, {"observation": counted.astype(np.float32), "legal": legal})
    actions = np.zeros((1, world.spec.seats), np.int32)
    actions[0, seat] = best[0]
    print(f"player {seat + 1}: {role.actions.names[best[0]]} ({probabilities[0, best[0]]:.0%})")
    view = world.step({"player": actions})
    if view.ended[0]:
        break

print(f"outcome of each player: {view.outcome[0].tolist()}")
