"""Drives a robot with an exported pursuit policy: onnxruntime and numpy, no Rematch.

    rematch export quick-1 --out agent --onnx
    python examples/deploy/pursuit.py agent-pursuer.onnx

The measured values of one moment go in, in metres, radians and seconds; a speed and a turn rate come out.
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = json.loads(session.get_modelmeta().custom_metadata_map["rematch"])
columns = {column["name"]: i for i, column in enumerate(metadata["inputs"][0]["columns"])}

observation = np.zeros((1, len(columns)), np.float32)


def measure(name: str, value: float) -> None:
    """Set an input by its name; inputs that this policy does not have are left out."""
    if name in columns:
        observation[0, columns[name]] = value


# The robot stands at (-3 m, 1 m), looks along x and drives 0.5 m/s; the other one is 4 m ahead, to the left.
measure("state.own_x", -3.0)
measure("state.own_y", 1.0)
measure("state.own_speed", 0.5)
measure("state.other_x", 0.4)
measure("state.other_y", 3.1)
measure("state.distance", 4.0)
measure("state.bearing", 0.55)
measure("state.wall_x", 7.0)
measure("state.wall_y", 9.0)
for name in columns:
    if name.startswith("state.obstacle_") and name.endswith("_distance"):
        measure(name, 1e6)  # there is no obstacle
measure("state.time_to_go", 60.0)

action, mean = session.run(None, {"observation": observation})
for column, value in zip(metadata["outputs"][0]["columns"], action[0]):
    print(f"{column['name']} = {value:.3f} {column['unit']}  (from {column['low']:g} to {column['high']:g})")
