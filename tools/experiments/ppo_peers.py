"""Is our PPO right? Ours and Stable-Baselines3's: the same tasks, settings, steps and judge.

    python tools/experiments/ppo_peers.py --out peers.jsonl [--tasks CartPole-v1,Pendulum-v1] [--seeds 0-9]
                              [--who ours,sb3] [--jobs 2]

Every finished run is a line of the file; a run whose line is there is not made again, so the command can be
stopped at any time and repeated, and halves that were made on different machines are joined with `cat`.
The half of Stable-Baselines3 needs gymnasium, stable_baselines3, torch and numpy, nothing of ours.

A run's score is the mean return of 100 fresh episodes, the same start states for both, as deployed: actions
sampled from the policy. (The greedy score, most likely action or mean, is kept and printed beside it.)
Seeds are put together by the interquartile mean, with a bootstrap of 10 000 resamples, stratified by task
(Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice").

What is not the same: SB3 normalises advantages in each minibatch, ours once in each batch (ppo.Ppo.batch).
Ours acts in [-1, 1], scaled to the bounds: `log_std` is set so that both start with the same noise.
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
    """Settings of both sides: mostly those that RL Baselines3 Zoo publishes, on plain observations."""

    envs: int
    steps: int  # of each environment per iteration
    iterations: int
    minibatch: int
    epochs: int
    lr: float
    lr_final: float  # linearly reached at the end
    gamma: float
    lam: float
    clip: float = 0.2
    entropy: float = 0.0
    value: float = 0.5
    max_grad_norm: float = 0.5
    log_std: float = 0.0  # in the environment's units
    hidden: tuple[int, ...] = (64, 64)  # of policy and value each, tanh, nothing shared
    worst: float  # a random player's return, and
    best: float  # about the best there is: only for the row over all tasks

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
    """Which settings a line was made with: others are another experiment."""
    return hashlib.sha256(json.dumps([name, asdict(TASKS[name])], sort_keys=True).encode()).hexdigest()[:12]


# --- the two sides: each trains, and gives what its policy makes of observations --------------------------


def ours(name: str, seed: int) -> Heads:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import gymnasium

    from rematch import api

    t, space = TASKS[name], gymnasium.make(name).action_space
    box = isinstance(space, gymnasium.spaces.Box)
    span = float((space.high - space.low).max() / 2) if box else 1.0
    changes: dict[str, Any] = {
        "seed": seed,
        "threads": 1,
        "games": t.envs,
        "steps": t.steps,
        "total_steps": t.total,
        "stagger": 0,
        "save_every": 10**6,
        "world.id": name,
        "world.scale": "raw",
        "network.hidden": t.hidden,
        "network.shared": False,
        "network.log_std_low": -5.0,
        "network.log_std_high": 2.0,
        "network.log_std": t.log_std - float(np.log(span)),
        "league.opponent_share": 0.0,
        "ppo.lr": t.lr,
        "ppo.entropy_weight": t.entropy,
        "ppo.anneal": "linear",
        "ppo.lr_final": t.lr_final,
        "ppo.entropy_weight_final": t.entropy,
        "ppo.magnet_weight": 0.0,
        "ppo.gamma": t.gamma,
        "ppo.gae_lambda": t.lam,
        "ppo.epochs": t.epochs,
        "ppo.minibatch_size": t.minibatch,
        "ppo.clip": t.clip,
        "ppo.value_weight": t.value,
        "ppo.value_clip": 0.0,
        "ppo.max_grad_norm": t.max_grad_norm,
        "ppo.target_kl": 0.0,
        "evaluation.every": 10**6,
        "evaluation.games": 1,
    }
    from rematch.core.config import replace

    with tempfile.TemporaryDirectory() as place:
        trained = api.train(replace(api.default("gymnasium"), changes), folder=Path(place) / "run")
    (policy,) = trained.policies.values()

    def heads(seen: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        out = policy.forward(np.ascontiguousarray(seen, np.float32))[0]
        return (out * span, np.exp(policy.arrays()["policy.log_std"]) * span) if box else (out, None)

    return heads


def sb3(name: str, seed: int) -> Heads:
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    t = TASKS[name]
    together = DummyVecEnv([lambda: gymnasium.make(name) for _ in range(t.envs)])
    model = PPO(
        "MlpPolicy",
        together,
        learning_rate=lambda left: t.lr_final + left * (t.lr - t.lr_final),
        n_steps=t.steps,
        batch_size=t.minibatch,
        n_epochs=t.epochs,
        gamma=t.gamma,
        gae_lambda=t.lam,
        clip_range=t.clip,
        ent_coef=t.entropy,
        vf_coef=t.value,
        max_grad_norm=t.max_grad_norm,
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": list(t.hidden), "vf": list(t.hidden)}, "log_std_init": t.log_std},
    )
    model.learn(t.total)
    assert model.num_timesteps == t.total, (model.num_timesteps, t.total)

    def heads(seen: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        with torch.no_grad():
            play: Any = model.policy.get_distribution(torch.as_tensor(seen)).distribution
        if hasattr(play, "logits"):
            return play.logits.numpy(), None
        return play.mean.numpy(), play.stddev.numpy()[0]

    return heads


SIDES = {"ours": ours, "sb3": sb3}


# --- the same judge for both -------------------------------------------------------------------------------


def judge(name: str, heads: Heads, greedy: bool) -> float:
    """Mean return of fresh episodes: start states and action noise are the same whoever plays."""
    import gymnasium

    envs = [gymnasium.make(name) for _ in range(EPISODES)]
    seen = [env.reset(seed=1_000_000 + i)[0] for i, env in enumerate(envs)]
    space, luck = envs[0].action_space, np.random.default_rng(7)
    total, running = np.zeros(EPISODES), list(range(EPISODES))
    while running:
        out, std = heads(np.asarray([seen[i] for i in running], np.float32))
        if std is None:
            noise = luck.gumbel(size=(EPISODES, out.shape[1]))[running]
            moves = (out + (0.0 if greedy else noise)).argmax(1)
        else:
            noise = luck.standard_normal((EPISODES, out.shape[1]))[running]
            moves = np.clip(out + (0.0 if greedy else noise * std), space.low, space.high).astype(np.float32)
        left = []
        for i, move in zip(running, moves):
            seen[i], reward, over, cut, _ = envs[i].step(int(move) if std is None else move)
            total[i] += float(reward)
            if not (over or cut):
                left.append(i)
        running = left
    return float(total.mean())


def one(name: str, who: str, seed: int) -> dict[str, Any]:
    """Train and judge one run: its line."""
    started = time.perf_counter()
    heads = SIDES[who](name, seed)
    seconds = time.perf_counter() - started
    used = ["gymnasium", "numpy", *(["stable_baselines3", "torch"] if who == "sb3" else [])]
    return {
        "task": name,
        "who": who,
        "seed": seed,
        "settings": digest(name),
        "steps": TASKS[name].total,
        "sampled": judge(name, heads, greedy=False),
        "greedy": judge(name, heads, greedy=True),
        "episodes": EPISODES,
        "seconds": round(seconds, 1),
        "versions": {lib: version(lib) for lib in used},
    }


# --- putting seeds together ---------------------------------------------------------------------------------


def iqm(scores: Floats) -> Floats:
    """Interquartile mean over the last axis: a quarter is cut off at either end."""
    cut = scores.shape[-1] // 4
    middle = np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut]
    return np.asarray(middle.mean(-1))


def interval(strata: Sequence[Floats]) -> tuple[float, float, float]:
    """The interquartile mean of all scores and its 95 % percentile interval; seeds are drawn within tasks."""
    luck = np.random.default_rng(2021)
    drawn = [scores[luck.integers(0, len(scores), (RESAMPLES, len(scores)))] for scores in strata]
    spread = iqm(np.concatenate(drawn, axis=1))
    low, high = np.quantile(spread, [0.025, 0.975])
    return float(iqm(np.concatenate(strata))), float(low), float(high)


def table(rows: Sequence[dict[str, Any]], tasks: Sequence[str]) -> list[str]:
    """Every seed, then both sides' interquartile means, for each task and over all of them."""
    lines = []
    for how in ("sampled", "greedy"):
        lines += ["", f"{how}:" + " as deployed; this is what counts" * (how == "sampled")]
        normal: dict[str, list[Floats]] = {who: [] for who in SIDES}
        for name in tasks:
            found: dict[str, Floats] = {}
            for who in SIDES:
                mine = sorted((r["seed"], r[how]) for r in rows if (r["task"], r["who"]) == (name, who))
                if mine:
                    scores = found[who] = np.array([score for _, score in mine])
                    middle, low, high = interval([scores])
                    seeds = "  ".join(f"{score:.1f}" for score in scores)
                    lines.append(
                        f"  {name:<13} {who:<5} IQM {middle:9.2f} [{low:9.2f}, {high:9.2f}]  "
                        f"n {len(scores):2}  seeds {seeds}"
                    )
                    normal[who].append((scores - TASKS[name].worst) / (TASKS[name].best - TASKS[name].worst))
            if len(found) == 2:
                lines.append(f"  {name:<13} ours is {standing([found['ours']], [found['sb3']])}")
        if all(len(strata) == len(tasks) > 1 for strata in normal.values()):
            for who, strata in normal.items():
                middle, low, high = interval(strata)
                lines.append(f"  {'all, 0 to 1':<13} {who:<5} IQM {middle:9.3f} [{low:9.3f}, {high:9.3f}]")
            lines.append(f"  {'all':<13} ours is {standing(normal['ours'], normal['sb3'])}")
    return lines


