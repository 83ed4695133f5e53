"""Repeats every figure about the GPU: equal games, speed of worlds, gradients, speed of training, learning.

    python tools/checks/gpu.py [CHECK ...] [--json FILE] [--minutes M] [--again] [--list]
    checks: same world gradient speed networks seeds alone profile train learn strength band kills sweep
            sweep_kills search documents documents_start responses

A check has one part or several. Each part prints its lines and, when it ends, appends a record with the
commit and the card to the file (default docs/results/data/gpu.jsonl). A part that has a record of these very
sources and this card is not measured again, so the same command continues where it was interrupted; --minutes
ends it between parts. The exit code is 1 where a part fails. Continuous integration has no GPU: there the
kernels run in an emulation (tests/worlds/test_cuda_worlds.py, tests/agents/networks/test_cuda_network.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "checks")]
import gpu_documents  # noqa: E402
import gpu_responses  # noqa: E402
import gpu_runs  # noqa: E402
import gpu_search  # noqa: E402
import same_games  # noqa: E402
from gpu_series import EvaluationTimes, Part, Series, parts_of  # noqa: E402

from rematch import api  # noqa: E402
from rematch.agents.learners.cuda_ppo import CudaPpo  # noqa: E402
from rematch.agents.learners.ppo import Ppo  # noqa: E402
from rematch.core.system.cuda import record_graph  # noqa: E402
from rematch.rollout.cuda_collector import CudaCollector  # noqa: E402
from rematch.rollout.cuda_rollout import CudaRolloutBuffer  # noqa: E402
from rematch.rollout.rollout_buffer import RolloutBuffer  # noqa: E402
from rematch.training.loop import iterate  # noqa: E402
from rematch.training.trainer import Trainer  # noqa: E402
from rematch.worlds.cuda_world import CudaWorld  # noqa: E402
from rematch.worlds.registry import find  # noqa: E402

Record = dict[str, Any]
RECORDS = ROOT / "docs/results/data/gpu.jsonl"
SMALL = {"games": 1000, "steps": 16, "stagger": 0, "league.snapshot_every": 1, "league.rotate": 1,
         "ppo.minibatch_size": 2048}  # fmt: skip


def trainer(changes: Record) -> Trainer:
    """A trainer on the GPU after its start."""
    out = Trainer(api.configure("pursuit", changes={"device": "cuda"} | changes))
    out.start()
    return out


def same() -> Record:
    """Rollouts of every world, played again on the CPU: every array must have the same bits.

    Prints one line per world; SystemExit after the last one if a world differs.
    """
    record: Record = {}
    differs = False
    for name, play in SAME.items():
        try:
            record[name] = play()
            line = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in record[name].items())
            print(f"{name}: the same on CPU and GPU ({line})", flush=True)
        except same_games.Difference as difference:
            differs = True
            print(f"{name}: {difference}", flush=True)
    if differs:
        raise SystemExit(1)
    return record


def _trained() -> Record:
    """Games of policies, past policies and bots, after some iterations of training."""
    run = trainer(SMALL)
    for _ in range(8):
        iterate(run)
    run.before_rollout()
    twin = run.setup.make_world(run.config.games, 0, run.config.seed)
    return same_games.compare(run.setup.collector, twin, run.clock.iteration)


def _world_alone(recipe: str, changes: Record, steps: int, make_acting: Any) -> CudaCollector:
    """A collector without learners: slot 0 is a policy's, every scripted player has a slot after it."""
    config = api.configure(recipe, changes=changes)
    game: Any = find(config.game)
    world = CudaWorld(game.make(config.world, config.games, 0, config.seed), game.cuda)
    return CudaCollector(world, same_games.seats_of(game, world.spec), steps, config.seed, make_acting)


def _played_at_random(recipe: str, changes: Record) -> Record:
    """Games between random actions and all scripted players."""
    collector = _world_alone(recipe, changes | {"games": 2000}, 48, same_games.RandomActing)
    world, counts = collector.world, Record()
    twin = find(world.spec.world).make(world.twin.config, world.games, 0, 0)
    for iteration in range(4):
        same_games.draw_slots(world, collector.seating, iteration)
        if iteration == 0:
            world.restart()
        for name, count in same_games.compare(collector, twin, iteration).items():
            counts[name] = counts.get(name, 0) + count
    return counts


SAME: dict[str, Callable[[], Record]] = {
    "pursuit, in training": _trained,
    "pursuit": partial(_played_at_random, "pursuit", {}),
    "pursuit, obstacles": partial(_played_at_random, "pursuit", {
        "world.n_obstacles_min": 1, "world.n_obstacles_max": 4, "world.use_visibility_reward": True,
        "world.w_collision": 0.1, "world.safety_filter": True, "world.actuator_noise": 0.1}),
    "pursuit, sensors": partial(_played_at_random, "pursuit", {"world.full_obs": False,
                                                               "world.n_obstacles_max": 2}),
    "lattice": partial(_played_at_random, "lattice", {}),
    "beasty": partial(_played_at_random, "beasty", {}),
    "beasty, four players": partial(_played_at_random, "beasty", {"world.players": 4, "world.first": -1}),
}  # fmt: skip


