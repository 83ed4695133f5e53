"""The earlier project's pursuit commands, unchanged: their translation, and that they run."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.patience import wait_until

from rematch import api
from rematch.cli.main import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.storage.run_folder import Run

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "compat" / "scripts" / "train_amsdrl.py"

# Report 000 of the earlier project, "Launch Commands", unchanged.
RA1 = r"""PYTHONUNBUFFERED=1 nohup ./venv/bin/python scripts/train_amsdrl.py \
    --micro_phase_steps 4096 \
    --eval_interval_micro 50 \
    --snapshot_freq_micro 5 \
    --evader_v_max 1.15 \
    --capture_bonus 10.0 \
    --timeout_penalty -10.0 \
    --survival_bonus 0.02 \
    --use_visibility_reward \
    --visibility_weight 0.1 \
    --n_obstacles 2 \
    --min_obstacles 2 \
    --min_init_distance 2.0 \
    --max_init_distance 10.0 \
    --max_steps 600 \
    --max_phases 1000 \
    --opponent_pool_size 20 \
    --w_obs_approach 50.0 \
    --prep_steps 50 \
    --pursuer_v_max 1.0 \
    --fixed_speed \
    --arena_width 20 \
    --arena_height 20 \
    --no_dcbf \
    --full_obs \
    --seed 47 \
    --output results/run_RA1_no_curriculum \
    > results/run_RA1_no_curriculum/train.log 2>&1 &
"""
RA2 = r"""PYTHONUNBUFFERED=1 nohup ./venv/bin/python scripts/train_amsdrl.py \
    --micro_phase_steps 4096 \
    --eval_interval_micro 50 \
    --snapshot_freq_micro 5 \
    --evader_v_max 1.15 \
    --capture_bonus 10.0 \
    --timeout_penalty -10.0 \
    --survival_bonus 0.02 \
    --use_visibility_reward \
    --visibility_weight 0.1 \
    --n_obstacles 2 \
    --min_obstacles 2 \
    --max_steps 600 \
    --smooth_curriculum \
    --smooth_curriculum_increment 1.0 \
    --ne_gap_advancement \
    --ne_gap_threshold 0.15 \
    --ne_gap_consecutive 3 \
    --min_phases_per_level 2 \
    --opponent_pool_size 20 \
    --w_obs_approach 50.0 \
    --prep_steps 50 \
    --pursuer_v_max 1.0 \
    --fixed_speed \
    --arena_width 20 \
    --arena_height 20 \
    --no_dcbf \
    --full_obs \
    --seed 47 \
    --output results/run_RA2_distance_curriculum \
    > results/run_RA2_distance_curriculum/train.log 2>&1 &
