"""The earlier project's large Game Boy command, unchanged: its translation, and the files that it writes."""

from __future__ import annotations

import csv
import importlib
import json
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
from support import gameboy_worlds
from support.patience import PATIENCE, wait_until
from support.single_seat_worlds import SIZES

from rematch import api
from rematch.agents.learners import dqn
from rematch.cli.main import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.storage.run_folder import Run

ROOT = Path(__file__).resolve().parents[2]
# Sections 1 and 7 of the earlier project's report, unchanged.
FIRST = r"""python -m Daddy.train_big \
    --num-envs 32 \
    --total-steps 5000000 \
    --run-name big_run_01 \
    --log-interval 5000
"""
SECOND = r"""python -m Daddy.train_big \
    --num-envs 32 \
    --total-steps 5000000 \
    --model-size large \
    --run-name big_run_01 \
    --log-interval 5000 \
    --save-interval 100000 \
    --video-interval 250000
"""
MODULES = ("train_big", "agent", "networks", "curriculum", "video_utils")  # sections 1, 3 and 6
# Settings of Rematch with which a run takes seconds.
QUICK = [
    "--world.cartridge", "tiny", "--world.max-steps", "30", "--threads", "1", "--steps", "8",
    "--dqn.replay_size", "1000", "--dqn.sequence", "12", "--dqn.burn-in", "2", "--episode-video.max-steps",
    "8",
    "--evaluation.games", "1", "--evaluation.every", "1000", "--explorers.games", "2",
    "--explorers.steps", "8", "--stagger", "0",
]  # fmt: skip


