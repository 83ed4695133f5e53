"""The card-game document's configuration, key by key, as a translation into the recipe `iter600_to_1000`.

    python compat/train_iter600.py [--config FILE] [--device cpu] [--start-iteration 600 --from POLICY]
                                   [--output FOLDER] [--max-minutes M]

FILE is compat/configs/iter600_to_1000.yaml, word for word the document's, unless another is named. There is
no file of its iteration 600, and a foreign one would not be loaded: --from begins with a policy of ours.
A key that cannot mean here what it meant there is refused, or said to be read otherwise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parent / "configs" / "iter600_to_1000.yaml"
STEPS = 24  # turns of a game for two, at most: an iteration is `games_per_iteration` games of so many
NAMED = ("random", "heuristic", "aggressive", "defensive", "queue", "skunk", "noisy", "online",
         "outcome_heuristic", "distilled_outcome")  # fmt: skip

# the document's key -> ours, where the value goes over as it is
SAME = {
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
OTHER = (
    "ppo_config.learning_rate", "ppo_config.entropy_coef", "ppo_config.normalize_advantages",
    "ppo_config.clip_value", "total_iterations", "entropy_schedule", "entropy_end", "temperature_schedule",
    "temperature_end", "use_opponent_pool", "use_adaptive_weights", "min_opponent_weight",
    "opponent_config.current_weight", "opponent_config.checkpoint_weight", "opponent_config.random_weight",
    "opponent_config.heuristic_weight", "opponent_config.max_checkpoints", "use_heuristic_variants",
    "use_exploit_patch", "exploit_patch_interval", "force_cython", "async_game_generation",
    "async_num_workers", "buffer_size", "device", "experiment_name", "eval_opponents",
)  # fmt: skip
Given = Mapping[str, Any]
FINAL_VALUES = {"entropy": "ppo.entropy_weight_final", "temperature": "ppo.temperature_final"}


def read(path: Path) -> dict[str, Any]:
    """The file's keys, dotted: exactly those of the document."""
    from rematch.core import config as settings
    from rematch.core.errors import ConfigError

    try:
        found = settings.read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{path}: cannot be read: {why}") from None
    known = [*SAME, *OTHER]
    for key, value in found.items():
        if key not in known:
            near = settings.nearest(key, known)
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(f"{path}: unknown key {key} = {value!r}{hint}")
    for key in known:
        if key not in found:
            raise ConfigError(f"{path}: {key} is missing")
    return found


def schedules(g: Given) -> dict[str, Any]:
    """Entropy and temperature go the same way from start to end, or stay where they are."""
    from rematch.core.annealing import ANNEALING_SHAPES
    from rematch.core.errors import ConfigError

    shapes = {name: g[f"{name}_schedule"] for name in ("entropy", "temperature")}
    for name, shape in shapes.items():
        if shape not in ANNEALING_SHAPES:
            raise ConfigError(f"{name}_schedule = {shape!r}: expected one of {', '.join(ANNEALING_SHAPES)}")
    moving = {shape for shape in shapes.values() if shape != "none"}
    if len(moving) > 1:
        raise ConfigError(f"temperature_schedule = {shapes['temperature']!r}: expected the shape of "
                          f"entropy_schedule = {shapes['entropy']!r}, or none")
    if not moving:
        return {"ppo.anneal": "none"}
    out = {"ppo.anneal": moving.pop(), "ppo.lr_final": g["ppo_config.learning_rate"]}
    for name, shape in shapes.items():
        out[FINAL_VALUES[name]] = g[f"{name}_{'start' if shape == 'none' else 'end'}"]
    return out


