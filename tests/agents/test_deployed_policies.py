"""ONNX files and C headers: their outputs equal those of our network, on real and on random inputs.

Tolerance: 1e-5 for means, logits and probabilities; relative 1e-5 for actions in their units.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.single_seat_worlds import SIZES

from rematch import api, export
from rematch.agents import c_header, deployed_policy, onnx_export
from rematch.agents.build import build_agents
from rematch.agents.learners import dqn
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.stepping import empty_actions, seat_at
from rematch.evaluation.past_policies import policy_metadata
from rematch.worlds import registry
from rematch.worlds.gymnasium import factory

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
EXAMPLES = Path(__file__).parents[2] / "examples" / "deploy"
TOLERANCE = 1e-5

SUBJECTS: dict[str, tuple[str, str, dict[str, Any], NetworkConfig]] = {
    "pursuit": ("pursuit", "pursuer", {"evader_v_max": 1.5}, NetworkConfig(hidden=(16, 8))),
    "pursuit fixed speed": ("pursuit", "evader", {"fixed_speed": True},
                            NetworkConfig(hidden=(8,), fourier=2)),
    "pursuit sensors": ("pursuit", "evader", {"full_obs": False, "lidar_rays": 5, "history_length": 3},
                        NetworkConfig(hidden=(8,), activation="relu", shared=False)),
    "lattice": ("lattice", "evader", {}, NetworkConfig(hidden=(16,), shared=False)),
    "beasty": ("beasty", "player", {"players": 3}, NetworkConfig(hidden=(16, 8), activation="relu")),
    "gymnasium": ("gymnasium", "player", {"scale": "bounds"}, NetworkConfig(hidden=(8,))),
    "gymnasium box": ("gymnasium", "player", {"id": "Pendulum-v1"}, NetworkConfig(hidden=(8,))),
    "gymnasium discrete": ("gymnasium", "player", {"id": "Taxi-v4"}, NetworkConfig(hidden=(8,))),
}  # fmt: skip
IN_TORCH = {
    "transformer": ("beasty", "player", {}, NetworkConfig(kind="transformer", width=16, heads=2, layers=2,
                                                         embedding=4)),
    "lstm": ("pursuit", "pursuer", {"full_obs": False, "lidar_rays": 5, "history_length": 3},
             NetworkConfig(hidden=(8,), encoder="lstm", encoder_hidden=8)),
    "bimdn": ("pursuit", "pursuer", {"full_obs": False, "lidar_rays": 5, "history_length": 3},
              NetworkConfig(hidden=(8,), encoder="bimdn", encoder_hidden=8)),
}  # fmt: skip


def built(subject: tuple[str, str, dict[str, Any], NetworkConfig]) -> tuple[Any, Policy]:
    """The settings of a run and a policy with weights that give varied outputs."""
    game, role, rules, network = subject
    config = settings.replace(api.default(game), {f"world.{key}": value for key, value in rules.items()})
    policy = Policy(registry.find(game).spec(config.world).roles[role], network, role)
    policy.initialise(3)
    policy.set(policy.weights * np.float32(1.5))  # the policy's head begins near zero
    return config, policy


def session_of(policy: Policy, config: Any, folder: Path) -> Any:
    path = onnx_export.write(policy, policy_metadata(config, policy, 3), folder / "agent.onnx")
    return onnxruntime.InferenceSession(str(path))


def numbers_of(policy: Policy, quantity: NDArray[Any]) -> NDArray[Any]:
    """Slow reference of the scaling, column by column."""
    out = np.zeros(quantity.shape, np.float32)
    for column, unit in enumerate(deployed_policy.quantities(policy.role)):
        for row, value in enumerate(quantity[:, column].astype(float)):
            x = (value - unit.middle) / unit.half
            if unit.root:
                x = math.copysign(2 * (math.sqrt(abs(x) + 1) - 1), x)
            x = min(max(x, unit.low), unit.high)
            code = unit.if_negative
            out[row, column] = x if code is None or value >= 0 else code
    return out


def random_quantities(policy: Policy, rows: int) -> NDArray[Any]:
    """Quantities inside and outside of their ranges; categories inside theirs."""
    draw = np.random.default_rng(5)
    columns = []
    for unit, count in zip(deployed_policy.quantities(policy.role), policy.role.categories):
        half = unit.half if math.isfinite(unit.half) else 1.0
        numbers = unit.middle + half * draw.uniform(-1.5, 1.5, rows)
        columns.append(unit.middle + draw.integers(0, count, rows) if count else numbers)
    return np.stack(columns, 1).astype(np.float32)


def played_rows(config: Any, policy: Policy, steps: int = 30) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Observations of games that the policy itself plays in its role, and their masks."""
    world = registry.find(config.game).make(config.world, 4, 0, 7)
    (seat, *_) = policy.role.seats
    draw, rows, masks = np.random.default_rng(2), [], []
    for _ in range(steps):
        actions = empty_actions(world)
        for role in world.spec.roles.values():
            shape = actions[role.name].shape
            actions[role.name][:] = draw.uniform(-1, 1, shape) if role.actions.kind == "continuous" else 0
            mask = world.view.mask.get(role.name)
            if mask is not None:
                actions[role.name][:] = mask.argmax(-1)
            elif role.actions.kind == "discrete":
                actions[role.name][:] = draw.integers(0, role.actions.size, shape)
        chosen = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        turn = seat_at(world, seat, chosen)
        rows.append(turn.obs.copy())
        masks += [] if turn.mask is None else [turn.mask.copy()]
        world.step(actions)
    return np.concatenate(rows), np.concatenate(masks) if masks else None