def flags_of(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", " "))[3:]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    gameboy_worlds.need_pyboy()
    monkeypatch.syspath_prepend(str(ROOT / "compat"))
    return importlib.import_module("Daddy.train_big")


def configured(script: ModuleType, words: list[str]) -> tuple[Any, list[str]]:
    options = script.Options(words, (*script.FLAGS, *script.COMMON_FLAGS))
    config, notes = script.translate(options.values, options.remaining)
    return config, notes


def test_every_module_of_the_earlier_project_exists(script: ModuleType) -> None:
    for name in MODULES:
        module = importlib.import_module(f"Daddy.{name}")
        assert all(hasattr(module, word) for word in getattr(module, "__all__", ())), name
    from Daddy.curriculum import CurriculumManager

    assert {"registry", "sample", "update", "probabilities"} <= set(dir(CurriculumManager))
    assert script.MODEL_CONFIGS == {
        "slim": {"cnn_channels": [16, 32, 64], "gru_hidden": 128, "lstm_hidden": 128, "ssm_hidden": 128},
        "large": {"cnn_channels": [32, 64, 128], "gru_hidden": 256, "lstm_hidden": 256, "ssm_hidden": 256},
    }


@pytest.mark.parametrize("command", [FIRST, SECOND])
def test_the_documents_commands_are_the_recipe(script: ModuleType, command: str) -> None:
    config, notes = configured(script, flags_of(command))
    assert config == api.configure("big")
    assert (config.games, config.total_steps, config.dqn.size) == (32, 5_000_000, "large")
    assert (config.episode_log.interval, config.episode_video.interval) == (5000, 250_000)
    assert abs(config.save_every * config.games * config.steps - 100_000) < 1024
    whole = {"--total-steps 5000000: 5000192 steps", "--save-interval 100000: every 100352 steps"}
    assert {note[6:].partition(", whole")[0] for note in notes} == \
        {text for text in whole if text.split()[0] in command}  # fmt: skip


def test_a_run_stays_on_its_device(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command continues a run of the processor on a machine with a GPU."""
    monkeypatch.setattr(cuda, "no_gpu", lambda: "PyTorch finds no NVIDIA GPU")
    folder = tmp_path / "run"
    assert script.device_of_run(folder, []) == []
    with Run.create(folder, settings.to_yaml(api.configure("big"))):
        pass
    monkeypatch.setattr(cuda, "no_gpu", lambda: "")
    assert configured(script, [])[0].dqn.device == "cuda"
    words = script.device_of_run(folder, ["--world.cartridge", "tiny"])
    config, _ = configured(script, words)
    assert words == ["--dqn.device=cpu"] and config.dqn.device == "cpu"
    script.check_same_settings(folder, config)
    assert script.device_of_run(folder, ["--dqn.device=cuda"]) == []


@pytest.mark.parametrize(("words", "key", "value"), [
    (["--num-envs", "64"], "games", 64), (["--total-steps", "4096"], "total_steps", 4096),
    (["--batch-size", "32"], "dqn.batch", 32), (["--model-size", "slim"], "dqn.size", "slim"),
    (["--log-interval", "77"], "episode_log.interval", 77), (["--save-interval", "2048"], "save_every", 2),
    (["--video-interval", "0"], "episode_video.interval", 0), (["--num_envs=16"], "games", 16),
    (["--world.cartridge", "mid"], "world.cartridge", "mid"),
    (["--savestates.mode", "all"], "savestates.mode", "all"), (["--swarm", "all"], "savestates.mode", "all"),
])  # fmt: skip
def test_each_flag_is_a_setting(script: ModuleType, words: list[str], key: str, value: Any) -> None:
    config, _ = configured(script, words)
    assert settings.get(config, key) == value != settings.get(api.configure("big"), key)


@pytest.mark.parametrize(("words", "line"), [
    (["--num-env", "3"], "unknown flag '--num-env'; nearest: --num-envs"),
    (["--run_nam", "x"], "unknown flag '--run_nam'; nearest: --run-name"),
    (["--dqn.batchs", "4"], "unknown flag '--dqn.batchs'; nearest: --dqn.batch"),
    (["--num-envs"], "--num-envs needs a value"),
    (["--num-envs", "2", "--num-envs", "3"], "--num-envs is given twice"),
    (["--num-envs", "two"], "--num-envs = 'two': expected"),
    (["--batch-size", "4", "--dqn.batch", "5"], "--dqn.batch is given twice"),
    (["--model-size", "huge"], "--model-size = 'huge': expected one of slim, large"),
    (["--save-interval", "0"], "--save-interval = '0': expected a whole number from 1"),
    (["--log-interval", "0"], "--log-interval = '0': expected"),
    (["--run-name", "../x"], "--run-name = '../x': expected a folder's name"),
    (["--world.rom", "none.gb"], "world.rom = 'none.gb': no such file"),
    (["--world.rom", "none.gb", "--world.cartridge", "tiny"], "none.gb"),
])  # fmt: skip
def test_contradictions_and_typing_errors_are_one_line(
    script: ModuleType, words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(words, act=script.train) == 2
    output = capsys.readouterr().err
    assert line in output and output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_learns_all_the_same(script: ModuleType) -> None:
    config, notes = configured(script, ["--total-steps", "4096"])
    assert config.dqn.warmup == 409
    assert notes == ["note: --total-steps 4096: learning begins after 409 steps, not 5000"]


@pytest.mark.slow
def test_it_writes_every_file_that_the_document_names(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All flags; then the same command again; then the command with other settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    words = ["--num-envs", "4", "--total-steps", "640", "--batch-size", "4", "--model-size", "large",
             "--run-name", "big_run_01", "--log-interval", "64", "--save-interval", "100",
             "--video-interval", "320", *QUICK]  # fmt: skip
    assert main([*words, "--max-minutes", "1e-6"], act=script.train) == 0
    assert os.listdir("checkpoints/big_run_01") == ["step_32"]  # it stopped after one iteration
    assert main(words, act=script.train) == 0
    output = capsys.readouterr().out
    assert "resumed runs/big_run_01 at iteration 1" in output
    assert re.search(r"^\[EP 1 env=0\] len=30  R_env=\S+  R_total=\S+  badges=0  map=DAWN  "
                     r"savestate_tag=power_on  theta_\S+=0\.\d\d", output, re.M)  # fmt: skip
    assert re.search(r"^step=640/640  sps=\d+  epsilon=", output, re.M)
    run = Path("runs/big_run_01")
    assert sorted(os.listdir("checkpoints/big_run_01")) == ["step_480", "step_576", "step_640"]
    for link in Path("checkpoints/big_run_01").iterdir():
        assert (link / "manifest.json").is_file()
    states = sorted(path.name for path in Path("savestates/big_run_01").iterdir())
    assert any(re.fullmatch(r"[A-Z0-9-]+_\d+\.state", name) for name in states) and "index.json" in states
    assert Path("savestates/big_run_01").resolve() == (tmp_path / run / "savestates")
    assert {"rollout_320.gif", "rollout_640.gif"} <= set(os.listdir(run / "films"))
    with (run / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    named = {"episode_id", "env_id", "length_steps", "return_env", "return_total", "return_rnd",
             "return_novel", "return_bayes", "milestones_reached", "alarm_triggered", "start_step",
             "end_step", "alpha_DAWN", "beta_DAWN", "mean_DAWN"}  # fmt: skip
    assert named <= set(rows[0]) and len(rows) == 640 // 4 // 30 * 4
    assert (run / "progress.csv").read_text().startswith("step,milestone,alpha,beta,mean")
    events = [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()]
    assert {"episode", "milestone"} <= set(events)
    with Run.open(run, write=False) as opened:
        checkpoint = opened.load()
    assert checkpoint is not None and {"savestates", "learners", "world_state"} <= set(checkpoint.parts)
    assert {"weights", "target", "replay"} <= set(checkpoint.parts["learners"]["joypad"])

    assert main([*words, "--seed", "3"], act=script.train) == 2
    assert "runs/big_run_01 holds a run with other settings (seed 0 there, 3 here)" in capsys.readouterr().err
    Path("savestates/other").mkdir()
    assert main([*words[:2], "--run-name", "other", *QUICK], act=script.train) == 2
    assert "savestates/other: is there, and no link of ours" in capsys.readouterr().err
    assert not Path("runs/other").exists()


@pytest.mark.slow
def test_command_of_the_earlier_project_runs_unchanged_until_a_stop_request(tmp_path: Path) -> None:
    """SIGTERM, as from a cluster, after the first checkpoint of the clock: no window, nothing on stderr."""
    gameboy_worlds.need_pyboy()
    (tmp_path / "Daddy").symlink_to(ROOT / "compat" / "Daddy")
    (tmp_path / "python").symlink_to(sys.executable)
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    paths["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    with (tmp_path / "out").open("w") as out:
        child = subprocess.Popen(["bash", "-c", "exec " + SECOND], cwd=tmp_path, stdout=out,
                                 stderr=subprocess.STDOUT, env=os.environ | paths)  # fmt: skip

    def saved() -> list[Path]:
        return list((tmp_path / "checkpoints" / "big_run_01").glob("step_*/manifest.json"))

    wait_until(lambda: bool(saved()) or child.poll() is not None, (tmp_path / "out").read_text)
    child.send_signal(signal.SIGTERM)
    code = child.wait(PATIENCE)
    output = (tmp_path / "out").read_text()
    assert code == 0 and "continue with: rematch resume runs/big_run_01" in output, output
    assert saved() and (tmp_path / "savestates" / "big_run_01").is_dir()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not a known cartridge")
def test_command_runs_to_its_end_on_a_cartridge_titled_as_red(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented command with `--world.rom`: names, milestones and badges are those of Pokémon Red."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    rom = gameboy_worlds.red_cartridge(tmp_path)
    words = ["--num-envs", "4", "--total-steps", "480", "--batch-size", "4", "--run-name", "red_01",
             "--log-interval", "64", "--save-interval", "100", "--video-interval", "320", *QUICK[2:],
             "--world.rom", str(rom)]  # fmt: skip
    assert main(words, act=script.train) == 0
    output = capsys.readouterr().out
    assert re.search(r"^\[EP 1 env=\d+\] len=30  R_env=\S+  R_total=\S+  badges=0  map=PalletTown  "
                     r"savestate_tag=power_on  theta_Boulder=0\.\d\d  theta_C", output, re.M)  # fmt: skip
    assert "Milestone PalletTown: first reached at step" in output
    states = sorted(path.name for path in Path("savestates/red_01").iterdir())
    assert any(re.fullmatch(r"PalletTown_\d+\.state", name) for name in states)
    assert any(path.name.startswith("PalletTown") for path in Path("runs/red_01/pyboy_states").iterdir())
    with Path("runs/red_01/episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and {"alpha_badge_Boulder", "mean_PewterCity", "alpha_hall_of_fame"} <= set(rows[0])


@pytest.mark.filterwarnings("ignore:.*not a known cartridge")
def test_text_box_of_red_opens_and_closes(tmp_path: Path) -> None:
    world = gameboy_worlds.world(rom=str(gameboy_worlds.red_cartridge(tmp_path)))
    column = world.spec.roles["joypad"].fields[1].columns.index("text")
    shown = []
    for action in [0] * 5 + [6] + [4] * 12:  # the title, START, and the introduction page by page
        gameboy_worlds.press(world, action)
        shown.append(float(world.view.fields["joypad"]["structured"][0, 0, column]))
    assert shown[0] == 0 and 1 in shown and shown[-1] == 0


def test_first_episode_of_the_recipe_is_logged_within_ten_thousand_steps() -> None:
    """The oldest game is `stagger` actions old when the training starts, and ends after `idle_steps`."""
    config = api.configure("big")
    assert (config.world.idle_steps - config.stagger) * config.games <= 10_000
    assert config.world.max_steps == 8192 and config.world.idle_steps > 430


def test_help_names_every_flag(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], act=script.train) == 0
    output = capsys.readouterr().out
    assert all(flag in output for flag in [*script.FLAGS, *flags_of(SECOND)[::2]])


def test_unknown_names_are_no_run(script: ModuleType) -> None:
    with pytest.raises(ConfigError, match=r"unknown flag '--wrld\.rom'; nearest: --world\.rom"):
        configured(script, ["--wrld.rom", "x"])
