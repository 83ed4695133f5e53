"""No knob is dead and no knob lies: a rehearsal reads every setting, and every setting changes what happens.

Live-knob: for every leaf of the config, under a base that enables its feature, another value changes the
digest of the whole event log (DESIGN section 4, rule 2), in which the settings themselves do not stand.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support import advancing_curriculum, single_seat_worlds, toys

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.compare import event_log, events
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import play
from rematch.training.components import evaluator
from rematch.training.config import no_effect
from rematch.worlds import registry

COSMETIC = ("threads", "save_seconds")  # frozen: fields that must NOT change what happens; ten at most
APART = ("game", "device", "dqn.device")  # another game is another set of settings; a device, another machine

# A run of less than a tenth of a second in which games end both ways, snapshots sit and are replaced.
TINY: dict[str, Any] = {
    "threads": 1, "games": 24, "steps": 8, "total_steps": 24 * 8 * 4, "save_every": 2,
    "world.arena_width": 5.0, "world.arena_height": 5.0, "world.dt": 0.2, "world.max_steps": 9,
    "world.pursuer_v_max": 1.6, "world.min_init_distance": 0.8, "world.max_init_distance": 3.0,
    "world.n_obstacles_min": 1, "world.obstacle_radius_min": 0.2, "world.obstacle_radius_max": 0.5,
    "world.obstacle_gap": 0.3, "world.obstacle_margin": 0.3,
    "network.hidden": (8, 8), "ppo.minibatch_size": 64, "ppo.epochs": 2, "ppo.lr": 0.01,
    "league.opponent_share": 0.6, "league.snapshot_every": 1, "league.size": 2, "league.slots": 2,
    "league.rotate": 1, "evaluation.every": 2, "evaluation.games": 4, "evaluation.opponents": ("random",),
}

# Settings that do something in other worlds only: which one, and what the tiny run is there.
SMALL_BOARD = {"world.n": 4, "world.horizon": 5, "lookahead.minibatch_size": 32}
LEVELS = ("curriculum", "schedule.last_first", "schedule.level_warmup_steps")
ELSE = dict.fromkeys(("random_starts", "learner", "lookahead", *LEVELS), ("lattice", SMALL_BOARD))
OPEN = dict.fromkeys(("world.min_init_distance", "world.max_init_distance"))  # the levels set them
# Those of encoders need a history, those of critics something aside: tests/support/toys.py has a world with
# both.
MEMORY = ("network.critic", "network.encoder", "network.encoder_hidden", "network.belief_weight")
ELSE |= dict.fromkeys(MEMORY, ("recall", {}))
ELSE["network.table"] = ("beasty", {"network.hidden": (8,), "network.shared": False})  # names things
ELSE |= dict.fromkeys(("ppo.temperature", "ppo.temperature_final"), ("lattice", SMALL_BOARD))  # choices
# Those of transformers in tests/agents/networks/test_transformer.py, those of expert iteration in
# tests/agents/learners/test_expert_iteration.py.
TOKENS = ("network.width", "network.heads", "network.layers", "network.dropout", "network.embedding")
OWN_CODE = ("components", "reward_terms", "network.module")  # in tests/training/test_user_components.py
ELSEWHERE_TESTED = (*TOKENS, *OWN_CODE, "network.device")
# in tests/curriculum/test_savestate_archive.py and tests/training/test_world_map.py: they need savestates
SAVESTATES = ("savestates.", "explorers.", "demonstrations.", "demo_progress.", "milestones.",
              "world_map.")

# Those of dqn need a seat alone, with a picture and a map.
ALONE = single_seat_worlds.SMALL | {"total_steps": 4 * 8 * 6, "evaluation.every": 6}
ELSE["imitation"] = "pursuit", {"imitation.steps": 24 * 8, "imitation.teachers": ("lion", "obstacle_orbit")}
ELSE |= dict.fromkeys(("dqn", "count_bonus", "rnd_images", "episode_log", "episode_video"), ("stroll", ALONE))

# What a knob needs beyond its own `needs`, so that its value can show.
LONG = {"total_steps": 24 * 8 * 8, "league.size": 6}  # rivals enough that their records differ
SEEN = {"world.w_vis_pursuer": 1.0, "world.sight_range": 2.0, "world.sight_half_angle": 90.0}
CALM = {"evaluation.games": 40, "evaluation.alarm_swing": 1.0}
WARM = {"schedule.kind": "alternating", "schedule.warmup_steps": 24 * 8}  # S0 is one iteration of four
COLD = {"schedule.warmup_steps": 0}
TURNS = COLD | {"schedule.kind": "alternating", "schedule.phase_steps": 24 * 8}
PLAYED = {"total_steps": 24 * 8 * 8, "evaluation.every": 1, "evaluation.games": 40}
CLIMB = PLAYED | {"curriculum.kind": "smooth", "curriculum.capture_rate": 0.0, "curriculum.increment": 1.0}
BY_GAP = CLIMB | {"curriculum.by": "gap", "curriculum.gap_threshold": 0.999, "curriculum.gap_consecutive": 1}
FALL = CLIMB | {"curriculum.min_phases": 2, "curriculum.regress_after": 1, "curriculum.regress_rate": 1.0}
EVEN = {"evaluation.alarm_gap": 1.0, "evaluation.alarm_steps": 0, "evaluation.alarm_swing": 1.0}
# Rollbacks whenever a game has ended, whoever won it; or never, with a checkpoint at each iteration.
FIRING = {"rollback.every": 24 * 8, "rollback.episodes": 1, "rollback.min_win_rate": 0.4999,
          "rollback.max_win_rate": 0.5,
          "rollback.cooldown": 0, "total_steps": 24 * 8 * 6}
KEEPING = {"rollback.every": 24 * 8}
# Of two scripted pursuers one is met in evaluations, and each loses and wins.
FEW = {"network.width": 4, "network.heads": 1, "network.layers": 1, "network.embedding": 2}
EXPLOITERS = {"exploiters.every": 2, "exploiters.steps": 24 * 8, "exploiters.min_win_rate": 0.0}
MET = {"league.bots": ("lion", "random"), "evaluation.opponents": ("lion", "random"), "evaluation.games": 20}
ALSO: dict[str, dict[str, Any]] = {
    "rollback.checkpoints_back": FIRING, "rollback.episodes": FIRING, "rollback.min_win_rate": FIRING,
    "rollback.max_win_rate": FIRING,
    "rollback.cooldown": FIRING, "rollback.bilateral": FIRING | {"rollback.min_win_rate": 0.0},
    "rollback.every": KEEPING, "rollback.keep": KEEPING,
    "world.sight_range": SEEN, "world.sight_half_angle": SEEN, "world.sight_occlusion": SEEN,
    "world.reward_form": {"world.w_vis_pursuer": 1.0},
    "world.stale_steps": {"world.w_search": 1.0, "world.full_obs": False, "world.view_range": 2.0},
    "network.log_std_low": {"network.log_std": -1.99, "ppo.entropy_weight": 0.0, "ppo.lr": 0.05},
    "network.log_std_high": {"network.log_std": 0.49, "ppo.entropy_weight": 1.0, "ppo.lr": 0.05},
    "network.belief_weight": {"network.encoder": "bimdn"},
    "ppo.magnet_decay": {"ppo.magnet_weight": 1.0},
    "ppo.target_kl": {"ppo.lr": 0.05},
    "league.replacement": {"total_steps": 24 * 8 * 6},
    "exploiters.steps": EXPLOITERS, "exploiters.min_win_rate": EXPLOITERS, "exploiters.every": EXPLOITERS,
    "league.adaptive_floor": MET, "league.matchmaking": LONG | MET, "network.kind": FEW,
    "league.bot_weights": MET | {"league.bot_share": 1.0},
    "league.pfsp_power": LONG | {"league.matchmaking": "pfsp"},
    "league.pfsp_floor": LONG | {"league.matchmaking": "pfsp"},
    "schedule.warmup_steps": WARM, "schedule.warmup_opponent": WARM, "schedule.phase_steps": TURNS,
    "schedule.max_phases": TURNS, "schedule.micro_phase_steps": COLD | {"schedule.kind": "micro"},
    "schedule.eta": CALM, "past_policies.count": {"total_steps": 24 * 8 * 6},  # three evaluations
    "schedule.short_phases": TURNS | {"schedule.phase_steps": 24 * 8 * 2}, "schedule.last_multiplier": TURNS,
    "schedule.adaptive_threshold": TURNS | PLAYED, "schedule.dampen_threshold": PLAYED,
    "schedule.adaptive_phases": TURNS | PLAYED | {"schedule.adaptive_threshold": 1e-9},
    "balance.games": {"balance.threshold": 0.05}, "balance.until": {"balance.threshold": 1e-9},
    "schedule.force_switch_steps": TURNS | {"schedule.phase_steps": 24 * 8 * 3},
    "schedule.last_first": TURNS | CLIMB, "schedule.level_warmup_steps": TURNS | CLIMB,
    **{f"curriculum.{key}": CLIMB for key in (
        "increment", "by", "capture_rate", "min_escape_rate", "min_phases", "mixed_ratio")},
    "curriculum.min_obstacles": CLIMB,
    "curriculum.gap_threshold": BY_GAP, "curriculum.gap_consecutive": BY_GAP,
    "curriculum.gap_rule": BY_GAP | {"curriculum.gap_threshold": 0.6},  # of four games no bound is below
    "curriculum.regress_rate": FALL, "curriculum.regress_after": FALL,
    "evaluation.alarm_gap": EVEN, "evaluation.alarm_swing": EVEN,
    "evaluation.alarm_steps": EVEN | {"evaluation.alarm_gap": 0.0},
    "replays.count": {"replays.count": 1}, "replays.max_steps": {"replays.max_steps": 3},
}

# The other value, where "a bit more" will not do.
OTHER: dict[str, Any] = {
    "total_steps": 24 * 8 * 5, "save_every": 3, "stagger": 16,
    "world.n_obstacles_min": 2, "world.n_obstacles_max": 1, "world.n_obstacle_obs": 3,
    "world.min_init_distance": 1.2, "world.prep_steps": 3, "world.robot_radius": 0.3,
    "world.w_search": 1.0, "world.w_wall": 1.0, "world.w_collision": 1.0, "world.w_obs_approach": 1.0,
    "world.w_vis_pursuer": 1.0, "world.survival_bonus": 0.5, "world.sight_range": 0.5,
    "world.sight_half_angle": 10.0, "world.obstacle_radius_max": 0.3, "world.view_range": 1.0,
    "world.stale_steps": 3, "world.speed_variation": 0.5,
    "network.hidden": (8, 6), "network.log_std": -0.2, "network.log_std_low": -1.995,
    "network.log_std_high": 0.495,
    "ppo.gamma": 0.9, "ppo.gae_lambda": 0.5, "ppo.minibatch_size": 32, "ppo.clip": 0.01,
    "ppo.magnet_weight": 0.5,
    "ppo.average_fraction": 0.5,
    "ppo.magnet_decay": 0.5, "ppo.value_clip": 0.001, "ppo.target_kl": 1e-6, "ppo.max_grad_norm": 0.01,
    "exploiters.steps": 24 * 8 * 2, "exploiters.min_win_rate": 1.0, "exploiters.every": 3,
    "league.adaptive_floor": 0.5, "start_iteration": 1, "ppo.temperature": 0.5, "ppo.temperature_final": 2.0,
    "network.kind": "transformer",
    "league.opponent_share": 0.2, "league.size": 1, "league.pfsp_power": 6.0, "league.pfsp_floor": 0.9,
    "league.bots": ("lion",), "league.bot_share": 0.9, "league.bot_weights": (0.0, 1.0),
    "learner": "lookahead", "lookahead.replay_size": 200, "lookahead.max_grad_norm": 0.001,
    "episode_log.interval": 120, "episode_video.interval": 64,
    "dqn.max_grad_norm": 0.01, "dqn.gamma": 0.9, "dqn.replay_size": 240, "dqn.warmup": 80,
    "dqn.priority": 0.6,
    "dqn.trace_lambda": 0.9, "dqn.epsilon": 0.5, "dqn.epsilon_fraction": 0.9, "dqn.evaluation_epsilon": 0.9,
    "count_bonus.columns": ("x", "y"),
    "schedule.warmup_steps": 24 * 8 * 2, "schedule.warmup_opponent": "pure_pursuit",
    "schedule.phase_steps": 24 * 8 * 2, "schedule.max_phases": 2, "schedule.micro_phase_steps": 24 * 8 * 2,
    "schedule.convergence_consecutive": 5, "schedule.eta": 0.999,
    "schedule.short_phases": (24 * 8,), "schedule.last_multiplier": 2.0, "schedule.adaptive_threshold": 1e-9,
    "schedule.adaptive_phases": 3, "schedule.force_switch_steps": 24 * 8, "schedule.dampen_threshold": 1.0,
    "schedule.level_warmup_steps": 24 * 8, "balance.threshold": 1e-9, "balance.games": 3,
    "balance.until": 0.5,
    "imitation.steps": 24 * 8 * 2, "imitation.teachers": ("pure_pursuit", "obstacle_orbit"),
    "imitation.log_std": -1.0, "imitation.rise": 3, "imitation.epochs": 400,
    "imitation.anchored": ("pursuer",), "imitation.anchor_weight": 30.0,
    "curriculum.capture_rate": 1.0, "curriculum.min_escape_rate": 1.0, "curriculum.gap_threshold": 0.001,
    "curriculum.gap_consecutive": 3, "curriculum.min_phases": 3, "curriculum.regress_rate": 0.0,
    "curriculum.regress_after": 0, "curriculum.mixed_ratio": 0.5, "curriculum.min_obstacles": 1,
    "rollback.checkpoints_back": 2, "rollback.every": 24 * 8 * 2, "rollback.keep": 3, "rollback.episodes": 60,
    "rollback.min_win_rate": 0.0, "rollback.max_win_rate": 0.95, "rollback.cooldown": 24 * 8 * 3,
    "rollback.entropy_floor": 5.0, "rnd.weight": 0.5, "rnd.update_every": 64,
    "ewc.weight": 100.0, "ewc.fisher_samples": 16,
    "evaluation.opponents": ("stand_still",), "past_policies.count": 1, "evaluation.alarm_gap": 0.0,
    "evaluation.alarm_steps": 10**9, "evaluation.alarm_swing": 0.0,
}


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find, made = registry.find, toys.TOYS | single_seat_worlds.TOYS
    monkeypatch.setattr(registry, "find", lambda name: made[name] if name in made else find(name))
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)


@pytest.fixture(autouse=True)
def nobody_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run ends with matches between scripted players: a setting has to show in what its own players do."""
    monkeypatch.setattr(evaluator, "best_bots", lambda *_: {})


