"""Runs the earlier project's pursuit launch commands unchanged, translated into the recipe `ams_drl`.

    python compat/scripts/train_amsdrl.py --micro_phase_steps 2048 ... --output results/run_RA1 \
        > results/run_RA1/train.log 2>&1

FLAGS has one line per flag of the three reports. A flag without effect beside the others is a printed note
here, and an error everywhere else: the original commands contain such flags. The defaults of the original
script (partial observation, the safety filter, rollback outside micro-phases) hold here too.
docs/how_to/earlier_project.md describes the translation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLLOUT = 4 * 512  # steps of all games: four environments of 512 steps each, as in the earlier project
SHORT_PHASES = (100_000, 200_000, 300_000)  # steps of the first phases with --phase_warmup, two of each
SWITCH = object()  # a flag without a value
SET_BY_CURRICULUM = "with a curriculum, which sets it"


@dataclass(frozen=True)
class Flag:
    """A flag of the earlier project: its type, its default, and the setting of Rematch, if there is one."""

    kind: Any
    default: Any
    key: str = ""


FLAGS: dict[str, Flag] = {
    # the arena
    "arena_width": Flag(float, 20.0, "world.arena_width"),
    "arena_height": Flag(float, 20.0, "world.arena_height"),
    "max_steps": Flag(int, 1200, "world.max_steps"),
    "pursuer_v_max": Flag(float, 1.0, "world.pursuer_v_max"),
    "evader_v_max": Flag(float, 1.0, "world.evader_v_max"),
    "fixed_speed": Flag(SWITCH, False, "world.fixed_speed"),
    "prep_steps": Flag(int, 0, "world.prep_steps"),
    "n_obstacles": Flag(int, 3),
    "n_obstacle_obs": Flag(int, None),
    "min_init_distance": Flag(float, None),
    "max_init_distance": Flag(float, None),
    "full_obs": Flag(SWITCH, False, "world.full_obs"),
    "no_dcbf": Flag(SWITCH, False),
    # rewards
    "capture_bonus": Flag(float, 100.0, "world.capture_bonus"),
    "timeout_penalty": Flag(float, -100.0, "world.timeout_penalty"),
    "survival_bonus": Flag(float, 0.0, "world.survival_bonus"),
    "use_visibility_reward": Flag(SWITCH, False, "world.use_visibility_reward"),
    "visibility_weight": Flag(float, None),
    "w_obs_approach": Flag(float, 0.0, "world.w_obs_approach"),
    # schedule
    "micro_phase_steps": Flag(int, 0),
    "eval_interval_micro": Flag(int, None),
    "snapshot_freq_micro": Flag(int, None),
    "max_total_steps": Flag(int, None),
    "max_phases": Flag(int, None),
    "timesteps_per_phase": Flag(int, None),
    "cold_start_timesteps": Flag(int, 200_000, "schedule.warmup_steps"),
    "eta": Flag(float, None),
    "convergence_consecutive": Flag(int, 3),
    "phase_warmup": Flag(SWITCH, False),
    "evader_first_on_advance": Flag(SWITCH, False),
    "warm_start_evader": Flag(SWITCH, False),
    "warm_start_timesteps": Flag(int, None),
    "evader_multiplier": Flag(float, 1.0, "schedule.last_multiplier"),
    "adaptive_ratio_threshold": Flag(float, 0.0, "schedule.adaptive_threshold"),
    "adaptive_boost_phases": Flag(int, None),
    "lr_dampen_threshold": Flag(float, 0.0, "schedule.dampen_threshold"),
    "force_switch_steps": Flag(int, 0, "schedule.force_switch_steps"),
    "opponent_pool_size": Flag(int, 0),
    # levels
    "curriculum": Flag(SWITCH, False),
    "smooth_curriculum": Flag(SWITCH, False),
    "smooth_curriculum_increment": Flag(float, None),
    "min_obstacles": Flag(int, None),
    "ne_gap_advancement": Flag(SWITCH, False),
    "ne_gap_threshold": Flag(float, None),
    "ne_gap_consecutive": Flag(int, None),
    "min_phases_per_level": Flag(int, None),
    "min_escape_rate": Flag(float, None),
    "mixed_level_ratio": Flag(float, None),
    # rollback, EWC and RND
    "bilateral_rollback": Flag(SWITCH, False),
    "ewc_lambda": Flag(float, 0.0, "ewc.weight"),
    "ewc_fisher_samples": Flag(int, None),
    "rnd_coef": Flag(float, 0.0, "rnd.weight"),
    "rnd_hidden_dim": Flag(int, None),
    "rnd_embed_dim": Flag(int, None),
    "rnd_update_freq": Flag(int, None),
    # the run
    "seed": Flag(int, 0, "seed"),
    "output": Flag(str, ""),
}

# flag -> (setting, condition under which it has an effect, reason for the note otherwise)
Values = dict[str, Any]
CONDITIONAL: dict[str, tuple[str, Callable[[Values], bool], str]] = {
    "visibility_weight": ("world.visibility_weight", lambda g: g["use_visibility_reward"],
                          "without --use_visibility_reward"),
    "timesteps_per_phase": ("schedule.phase_steps", lambda g: not g["micro_phase_steps"],
                            "with micro-phases"),
    "max_phases": ("schedule.max_phases", lambda g: not g["micro_phase_steps"],
                   "with micro-phases: those run until convergence or --max_total_steps"),
    "adaptive_boost_phases": ("schedule.adaptive_phases", lambda g: g["adaptive_ratio_threshold"] > 0,
                              "without --adaptive_ratio_threshold"),
    "smooth_curriculum_increment": ("curriculum.increment", lambda g: g["smooth_curriculum"],
                                    "without --smooth_curriculum"),
    "min_obstacles": ("curriculum.min_obstacles", lambda g: g["smooth_curriculum"],
                      "without --smooth_curriculum: the number of obstacles is --n_obstacles"),
    "ne_gap_threshold": ("curriculum.gap_threshold", lambda g: has_curriculum(g) and g["ne_gap_advancement"],
                         "without a curriculum and --ne_gap_advancement"),
    "ne_gap_consecutive": ("curriculum.gap_consecutive",
                           lambda g: has_curriculum(g) and g["ne_gap_advancement"],
                           "without a curriculum and --ne_gap_advancement"),
    "min_phases_per_level": ("curriculum.min_phases", lambda g: has_curriculum(g), "without a curriculum"),
    "min_escape_rate": ("curriculum.min_escape_rate",
                        lambda g: has_curriculum(g) and not g["ne_gap_advancement"],
                        "without a curriculum that climbs by capture rate"),
    "mixed_level_ratio": ("curriculum.mixed_ratio", lambda g: has_curriculum(g), "without a curriculum"),
    "ewc_fisher_samples": ("ewc.fisher_samples", lambda g: g["ewc_lambda"] > 0, "without --ewc_lambda"),
    "rnd_hidden_dim": ("rnd.hidden", lambda g: g["rnd_coef"] > 0, "without --rnd_coef"),
    "rnd_embed_dim": ("rnd.embed", lambda g: g["rnd_coef"] > 0, "without --rnd_coef"),
    "rnd_update_freq": ("rnd.update_every", lambda g: g["rnd_coef"] > 0, "without --rnd_coef"),
    "min_init_distance": ("world.min_init_distance", lambda g: not has_curriculum(g), SET_BY_CURRICULUM),
    "max_init_distance": ("world.max_init_distance", lambda g: not has_curriculum(g), SET_BY_CURRICULUM),
    "n_obstacle_obs": ("world.n_obstacle_obs", lambda g: g["full_obs"],
                       "without --full_obs: the lidar shows obstacles"),
}  # fmt: skip


MEANINGS = {  # of the flags that are more than one setting, or none
    "n_obstacles": "number of obstacles in every episode",
    "no_dcbf": "switches the pursuer's safety filter off",
    "micro_phase_steps": "steps of a micro-phase; 0: long phases with rollback",
    "eval_interval_micro": "micro-phases between evaluations (50)",
    "snapshot_freq_micro": "micro-phases between snapshots for the pool (5)",
    "max_total_steps": "steps of a run with micro-phases (10000000)",
    "eta": "upper bound of the gap that counts as converged",
    "convergence_consecutive": "consecutive evaluations below eta that end the run; 0: never",
    "phase_warmup": "phases of 100K, 200K and 300K steps at first, two of each",
    "evader_first_on_advance": "on a new level the evader learns first",
    "warm_start_evader": "on a new level the evader has an additional phase",
    "warm_start_timesteps": "steps of that phase (50000)",
    "opponent_pool_size": "snapshots in each pool, which play half of the games; 0: no pool",
    "curriculum": "six discrete levels",
    "smooth_curriculum": "levels whose largest start distance grows by --smooth_curriculum_increment",
    "ne_gap_advancement": "levels advance when |SR_P - SR_E| is below --ne_gap_threshold",
    "bilateral_rollback": "a rollback restores both roles",
    "output": "folder of the run",
    "max_minutes": "stops after this number of minutes; `rematch resume` continues",
}


def has_curriculum(values: Values) -> bool:
    return bool(values["curriculum"] or values["smooth_curriculum"])


def parse(arguments: Sequence[str]) -> tuple[Values, list[str], dict[str, str]]:
    """(values of all flags, names of the flags on the command line, other options: --max-minutes)."""
    from rematch.core.config import nearest
    from rematch.core.errors import ConfigError

    values: Values = {name: flag.default for name, flag in FLAGS.items()}
    present: list[str] = []
    others: dict[str, str] = {}
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not argument.startswith("--") or (name not in FLAGS and name != "max_minutes"):
            near = nearest(name, [*FLAGS, "max_minutes"])
            raise ConfigError(f"unknown flag {argument!r}" + (f"; nearest: --{near}" if near else ""))
        if name in present or name in others:
            raise ConfigError(f"--{name} is given twice")
        switch = name in FLAGS and FLAGS[name].kind is SWITCH
        if switch and equals:
            raise ConfigError(f"--{name} takes no value")
        if not switch and not equals:
            if not queue:
                raise ConfigError(f"--{name} needs a value")
            value = queue.pop(0)
        if name == "max_minutes":
            others[name] = value
            continue
        present.append(name)
        try:
            values[name] = True if switch else FLAGS[name].kind(value)
        except ValueError:
            expected = {int: "a whole number", float: "a number"}[FLAGS[name].kind]
            raise ConfigError(f"--{name} = {value!r}: expected {expected}") from None
    if not values["output"]:
        raise ConfigError("--output is missing: expected the folder for the run")
    return values, present, others


def translate(values: Values, present: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(changes to the recipe `ams_drl`, a note for each flag without effect)."""
    v = values
    changes = {flag.key: v[name] for name, flag in FLAGS.items() if flag.key}
    notes = []
    for name in present:
        if name in CONDITIONAL:
            key, has_effect, reason = CONDITIONAL[name]
            if has_effect(v):
                changes[key] = v[name]
            else:
                notes.append(f"note: --{name} {v[name]} has no effect {reason}")
    changes |= {"world.n_obstacles_min": v["n_obstacles"], "world.n_obstacles_max": v["n_obstacles"]}
    changes["world.safety_filter"] = not v["no_dcbf"]
    changes |= schedule(v, notes)
    changes |= levels(v, notes)
    if v["opponent_pool_size"]:
        changes |= {"league.opponent_share": 0.5, "league.size": v["opponent_pool_size"]}
    elif v["snapshot_freq_micro"] is not None and v["micro_phase_steps"]:
        notes.append(f"note: --snapshot_freq_micro {v['snapshot_freq_micro']} has no effect without a pool")
    if v["bilateral_rollback"]:
        changes["rollback.bilateral"] = True
    return {key: value for key, value in changes.items() if value is not None}, notes


