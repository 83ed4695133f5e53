"""Plays one episode of the lattice with two exported policies: moves are drawn from their probabilities.

    rematch train lattice --name board
    rematch export board --out agent --onnx
    python examples/deploy/lattice.py agent-pursuer.onnx agent-evader.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

from rematch.worlds import registry

sessions = [onnxruntime.InferenceSession(path) for path in sys.argv[1:3]]
metadata = [json.loads(session.get_modelmeta().custom_metadata_map["rematch"]) for session in sessions]
roles = [each["role"] for each in metadata]

game = registry.find("lattice")
rules = game.Config(**metadata[0]["world"])  # the rules of the training
world = game.make(rules, games=1, seed=4)
generator = np.random.default_rng(0)

moves = 0
while moves == 0 or not world.view.ended[0]:
    moves += 1
    actions = {}
    for role, session, each in zip(roles, sessions, metadata):
        observation = world.view[role]["state"][:, 0]
        legal = np.ones((1, len(each["outputs"][1]["columns"])), np.uint8)  # all moves are always legal
        best, probabilities = session.run(None, {"observation": observation, "legal": legal})
        share = probabilities[0].astype(float)
        actions[role] = np.array([[generator.choice(len(share), p=share / share.sum())]], np.int32)
    world.step(actions)

names = [spec.name for spec in (world.spec.role_of(seat) for seat in range(2))]
print(f"{names[int(world.view.outcome[0].argmax())]} wins after {moves} moves")