def rivals(g: Given, notes: list[str]) -> dict[str, Any]:
    """Shares of the current self, of past ones and of named opponents."""
    from rematch.core.errors import ConfigError

    if not g["use_opponent_pool"]:
        notes.append("note: use_opponent_pool false: the opponents' settings have no effect")
        return {"league.opponent_share": 0.0}
    names = ("current", "checkpoint", "random", "heuristic")
    current, past, random, heuristic = (float(g[f"opponent_config.{name}_weight"]) for name in names)
    total = current + past + random + heuristic
    if abs(total - 1) > 1e-6 or min(current, past, random, heuristic) < 0 or current == 1:
        raise ConfigError(f"opponent_config: the weights add up to {total:g}; expected 1, and some rivals")
    adaptive = bool(g["use_adaptive_weights"])
    if not adaptive:
        notes.append("note: use_adaptive_weights false: named opponents are met equally often")
    out = {
        "league.opponent_share": 1 - current, "league.matchmaking": "adaptive" if adaptive else "uniform",
        "league.size": g["opponent_config.max_checkpoints"],
        "league.snapshot_every": g["checkpoint_frequency"],
        "league.bots": NAMED if g["use_heuristic_variants"] else NAMED[:2],
        "league.bot_share": (random + heuristic) / (1 - current),
        "exploiters.every": g["exploit_patch_interval"] if g["use_exploit_patch"] else 0,
    }  # fmt: skip
    return out | ({"league.adaptive_floor": g["min_opponent_weight"]} if adaptive else {})


def machine(g: Given, notes: list[str]) -> dict[str, Any]:
    """Who generates games, on what, and how many of them fit."""
    from rematch.core.errors import ConfigError

    if g["force_cython"] is not True:
        found = g["force_cython"]
        raise ConfigError(f"force_cython = {found!r}: the native core is the only one; expected true")
    made = g["games_per_iteration"] * STEPS
    if made > g["buffer_size"]:
        raise ConfigError(f"buffer_size = {g['buffer_size']}: an iteration makes {made} transitions "
                          f"({g['games_per_iteration']} games of {STEPS}); expected at least that")
    cores = len(os.sched_getaffinity(0))
    threads = min(g["async_num_workers"], cores) if g["async_game_generation"] else 1
    if threads < g["async_num_workers"]:
        why = f"there are {cores} cores" if g["async_game_generation"] else "async_game_generation is false"
        notes.append(f"note: async_num_workers {g['async_num_workers']}: {threads}, for {why}; "
                     "they are threads of this process")
    if g["device"] == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("device = cuda: there is no GPU here; expected --device cpu")
    return {"threads": threads, "network.device": g["device"]}


def translate(g: Given) -> tuple[dict[str, Any], list[str]]:
    """Changes to the recipe, and a note for each key that is read otherwise."""
    from rematch.core.errors import ConfigError

    notes: list[str] = []
    if g["ppo_config.normalize_advantages"] is not True:
        raise ConfigError("ppo_config.normalize_advantages = false: they always are; expected true")
    if g["ppo_config.entropy_coef"] != g["entropy_start"]:
        notes.append(f"note: ppo_config.entropy_coef {g['ppo_config.entropy_coef']} has no effect: the "
                     f"schedule begins at entropy_start {g['entropy_start']}")
    changes: dict[str, Any] = {ours: g[theirs] for theirs, ours in SAME.items()}
    changes |= {
        "ppo.lr": g["ppo_config.learning_rate"], "steps": STEPS,
        "ppo.value_clip": g["ppo_config.clip_epsilon"] if g["ppo_config.clip_value"] else 0.0,
        "total_steps": g["total_iterations"] * g["games_per_iteration"] * STEPS, "start_iteration": 0,
        "evaluation.opponents": tuple(g["eval_opponents"]),
    }  # fmt: skip
    return changes | machine(g, notes) | schedules(g) | rivals(g, notes), notes


def train(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.cli.options import Options, folder_of
    from rematch.core import config as settings
    from rematch.reporting.console import Console

    values = ("--config", "--device", "--start-iteration", "--from", "--output", "--max-minutes")
    options = Options(words, values)
    usage = "train_iter600.py [--config FILE] [--device cpu] [--start-iteration N --from POLICY]"
    options.positional(0, usage)
    given = read(Path(options.values.get("--config", CONFIG)))
    given["device"] = options.values.get("--device", given["device"])
    changes, notes = translate(given)
    changes["start_iteration"] = options.integer("--start-iteration", 0, 0, 10**9)
    base = api.configure("iter600_to_1000")
    changed = {key: value for key, value in changes.items() if settings.get(base, key) != value}
    config = api.configure("iter600_to_1000", changes=changed)
    folder = Path(options.values.get("--output", Path("runs") / str(given["experiment_name"])))
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