def standing(mine: Sequence[Floats], theirs: Sequence[Floats]) -> str:
    middle, (_, low, high) = interval(mine)[0], interval(theirs)
    if middle > high:
        return "above SB3's interval"
    return "within SB3's interval" if middle >= low else "BELOW SB3's interval"


# --- the command --------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The finished runs of today's settings; a line cut short by a kill is none."""
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
        torn = False
        if file.tell():
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        file.write(b"\n" * torn + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def chosen(text: str, known: Sequence[str], flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise SystemExit(f"ppo_peers: {flag} = {name!r}: expected some of {', '.join(known)}")
    return names


def seeds_of(text: str) -> list[int]:
    try:
        first, dash, last = text.partition("-")
        return list(range(int(first), int(last) + 1)) if dash else [int(word) for word in text.split(",")]
    except ValueError:
        raise SystemExit(f"ppo_peers: --seeds = {text!r}: expected 0-9 or 0,3,5") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--who", default=",".join(SIDES))
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, one core each")
    parser.add_argument("--out", type=Path, default=Path("ppo_peers.jsonl"))
    parser.add_argument(
        "--one", nargs=3, metavar=("TASK", "WHO", "SEED"), help="make one run and print its line"
    )
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], given.one[1], int(given.one[2]))))
        return 0
    tasks, sides = chosen(given.tasks, list(TASKS), "--tasks"), chosen(given.who, list(SIDES), "--who")
    seeds = seeds_of(given.seeds)
    done = {(row["task"], row["who"], row["seed"]) for row in read(given.out)}
    todo = [
        key for name in tasks for who in sides for seed in seeds if (key := (name, who, seed)) not in done
    ]
    print(f"{len(todo)} runs to make, {len(done)} are in {given.out}", flush=True)
    failed = []

    def make(key: tuple[str, str, int]) -> None:
        words = [sys.executable, __file__, "--one", *map(str, key)]
        alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        made = subprocess.run(words, capture_output=True, text=True, env=alone)
        if made.returncode:
            failed.append(key)
            print(f"{key}: {(made.stderr.strip().splitlines() or ['failed'])[-1]}", flush=True)
            return
        row = json.loads(made.stdout.splitlines()[-1])
        append(given.out, row)
        print(
            f"{key}: {row['sampled']:.1f} sampled, {row['greedy']:.1f} greedy, {row['seconds']} s", flush=True
        )

    with ThreadPoolExecutor(max(1, given.jobs)) as pool:
        list(pool.map(make, todo))
    print("\n".join(table([row for row in read(given.out) if row["seed"] in seeds], tasks)))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