"""
# Report 000, "Monitoring Commands"
WATCH = r"""cat LOG | tr '\r' '\n' | grep -E "(SR_P|Phase|Eval|NE.gap|micro|Pool)" """


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_amsdrl", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_amsdrl"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def flags_of(command: str) -> list[str]:
    words = shlex.split(command.replace("\\\n", " ").partition(">")[0])
    return words[words.index("scripts/train_amsdrl.py") + 1 :]


def configured(script: ModuleType, words: list[str]) -> tuple[Config, list[str]]:
    values, given, _ = script.parse(words)
    changes, notes = script.translate(values, given)
    base = api.configure("ams_drl")
    different = {key: value for key, value in changes.items() if settings.get(base, key) != value}
    return api.configure("ams_drl", changes=different), notes


def differences(one: Config, two: Config) -> dict[str, tuple[Any, Any]]:
    values = {key: value for key, _, value in settings.leaves(two)}
    return {key: (value, values[key]) for key, _, value in settings.leaves(one)
            if value != values[key] and not settings.has_effect(one, key)}


CORRECTED = ["--n_obstacle_obs", "2"]  # report 001: without it agents did not observe obstacles


@pytest.mark.parametrize(("command", "recipe"), [(RA1, "ra1"), (RA2, "ra2")])
def test_the_corrected_commands_are_the_recipes(script: ModuleType, command: str, recipe: str) -> None:
    words = flags_of(command.replace("4096", "2048")) + CORRECTED
    config, notes = configured(script, words)
    rule = {"curriculum.gap_rule": ("point", "bound")} if recipe == "ra2" else {}  # as the author wrote it
    assert differences(config, api.configure(recipe)) == {"world.n_obstacle_obs": (2, -1)} | rule
    ignored = {re.match(r"note: --(\w+) ", note).group(1) for note in notes}  # type: ignore[union-attr]
    assert ignored == ({"max_phases", "min_obstacles"} if recipe == "ra1" else set())


def test_the_plans_phases_are_two_rollouts(script: ModuleType) -> None:
    """4096 was an arithmetic error: four environments of 512 steps are 2048 (report 001)."""
    config, _ = configured(script, flags_of(RA1))
    assert config.games * config.steps == 2048
    assert differences(config, api.configure("ra1")) == {
        "schedule.micro_phase_steps": (4096, 2048), "evaluation.every": (100, 50),
        "league.snapshot_every": (10, 5)}  # fmt: skip


REPORT_2 = [  # the options of the runs of report 002
    "--bilateral_rollback", "--evader_first_on_advance", "--warm_start_evader", "--warm_start_timesteps",
    "50000", "--mixed_level_ratio", "0.2", "--smooth_curriculum", "--smooth_curriculum_increment", "0.5",
    "--seed", "47", "--output", "out",
]  # fmt: skip
TIER_3 = ["--ewc_lambda", "1000", "--rnd_coef", "0.1"]
FIXES = ["--phase_warmup", "--ne_gap_advancement", "--ne_gap_threshold", "0.15", "--ne_gap_consecutive", "2"]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("v", []), ("w", ["--pursuer_v_max", "0.95"]), ("x", TIER_3),
        ("y", ["--pursuer_v_max", "0.95", *TIER_3]), ("z1", FIXES), ("z2", FIXES + TIER_3),
    ],
)  # fmt: skip
def test_the_second_documents_flags_are_its_runs(script: ModuleType, recipe: str, words: list[str]) -> None:
    config, notes = configured(script, [*REPORT_2, *words, "--max_phases", "12"])
    different = differences(config, api.configure(recipe))
    different.pop("total_steps")  # it includes warm starts; the phases end the run
    by_point = different.pop("curriculum.gap_rule", None)  # as the author wrote it
    assert by_point == (("point", "bound") if recipe in ("z1", "z2") else None)
    assert different == {"schedule.convergence_consecutive": (3, 0), "schedule.eta": (0.1, 0.1)} or \
        different == {"schedule.convergence_consecutive": (3, 0)}
    assert notes == []


def test_every_flag_of_the_documents_is_known(script: ModuleType) -> None:
    flags = {word for command in (RA1, RA2) for word in flags_of(command) if word.startswith("--")}
    flags |= {word for word in [*REPORT_2, *FIXES, *TIER_3, *CORRECTED] if word.startswith("--")}
    flags |= {f"--{name}" for name in (
        "ewc_fisher_samples", "rnd_embed_dim", "rnd_hidden_dim", "rnd_update_freq", "timesteps_per_phase",
        "cold_start_timesteps", "eta", "max_total_steps", "evader_multiplier", "adaptive_ratio_threshold",
        "adaptive_boost_phases", "lr_dampen_threshold", "force_switch_steps", "convergence_consecutive",
        "min_escape_rate")}  # fmt: skip
    assert {word.removeprefix("--") for word in flags} <= set(script.FLAGS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--output", "x", "--evader_vmax", "1"], "unknown flag '--evader_vmax'; nearest: --evader_v_max"),
        (["--seed", "1"], "--output is missing"),
        (["--output", "x", "--seed"], "--seed needs a value"),
        (["--output", "x", "--seed", "two"], "--seed = 'two': expected a whole number"),
        (["--output", "x", "--seed", "1", "--seed", "2"], "--seed is given twice"),
        (["--output", "x", "--full_obs=yes"], "--full_obs takes no value"),
        (["--output", "x", "--full_obs", "--n_obstacle_obs", "0"], "the agents would be blind"),
        (["--output", "x", "--use_visibility_reward", "--n_obstacles", "0", "--full_obs"],
         "expected n_obstacles_max of at least 1 to hide behind"),
        (["--output", "x", "--ewc_lambda", "1000"], "curriculum"),
        (["--output", "x", "--micro_phase_steps", "2048", "--bilateral_rollback"],
         "there is no rollback with micro-phases"),
        (["--output", "x", "--micro_phase_steps", "2048", "--eval_interval_micro", "0"],
         "evaluation.every = 0: expected"),
        (["--output", "x", "--opponent_pool_size", "-3"], "league.size = -3: expected"),
    ],
)  # fmt: skip
def test_contradictions_and_typing_errors_are_one_line(
    script: ModuleType, words: list[str], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(script, words)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ne_gap_advancement", "--ne_gap_threshold", "0.2"], ["ne_gap_threshold", "ne_gap_advancement"]),
        (["--max_total_steps", "5000"], ["max_total_steps"]),
        (["--curriculum", "--smooth_curriculum"], ["curriculum"]),
        (["--snapshot_freq_micro", "3"], ["snapshot_freq_micro"]),
        (["--micro_phase_steps", "2048", "--eta", "0.2", "--convergence_consecutive", "0"], ["eta"]),
        (["--phase_warmup", "--timesteps_per_phase", "8192"], ["phase_warmup"]),
        (["--phase_warmup", "--timesteps_per_phase", "100000"], ["phase_warmup"]),
        (["--phase_warmup", "--timesteps_per_phase", "150000"], []),
    ],
)  # fmt: skip
def test_no_flag_is_ignored_without_a_word(script: ModuleType, words: list[str], expected: list[str]) -> None:
    _, notes = configured(script, ["--output", "x", *words])
    assert [note.split()[1] for note in notes] == [f"--{name}" for name in expected]


def test_help_names_every_flag_with_a_meaning(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"], act=script.train) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in script.FLAGS:
        (line,) = [line for line in lines if re.match(rf"  --{name}\b", line)]
        assert len(line.partition(": ")[2]) > 8, line
    assert "  --evader_v_max FLOAT (1.0): " in "\n".join(lines)


def test_a_flag_of_zero_is_zero_and_short_phases_have_room(script: ModuleType) -> None:
    words = ["--output", "x", "--smooth_curriculum", "--warm_start_evader", "--warm_start_timesteps", "0",
             "--timesteps_per_phase", "100", "--max_phases", "3", "--cold_start_timesteps", "100"]
    config, _ = configured(script, words)
    assert config.schedule.level_warmup_steps == 0
    assert config.iterations >= 3  # each phase is at least a rollout


def test_a_command_of_the_earlier_project_runs_word_for_word(tmp_path: Path) -> None:
    """In the background, output redirected into the run's train.log, read with the report's grep, stopped."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "scripts").symlink_to(SCRIPT.parent)
    folder = tmp_path / "results" / "run_RA1_no_curriculum"
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(ROOT), *sys.path[1:]])
    env = os.environ | {"PYTHONPATH": path}
    launch = ["bash", "-c", RA1 + "echo $!"]
    number = int(subprocess.run(launch, cwd=tmp_path, env=env, capture_output=True, text=True).stdout)
    log = folder / "train.log"
    try:
        wait_until(lambda: "Observation of evader" in log.read_text(), log.read_text)
    finally:
        os.kill(number, signal.SIGTERM)
    wait_until(lambda: not (folder / "lock").exists())
    text = log.read_text()
    assert text.count("Phase S0: evader learns against random") == 1  # written once
    assert text.startswith("note: --min_obstacles 2 has no effect without --smooth_curriculum")
    assert "note: --max_phases 1000 has no effect with micro-phases" in text and "\r" not in text
    watch = ["bash", "-c", WATCH.replace("LOG", shlex.quote(str(log)))]
    assert "Phase S0" in subprocess.run(watch, capture_output=True, text=True).stdout
    with Run.open(folder, write=False) as run:
        checkpoint = run.load()
        assert checkpoint is not None and checkpoint.iteration >= 1  # a checkpoint was saved
