"""Versions of the checkpoint format, and the steps that bring an older checkpoint forward.

Every manifest holds the version of the state beside it; a manifest without one is version 0. `STEPS[v]` turns
the parts of a checkpoint of version v into those of version v + 1. A step gets the whole tree as it was read:
it renames keys, splits arrays or adds what is missing, and may change the tree in place. Arrays that live in
chunk files stand in the tree as `ArrayChunk`; a step that changes them reads the chunk and puts a new one
(`ArrayChunk.from_arrays`) in its place, which the next save writes.

A run's logs are never rewritten: the alias tables below give the present names of what they hold. In a table
`*` stands for any text, the same on both sides: {"*/r_way": "*/demo_progress"}.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rematch.core.arrays import Tree
from rematch.core.errors import Damaged, RunError
from rematch.storage.array_chunks import ArrayChunk

Parts = dict[str, Tree]
Step = Callable[[Parts], Parts]
Value = TypeVar("Value")

REWARD_TERMS = {"rnd": "rnd_images", "novel": "count_bonus", "bayes": "milestones", "way": "demo_progress"}
REWARD_COLUMNS = ("env", *REWARD_TERMS)  # version 0 stored all of them in one array, in this order


def name_parts_by_component(parts: Parts) -> Parts:
    """Version 0 -> 1: parts are named by component, reward terms are columns of their own."""
    clock = dict(parts.pop("session"))
    out: Parts = {"clock": {
        "iteration": clock["iteration"], "learner_steps": clock["learner_steps"],
        "finished_games": clock["finished"], "end_reason": clock["ended"],
        "evaluation_pending": clock.get("owed", False),
    }}  # fmt: skip
    world = out["world_state"] = parts.pop("world")
    schedule = out["schedule"] = parts.pop("schedule")
    learned, phase = schedule.pop("learnt"), schedule["phase"]
    phase["level_warmup"] = phase.pop("warm")
    pools = parts.pop("league")
    if world["slot"].shape[1] > 1 and all(len(pool["held"]) > 1 for pool in pools.values()):
        out["league"] = {"pools": pools, "learned": learned}
    _name_savestates(parts, out)
    for name, new in (("rollback", "rollback"), ("curriculum", "curriculum"), ("scouts", "explorers")):
        if name in parts:
            out[new] = parts.pop(name)
    for name in [name for name in parts if name.startswith(("ewc.", "rnd.", "learner."))]:
        kind, _, role = name.partition(".")
        out.setdefault("learners" if kind == "learner" else kind, {})[role] = parts.pop(name)
    terms: list[str] = []
    for role, learner in out["learners"].items():
        for old, state in learner.pop("bonuses", {}).items():
            out[REWARD_TERMS[old]] = {role: state}
            terms.append(old)
        if "rest" in learner.get("replay", {}):
            _name_reward_columns(learner["replay"], terms)
    if "diary" in parts:
        out["episode_log"] = _episode_log(parts.pop("diary"), terms)
    if parts:
        raise ValueError(f"unknown parts {', '.join(parts)}")
    return out


def _name_savestates(parts: Parts, out: Parts) -> None:
    """The demonstrations get a part of their own."""
    if "swarm" not in parts:
        return
    out["savestates"] = parts.pop("swarm")
    forced = out["savestates"].pop("practice")
    if forced is not None:
        out["demonstrations"] = {
            "actions": forced["left"], "helped": forced["helped"], "index": forced["at"],
            "sizes": forced["sizes"], "demonstration": forced["way"],
        }  # fmt: skip


def _columns(terms: list[str]) -> list[int]:
    """Where the world's reward and these terms stood in an array of version 0."""
    return [index for index, name in enumerate(REWARD_COLUMNS) if name == "env" or name in terms]


def _name_reward_columns(replay: Tree, terms: list[str]) -> None:
    def split(arrays: Tree) -> Tree:
        reward = arrays.pop("reward")
        for index in _columns(terms):
            name = REWARD_TERMS.get(REWARD_COLUMNS[index], "env")
            arrays[f"reward.{name}"] = np.ascontiguousarray(reward[..., index])
        return arrays

    replay["rest"] = split(replay["rest"])
    chunks = [(chunk.name.split(".")[0], chunk.arrays()) for chunk in replay["chunks"]]
    replay["chunks"] = [ArrayChunk.from_arrays(name, split(arrays)) for name, arrays in chunks]


def _episode_log(diary: Tree, terms: list[str]) -> Tree:
    """Columns of terms that are switched off go."""
    columns = _columns(terms)
    diary["returns"], diary["paid"] = diary["returns"][:, columns], diary["paid"][columns]
    recent = [0, 1, *(2 + index for index in columns)]  # length and total return stand before them
    diary["recent"] = np.ascontiguousarray(diary["recent"][:, recent])
    diary["returns"], diary["paid"] = np.ascontiguousarray(diary["returns"]), diary["paid"].copy()
    return diary


def use_plain_names(parts: Parts) -> Parts:
    """Version 1 -> 2: lookahead's replay calls its observations `obs`."""
    for learner in parts.get("learners", {}).values():
        if "sight" in learner:
            learner["obs"] = learner.pop("sight")
    return parts


def name_search_targets(parts: Parts) -> Parts:
    """Version 2 -> 3: the replay buffer of expert iteration names its targets as the code does."""
    for learner in parts.get("learners", {}).values():
        for old, new in (("found", "q_targets"), ("worth", "value_targets")):
            if old in learner:
                learner[new] = learner.pop(old)
    return parts


