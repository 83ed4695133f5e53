"""Command lines of the earlier project as they stand, from an empty folder."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from compat.test_pursuit import RA1, RA2, flags_of

from rematch.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "compat" / "reproduce.py"
GAME_BOY = "python -m Daddy.train_big \\\n    --num-envs 32 \\\n    --run-name big_run_01\n"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduce", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduce"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(*words: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], cwd=folder, input=text, text=True,
                          capture_output=True, timeout=300, env=os.environ | {"PYTHONPATH": ""})


def test_blocks_of_the_reports_are_programs_and_notes(script: ModuleType) -> None:
    """Two launch commands in the background, the monitoring commands, and the command of the Game Boy run."""
    text = f"""# Launch
cd ~/claude_pursuit_evasion

{RA1}
{RA2}
cat results/run_RA1_no_curriculum/train.log | tr '\\r' '\\n' | grep -E "(SR_P|Phase)"
cd /Stimulants && {GAME_BOY}"""
    programs, notes = script.read_commands(text)
    assert [program.module for program in programs] == ["train_amsdrl", "train_amsdrl", "Daddy.train_big"]
    assert programs[0].arguments == flags_of(RA1) and programs[1].arguments == flags_of(RA2)
    assert programs[2].arguments == ["--num-envs", "32", "--run-name", "big_run_01"]
    assert "note: > results/run_RA1_no_curriculum/train.log: not followed" in notes[0]
    assert any(note.startswith("note: cd ~/claude_pursuit_evasion: skipped") for note in notes)


@pytest.mark.parametrize("command", [
    "python scripts/train_amsdrl.py --n_obstacles 2 --output x > log 2>&1",
    "OMP_NUM_THREADS=1 nohup /opt/venv/bin/python3.11 -u scripts/train_amsdrl.py --n_obstacles 2 --output x&",
    "time ./scripts/train_amsdrl.py --n_obstacles 2 --output 'x' 2>err >> log",
])
def test_forms_of_a_command_are_the_same_program(script: ModuleType, command: str) -> None:
    programs, _ = script.read_commands(command)
    assert [program.arguments for program in programs] == [["--n_obstacles", "2", "--output", "x"]]


def test_configuration_file_of_the_project_is_found(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,), _ = script.read_commands("python train_iter600.py --config configs/iter600_to_1000.yaml")
    assert program.arguments == ["--config", str(ROOT / "compat/configs/iter600_to_1000.yaml")]
    Path("own.yaml").write_text("")
    (program,), _ = script.read_commands("python train_iter600.py --config own.yaml")
    assert program.arguments == ["--config", "own.yaml"]


def test_text_without_a_command_is_one_line(script: ModuleType, tmp_path: Path) -> None:
    result = run(folder=tmp_path, text="ls -l\n")
    assert result.returncode == 2 and "no command of the earlier project" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "cannot be read" in run("none.sh", folder=tmp_path).stderr
    assert run("--help", folder=tmp_path).returncode == 0
    with pytest.raises(ConfigError, match="cannot be read: No closing quotation"):
        script.read_commands("python scripts/train_amsdrl.py --output 'x")


def test_a_report_runs_word_for_word_in_an_empty_folder(tmp_path: Path) -> None:
    """No folder, link or virtual environment is prepared; an error of the second command is its own line."""
    wrong = "python scripts/train_amsdrl.py --evader_vmax 2 --output y"
    text = f"cd ~/claude_pursuit_evasion\n{RA1}{wrong}\n"
    result = run("--max-minutes", "0.02", folder=tmp_path, text=text)
    assert result.returncode == 2, result.stdout
    assert result.stderr == "rematch: unknown flag '--evader_vmax'; nearest: --evader_v_max\n"
    log = (tmp_path / "results/run_RA1_no_curriculum/train.log").read_text()
    assert "Phase S0: evader learns against random" in log and "\r" not in log
    assert "rematch resume results/run_RA1_no_curriculum" in result.stdout
    words = ["A=1", "./venv/bin/python", "scripts/train_amsdrl.py", "--output", "z", "--seed", "x"]
    assert "--seed = 'x': expected a whole number" in run("--", *words, folder=tmp_path).stderr