class StoredActions:
    """A policy that leaves the actions of the rollout as they are."""

    def __init__(self, role: Any, seating: Any, *others: Any) -> None:
        self.seating = seating

    def send_weights(self) -> None:
        """Nothing to send."""

    def act(self, t: int, first_step: Any, only_values: bool = False) -> None:
        """The actions of the last rollout are played again."""

    def join(self, other: Any) -> bool:
        return False


def world() -> Record:
    """Steps per second of the worlds alone: only their kernel, between two CUDA events."""
    record: Record = {}
    for games in (65_536, 524_288):
        pursuit = _world_alone("pursuit", {"games": games}, 8, StoredActions)
        for track in pursuit.rollout.role_tracks.values():
            track.action_tensor.uniform_(-1.0, 1.0)
        record[f"pursuit_arena_steps_per_second_{games}"] = _kernel_rate(pursuit)
        del pursuit
        beasty = _world_alone("beasty", {"games": games}, 8, StoredActions)
        beasty.seating["player"].packed = np.zeros((0, 0), np.float32)  # slot 0 is the first bot
        assert beasty.seating["player"].others[0].name == "random"
        record[f"beasty_random_decisions_per_second_{games}"] = _kernel_rate(beasty)
        del beasty
    for name, rate in record.items():
        print(f"{name}: {rate:,.0f}", flush=True)
    return record