def as_quantities(policy: Policy, numbers: NDArray[Any]) -> NDArray[Any]:
    """Quantities that the policy observes as these numbers."""
    out = []
    for column, unit in zip(numbers.T.astype(float), deployed_policy.quantities(policy.role)):
        x = np.sign(column) * ((np.abs(column) / 2 + 1) ** 2 - 1) if unit.root else column
        quantity = unit.middle + np.where(x == 0, 0.0, unit.half) * x
        if unit.if_negative is not None:
            quantity = np.where(column == unit.if_negative, -1, quantity)
        out.append(quantity)
    return np.stack(out, 1).astype(np.float32)


def expected(policy: Policy, numbers: NDArray[Any], legal: NDArray[Any] | None) -> NDArray[Any]:
    """Actions in their units, or probabilities, from our own network."""
    heads = policy.forward(np.ascontiguousarray(numbers), legal)[0].astype(float)
    if policy.role.actions.kind == "continuous":
        units = deployed_policy.action_quantities(policy.role)
        middle, half = np.array([unit.middle for unit in units]), np.array([unit.half for unit in units])
        return middle + half * np.clip(heads, -1, 1)
    if legal is not None:
        heads[legal == 0] = -np.inf
    shares = np.exp(heads - heads.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def compare(policy: Policy, output: list[NDArray[Any]], right: NDArray[Any]) -> None:
    if policy.role.actions.kind == "continuous":
        np.testing.assert_allclose(output[0], right, rtol=TOLERANCE, atol=TOLERANCE)
        return
    action, shares = output
    np.testing.assert_allclose(shares, right, rtol=0, atol=TOLERANCE)
    assert (shares[right == 0] == 0).all()
    rows = np.arange(len(action))
    assert (right[rows, action] >= right.max(1) - TOLERANCE).all()


def rows_of(config: Any, policy: Policy) -> list[tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]]:
    """(quantities, numbers, legal): of real games, then random ones with random masks."""
    numbers, mask = played_rows(config, policy)
    drawn = random_quantities(policy, 50)
    legal = None
    if policy.role.actions.kind == "discrete":
        legal = (np.random.default_rng(1).random((50, policy.role.actions.size)) < 0.5).astype(np.uint8)
        legal[:, 0] |= legal.sum(1) == 0
        mask = np.ones((len(numbers), policy.role.actions.size), np.uint8) if mask is None else mask
    return [(as_quantities(policy, numbers), numbers, mask), (drawn, numbers_of(policy, drawn), legal)]


@pytest.mark.parametrize("subject", [*SUBJECTS, *IN_TORCH])
def test_onnx_equals_our_network(subject: str, tmp_path: Path) -> None:
    config, policy = built((SUBJECTS | IN_TORCH)[subject])
    session = session_of(policy, config, tmp_path)
    for quantities, numbers, legal in rows_of(config, policy):
        inputs = {"observation": quantities} | ({} if legal is None else {"legal": legal})
        if policy.role.actions.kind == "discrete" and any(policy.role.categories):
            numbers = np.where(np.array(policy.role.categories) > 0, np.rint(numbers), numbers)
        compare(policy, session.run(None, inputs), expected(policy, numbers.astype(np.float32), legal))
    one = session.run(None, {key: value[:1] for key, value in inputs.items()})
    assert one[0].shape[0] == 1


