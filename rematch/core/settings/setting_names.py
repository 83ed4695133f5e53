"""Names of settings: old names that are still accepted, words of other libraries, and the nearest name.

A renamed setting gets one line in RENAMED, a renamed value of a setting one in RENAMED_VALUES. Old names then
work in flags, recipes, `--config` files, Python changes and stored runs. SYNONYMS are suggested in error
messages and never accepted.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence

# Old dotted key -> present key. An entry may name a whole part: {"bands": "savestates"} renames all its keys.
RENAMED: dict[str, str] = {
    "world.sight": "world.observation",  # OpenSpiel
    "world.document_variant": "world.earlier_rules",  # Beasty Bar
    "anywhere": "random_starts.fraction",
    "swarm": "savestates.mode",
    "savestates.from": "savestates.import_from",  # a shorter spelling; `from` cannot be a name in Python
    "bands.power_on": "savestates.power_on",
    "bands.early": "savestates.early",
    "bands.mid": "savestates.mid",
    "bands.late": "savestates.late",
    "bands.practice": "demonstrations.enabled",
    "bands.way": "demo_progress.weight",
    "bands.way_columns": "demo_progress.columns",
    "bands.way_marks": "demo_progress.required_milestones",
    "bands.way_window": "demo_progress.window",
    "bands.scouts": "explorers.games",
    "bands.scout_steps": "explorers.steps",
    "bands.scout_patience": "explorers.patience",
    "bands.squares": "explorers.cell_size",
    "novelty.weight": "count_bonus.weight",
    "novelty.columns": "count_bonus.columns",
    "novelty.lifelong": "count_bonus.lifelong",
    "rnd_screen.weight": "rnd_images.weight",
    "rnd_screen.embed": "rnd_images.embed",
    "rnd_screen.lr": "rnd_images.lr",
    "rnd_screen.update_every": "rnd_images.update_every",
    "rnd.coef": "rnd.weight",
    "watch.log_interval": "episode_log.interval",
    "watch.video_interval": "episode_video.interval",
    "watch.video_steps": "episode_video.max_steps",
    "league.exploit_every": "exploiters.every",
    "league.exploit_steps": "exploiters.steps",
    "league.exploit_keep": "exploiters.min_win_rate",
    "evaluation.past": "past_policies.count",
    "evaluation.rivals": "evaluation.opponents",
    "schedule.cold_start_steps": "schedule.warmup_steps",
    "schedule.cold_start_rival": "schedule.warmup_opponent",
    "schedule.phase_warmup": "schedule.short_phases",
    "schedule.warm_start_steps": "schedule.level_warmup_steps",
    "league.history": "league.opponent_share",
    "league.pick": "league.matchmaking",
    "league.keep": "league.replacement",
    "league.scripted": "league.bots",
    "league.scripted_share": "league.bot_share",
    "dqn.replay": "dqn.replay_size",
    "dqn.ladder": "dqn.epsilon_exponent",
    "dqn.epsilon_share": "dqn.epsilon_fraction",
    "dqn.epsilon_play": "dqn.evaluation_epsilon",
    "dqn.gap": "dqn.advantage_gap",
    "dqn.trace": "dqn.trace_lambda",
    "dqn.trace_while": "dqn.trace_cut",
    "lookahead.replay": "lookahead.replay_size",
    "lookahead.passes": "lookahead.replay_ratio",
    "lookahead.minibatch": "lookahead.minibatch_size",
    "expert.replay": "expert.replay_size",
    "expert.passes": "expert.replay_ratio",
    "expert.minibatch": "expert.minibatch_size",
    "ppo.value": "ppo.value_weight",
    "ppo.entropy": "ppo.entropy_weight",
    "ppo.entropy_final": "ppo.entropy_weight_final",
    "ppo.lam": "ppo.gae_lambda",
    "ppo.minibatch": "ppo.minibatch_size",
    "ppo.average": "ppo.average_fraction",
    "ppo.magnet": "ppo.magnet_weight",
    "expert.value": "expert.value_weight",
    "rollback.back": "rollback.checkpoints_back",
    "rollback.low": "rollback.min_win_rate",
    "rollback.high": "rollback.max_win_rate",
}

# (present key, old value) -> present value
RENAMED_VALUES: dict[tuple[str, str], str] = {
    ("schedule.kind", "together"): "simultaneous",
    ("schedule.kind", "alternate"): "alternating",
    ("network.critic", "all"): "centralized",
}

# Name in another library -> last part of our key, or a whole key where several keys end in it
SYNONYMS = {
    "algo": "learner", "algorithm": "learner", "env": "game", "env_id": "game", "environment": "game",
    "random_seed": "seed", "num_threads": "threads", "n_jobs": "threads", "num_cpus": "threads",
    "num_envs": "games", "n_envs": "games", "num_games": "games", "nenvs": "games",
    "n_steps": "steps", "num_steps": "steps", "rollout_length": "steps", "horizon_length": "steps",
    "timesteps": "total_steps", "total_timesteps": "total_steps", "num_timesteps": "total_steps",
    "learning_rate": "lr", "alpha_lr": "lr", "step_size": "lr", "lr_schedule": "anneal",
    "batch_size": "minibatch_size", "mini_batch_size": "minibatch_size",
    "num_minibatches": "minibatch_size", "n_epochs": "epochs", "num_epochs": "epochs",
    "update_epochs": "epochs",
    "discount": "gamma", "discount_factor": "gamma", "lambda": "gae_lambda", "lambda_": "gae_lambda",
    "clip_range": "clip", "clip_coef": "clip", "clip_eps": "clip", "clip_epsilon": "clip",
    "clip_range_vf": "value_clip", "vf_clip": "value_clip", "vf_coef": "value_weight",
    "value_coef": "value_weight",
    "ent_coef": "entropy_weight", "entropy_coef": "entropy_weight", "entropy_bonus": "entropy_weight",
    "grad_clip": "max_grad_norm", "clip_grad_norm": "max_grad_norm", "kl_target": "target_kl",
    "hidden_size": "hidden", "hidden_sizes": "hidden", "net_arch": "hidden", "activation_fn": "activation",
    "num_layers": "layers", "n_layers": "layers", "num_heads": "heads", "n_heads": "heads",
    "d_model": "width", "buffer_size": "replay_size", "learning_starts": "warmup",
    "target_update_interval": "target_every", "exploration_fraction": "epsilon_fraction",
    "exploration_initial_eps": "epsilon", "exploration_final_eps": "epsilon_final", "eps": "epsilon",
    "save_freq": "save_every", "save_interval": "save_every", "checkpoint_freq": "save_every",
    "checkpoint_every": "save_every", "eval_freq": "evaluation.every", "eval_every": "evaluation.every",
    "eval_interval": "evaluation.every", "eval_episodes": "evaluation.games",
    "n_eval_episodes": "evaluation.games", "log_every": "episode_log.interval",
    "log_freq": "episode_log.interval", "evader_speed": "evader_v_max", "pursuer_speed": "pursuer_v_max",
}  # fmt: skip

_noted: set[str] = set()  # notes that this process has printed


def present_key(key: str) -> str:
    """The present name of a dotted key: by its entry in RENAMED, else by the entry of its part."""
    part, suffix = key, ""
    while part:
        if part in RENAMED:
            return RENAMED[part] + suffix
        part, dot, leaf = part.rpartition(".")
        suffix = dot + leaf + suffix
    return key


def present_value(key: str, value: str) -> str:
    """The present name of a value of the setting with this present key."""
    return RENAMED_VALUES.get((key, value)) or RENAMED_VALUES.get((key, value.lower()), value)


def note_renamed(old: str, new: str) -> None:
    """Warn once in a process that `old` is now called `new`."""
    note = f"{old} is now {new}"
    if note not in _noted:
        _noted.add(note)
        warnings.warn(note, FutureWarning, stacklevel=2)


def known_name(word: str, names: Iterable[str]) -> str:
    """The name that differs from `word` in upper and lower case only; `word` itself where there is none."""
    candidates = list(names)
    same = [name for name in candidates if name.casefold() == word.casefold()]
    return same[0] if word not in candidates and len(same) == 1 else word


def nearest(word: str, among: Sequence[str]) -> str:
    """The name most like `word`: the same last part first, then similar names; empty if none is similar."""
    leaf = word.rpartition(".")[2]
    same_leaf = [name for name in among if name.rpartition(".")[2] == leaf]
    if same_leaf:
        return same_leaf[0]
    similar = difflib.get_close_matches(word, among, n=1, cutoff=0.6)
    if similar:
        return similar[0]
    by_leaf = {name.rpartition(".")[2]: name for name in reversed(among)}
    similar_leaf = difflib.get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.5)
    return by_leaf[similar_leaf[0]] if similar_leaf else ""


def nearest_setting(word: str, keys: Sequence[str], prefix: str = "") -> str:
    """The key among `keys` that an unknown `word` most likely means; empty if none is similar.

    In this order: a key with the same last part, the synonym, an old name, a similar name of any kind.
    """
    leaf = word.rpartition(".")[2]
    if any(key.rpartition(".")[2] == leaf for key in keys):
        return nearest(word, keys)
    meanings = _synonym_keys(word.rpartition(".")[0], keys)
    if leaf in meanings:
        return meanings[leaf]
    meanings |= _old_names(keys, prefix) | {key: key for key in keys}
    close = nearest(word, list(meanings))
    return meanings[close] if close else ""


def _synonym_keys(part: str, keys: Sequence[str]) -> dict[str, str]:
    """Synonym -> the key it means: in this part of the config if possible, else the first in the config."""
    meanings: dict[str, str] = {}
    for word, target in SYNONYMS.items():
        keys_of_target = [key for key in keys if key == target or key.rpartition(".")[2] == target]
        in_part = [key for key in keys_of_target if key.rpartition(".")[0] == part]
        if keys_of_target:
            meanings[word] = (in_part or keys_of_target)[0]
    return meanings


def _old_names(keys: Sequence[str], prefix: str) -> dict[str, str]:
    """Old name -> present key, for all `keys`; both without the prefix."""
    old_names: dict[str, str] = {}
    for old, new in RENAMED.items():
        for key in keys:
            if prefix + key == new or (prefix + key).startswith(new + "."):
                old_names[(old + (prefix + key).removeprefix(new)).removeprefix(prefix)] = key
    return old_names
