"""Trains with the earlier project's card-game configuration, translated into the recipe `iter600_to_1000`.

    python compat/train_iter600.py [--config FILE] [--device cpu] [--start-iteration 600 --from POLICY]
                                   [--exploiter-steps N] [--output FOLDER] [--max-minutes M]

The default FILE, compat/configs/iter600_to_1000.yaml, is an exact copy of the original. The weights of its
iteration 600 are not available, and foreign files are not loaded: --from starts with a policy of Rematch.
A key that cannot have its original meaning is refused, or a note says how it is read. The table of all keys
is in docs/how_to/earlier_project.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parent / "configs" / "iter600_to_1000.yaml"
MAX_STEPS = 10**12
EXPLOITER_ITERATIONS = 100  # an exploiter trains for as many steps as this number of iterations
NO_CHECKPOINT = (
    "note: no checkpoint of iteration 600 is available: the run starts at iteration 0 with random weights. A "
    "run of this script with total_iterations 600 trains such a policy; `--start-iteration 600 --from RUN` "
    "(or a policy file of `rematch export`) then continues from it"
)
STEPS = 24  # most turns of a game of two players; an iteration is `games_per_iteration` games of STEPS turns
BOTS = ("random", "heuristic", "aggressive", "defensive", "queue", "skunk", "noisy", "online",
         "outcome_heuristic", "distilled_outcome")  # fmt: skip

# key of the file -> setting of Rematch with the same value
DIRECT_KEYS = {
    "network_config.hidden_dim": "network.width", "network_config.num_heads": "network.heads",
    "network_config.num_layers": "network.layers", "network_config.dropout": "network.dropout",
    "network_config.species_embedding_dim": "network.embedding",
    "ppo_config.clip_epsilon": "ppo.clip", "ppo_config.value_coef": "ppo.value_weight",
    "ppo_config.gamma": "ppo.gamma", "ppo_config.gae_lambda": "ppo.gae_lambda",
    "ppo_config.ppo_epochs": "ppo.epochs", "ppo_config.minibatch_size": "ppo.minibatch_size",
    "ppo_config.max_grad_norm": "ppo.max_grad_norm", "ppo_config.target_kl": "ppo.target_kl",
    "games_per_iteration": "games", "checkpoint_frequency": "save_every",
    "eval_frequency": "evaluation.every", "entropy_start": "ppo.entropy_weight",
    "temperature_start": "ppo.temperature", "seed": "seed",
}  # fmt: skip
OTHER_KEYS = (
    "ppo_config.learning_rate", "ppo_config.entropy_coef", "ppo_config.normalize_advantages",
    "ppo_config.clip_value", "total_iterations", "entropy_schedule", "entropy_end", "temperature_schedule",
    "temperature_end", "use_opponent_pool", "use_adaptive_weights", "min_opponent_weight",
    "opponent_config.current_weight", "opponent_config.checkpoint_weight", "opponent_config.random_weight",
    "opponent_config.heuristic_weight", "opponent_config.max_checkpoints", "use_heuristic_variants",
    "use_exploit_patch", "exploit_patch_interval", "force_cython", "async_game_generation",
    "async_num_workers", "buffer_size", "device", "experiment_name", "eval_opponents",
)  # fmt: skip
OPTIONAL_KEYS = ("exploit_patch_steps",)  # not in the original file
Values = Mapping[str, Any]
FINAL_VALUES = {"entropy": "ppo.entropy_weight_final", "temperature": "ppo.temperature_final"}


def read_config(path: Path) -> dict[str, Any]:
    """Dotted key -> value of the file: the keys of the original, all of them, and OPTIONAL_KEYS."""
    from rematch.core import config as settings
    from rematch.core.errors import ConfigError

    try:
        values = settings.read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    allowed = [*DIRECT_KEYS, *OTHER_KEYS]
    for key, value in values.items():
        if key not in (*allowed, *OPTIONAL_KEYS):
            near = settings.nearest(key, (*allowed, *OPTIONAL_KEYS))
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(f"{path}: unknown key {key} = {value!r}{hint}")
    for key in allowed:
        if key not in values:
            raise ConfigError(f"{path}: {key} is missing")
    return values


def schedules(g: Values) -> dict[str, Any]:
    """Changes for annealing: entropy and temperature have the same shape, or are constant."""
    from rematch.core.annealing import ANNEALING_SHAPES
    from rematch.core.errors import ConfigError

    shapes = {name: g[f"{name}_schedule"] for name in ("entropy", "temperature")}
    for name, shape in shapes.items():
        if shape not in ANNEALING_SHAPES:
            raise ConfigError(f"{name}_schedule = {shape!r}: expected one of {', '.join(ANNEALING_SHAPES)}")
    annealed = {shape for shape in shapes.values() if shape != "none"}
    if len(annealed) > 1:
        raise ConfigError(f"temperature_schedule = {shapes['temperature']!r}: expected the shape of "
                          f"entropy_schedule = {shapes['entropy']!r}, or none")
    if not annealed:
        return {"ppo.anneal": "none"}
    changes = {"ppo.anneal": annealed.pop(), "ppo.lr_final": g["ppo_config.learning_rate"]}
    for name, shape in shapes.items():
        changes[FINAL_VALUES[name]] = g[f"{name}_{'start' if shape == 'none' else 'end'}"]
    return changes


def league_settings(g: Values, notes: list[str]) -> dict[str, Any]:
    """Changes for the league: shares of the current policy, of snapshots and of bots."""
    from rematch.core.errors import ConfigError

    if not g["use_opponent_pool"]:
        notes.append("note: use_opponent_pool false: the opponents' settings have no effect")
        return {"league.opponent_share": 0.0}
    names = ("current", "checkpoint", "random", "heuristic")
    current, checkpoint, random, heuristic = (float(g[f"opponent_config.{name}_weight"]) for name in names)
    total = current + checkpoint + random + heuristic
    if abs(total - 1) > 1e-6 or min(current, checkpoint, random, heuristic) < 0 or current == 1:
        raise ConfigError(f"opponent_config: the weights add up to {total:g}; expected 1, and some rivals")
    adaptive = bool(g["use_adaptive_weights"])
    bots, others = (BOTS, len(BOTS) - 1) if g["use_heuristic_variants"] else (BOTS[:2], 1)
    if random + heuristic:
        phase = "until the first evaluation" if adaptive else "in the whole run"
        notes.append(f"note: opponent_config: {current:g} of the games against the current policy, "
                     f"{checkpoint:g} against snapshots, {random + heuristic:g} against bots; of these, "
                     f"{phase}, {random:g} against random and {heuristic:g} against the {others} others, "
                     "equally often")
    changes = {
        "league.opponent_share": 1 - current, "league.matchmaking": "adaptive" if adaptive else "uniform",
        "league.size": g["opponent_config.max_checkpoints"],
        "league.snapshot_every": g["checkpoint_frequency"],
        "league.bots": bots,
        "league.bot_share": (random + heuristic) / (1 - current),
    }  # fmt: skip
    if random + heuristic:
        changes["league.bot_weights"] = (random, *[heuristic / others] * others)
    return changes | ({"league.adaptive_floor": g["min_opponent_weight"]} if adaptive else {})


def exploiter_settings(g: Values, notes: list[str]) -> dict[str, Any]:
    """Changes for the exploiters. The original file has no length: EXPLOITER_ITERATIONS iterations, the key
    exploit_patch_steps, or the flag."""
    from rematch.core.errors import ConfigError

    own_steps = g.get("exploit_patch_steps")
    if own_steps is not None and not (isinstance(own_steps, int) and 1 <= own_steps <= MAX_STEPS):
        raise ConfigError(f"exploit_patch_steps = {own_steps!r}: expected a whole number of steps, from 1 to "
                          f"{MAX_STEPS}")
    if own_steps is not None and not (g["use_opponent_pool"] and g["use_exploit_patch"]):
        raise ConfigError("exploit_patch_steps has no effect: the file switches exploiters off")
    if not g["use_opponent_pool"]:
        return {}  # exploiters are off without a pool
    if not g["use_exploit_patch"]:
        return {"exploiters.every": 0}
    iteration = g["games_per_iteration"] * STEPS
    steps = g.get("exploiter_steps") or own_steps or EXPLOITER_ITERATIONS * iteration
    notes.append(f"note: use_exploit_patch: every {g['exploit_patch_interval']} iterations an exploiter "
                 f"trains for {steps} steps, as many as {steps / iteration:g} iterations; the key "
                 "exploit_patch_steps or --exploiter-steps N changes that")
    return {"exploiters.every": g["exploit_patch_interval"], "exploiters.steps": steps}


def machine_settings(g: Values, notes: list[str]) -> dict[str, Any]:
    """Changes for threads, lag and device; checks the buffer size."""
    from rematch.core.errors import ConfigError

    if g["force_cython"] is not True:
        value = g["force_cython"]
        raise ConfigError(f"force_cython = {value!r}: the native core is the only one; expected true")
    transitions = g["games_per_iteration"] * STEPS
    if transitions > g["buffer_size"]:
        raise ConfigError(f"buffer_size = {g['buffer_size']}: an iteration makes {transitions} transitions "
                          f"({g['games_per_iteration']} games of {STEPS}); expected at least that")
    notes.append(f"note: buffer_size {g['buffer_size']}: an iteration makes {transitions} transitions, "
                 "learns from all of them and keeps none; the size is only checked")
    changes = generation_settings(g, notes)
    if g["device"] == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("device = cuda: there is no GPU here; expected --device cpu")
    return changes | {"device": g["device"], "network.device": g["device"]}


def generation_settings(g: Values, notes: list[str]) -> dict[str, Any]:
    """Changes for the generation of games: threads, and whether they run ahead of the learner."""
    if not g["async_game_generation"]:
        notes.append(f"note: async_game_generation false: async_num_workers {g['async_num_workers']} has no "
                     "effect; one thread generates the games of an iteration and then computes its gradients")
        return {"threads": 1, "lag": 0}
    cores = len(os.sched_getaffinity(0))
    threads, ahead = min(g["async_num_workers"], cores), g["device"] != "cuda"
    order = ("they generate the games of an iteration and then compute its gradients (a network on the GPU "
             "acts and learns in turns: nothing is generated ahead)")
    if ahead:
        order = (f"{max(1, threads // 2)} of them generate the games of the next iteration while all compute "
                 "the gradients of this one; games are played by policies that are one update older (lag 1), "
                 "and results do not depend on timing")
    notes.append(f"note: async_num_workers {g['async_num_workers']}: {threads} threads of this process, for "
                 f"there are {cores} cores; {order} (docs/results/speed.md, Generation ahead of the learner)")
    return {"threads": threads, "lag": int(ahead)}


def translate(g: Values) -> tuple[dict[str, Any], list[str]]:
    """(changes to the recipe, a note for each key that is read differently)."""
    from rematch.core.errors import ConfigError

    notes: list[str] = []
    if g["ppo_config.normalize_advantages"] is not True:
        raise ConfigError("ppo_config.normalize_advantages = false: they always are; expected true")
    if g["ppo_config.entropy_coef"] != g["entropy_start"]:
        notes.append(f"note: ppo_config.entropy_coef {g['ppo_config.entropy_coef']} has no effect: the "
                     f"schedule begins at entropy_start {g['entropy_start']}")
    changes: dict[str, Any] = {ours: g[theirs] for theirs, ours in DIRECT_KEYS.items()}
    changes |= {
        "ppo.lr": g["ppo_config.learning_rate"], "steps": STEPS,
        "ppo.value_clip": g["ppo_config.clip_epsilon"] if g["ppo_config.clip_value"] else 0.0,
        "total_steps": g["total_iterations"] * g["games_per_iteration"] * STEPS, "start_iteration": 0,
        "evaluation.opponents": tuple(g["eval_opponents"]),
    }  # fmt: skip
    changes |= machine_settings(g, notes) | schedules(g) | league_settings(g, notes)
    return changes | exploiter_settings(g, notes), notes


def train(arguments: Sequence[str]) -> int:
    from rematch import api
    from rematch.cli.options import Options, folder_of
    from rematch.core import config as settings
    from rematch.core.errors import ConfigError
    from rematch.reporting.console import Console

    flags = ("--config", "--device", "--start-iteration", "--from", "--exploiter-steps", "--output",
             "--max-minutes")
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    options = Options(arguments, flags)
    usage = ("train_iter600.py [--config FILE] [--device cpu] [--start-iteration N --from POLICY] "
             "[--exploiter-steps N]")
    options.positional(0, usage)
    values = read_config(Path(options.values.get("--config", CONFIG)))
    values["device"] = options.values.get("--device", values["device"])
    if "--exploiter-steps" in options.values:
        values["exploiter_steps"] = options.integer("--exploiter-steps", 1, 1, MAX_STEPS)
        if not (values["use_opponent_pool"] and values["use_exploit_patch"]):
            raise ConfigError("--exploiter-steps has no effect: the file switches exploiters off")
    changes, notes = translate(values)
    if "--from" not in options.values:
        notes.append(NO_CHECKPOINT)
    changes["start_iteration"] = options.integer("--start-iteration", 0, 0, 10**9)
    base = api.configure("iter600_to_1000")
    changed = {key: value for key, value in changes.items() if settings.get(base, key) != value}
    config = api.configure("iter600_to_1000", changes=changed)
    folder = Path(options.values.get("--output", Path("runs") / str(values["experiment_name"])))
    if "--from" in options.values:
        source = Path(options.values["--from"])
        start = source if source.suffix == ".safetensors" else folder_of(str(source))
        api.train_from(start, config, folder, Console(), options.minutes(), notes)
    else:
        api.train(config, folder=folder, console=Console(), minutes=options.minutes(), notes=notes)
    return 0


if __name__ == "__main__":
    from rematch.cli.main import main

    sys.exit(main(act=train))