STEPS: tuple[Step, ...] = (name_parts_by_component, use_plain_names, name_search_targets)
VERSION = len(STEPS)  # the version that this code writes

RETURN_NAMES = {f"return_{old}": f"return_{new}" for old, new in REWARD_TERMS.items()}

METRIC_NAMES: dict[str, str] = {  # metrics.jsonl: old name -> present name
    **{f"*/r_{old}": f"*/r_{new}" for old, new in REWARD_TERMS.items()},
    **{f"recent/{old}": f"recent/{new}" for old, new in RETURN_NAMES.items()},
}
HISTORY_NAMES: dict[str, str] = {}  # history.json and the other JSON files: keys, at any depth
EVENT_NAMES: dict[str, str] = dict(RETURN_NAMES)  # events.jsonl: keys, at any depth
COLUMN_NAMES: dict[str, str] = dict(RETURN_NAMES)  # episodes.csv and progress.csv: columns
FIELD_NAMES: dict[str, str] = {"sight.*": "observation.*"}  # columns that an exported policy observes
WEIGHT_NAMES: dict[str, str] = {  # arrays of an exported or past policy
    # transformer
    "place.table": "position.table", "last.scale": "final_norm.scale", "last.bias": "final_norm.bias",
    "layer.*.ask.weight": "layer.*.attn.qkv.weight", "layer.*.ask.bias": "layer.*.attn.qkv.bias",
    "layer.*.told.weight": "layer.*.attn.out.weight", "layer.*.told.bias": "layer.*.attn.out.bias",
    "layer.*.first.scale": "layer.*.norm1.scale", "layer.*.first.bias": "layer.*.norm1.bias",
    "layer.*.second.scale": "layer.*.norm2.scale", "layer.*.second.bias": "layer.*.norm2.bias",
    # recurrent Q network
    "eye.*": "conv_encoder.*", "map.weight": "visited_conv.weight", "map.bias": "visited_conv.bias",
    "table.weight": "embedding.weight", "mix.weight": "conv_proj.weight",
    "count.weight": "number_proj.weight", "count.bias": "number_proj.bias",
    "mixed.weight": "input_norm.weight", "mixed.bias": "input_norm.bias",
    "layers.*.look.weight": "layers.*.input.weight", "layers.*.look.bias": "layers.*.input.bias",
    "layers.*.recall.weight": "layers.*.recurrent.weight", "layers.*.recall.bias": "layers.*.recurrent.bias",
    "layers.ssm.fading": "layers.ssm.log_decay",
    "layers.ssm.tell.weight": "layers.ssm.output.weight", "layers.ssm.tell.bias": "layers.ssm.output.bias",
    "layers.ssm.through.weight": "layers.ssm.skip.weight", "layers.ssm.through.bias": "layers.ssm.skip.bias",
    "first.weight": "head_proj.weight", "first.bias": "head_proj.bias",
    "firsts.weight": "head_norm.weight", "firsts.bias": "head_norm.bias",
}  # fmt: skip
FILE_NAMES: dict[str, str] = {"sight.json": "observations.json"}  # files of a run folder

# Old names that are present ones of something else: such a name is old only beside the name on the right.
OLD_BESIDE: dict[str, str] = {
    "*/r_rnd": "*/r_novel", "recent/return_rnd": "recent/return_novel", "return_rnd": "return_novel",
}  # fmt: skip


def check_version(version: object, folder: Path) -> int:
    """The version in the manifest of `folder`, if this code can read it.

    Damaged where it is no version; RunError, which no other checkpoint makes good, where it is a newer one.
    """
    if type(version) is not int or version < 0:
        raise Damaged(f"version = {version!r:.40}: expected a whole number from 0")
    if version > len(STEPS):
        raise RunError(f"{folder} is a checkpoint of a newer version, {version}: this rematch reads versions "
                       f"up to {len(STEPS)}; update it to read this run")
    return version


def migrate(parts: Parts, version: int) -> Parts:
    """The parts of a checkpoint of `version` as the present version has them."""
    for number in range(version, len(STEPS)):
        try:
            parts = STEPS[number](parts)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Damaged(f"its state is not one of version {number}: {error}") from None
    return parts


def present_name(name: str, table: Mapping[str, str]) -> str:
    """What `name` is called now: by its own entry in `table`, else by the first pattern that fits."""
    if name in table:
        return table[name]
    for old, new in table.items():
        head, star, tail = old.partition("*")
        fits = star and len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)
        if fits:
            return new.replace("*", name[len(head) : len(name) - len(tail)], 1)
    return name


def present_names(values: Mapping[str, Value], table: Mapping[str, str]) -> dict[str, Value]:
    """The same values under their present names."""
    return {_present_beside(name, values, table): value for name, value in values.items()}


def present_weights(arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Arrays of a policy file under their present names; past policies have "ROLE/" before each name."""
    out: dict[str, Value] = {}
    for name, value in arrays.items():
        role, slash, weight = name.rpartition("/")
        out[f"{role}{slash}{present_name(weight, WEIGHT_NAMES)}"] = value
    return out


def present_columns(columns: Sequence[str]) -> list[str]:
    """The present names of a table's columns."""
    return [_present_beside(name, columns, COLUMN_NAMES) for name in columns]


def _present_beside(name: str, others: Container[str], table: Mapping[str, str]) -> str:
    beside = present_name(name, OLD_BESIDE)
    return name if beside != name and beside not in others else present_name(name, table)