@pytest.mark.parametrize("subject", SUBJECTS)
def test_metadata_names_every_column_with_its_unit(subject: str, tmp_path: Path) -> None:
    config, policy = built(SUBJECTS[subject])
    session = session_of(policy, config, tmp_path)
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["rematch"])
    columns = metadata["inputs"][0]["columns"]
    assert [column["name"] for column in columns] == list(policy.role.columns)
    for key, tensors in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        assert [tensor["name"] for tensor in metadata[key]] == [tensor.name for tensor in tensors]
    assert metadata["game"] == config.game and metadata["iteration"] == 3
    if config.game != "gymnasium":
        assert all(column["unit"] for column in columns)


def test_pursuit_quantities_are_those_of_the_world() -> None:
    """Computed from positions, headings and speeds, by the definitions of the columns."""
    config, policy = built(SUBJECTS["pursuit"])
    rules = config.world
    world = registry.find("pursuit").make(rules, 50, 0, 3)
    draw = np.random.default_rng(0)
    for _ in range(20):
        world.step({role: draw.uniform(-1, 1, (50, 1, 2)).astype(np.float32) for role in world.spec.roles})
    games = world._named
    rows = []
    for game in games:
        x, y, theta = (game[key].astype(float) for key in ("x", "y", "theta"))
        dx, dy = x[1] - x[0], y[1] - y[0]
        own, other = ([game[key][s] for key in ("x", "y", "theta", "v", "omega")] for s in (0, 1))
        obstacles = []
        for k in range(int(game["obstacles"])):
            ox, oy = game["obstacle_x"][k] - x[0], game["obstacle_y"][k] - y[0]
            obstacles.append((math.hypot(ox, oy) - game["obstacle_radius"][k], math.atan2(oy, ox) - theta[0]))
        wall = (rules.arena_width / 2 - abs(x[0]), rules.arena_height / 2 - abs(y[0]))
        bearing = math.atan2(dy, dx) - theta[0]
        nearest = [number for pair in sorted(obstacles) for number in pair]
        time_to_go = (rules.max_steps - game["step"]) * rules.dt
        rows.append([*own, *other, math.hypot(dx, dy), bearing, *wall, *nearest, time_to_go])
    quantity = np.array(rows)
    angles = [i for i, column in enumerate(policy.role.columns) if "bearing" in column]
    quantity[:, angles] = (quantity[:, angles] + np.pi) % (2 * np.pi) - np.pi
    numbers = numbers_of(policy, quantity)
    difference = np.abs(numbers - world.view["pursuer"]["state"][:, 0])
    difference[:, angles] = np.minimum(difference[:, angles], 2 - difference[:, angles])  # -pi is pi
    assert difference.max() < 1e-5