def _kernel_rate(collector: CudaCollector, repeats: int = 20) -> float:
    """Steps of all games per second in which only `step_games` runs."""
    import torch

    collector.collect(0)
    steps, launches = collector.rollout.steps, collector.play.launches[0,]

    def play() -> None:
        for t in range(steps):
            launches.step_games(t)

    graph = record_graph(play)
    events: Any = torch.cuda
    start, end = (events.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        graph.replay()
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    collector.result()  # raises where a game failed
    return float(repeats * steps * collector.world.games / (start.elapsed_time(end) / 1000))


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
        before = policy.weights.copy()
        batch, rows = Ppo.batch(learner, rollout)
        expected, means = Ppo.gradient(learner, batch, rows, config.entropy_weight)
        expected = expected.copy()
        metrics = learner.learn(rollout, 0.0, run.clock.iteration)
        buffers, place = learner.part.buffers, learner.place
        index = buffers["index"][place].cpu().numpy()[: int(buffers["count"][place])]
        same_games.equal("rows to learn from", np.flatnonzero(counts).astype(np.int32), index)
        record[f"{role}_advantage_error"] = float(
            np.abs(advantage.reshape(-1) - buffers["advantage"][place].cpu().numpy()).max()
        )
        found = np.zeros_like(expected)
        learner.order.to_flat(buffers["partial"][place, 0].cpu().numpy(), found)
        error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        record[f"{role}_gradient_error"], record[f"{role}_rows"] = error, len(rows)
        record[f"{role}_loss"] = {
            name: (means[name], metrics[name]) for name in ("policy_loss", "value_loss", "kl")
        }
        record[f"{role}_moved"] = float(np.abs(policy.weights - before).max())
        if error > 0.03:
            raise SystemExit(f"gradient of {role}: relative error {error:.3f}; {record}")
    return record


SIZES = ((2048, 32, 8192), (16384, 32, 8192), (65536, 16, 8192), (131072, 16, 8192), (65536, 16, 65536),
         (131072, 16, 65536), (262144, 16, 65536), (524288, 16, 65536))  # fmt: skip


def _speed(games: int, steps: int, minibatch: int) -> Record:
    """Learner steps per second of whole iterations."""
    import torch

    run = trainer({"games": games, "steps": steps, "ppo.minibatch_size": minibatch})
    for _ in range(5):
        iterate(run)
    record = _timed(run, 20)
    del run
    torch.cuda.empty_cache()
    return record


SPEED = {f"{games}x{steps}, minibatch {minibatch}": partial(_speed, games, steps, minibatch)
         for games, steps, minibatch in SIZES}  # fmt: skip


def _timed(run: Trainer, iterations: int) -> Record:
    """The speed of whole iterations; then the milliseconds of their parts, with a wait after each part."""
    import torch

    parts: dict[str, float] = {}
    torch.cuda.synchronize()
    before, started = run.clock.learner_steps, time.perf_counter()
    for _ in range(iterations):
        iterate(run)
    torch.cuda.synchronize()
    seconds, learned = time.perf_counter() - started, run.clock.learner_steps - before

    def clock(name: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        parts[name] = parts.get(name, 0.0) + time.perf_counter() - started
        return result

    for _ in range(iterations):
        clock("before_rollout", run.before_rollout)
        rollout = clock("rollout", partial(run.setup.queue.next, run.clock, lambda ahead: None))
        clock("after_rollout", partial(run.after_rollout, rollout))
        metrics = clock("update", partial(run.update, rollout))
        run.clock.iteration += 1
        clock("after_update", partial(run.after_update, rollout, metrics))
    return {
        "learner_steps_per_second": learned / seconds,
        "milliseconds": {name: 1000 * part / iterations for name, part in parts.items()},
    }


NETWORKS: dict[str, tuple[str, Record]] = {  # networks that torch computes
    "lattice": ("lattice", {}),
    "beasty": ("beasty", {}),
    "Beasty Bar of the earlier project": ("iter600_to_1000", {"exploiters.every": 0}),
}


def _network(recipe: str, changes: Record) -> Record:
    """Seconds of whole iterations with a network that torch computes, as its recipe has it."""
    import torch

    run = Trainer(api.configure(recipe, changes={"device": "cuda"} | changes))
    run.start()
    for _ in range(4):
        iterate(run)
    record = _timed(run, 8)
    del run
    torch.cuda.empty_cache()
    return record


def _learn(seed: int) -> Record:
    """The recipe `lattice` on the GPU: exact NashConv after each evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with EvaluationTimes(run) as times:
            api.train("lattice", {"device": "cuda", "seed": seed}, run)
        rows = json.loads((run / "history.json").read_text())
    values = [row["exact"]["nash_conv"] for row in rows]
    return {"nash_conv": values, "at_seconds": times.seconds,
            "seconds_to_0.12": times.until([value <= 0.12 for value in values])}  # fmt: skip


def _kills(subject: str, seed: int) -> Record:
    """A run on the GPU, killed and resumed: its files must equal those of an uninterrupted run."""
    command = [sys.executable, str(ROOT / "tools/checks/kill_runs.py"), "--subject", subject]
    command += ["--kills", str(KILLS), "--seed", str(seed)]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = (result.stdout + result.stderr).splitlines()
    if result.returncode:
        raise SystemExit("\n".join([subject, *lines[-20:]]))
    return {"kills": KILLS, "subject": subject, "lines": lines[-3:]}


KILLS, SERIES = 7, 3  # kills of a series; series of each subject
BY_NAME = ("profile", "documents_start")  # checks that run only where they are named
CHECKS: dict[str, Any] = {  # a function, or one for each part
    "same": same, "world": world, "gradient": gradient, "speed": SPEED,
    "networks": {name: partial(_network, *values) for name, values in NETWORKS.items()},
    "seeds": gpu_runs.SPEED_OF_SEEDS, "alone": gpu_runs.alone, "profile": gpu_runs.profile,
    "train": gpu_runs.train, "learn": {f"seed {seed}": partial(_learn, seed) for seed in range(3)},
    "strength": gpu_runs.STRENGTH_OF_SIZES, "band": gpu_runs.band,
    "kills": {f"{subject} {n + 1}": partial(_kills, subject, n)
              for subject in ("kernels", "categories", "transformer") for n in range(SERIES)},
    "sweep": gpu_runs.sweep,
    "sweep_kills": {str(n + 1): partial(gpu_runs.sweep_kills, KILLS, 4, n) for n in range(SERIES)},
    "search": gpu_search.check, "documents": gpu_documents.PARTS,
    "documents_start": gpu_documents.START_PARTS,
    "responses": gpu_responses.PARTS,
}  # fmt: skip


def measured_tree() -> str:
    """The commit of this tree; with "+changes" where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def sources() -> str:
    """The first half of the SHA-256 digest of the package: all files that Git does not ignore, in order.

    Without Git, all files but compiled ones.
    """
    sha = hashlib.sha256()
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "rematch"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if not any(listed):
        files = [path for path in (ROOT / "rematch").rglob("*") if path.suffix not in (".so", ".pyc")]
        listed = [str(path.relative_to(ROOT)) for path in files
                  if path.suffix != ".c" or not path.with_suffix(".pyx").exists()]  # fmt: skip
    for name in sorted(listed):
        if name and (ROOT / name).is_file():
            sha.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return sha.hexdigest()[:32]


def main(words: list[str] | None = None) -> int:
    import torch

    from rematch.core.system.cuda import no_gpu

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS], help="default: all")
    parser.add_argument("--json", type=Path, default=RECORDS, help="append the records to this file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for all parts together")
    parser.add_argument("--again", action="store_true", help="measure also what has a record")
    parser.add_argument("--list", action="store_true", help="print the parts that have no record, and stop")
    arguments = parser.parse_args(words)
    if reason := no_gpu():
        print(f"gpu.py: {reason}", file=sys.stderr)
        return 2
    common = {"commit": measured_tree(), "sources": sources(), "card": torch.cuda.get_device_name()}
    series = Series(common, arguments.json, [RECORDS] if arguments.json != RECORDS else [],
                    60 * arguments.minutes, arguments.again)  # fmt: skip
    parts: list[Part] = []
    for name in arguments.checks or [name for name in CHECKS if name not in BY_NAME]:
        parts += parts_of(name, CHECKS[name])
    if arguments.list:
        for part in parts:
            if not series.is_done(part):
                print(f"{part.title}: about {series.expected(part):.0f} s")
        return 0
    return series.run(parts)


if __name__ == "__main__":
    sys.exit(main())