LEAVES = {key: field for key, field, _ in settings.leaves(api.default("pursuit"))}


def base_for(key: str) -> Config:
    """TINY with the feature of `key` enabled: its `needs` are met one by one, then what ALSO says."""
    game, rules = ELSE.get(key, ELSE.get(key.partition(".")[0], ("pursuit", {})))
    if key == "curriculum.min_obstacles":  # a lattice has none
        game, rules = "pursuit", OPEN
    own = {name: value for name, value in TINY.items() if game == "pursuit" or not name.startswith("world.")}
    config = settings.replace(
        api.default(game), {name: value for name, value in (own | rules).items() if value is not None}
    )
    for _ in range(5):
        why = settings.has_effect(config, key)
        if not why:
            break
        needed = why.split(" is ", 1)[0]
        config = settings.replace(config, {needed: _wanted(needed)})
    config = settings.replace(config, ALSO.get(key, {}))
    assert not settings.has_effect(config, key), f"{key}: {settings.has_effect(config, key)}"
    return config


def _wanted(needed: str) -> Any:
    """A value of `needed` that gives its siblings an effect: the one they name, or simply "on"."""
    part, _, leaf = needed.rpartition(".")
    for key, field in LEAVES.items():
        name, equals, values = field.metadata.get("needs", "").partition("=")
        if equals and key.rpartition(".")[0] == part and name == leaf:
            first = values.split("|")[0]
            return {"True": True, "False": False}.get(first, first)
    return OTHER.get(needed, True)


