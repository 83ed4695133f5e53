"""Plays one episode of a Gymnasium environment with an exported policy: no Rematch, raw observations.

    rematch train gymnasium --world.id CartPole-v1 --name pole
    rematch export pole --out agent --onnx
    python examples/deploy/gymnasium_policy.py agent.onnx
"""

import json
import sys

import gymnasium
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = json.loads(session.get_modelmeta().custom_metadata_map["rematch"])
discrete = any(tensor["name"] == "legal" for tensor in metadata["inputs"])

env = gymnasium.make(metadata["world"]["id"])
observation, _ = env.reset(seed=0)
total, steps, ended = 0.0, 0, False
while not ended:
    inputs = {"observation": np.reshape(observation, (1, -1)).astype(np.float32)}
    if discrete:
        inputs["legal"] = np.ones((1, int(env.action_space.n)), np.uint8)
    action = session.run(None, inputs)[0][0]
    chosen = int(action) + int(env.action_space.start) if discrete else action.reshape(env.action_space.shape)
    observation, reward, terminated, truncated, _ = env.step(chosen)
    total, steps, ended = total + float(reward), steps + 1, terminated or truncated

print(f"{metadata['world']['id']}: return {total:g} in {steps} steps")