def schedule(v: Values, notes: list[str]) -> dict[str, Any]:
    """Changes for micro-phases, or for long alternating phases with rollback."""
    from rematch.core.errors import ConfigError

    changes: dict[str, Any] = {"schedule.convergence_consecutive": v["convergence_consecutive"]}
    if v["eta"] is not None and v["convergence_consecutive"]:
        changes["schedule.eta"] = v["eta"]
    elif v["eta"] is not None:
        notes.append(f"note: --eta {v['eta']} has no effect with --convergence_consecutive 0")
    if v["micro_phase_steps"]:
        if v["bilateral_rollback"]:
            raise ConfigError("--bilateral_rollback beside --micro_phase_steps: there is no rollback with "
                              "micro-phases, which are shorter than any judgement of them")
        rollouts = -(-v["micro_phase_steps"] // ROLLOUT)
        changes |= {
            "schedule.kind": "micro", "schedule.micro_phase_steps": v["micro_phase_steps"],
            "total_steps": _value_or(v["max_total_steps"], 10_000_000),
            "evaluation.every": _value_or(v["eval_interval_micro"], 50) * rollouts, "evaluation.games": 250,
            "save_every": 250,
        }  # fmt: skip
        if v["opponent_pool_size"]:
            changes["league.snapshot_every"] = _value_or(v["snapshot_freq_micro"], 5) * rollouts
    else:
        phases = v["max_phases"] or 12
        phase_steps = max(ROLLOUT, _value_or(v["timesteps_per_phase"], 500_000))
        warmup_steps = _value_or(v["warm_start_timesteps"], 50_000) if v["warm_start_evader"] else 0
        max_steps = phases * (int(phase_steps * max(1.0, v["evader_multiplier"])) + warmup_steps)
        changes |= {"rollback.checkpoints_back": 3, "total_steps": v["cold_start_timesteps"] + max_steps}
        if v["phase_warmup"] and phase_steps > SHORT_PHASES[0]:
            changes["schedule.short_phases"] = SHORT_PHASES
        elif v["phase_warmup"]:
            notes.append("note: --phase_warmup has no effect: its first phases have "
                         f"{SHORT_PHASES[0]} steps, and --timesteps_per_phase is {v['timesteps_per_phase']}")
        for name in ("eval_interval_micro", "snapshot_freq_micro", "max_total_steps"):
            if v[name] is not None:
                notes.append(f"note: --{name} {v[name]} has no effect without --micro_phase_steps")
    if v["phase_warmup"] and v["micro_phase_steps"]:
        notes.append("note: --phase_warmup has no effect with micro-phases")
    if v["evader_first_on_advance"]:
        changes["schedule.last_first"] = True
    if v["warm_start_evader"]:
        changes["schedule.level_warmup_steps"] = _value_or(v["warm_start_timesteps"], 50_000)
    elif v["warm_start_timesteps"] is not None:
        notes.append(f"note: --warm_start_timesteps {v['warm_start_timesteps']} has no effect without "
                     "--warm_start_evader")
    return changes


def _value_or(value: int | None, default: int) -> int:
    """`default` if the flag is absent; 0 is a value."""
    return default if value is None else value


def levels(v: Values, notes: list[str]) -> dict[str, Any]:
    if not has_curriculum(v):
        if v["ne_gap_advancement"]:
            notes.append("note: --ne_gap_advancement has no effect without a curriculum")
        return {}
    if v["curriculum"] and v["smooth_curriculum"]:
        notes.append("note: --curriculum has no effect beside --smooth_curriculum")
    changes = {"curriculum.kind": "smooth" if v["smooth_curriculum"] else "discrete"}
    if v["ne_gap_advancement"]:  # the original compares |SR_P - SR_E| itself, without an interval
        return changes | {"curriculum.by": "gap", "curriculum.gap_rule": "point"}
    return changes | {"curriculum.by": "capture"}


def help_text() -> str:
    """The flags with type, default, and meaning: that of the setting, where a flag is one setting."""
    from rematch import api
    from rematch.core import config as settings

    leaves = settings.leaves(api.configure("ams_drl"))
    helps = {key: field.metadata.get("help", "") for key, field, _ in leaves}
    lines = [__doc__ or "", "Flags (default):"]
    for name, flag in {**FLAGS, "max_minutes": Flag(float, None)}.items():
        key = flag.key or CONDITIONAL.get(name, ("",))[0]
        kind = "" if flag.kind is SWITCH else f" {flag.kind.__name__.upper()}"
        default = "" if flag.kind is SWITCH or flag.default in (None, "") else f" ({flag.default})"
        setting = f" [{key}]" if key else ""
        lines.append(f"  --{name}{kind}{default}: {MEANINGS.get(name) or helps[key]}{setting}")
    return "\n".join(lines)


def train(arguments: Sequence[str]) -> int:
    from rematch import api
    from rematch.cli.options import Options
    from rematch.core import config as settings
    from rematch.reporting.console import Console

    if {"--help", "-h"} & set(arguments):
        print(help_text())
        return 0
    values, present, others = parse(arguments)
    changes, notes = translate(values, present)
    base = api.configure("ams_drl")
    changes = {key: value for key, value in changes.items() if settings.get(base, key) != value}
    limit = [f"--max-minutes={text}" for text in others.values()]
    minutes = Options(limit, single=("--max-minutes",)).minutes()
    config = api.configure("ams_drl", changes=changes)
    api.train(config, folder=Path(values["output"]), console=Console(), minutes=minutes, notes=notes)
    return 0


if __name__ == "__main__":
    from rematch.cli.main import main

    sys.exit(main(act=train))
