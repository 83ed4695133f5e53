"""PPO of Rematch compared with PPO of Stable-Baselines3: the same tasks, settings, steps and evaluation.

    python tools/experiments/ppo_peers.py --out peers.jsonl [--tasks CartPole-v1,Pendulum-v1] [--seeds 0-9]
                              [--who ours,sb3] [--jobs 2]

Every finished run is a line of the file; a run that has a line is not repeated, so the command can be stopped
at any time and run again, and files from different machines can be joined with `cat`. The runs of
Stable-Baselines3 need gymnasium, stable_baselines3, torch and numpy, but not Rematch.

The score of a run is the mean return of 100 new episodes with the same start states for both libraries, as
deployed: actions are sampled from the policy. The greedy score (most likely action, or mean) is printed too.
Seeds are aggregated by the interquartile mean, with a bootstrap of 10 000 resamples, stratified by task
(Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice").

Differences: SB3 normalises advantages per minibatch, Rematch per batch (ppo.Ppo.batch). Rematch acts in
[-1, 1], scaled to the bounds: `log_std` is set so that both start with the same noise.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPISODES, RESAMPLES = 100, 10_000
Floats = NDArray[np.float64]
Heads = Callable[[NDArray[np.float32]], tuple[NDArray[Any], NDArray[Any] | None]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Settings of both libraries: mostly those of RL Baselines3 Zoo, with unnormalised observations."""

    envs: int
    steps: int  # of each environment per iteration
    iterations: int
    minibatch: int
    epochs: int
    lr: float
    lr_final: float  # reached linearly at the end
    gamma: float
    lam: float
    clip: float = 0.2
    entropy: float = 0.0
    value: float = 0.5
    max_grad_norm: float = 0.5
    log_std: float = 0.0  # in the environment's units
    hidden: tuple[int, ...] = (64, 64)  # of policy and value network each; tanh
    worst: float  # return of a random policy; with `best` for the normalised score over all tasks
    best: float  # about the highest possible return

    @property
    def total(self) -> int:
        return self.envs * self.steps * self.iterations


TASKS = {
    "CartPole-v1": Task(
        envs=8,
        steps=32,
        iterations=391,
        minibatch=256,
        epochs=20,
        lr=1e-3,
        lr_final=0.0,
        gamma=0.98,
        lam=0.8,
        worst=22.0,
        best=500.0,
    ),
    "Acrobot-v1": Task(
        envs=16,
        steps=256,
        iterations=61,
        minibatch=64,
        epochs=4,
        lr=3e-4,
        lr_final=3e-4,
        gamma=0.99,
        lam=0.94,
        worst=-500.0,
        best=-75.0,
    ),
    "Pendulum-v1": Task(
        envs=4,
        steps=1024,
        iterations=25,
        minibatch=64,
        epochs=10,
        lr=1e-3,
        lr_final=1e-3,
        gamma=0.9,
        lam=0.95,
        worst=-1230.0,
        best=-150.0,
    ),
}


def digest(name: str) -> str:
    """Digest of a task's settings; lines with another digest are ignored."""
    return hashlib.sha256(json.dumps([name, asdict(TASKS[name])], sort_keys=True).encode()).hexdigest()[:12]


# --- training: each function returns a map from observations to logits, or to means and deviations --------