def other_values(key: str, config: Config) -> list[Any]:
    """One value unlike the base's; for a choice every other one."""
    field, value = LEAVES[key], settings.get(config, key)
    if key in OTHER:
        return [OTHER[key]]
    if field.metadata.get("choices"):
        return [choice for choice in field.metadata["choices"] if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    assert isinstance(value, float), f"{key}: say in OTHER what else it could be"
    return [value * 1.25 if value else 0.5]


PLAYED: dict[str, tuple[str, bytes]] = {}


def played(config: Config) -> tuple[str, bytes]:
    """The digest of all that a run does, and its weights at the end; each run is played once."""
    text = settings.to_yaml(config)
    if text not in PLAYED:
        with tempfile.TemporaryDirectory(prefix="rematch-") as place:
            seen = play(config, Path(place) / "run")
            learnt = [policy for policy in seen.trainer.agents.players.values() if hasattr(policy, "weights")]
            PLAYED[text] = events(seen.folder), b"".join(policy.weights.tobytes() for policy in learnt)
    return PLAYED[text]


@pytest.mark.parametrize("key", [
    key for key in LEAVES
    if key not in (*APART, *ELSEWHERE_TESTED) and not key.startswith(("expert.", *SAVESTATES))
])
def test_every_knob_changes_what_happens(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if key.startswith("ewc."):
        advancing_curriculum.stand_in(monkeypatch)
    base = base_for(key)
    values = other_values(key, base)
    if not values:  # a choice of one: nothing to turn yet, and nothing else is accepted
        with pytest.raises(ConfigError, match=key):
            settings.apply(base, {key: "another"}, "test")
        return
    for value in values:
        changed = settings.replace(base, {key: value})
        assert not settings.has_effect(changed, key) or not value
        same = played(base)[0] == played(changed)[0]
        assert same == (key in COSMETIC), f"{key}: {settings.get(base, key)} -> {value}"


# The settings of worlds other than pursuit: what the tiny run is there, and for each setting another value.
ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lattice": (
        {"world.n": 5, "world.horizon": 4},
        {
            "n": 6, "block": 1, "radius": 2.0, "skip": 2, "horizon": 3, "min_distance": 3.0,
            "max_distance": 2.5, "symmetry": False,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("world", ELSEWHERE)
def test_every_knob_of_another_world_changes_what_happens(world: str) -> None:
    tiny, others = ELSEWHERE[world]
    shared = {key: value for key, value in TINY.items() if not key.startswith("world.")}
    base = settings.replace(api.default(world), shared | tiny)
    assert {key for key, _, _ in settings.leaves(base.world)} == set(others)
    before = event_log(base)
    for key, value in others.items():
        assert event_log(settings.replace(base, {f"world.{key}": value})) != before, key


@pytest.mark.parametrize("key", [key for key in LEAVES if key.startswith("ppo.")])
def test_every_knob_of_learning_changes_the_weights(key: str) -> None:
    """Some of them stand in the metrics by their own value: that alone would not make them live."""
    base = base_for(key)
    for value in other_values(key, base):
        changed = settings.replace(base, {key: value})
        assert played(base)[1] != played(changed)[1], f"{key} -> {value}"


def test_the_digest_is_the_same_twice() -> None:
    config = settings.replace(api.default("pursuit"), TINY)
    assert event_log(config) == event_log(config)


def test_cosmetic_fields_are_few_and_exist() -> None:
    assert len(COSMETIC) <= 10 and set(COSMETIC) <= set(LEAVES)


EVERYTHING = {"everything on": "alternating", "everything on, in short turns": "micro"}


def everything_on(kind: str) -> Config:
    """A recipe with every feature that can be on at once; roles learn in turn in one of two ways."""
    changes: dict[str, Any] = {
        "stagger": 64,
        "ppo.magnet_weight": 0.1,
        "ppo.value_clip": 0.2,
        "ppo.target_kl": 0.02,
        "league.matchmaking": "pfsp",
        "league.bots": ("lion", "flee_straight"),
        "world.use_visibility_reward": True,
        "world.w_search": 0.1,
        "world.w_vis_pursuer": 0.1,
        "world.w_collision": 0.1,
        "world.w_wall": 0.1,
        "world.prep_steps": 4,
        "world.survival_bonus": 0.1,
        "world.w_obs_approach": 0.1,
        "schedule.kind": kind,
        "schedule.convergence_consecutive": 3,
        "schedule.adaptive_threshold": 0.3,
        "schedule.level_warmup_steps": 50_000,
        "schedule.dampen_threshold": 0.1,
        "schedule.last_first": True,
        "curriculum.kind": "smooth",
        "curriculum.mixed_ratio": 0.2,
        "curriculum.by": "gap",
        "world.min_init_distance": 3.0,
        "world.max_init_distance": 15.0,
        "rnd.weight": 0.1,
        "ewc.weight": 10.0,
    }
    if kind == "alternating":
        changes |= {"schedule.max_phases": 12, "schedule.short_phases": (100_000,),
                    "rollback.checkpoints_back": 3}
        changes["curriculum.by"] = "capture"
    else:
        changes |= {"world.full_obs": False, "world.visibility": "combined", "world.safety_filter": True}
        changes |= {"world.safety_separation": True}
    return api.configure("quick", changes=changes)


# These have the very settings on that another has, with other values.
ALIKE = {"small": "tiny", "mid": "tiny", "y": "x", "w": "v", "seed_sensitivity": "v"}


@pytest.mark.parametrize(("name", "other"), ALIKE.items())
def test_alike_are_those_with_the_same_settings_on(name: str, other: str) -> None:
    on = [{key for key, _, _ in settings.leaves(config) if not settings.has_effect(config, key)}
          for config in (api.configure(name), api.configure(other))]  # fmt: skip
    assert on[0] == on[1]


@pytest.mark.parametrize("name", [*(name for name in api.recipes() if name not in ALIKE), *EVERYTHING])
def test_a_rehearsal_reads_every_setting(name: str) -> None:
    if "game: openspiel" in api.recipes().get(name, ""):
        pytest.importorskip("pyspiel")
    config = everything_on(EVERYTHING[name]) if name in EVERYTHING else api.configure(name)
    short = {"world.horizon": 4} if config.game == "lattice" else {}  # each judgement walks all positions
    small = settings.replace(shrink(config), {"evaluation.opponents": ("random",)} | short)
    read: set[str] = set()
    with tempfile.TemporaryDirectory() as place:
        setup = play(settings.track(small, read), Path(place) / "run").trainer.setup
    left = [key for key, _, _ in settings.leaves(small) if key not in read]
    unread = {key: settings.has_effect(small, key) or no_effect(small, key, setup) for key in left}
    assert all(unread.values()), f"nothing reads {[key for key, why in unread.items() if not why]}"
    if name in EVERYTHING:
        other = {"schedule.phase_steps", "schedule.max_phases", "schedule.micro_phase_steps",
                 "schedule.short_phases", "curriculum.capture_rate", "curriculum.min_escape_rate",
                 "curriculum.gap_threshold", "curriculum.gap_rule", "curriculum.gap_consecutive",
                 "network.encoder_hidden", "network.belief_weight", *ELSEWHERE_TESTED,
                 "league.adaptive_floor", "exploiters.steps", "exploiters.min_win_rate"}
        off = ("lookahead.", "expert.", "dqn.", "count_bonus.", "rnd_images.", "episode_log.",
               "episode_video.", "random_starts.", "balance.", "imitation.", *SAVESTATES)
        off += ("rollback.",) if EVERYTHING[name] == "micro" else ()
        assert {key for key in unread if not key.startswith(off)} <= other


def test_a_knob_that_is_only_checked_counts_as_unread() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Checked:
        used: int = settings.knob(1, "is read")
        idle: int = settings.knob(1, "is only checked", low=0)

        def check(self) -> None:
            assert self.idle >= 0

    read: set[str] = set()
    config = settings.track(Checked(), read)
    settings.validate(config)
    settings.to_yaml(config)
    assert list(settings.leaves(config)) and read == set()
    assert config.used and read == {"used"}