def test_pursuit_actions_are_what_the_world_executes(tmp_path: Path) -> None:
    config, policy = built(SUBJECTS["pursuit"])
    world = registry.find("pursuit").make(config.world, 20, 0, 3)
    numbers = seat_at(world, 0, np.arange(20, dtype=np.int32)).obs.copy()
    session = session_of(policy, config, tmp_path)
    action, mean = session.run(None, {"observation": as_quantities(policy, numbers)})
    world.step({"pursuer": mean[:, None], "evader": np.zeros((20, 1, 2), np.float32)})
    running = world.view.ended == 0
    executed = np.stack([world._named["v"][:, 0], world._named["omega"][:, 0]], 1)
    np.testing.assert_allclose(action[running], executed[running], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("id", ["CartPole-v1", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"])
def test_gymnasium_quantities_are_raw_observations(id: str) -> None:
    """As the encoder and decoder of the world scale them."""
    rules = {"id": id, "scale": "bounds"}
    _, policy = built(("gymnasium", "player", rules, NetworkConfig(hidden=(8,))))
    encoder = factory.describe(id, (), 0, "bounds").encoder
    decoder = factory.describe(id, (), 0, "bounds").decoder
    raw = random_quantities(policy, 200)
    encoded = np.zeros_like(raw)
    encoder.encode(raw, encoded)
    np.testing.assert_allclose(numbers_of(policy, raw), encoded, rtol=0, atol=1e-6)
    if not decoder.discrete:
        stored = np.linspace(-1, 1, 21, dtype=np.float32)[:, None].repeat(policy.role.actions.size, 1)
        units = deployed_policy.action_quantities(policy.role)
        scaled = [[u.middle + u.half * x for u, x in zip(units, row)] for row in stored]
        np.testing.assert_allclose(np.array(decoder.decode(stored)).reshape(21, -1), scaled, atol=1e-6)


def test_quantities_do_not_make_policies_of_other_rules_foreign() -> None:
    """Regression: a policy may play with another top speed (--other-rules); only its units change."""
    slow, fast = (registry.find("pursuit").spec(settings.replace(api.default("pursuit").world, changes))
                  for changes in ({}, {"evader_v_max": 2.0}))
    one, two = slow.roles["evader"], fast.roles["evader"]
    assert one.actions == two.actions and one.fields == two.fields
    assert one.actions.quantities != two.actions.quantities


# --- recurrent networks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    {"dqn.lstm": True, "dqn.gru": True, "dqn.ssm": "complex"},
    {"dqn.lstm": False, "dqn.gru": False, "dqn.ssm": "real", "world.screen": False},
])  # fmt: skip
def test_onnx_of_a_recurrent_network(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps with the state that the file returns, on screens and numbers of the cartridge."""
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    changes = {"learner": "dqn", "world.cartridge": "tiny"} | changes
    config = settings.replace(api.default("gameboy"), changes)
    game = registry.find("gameboy")
    spec = game.spec(config.world)
    policy = build_agents(config, spec, lambda *_: None).networks["joypad"]
    assert isinstance(policy, QPolicy)
    policy.initialise(4)
    session = session_of(policy, config, tmp_path)
    draw = np.random.default_rng(0)
    state = own_state = np.zeros((3, policy.state_size), np.float32)
    for _ in range(5):
        quantities = np.abs(random_quantities(policy, 3))
        q, own_state = policy.q_values(numbers_of(policy, quantities), own_state)
        legal = (draw.random(q.shape) < 0.7).astype(np.uint8)
        legal[:, 0] = 1
        inputs = {"observation": quantities, "legal": legal, "recurrent_state": state}
        action, masked, state = session.run(None, inputs)
        np.testing.assert_allclose(masked[legal == 1], q[legal == 1], rtol=1e-4, atol=TOLERANCE)
        np.testing.assert_allclose(state, own_state, rtol=1e-4, atol=TOLERANCE)
        assert (masked[legal == 0] == -np.inf).all() and legal[np.arange(3), action].all()


# --- C headers --------------------------------------------------------------------------------------------

DRIVER = """\
#include <stdio.h>
#include "agent.h"
int main(void) {
    float observation[AGENT_INPUTS], output[AGENT_OUTPUTS];
    unsigned char legal[AGENT_OUTPUTS];
    while (fread(observation, sizeof observation, 1, stdin) == 1
           && fread(legal, sizeof legal, 1, stdin) == 1) {
        int result = AGENT_CALL;
        fwrite(&result, sizeof result, 1, stdout);
        fwrite(output, sizeof output, 1, stdout);
    }
    return 0;
}
"""


def run_header(policy: Policy, config: Any, folder: Path, rows: NDArray[Any],
               legal: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compile the header as strict C99 and call it for every row; (results [n], outputs [n, A])."""
    c_header.write(policy, policy_metadata(config, policy, 3), folder / "agent.h")
    call = "agent_act(observation, legal, output)"
    if policy.role.actions.kind == "continuous":
        call = "((void)legal, agent_act(observation, output))"
    (folder / "driver.c").write_text(DRIVER.replace("AGENT_CALL", call))
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["gcc", *strict, "-O1", "driver.c", "-o", "driver", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    size = policy.role.actions.size
    masks = np.ones((len(rows), size), np.uint8) if legal is None else legal
    data = b"".join(row.tobytes() + mask.tobytes() for row, mask in zip(rows, masks))
    answer = subprocess.run([str(folder / "driver")], input=data, capture_output=True, check=True,
                            timeout=300)
    record = np.frombuffer(answer.stdout, np.dtype([("result", "i4"), ("output", "f4", (size,))]))
    return record["result"], record["output"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_c_header_equals_our_network(subject: str, tmp_path: Path) -> None:
    config, policy = built(SUBJECTS[subject])
    parts = rows_of(config, policy)
    rows = np.concatenate([part[0] for part in parts])
    numbers = np.concatenate([part[1] for part in parts])
    masks = [part[2] for part in parts if part[2] is not None]
    legal = np.concatenate(masks) if masks else None
    if any(policy.role.categories):
        numbers = np.where(np.array(policy.role.categories) > 0, np.rint(numbers), numbers).astype(np.float32)
    broken = rows[:1].copy()
    broken[0, 0] = np.nan
    result, output = run_header(policy, config, tmp_path, np.concatenate([rows, broken]),
                                None if legal is None else np.concatenate([legal, legal[:1]]))
    discrete = policy.role.actions.kind == "discrete"
    own = [result[:-1], output[:-1]] if discrete else [output[:-1]]
    compare(policy, own, expected(policy, numbers, legal))
    assert result[-1] == -1
    if not discrete:  # the value nearest to 0 in each range
        limits = [deployed_policy.limits(unit) for unit in deployed_policy.action_quantities(policy.role)]
        np.testing.assert_allclose(output[-1], [np.clip(0, low, high) for low, high in limits], atol=1e-6)


def test_c_header_of_another_network_is_refused() -> None:
    _, policy = built(IN_TORCH["lstm"])
    with pytest.raises(ConfigError, match="--c-header: expected a network of fully connected layers"):
        c_header.check([policy])


def test_names_in_the_header_cannot_leave_their_comment() -> None:
    columns = [deployed_policy.Column(name, "") for name in ("a.b", "a-b", "a b", "ä")]
    assert c_header.constant_names(columns) == ["A_B", "A_B_1", "A_B_2", "_"]
    assert c_header.comment("a */ b\nc") == "a * / b c"
    assert c_header.identifier("1 agent-x.y") == "policy_1_agent_x_y"
    assert c_header.texts("t", ['a"b\\'])[1].strip() == '"a\\"b\\\\",'


# --- examples ---------------------------------------------------------------------------------------------


def run_example(name: str, *files: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=files[0].parent)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


def files_of(game: str, folder: Path, network: NetworkConfig, roles: tuple[str, ...]) -> list[Path]:
    files = []
    for role in roles:
        config, policy = built((game, role, {}, network))
        files.append(onnx_export.write(policy, policy_metadata(config, policy, 3), folder / f"{role}.onnx"))
    return files


def test_examples_run(tmp_path: Path) -> None:
    small = NetworkConfig(hidden=(8,))
    pursuer = files_of("pursuit", tmp_path, small, ("pursuer",))
    assert "speed = " in (text := run_example("pursuit.py", *pursuer)) and "rad/s" in text
    board = files_of("lattice", tmp_path, small, ("pursuer", "evader"))
    assert " wins after " in run_example("lattice.py", *board)
    cards = files_of("beasty", tmp_path, small, ("player",))
    assert "outcome of each player" in run_example("beasty.py", *cards)
    pole = files_of("gymnasium", tmp_path, small, ("player",))
    assert "CartPole-v1: return " in run_example("gymnasium_policy.py", *pole)


def test_game_boy_example_runs(tmp_path: Path) -> None:
    (file,) = export("@small", tmp_path / "agent", onnx=True).onnx
    assert "60 buttons: " in run_example("gameboy.py", file)


@pytest.mark.parametrize("role", ["pursuer", "evader"])
def test_robot_example_runs(role: str, tmp_path: Path) -> None:
    config, policy = built(SUBJECTS["pursuit"])
    c_header.write(policy, policy_metadata(config, policy, 3), tmp_path / f"agent-{role}.h")
    names = ['-DPOLICY="agent-evader.h"', "-DNAME=agent_evader"] if role == "evader" else []
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "-I.", *names,
               str(EXAMPLES / "pursuit_robot.c"), "-o", "robot", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    text = subprocess.run([str(tmp_path / "robot")], capture_output=True, text=True, check=True).stdout
    assert text.startswith("speed = ") and text.strip().endswith("rad/s")
