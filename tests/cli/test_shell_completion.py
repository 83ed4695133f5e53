"""Shell completion: what the scripts offer, asked as a shell asks, bash among them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import cpu_seconds_of_children, environment

from rematch.cli import command_list, main
from rematch.cli.commands.completion import SCRIPTS
from rematch.cli.shell_completion import completions, joined
from rematch.recipes import recipe_texts


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, a sweep, and folders whose names a shell would execute."""
    for name in ("quick-1", "quick-2", "a b", "$(touch hacked)", "`id`", "x;y", "line\nbreak", "*"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("game: pursuit\n")
    (tmp_path / "runs" / "seeds").mkdir()
    (tmp_path / "runs" / "seeds" / "sweep.yaml").write_text("")
    (tmp_path / "runs" / "thesis").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offers(*words: str) -> list[str]:
    return [word for word, _ in completions(words)]


def test_completion_of_commands() -> None:
    names = [command.name for command in command_list.listed()]
    assert offers("") == [*names, "--help", "--version"]
    assert offers("re") == offers("RE") == ["resume", "rewind", "report", "replay", "recipes"]
    assert "complete" not in offers("")


def test_completion_of_recipes_worlds_and_runs(workdir: Path) -> None:
    assert set(recipe_texts()) <= set(offers("train", ""))
    assert {"gymnasium", "lattice", "openspiel"} <= set(offers("train", ""))
    assert len(offers("train", "")) == len(set(offers("train", "")))
    assert offers("train", "RA") == ["ra1", "ra2", "ra3", "ra4"] and offers("check", "qu") == ["quick"]
    assert offers("resume", "") == ["quick-1", "quick-2", "seeds"]
    assert offers("eval", "")[-3:] == ["quick-1", "quick-2", "seeds"] and "pursuit" in offers("eval", "")
    assert offers("report", "quick-1", "quick") == ["quick-1", "quick-2"]
    assert offers("runs", "r") == ["runs/quick-1", "runs/quick-2", "runs/seeds"]
    assert offers("completion", "") == ["bash", "zsh", "fish"] and offers("resume", "quick-1", "") == []


def test_completion_of_options_and_their_values(workdir: Path) -> None:
    expected = ["--max-minutes", "--notify", "--other-machine", "--cluster", "--actors", "--help"]
    assert offers("resume", "quick-1", "-") == expected
    assert offers("resume", "quick-1", "--other-machine", "--o") == []
    assert offers("eval", "quick-1", "--max") == []
    assert offers("eval", "pursuit", "--players", "l") == ["lead_pursuit", "lion"]
    assert offers("eval", "pursuit", "--players", "lion,flee_s") == ["lion,flee_straight"]
    assert offers("eval", "pursuit", "--players", "lion,qu") == ["lion,quick-1", "lion,quick-2"]
    assert offers("eval", "quick-1", "--against", "li") == ["lion"]
    assert offers("exploit", "quick-1", "--role", "") == ["pursuer", "evader"]
    assert offers("eval", "quick-1", "--seed", "3", "--games", "") == []
    assert offers("export", "quick-1", "--out", "") == []  # a file name: the shell knows those
    assert offers("train", "quick", "--from", "q") == ["quick-1", "quick-2"]


def test_completion_of_settings_and_their_values(workdir: Path) -> None:
    assert offers("train", "quick", "--ppo.l") == ["--ppo.lr", "--ppo.lr_final"]
    assert "--ppo.lr" not in offers("train", "quick", "--ppo.lr", "0.1", "--ppo.l")
    assert offers("train", "quick", "--dqn.") == []  # they have no effect in this recipe
    assert offers("train", "quick", "--network.activation", "") == ["tanh", "relu"]
    assert offers("train", "quick", "--network.activation=t") == ["--network.activation=tanh"]
    assert offers("train", "quick", "--network.activation", "=", "r") == ["--network.activation=relu"]
    assert offers("train", "quick", "--network.shared", "") == ["true", "false"]
    assert "--name" in offers("train", "quick", "--") and "--thought" in offers("play", "beasty", "--t")
    assert offers("solve", "lattice", "--hor") == ["--horizon"]
    assert offers("train", "nosuchrecipe", "--ppo") == []


def test_completion_of_a_wrong_line_is_empty() -> None:
    assert offers("trian", "") == offers("trian", "--") == []
    assert completions([]) == completions([""])


def test_completion_joins_what_bash_splits() -> None:
    assert joined(["train", "--a", "=", "b"]) == ["train", "--a=b"]
    assert joined(["train", "--a", "="]) == ["train", "--a="] and joined(["="]) == ["="]


def test_completion_is_quick_and_imports_little() -> None:
    code = ("import sys; from rematch.cli.main import main; main(['complete', 'bash', 'train', 'q']);"
            "print(*({'torch', 'matplotlib', 'rich', 'rematch.api'} & set(sys.modules)))")
    began = cpu_seconds_of_children()
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout == "quick\n\n" and done.stderr == "" and cpu_seconds_of_children() - began < 3


# --- in a shell -------------------------------------------------------------------------------------------


def in_bash(workdir: Path, line: str) -> list[str]:
    """The completions of bash for a command line, by the function that the script registers."""
    program = workdir / "rematch"
    program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rematch \"$@\"\n")
    program.chmod(0o700)
    words = " ".join(map(shlex.quote, line.split(" ")))
    script = f"""
        source <({shlex.quote(str(program))} completion bash)
        [[ $(complete -p rematch) == *"-F _rematch rematch"* ]] || exit 3
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _rematch rematch
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = environment() | {"PATH": f"{workdir}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=workdir, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_completion_in_bash(workdir: Path) -> None:
    assert in_bash(workdir, "rematch res") == ["resume"]
    assert in_bash(workdir, "rematch train qu") == ["quick"]
    assert in_bash(workdir, "rematch resume ") == ["quick-1", "quick-2", "seeds"]
    assert in_bash(workdir, "rematch train quick --ppo.lr_") == ["--ppo.lr_final"]
    assert in_bash(workdir, "rematch nonsense ") == [""]
    assert not (workdir / "hacked").exists()


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_script_is_one_that_the_shell_can_read(
        shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == SCRIPTS[shell] and f"complete {shell}" in script
    if shutil.which(shell):
        flag = "--no-execute" if shell == "fish" else "-n"
        done = subprocess.run([shell, flag], input=script, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""


def test_completion_gives_meanings_to_the_shells_that_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, line in (("bash", "resume"), ("zsh", "resume:continue a stopped or killed run, bit for bit"),
                        ("fish", "resume\tcontinue a stopped or killed run, bit for bit")):
        assert main.main(["complete", shell, "resu"]) == 0
        assert capsys.readouterr().out == line + "\n"
    assert main.main(["complete"]) == 0 and "train" in capsys.readouterr().out
