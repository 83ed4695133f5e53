"""Repeats every figure about the GPU: equal games, gradients row by row, speed, learning, exact resume.

    python tools/checks/gpu.py [same gradient speed train resume] [--json FILE]

Each check prints its lines and appends a record with the commit and the card to the file. Continuous
integration has no GPU: there the kernels run in an emulation (tests/agents/test_cuda_network.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from rematch import api  # noqa: E402
from rematch.agents.learners.cuda_ppo import CudaPpo  # noqa: E402
from rematch.agents.learners.ppo import Ppo  # noqa: E402
from rematch.core import rng  # noqa: E402
from rematch.core.player import RngKey  # noqa: E402
from rematch.core.stepping import seat_at  # noqa: E402
from rematch.rollout.cuda_rollout import CudaRolloutBuffer  # noqa: E402
from rematch.rollout.rollout_buffer import RolloutBuffer  # noqa: E402
from rematch.training.loop import iterate  # noqa: E402
from rematch.training.trainer import Trainer  # noqa: E402

Record = dict[str, Any]
SMALL = {"games": 1000, "steps": 16, "stagger": 0, "league.snapshot_every": 1, "league.rotate": 1,
         "ppo.minibatch_size": 2048}  # fmt: skip


def trainer(changes: Record) -> Trainer:
    """A trainer on the GPU after its start."""
    out = Trainer(api.configure("pursuit", changes={"device": "cuda"} | changes))
    out.start()
    return out


def same() -> Record:
    """Games of a rollout, played again on the CPU from their actions: every array must have the same bits."""
    run = trainer(SMALL)
    for _ in range(8):
        iterate(run)
    world, steps, compared = run.world, run.config.steps, 0
    twin = run.setup.make_world(run.config.games, 0, run.config.seed)
    rows = np.arange(run.config.games, dtype=np.int32)
    run.before_rollout()
    for name in ("seed", "slot", "stage"):
        getattr(twin.next, name)[:] = getattr(world.next, name)
    twin.load(rows, world.save(rows))
    rollout = run.setup.collector.collect(run.clock.iteration)
    bots = 0
    for t in range(steps):
        actions = {role: rollout[role].action[t] for role in world.spec.roles}
        for role, spec in world.spec.roles.items():
            seating = run.setup.seating[role]
            for number, player in enumerate(seating.others):
                seat = spec.seats[0]
                chosen = np.flatnonzero(twin.slot[:, seat] == len(seating.packed) + number).astype(np.int32)
                if len(chosen):
                    key = RngKey(run.config.seed, rng.BOT, run.clock.iteration * steps + t)
                    decided = player.act(seat_at(twin, seat, chosen), key).action
                    _equal(f"bot {player.name}", decided, actions[role][chosen, 0])
                    bots += len(chosen)
            _equal(f"obs of {role}", twin.view[role]["state"], rollout[role].obs[t])
            _equal("slot", twin.slot[:, list(spec.seats)], rollout[role].slot[t])
        view = twin.step(actions)
        for role, spec in world.spec.roles.items():
            _equal("reward", view.reward[:, list(spec.seats)], rollout[role].reward[t])
            _equal("outcome", view.outcome[:, list(spec.seats)], rollout[role].outcome[t])
        _equal("ended", view.ended, rollout.ended[t])
        _equal("length", view.length, rollout.length[t])
        compared += twin.games
    _equal("states", twin.save(rows), world.save(rows))
    ended = int((rollout.ended != 0).sum())
    return {"steps_compared": compared, "bot_decisions_compared": bots, "games_ended": ended}


def _equal(name: str, expected: Any, actual: Any) -> None:
    expected, actual = np.ascontiguousarray(expected), np.ascontiguousarray(actual)
    if expected.dtype != actual.dtype or expected.tobytes() != actual.tobytes():
        raise SystemExit(f"{name} differs between CPU and GPU")


def gradient() -> Record:
    """Values, log-probabilities, advantages and the gradient of a rollout beside those of the CPU."""
    run = trainer(SMALL | {"ppo.minibatch_size": 1 << 20, "ppo.epochs": 1})
    for _ in range(3):
        iterate(run)
    run.before_rollout()
    rollout, record = run.setup.collector.collect(run.clock.iteration), Record()
    assert isinstance(rollout, CudaRolloutBuffer)
    for role, learner in run.setup.learners.items():
        assert isinstance(learner, CudaPpo)
        part, policy = rollout[role], learner.policy
        flat = part.obs.reshape(-1, part.obs.shape[-1])
        _, values = policy.forward(np.ascontiguousarray(flat))
        own = (part.slot == 0).reshape(-1)
        record[f"{role}_value_error"] = float(np.abs(values - part.value.reshape(-1))[own].max())
        host = RolloutBuffer(run.world.spec, rollout.steps, rollout.games)
        for name in ("reward", "acted", "slot", "value", "last_value", "last_acting"):
            getattr(host[role], name)[:] = getattr(part, name)
        host.ended[:] = rollout.ended
        config = learner.config
        advantage, _, counts = host.advantages(role, config.gamma, config.gae_lambda)
        learner._advantages(rollout, rollout.role_tracks[role])
        learner._select_rows()
        index = learner.buffers["index"].cpu().numpy()[: int(learner.count)]
        _equal("rows to learn from", np.flatnonzero(counts).astype(np.int32), index)
        record[f"{role}_advantage_error"] = float(
            np.abs(advantage.reshape(-1) - learner.buffers["advantage"].cpu().numpy()).max()
        )
        before = policy.weights.copy()
        batch, rows = Ppo.batch(learner, rollout)
        expected, means = Ppo.gradient(learner, batch, rows, config.entropy_weight)
        expected = expected.copy()
        metrics = learner.learn(rollout, 0.0, run.clock.iteration)
        found = np.zeros_like(expected)
        learner.order.to_flat(learner.partial[0].cpu().numpy(), found)
        error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        record[f"{role}_gradient_error"], record[f"{role}_rows"] = error, len(rows)
        record[f"{role}_loss"] = {
            name: (means[name], metrics[name]) for name in ("policy_loss", "value_loss", "kl")
        }
        record[f"{role}_moved"] = float(np.abs(policy.weights - before).max())
        if error > 0.03:
            raise SystemExit(f"gradient of {role}: relative error {error:.3f}; {record}")
    return record


def speed() -> Record:
    """Learner steps per second of whole iterations, at several sizes."""
    import torch

    record: Record = {}
    for games, steps, minibatch in ((2048, 32, 8192), (16384, 32, 8192), (65536, 16, 65536)):
        run = trainer({"games": games, "steps": steps, "ppo.minibatch_size": minibatch})
        for _ in range(5):
            iterate(run)
        record[f"{games}x{steps}, minibatch {minibatch}"] = _timed(run, 20)
        del run
        torch.cuda.empty_cache()
    return record


def _timed(run: Trainer, iterations: int) -> Record:
    """Seconds of each part of an iteration."""
    import torch

    parts: dict[str, float] = {}

    def clock(name: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        parts[name] = parts.get(name, 0.0) + time.perf_counter() - started
        return result

    before, started = run.clock.learner_steps, time.perf_counter()
    for _ in range(iterations):
        clock("before_rollout", run.before_rollout)
        rollout = clock("rollout", partial(run.setup.queue.next, run.clock, lambda ahead: None))
        clock("after_rollout", partial(run.after_rollout, rollout))
        metrics = clock("update", partial(run.update, rollout))
        run.clock.iteration += 1
        clock("after_update", partial(run.after_update, rollout, metrics))
    seconds = time.perf_counter() - started
    learned = run.clock.learner_steps - before
    return {
        "learner_steps_per_second": learned / seconds,
        "milliseconds": {name: 1000 * part / iterations for name, part in parts.items()},
    }


def train() -> Record:
    """The recipe `pursuit`, whole, with its evaluations."""
    started = time.perf_counter()
    result = api.train("pursuit", {"device": "cuda", "name": "gpu_pursuit"})
    return {"seconds": time.perf_counter() - started, "result": str(result)[:4000]}


CHECKS: dict[str, Callable[[], Record]] = {"same": same, "gradient": gradient, "speed": speed, "train": train}


def measured_tree() -> str:
    """The commit of this tree; with "+changes" where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain") else "")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS], help="default: all")
    parser.add_argument("--json", type=Path, help="append the records to this file")
    arguments = parser.parse_args()
    commit = measured_tree()
    for name in arguments.checks or CHECKS:
        started = time.perf_counter()
        record = {"check": name, "commit": commit, "card": torch.cuda.get_device_name()}
        record |= CHECKS[name]()
        record["check_seconds"] = time.perf_counter() - started
        print(json.dumps(record, indent=1, default=float), flush=True)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(record, default=float) + "\n")


if __name__ == "__main__":
    main()
