"""Plays the cartridge `small` for 60 steps with an exported recurrent policy; its state goes in and out.

    rematch export @small --out agent --onnx
    python examples/deploy/gameboy.py agent.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

from rematch.agents.deployed_policy import quantities
from rematch.core import config as settings
from rematch.worlds import registry

STEPS = 60

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = json.loads(session.get_modelmeta().custom_metadata_map["rematch"])

game = registry.find("gameboy")
rules = settings.apply(game.Config(), settings.flatten(metadata["world"], "world"), "world")
world = game.make(rules, games=1)
role = world.spec.role_of(0)
units = np.array([[unit.middle, unit.half] for unit in quantities(role)], np.float32)
state = np.zeros((1, session.get_inputs()[2].shape[1]), np.float32)

pressed = []
for _ in range(STEPS):
    fields = [world.view[role.name][field.name][:, 0].reshape(1, -1) for field in role.fields]
    observation = units[:, 0] + units[:, 1] * np.concatenate(fields, 1)
    legal = np.ones((1, role.actions.size), np.uint8)
    best, q, state = session.run(None, {"observation": observation, "legal": legal, "recurrent_state": state})
    pressed.append(role.actions.names[best[0]])
    if world.step({role.name: best.reshape(1, 1).astype(np.int32)}).ended[0]:
        break

print(f"{len(pressed)} buttons: {' '.join(pressed)}")