def train_rematch(name: str, seed: int) -> Heads:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import gymnasium

    from rematch import api

    task, space = TASKS[name], gymnasium.make(name).action_space
    box = space if isinstance(space, gymnasium.spaces.Box) else None  # None: discrete actions
    half_range = float((box.high - box.low).max() / 2) if box is not None else 1.0
    changes: dict[str, Any] = {
        "seed": seed,
        "threads": 1,
        "games": task.envs,
        "steps": task.steps,
        "total_steps": task.total,
        "stagger": 0,
        "save_every": 10**6,
        "world.id": name,
        "world.scale": "raw",
        "network.hidden": task.hidden,
        "network.shared": False,
        "network.log_std_low": -5.0,
        "network.log_std_high": 2.0,
        "network.log_std": task.log_std - float(np.log(half_range)),
        "league.opponent_share": 0.0,
        "ppo.lr": task.lr,
        "ppo.entropy_weight": task.entropy,
        "ppo.anneal": "linear",
        "ppo.lr_final": task.lr_final,
        "ppo.entropy_weight_final": task.entropy,
        "ppo.magnet_weight": 0.0,
        "ppo.gamma": task.gamma,
        "ppo.gae_lambda": task.lam,
        "ppo.epochs": task.epochs,
        "ppo.minibatch_size": task.minibatch,
        "ppo.clip": task.clip,
        "ppo.value_weight": task.value,
        "ppo.value_clip": 0.0,
        "ppo.max_grad_norm": task.max_grad_norm,
        "ppo.target_kl": 0.0,
        "evaluation.every": 10**6,
        "evaluation.games": 1,
    }
    from rematch.core.config import replace

    with tempfile.TemporaryDirectory() as temporary:
        trained = api.train(replace(api.default("gymnasium"), changes), folder=Path(temporary) / "run")
    (policy,) = trained.policies.values()

    def heads(observations: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        out = policy.forward(np.ascontiguousarray(observations, np.float32))[0]
        return (
            (out * half_range, np.exp(policy.arrays()["policy.log_std"]) * half_range)
            if box is not None
            else (out, None)
        )

    return heads


def train_sb3(name: str, seed: int) -> Heads:
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    task = TASKS[name]
    env = DummyVecEnv([lambda: gymnasium.make(name) for _ in range(task.envs)])
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=lambda progress_remaining: (
            task.lr_final + progress_remaining * (task.lr - task.lr_final)
        ),
        n_steps=task.steps,
        batch_size=task.minibatch,
        n_epochs=task.epochs,
        gamma=task.gamma,
        gae_lambda=task.lam,
        clip_range=task.clip,
        ent_coef=task.entropy,
        vf_coef=task.value,
        max_grad_norm=task.max_grad_norm,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "net_arch": {"pi": list(task.hidden), "vf": list(task.hidden)},
            "log_std_init": task.log_std,
        },
    )
    model.learn(task.total)
    assert model.num_timesteps == task.total, (model.num_timesteps, task.total)

    def heads(observations: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        with torch.no_grad():
            distribution: Any = model.policy.get_distribution(torch.as_tensor(observations)).distribution
        if hasattr(distribution, "logits"):
            return distribution.logits.numpy(), None
        return distribution.mean.numpy(), distribution.stddev.numpy()[0]

    return heads


TRAINERS = {"ours": train_rematch, "sb3": train_sb3}


# --- the same evaluation for both ---------------------------------------------------------------------------


def evaluate(name: str, heads: Heads, greedy: bool) -> float:
    """Mean return of new episodes; start states and action noise are the same for all policies."""
    import gymnasium

    envs = [gymnasium.make(name) for _ in range(EPISODES)]
    observations = [env.reset(seed=1_000_000 + i)[0] for i, env in enumerate(envs)]
    space, rng = envs[0].action_space, np.random.default_rng(7)
    total, running = np.zeros(EPISODES), list(range(EPISODES))
    while running:
        out, std = heads(np.asarray([observations[i] for i in running], np.float32))
        if std is None:
            noise = rng.gumbel(size=(EPISODES, out.shape[1]))[running]
            actions = (out + (0.0 if greedy else noise)).argmax(1)
        else:
            noise = rng.standard_normal((EPISODES, out.shape[1]))[running]
            assert isinstance(space, gymnasium.spaces.Box), f"{name}: deviations without continuous actions"
            means = out + (0.0 if greedy else noise * std)
            actions = np.clip(means, space.low, space.high).astype(np.float32)
        still_running = []
        for i, action in zip(running, actions):
            observations[i], reward, terminated, truncated, _ = envs[i].step(
                int(action) if std is None else action
            )
            total[i] += float(reward)
            if not (terminated or truncated):
                still_running.append(i)
        running = still_running
    return float(total.mean())


def train_and_evaluate(name: str, library: str, seed: int) -> dict[str, Any]:
    """Trains and evaluates one run; returns its line."""
    started = time.perf_counter()
    heads = TRAINERS[library](name, seed)
    seconds = time.perf_counter() - started
    packages = ["gymnasium", "numpy", *(["stable_baselines3", "torch"] if library == "sb3" else [])]
    return {
        "task": name,
        "who": library,
        "seed": seed,
        "settings": digest(name),
        "steps": TASKS[name].total,
        "sampled": evaluate(name, heads, greedy=False),
        "greedy": evaluate(name, heads, greedy=True),
        "episodes": EPISODES,
        "seconds": round(seconds, 1),
        "versions": {lib: version(lib) for lib in packages},
    }


# --- aggregation over seeds ---------------------------------------------------------------------------------


def iqm(scores: Floats) -> Floats:
    """Interquartile mean over the last axis: a quarter is removed at each end."""
    trimmed = scores.shape[-1] // 4
    middle = np.sort(scores, axis=-1)[..., trimmed : scores.shape[-1] - trimmed]
    return np.asarray(middle.mean(-1))


def iqm_interval(strata: Sequence[Floats]) -> tuple[float, float, float]:
    """(interquartile mean, low, high): a 95 % percentile interval; seeds are resampled within tasks."""
    rng = np.random.default_rng(2021)
    resampled = [scores[rng.integers(0, len(scores), (RESAMPLES, len(scores)))] for scores in strata]
    means = iqm(np.concatenate(resampled, axis=1))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(iqm(np.concatenate(strata))), float(low), float(high)


def table(rows: Sequence[dict[str, Any]], tasks: Sequence[str]) -> list[str]:
    """Lines: all seeds and the interquartile means of both libraries, per task and over all tasks."""
    lines = []
    for mode in ("sampled", "greedy"):
        lines += ["", f"{mode}:" + " as deployed; this is the score that counts" * (mode == "sampled")]
        normalized: dict[str, list[Floats]] = {library: [] for library in TRAINERS}
        for name in tasks:
            by_library: dict[str, Floats] = {}
            for library in TRAINERS:
                results = sorted(
                    (r["seed"], r[mode]) for r in rows if (r["task"], r["who"]) == (name, library)
                )
                if results:
                    scores = by_library[library] = np.array([score for _, score in results])
                    mean, low, high = iqm_interval([scores])
                    seeds = "  ".join(f"{score:.1f}" for score in scores)
                    lines.append(
                        f"  {name:<13} {library:<5} IQM {mean:9.2f} [{low:9.2f}, {high:9.2f}]  "
                        f"n {len(scores):2}  seeds {seeds}"
                    )
                    normalized[library].append(
                        (scores - TASKS[name].worst) / (TASKS[name].best - TASKS[name].worst)
                    )
            if len(by_library) == 2:
                lines.append(f"  {name:<13} ours is {compare([by_library['ours']], [by_library['sb3']])}")
        if all(len(strata) == len(tasks) > 1 for strata in normalized.values()):
            for library, strata in normalized.items():
                mean, low, high = iqm_interval(strata)
                lines.append(f"  {'all, 0 to 1':<13} {library:<5} IQM {mean:9.3f} [{low:9.3f}, {high:9.3f}]")
            lines.append(f"  {'all':<13} ours is {compare(normalized['ours'], normalized['sb3'])}")
    return lines


def compare(rematch_scores: Sequence[Floats], sb3_scores: Sequence[Floats]) -> str:
    mean, (_, low, high) = iqm_interval(rematch_scores)[0], iqm_interval(sb3_scores)
    if mean > high:
        return "above SB3's interval"
    return "within SB3's interval" if mean >= low else "BELOW SB3's interval"


# --- the command --------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """Finished runs with the present settings; an incomplete line is ignored."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, KeyError):
            row = json.loads(line)
            if row["task"] in TASKS and row["settings"] == digest(row["task"]):
                rows[row["task"], row["who"], row["seed"]] = row
    return list(rows.values())


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("ab+") as file:
        file.seek(0, os.SEEK_END)
        incomplete = False
        if file.tell():
            file.seek(-1, os.SEEK_END)
            incomplete = file.read(1) != b"\n"
        file.write(b"\n" * incomplete + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def parse_names(text: str, allowed: Sequence[str], flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in allowed:
            raise SystemExit(f"ppo_peers: {flag} = {name!r}: expected some of {', '.join(allowed)}")
    return names


def parse_seeds(text: str) -> list[int]:
    try:
        first, dash, last = text.partition("-")
        return list(range(int(first), int(last) + 1)) if dash else [int(word) for word in text.split(",")]
    except ValueError:
        raise SystemExit(f"ppo_peers: --seeds = {text!r}: expected 0-9 or 0,3,5") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--who", default=",".join(TRAINERS))
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, one core each")
    parser.add_argument("--out", type=Path, default=Path("ppo_peers.jsonl"))
    parser.add_argument(
        "--one", nargs=3, metavar=("TASK", "WHO", "SEED"), help="train one run and print its line"
    )
    args = parser.parse_args()
    if args.one:
        print(json.dumps(train_and_evaluate(args.one[0], args.one[1], int(args.one[2]))))
        return 0
    tasks, libraries = (
        parse_names(args.tasks, list(TASKS), "--tasks"),
        parse_names(args.who, list(TRAINERS), "--who"),
    )
    seeds = parse_seeds(args.seeds)
    finished = {(row["task"], row["who"], row["seed"]) for row in read(args.out)}
    remaining = [
        key
        for name in tasks
        for library in libraries
        for seed in seeds
        if (key := (name, library, seed)) not in finished
    ]
    print(f"{len(remaining)} runs to train, {len(finished)} are in {args.out}", flush=True)
    failed = []

    def start(key: tuple[str, str, int]) -> None:
        command = [sys.executable, __file__, "--one", *map(str, key)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.run(command, capture_output=True, text=True, env=environment)
        if process.returncode:
            failed.append(key)
            print(f"{key}: {(process.stderr.strip().splitlines() or ['failed'])[-1]}", flush=True)
            return
        row = json.loads(process.stdout.splitlines()[-1])
        append(args.out, row)
        print(
            f"{key}: {row['sampled']:.1f} sampled, {row['greedy']:.1f} greedy, {row['seconds']} s", flush=True
        )

    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        list(pool.map(start, remaining))
    print("\n".join(table([row for row in read(args.out) if row["seed"] in seeds], tasks)))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
