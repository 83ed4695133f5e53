"""Sweeps: refusals before any run starts, kill and resume, failed runs, the table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Runner, environment, files, process, refused
from support.patience import PATIENCE, wait_until
from support.tiny_run import flags

import rematch
from rematch import api
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.system import system_memory
from rematch.storage.run_folder import lock_holder
from rematch.sweeps import plan as sweeps
from rematch.sweeps import run_place
from rematch.training.config import ONLY_WARMUP

__all__ = ["refused"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

# many iterations, of which few are shown: long enough to be met in the middle
LONG = flags(total_steps=32 * 120, evaluation__every=1000, threads=1)
ENDLESS = flags(total_steps=10**7, evaluation__every=10**6, threads=1)


def command(*words: str, workdir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "rematch", "sweep", *words], cwd=workdir, text=True,
                            env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def is_process(number: int) -> bool:
    """Whether there is such a process; one that has ended may stay for a second, until init asks for it."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def saved(run: Path) -> int:
    names = os.listdir(run / "checkpoints") if (run / "checkpoints").exists() else []
    return max((int(name.removeprefix("iter_")) for name in names if name.startswith("iter_")), default=0)


def stamps(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(folder.rglob("*")) if path.is_file()}


# --- killed, stopped, failed ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the finished sweep runs/three."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    with contextlib.chdir(workdir):
        assert main.main(["sweep", "quick", "--seeds", "0-2", "--name", "three", *LONG]) == 0
    return workdir


@pytest.mark.slow
def test_killed_sweep_is_continued_by_the_same_command(undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL of the sweep during its second run: the first is not touched, the second is resumed, the third
    is started, no process is left, and the table is that of an undisturbed sweep."""
    words = ("quick", "--seeds", "0-2", "--name", "three", "--jobs", "1", *LONG)
    sweep, folder = command(*words, workdir=tmp_path), tmp_path / "runs" / "three"
    wait_until(lambda: saved(folder / "seed-1") >= 3, "the second run does not start")
    sweep.kill()
    output = sweep.communicate()[0]
    child = int(re.findall(r"seed-1 started \(process (\d+)\)", output)[0])
    assert re.search(r"^\[1/3\] seed-0 finished: ", output, re.M) and "seed-2" not in output
    before = stamps(folder / "seed-0")
    again = command(*words, workdir=tmp_path)  # at once: the child may still be saving
    output = again.communicate(timeout=PATIENCE)[0]
    assert again.returncode == 0, output
    wait_until(lambda: not is_process(child), "its child is left")
    assert "1 of them finished earlier\n" in output
    assert "seed-1 resumed" in output and "seed-2 started" in output
    assert "seed-0 " not in output.split("Sweep")[0]
    assert stamps(folder / "seed-0") == before
    for name in ("sweep.json", "sweep.md", "sweep.yaml", "settings.yaml"):
        assert (folder / name).read_bytes() == (undisturbed / "runs" / "three" / name).read_bytes(), name
    for seed in range(3):
        assert files(folder / f"seed-{seed}") == files(undisturbed / "runs" / "three" / f"seed-{seed}")


@pytest.mark.slow
def test_stopped_sweep_saves_and_names_the_command_to_continue(tmp_path: Path) -> None:
    sweep = command("quick", "--seeds", "4-6", "--jobs", "2", *ENDLESS, workdir=tmp_path)
    folder = tmp_path / "runs" / "quick-sweep"
    wait_until(lambda: saved(folder / "seed-4") and saved(folder / "seed-5"), "they do not start")
    second = process("sweep", "quick", "--seeds", "4-6", *ENDLESS, cwd=tmp_path)
    assert second.returncode == 2 and f"is locked by process {sweep.pid}" in second.stderr.decode()
    sweep.send_signal(signal.SIGTERM)
    output = sweep.communicate(timeout=PATIENCE)[0]
    assert sweep.returncode == 0, output
    last = output.splitlines()[-1]
    assert last.startswith("stopped (SIGTERM); continue with: rematch sweep quick --seeds 4-6 ")
    assert "0 of 3 runs finished, 2 unfinished, 1 not started" in output
    for seed in (4, 5):
        assert not lock_holder(folder / f"seed-{seed}")
        assert "stopped (SIGTERM) at iteration" in (folder / f"seed-{seed}.log").read_text()
    assert not (folder / "seed-6").exists()


def test_failed_run_is_reported_and_the_others_finish(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "quick", "--seeds", "3", *flags(threads=1), "--grid", "ppo.lr=1e30,1e-3"]
    assert main.main(words) == 1
    output = capsys.readouterr().out
    assert re.search(r"^\[0/2, 1 failed\] ppo.lr=1e30/seed-3 FAILED: pursuer: the gradient is", output, re.M)
    assert "1 of 2 runs finished, 1 failed" in output and "1 failed and are not in the means" in output
    folder = tmp_path / "runs" / "quick-sweep"
    result = json.loads((folder / "sweep.json").read_text())
    bad, good = result["cells"]
    assert bad["runs"][0]["state"] == "failed" and "not finite" in bad["runs"][0]["why"] and bad["iqm"] == {}
    assert good["runs"][0]["measures"].keys() == good["iqm"].keys() >= {"SR_P", "SR_E", "NE-GAP", "score"}
    page = (folder / "sweep.md").read_text()
    assert "| 3 | - | - | - | FAILED |" in page and "FAILED ppo.lr=1e30/seed-3: pursuer" in page
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_killed_child_is_reported(tmp_path: Path) -> None:
    sweep = command("quick", "--seeds", "0", "--name", "x", *ENDLESS, workdir=tmp_path)
    run = tmp_path / "runs" / "x" / "seed-0"
    wait_until(lambda: saved(run) >= 2, "it does not start")
    os.kill(int((run / "lock").read_text().split()[1]), signal.SIGKILL)
    output = sweep.communicate(timeout=PATIENCE)[0]
    assert sweep.returncode == 1
    assert "seed-0 FAILED: killed by SIGKILL, perhaps because memory ran out" in output
    assert "0 of 1 runs finished, 1 failed" in output


# --- refused before anything starts -----------------------------------------------------------------------


@pytest.mark.parametrize(("words", "expected"), [
    ("", "expected rematch sweep RECIPE"),
    ("qick --seeds 0-1", "unknown recipe 'qick'"),
    ("quick", "needs --seeds; expected seeds like 0-9 or 1,4,7"),
    ("quick --seeds 9-0", "--seeds = '9-0': 9-0 is empty; expected 0-9"),
    ("quick --seeds 0-3,2", "seed 2 is given twice"),
    ("quick --seeds 1,", "--seeds = '1,': expected seeds like"),
    ("quick --seeds -1", "--seeds = '-1': expected seeds like"),
    ("quick --seeds x", "--seeds = 'x': expected seeds like"),
    ("quick --seeds 1.5", "expected seeds like"),
    ("quick --seeds ٣", "expected seeds like"),
    ("quick --seeds 0-4294967296", "expected at most 1000, each from 0 to 4294967295"),
    ("quick --seeds 0-1000", "expected at most 1000"),
    ("quick --seeds 0-1 --seed 3", "--seed has no effect in a sweep"),
    ("quick --seeds 0-1 --seeds 2", "--seeds is given twice"),
    ("quick --seeds 0-1 --jobs 0", "--jobs = '0': expected a whole number from 1"),
    ("quick --seeds 0-1 --jbs 2", "unknown option '--jbs'; nearest: --jobs"),
    ("quick --seeds 0-1 --grid seed=1,2", "--grid = 'seed=1,2': expected the seeds as --seeds"),
    ("quick --seeds 0-1 --grid ppo.lrr=1,2", "unknown setting --ppo.lrr = '1'; nearest: --ppo.lr"),
    ("quick --seeds 0-1 --grid ppo.lr=1e-3,fast", "ppo.lr = 'fast': expected a number"),
    ("quick --seeds 0-1 --grid ppo.lr", "expected KEY=VALUE,VALUE"),
    ("quick --seeds 0-1 --grid ppo.lr=1,,2", "expected KEY=VALUE,VALUE"),
    ("quick --seeds 0-1 --grid =1", "expected KEY=VALUE,VALUE"),
    ("quick --seeds 0-1 --grid ppo.lr=1e-3,0.001", "ppo.lr=1e-3 and ppo.lr=0.001 are the same settings"),
    ("quick --seeds 0-1 --grid ppo.lr=1 --grid ppo.lr=2", "--grid ppo.lr is given twice"),
    ("quick --seeds 0-1 --grid ppo.lr=1,2 --ppo.lr 3", "--ppo.lr is given twice"),
    ("quick --seeds 0-1 --grid game=lattice", "--game cannot change a recipe's world"),
    ("quick --seeds 0-1 --grid league.matchmaking=pfsp,uniform --grid league.pfsp_power=1,2",
     "league.pfsp_power = 1.0 has no effect"),
    ("quick --seeds 0-999 --grid ppo.lr=1e-3,1e-4", "2000 runs: expected at most 1000"),
    ("quick --seeds 0-1 --name ..", "--name = '..': expected the name of a new folder"),
])
def test_wrong_sweep_is_one_line(
        tmp_path: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch, words: str, expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_place, "Children", None)
    assert expected in refused("sweep", *words.split())
    assert os.listdir(tmp_path) == []


def test_jobs_beyond_the_memory_are_refused(
        tmp_path: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four runs at once would run out of memory: refused before the first starts, with a number that fits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_place, "Children", None)
    monkeypatch.setattr(system_memory, "available_bytes", lambda: 600 << 20)
    words = ("sweep", "quick", "--seeds", "0-3", *flags(threads=1))
    assert refused(*words, "--jobs", "4") == ("--jobs = 4: a run needs about 0.16 GiB of memory, 0.59 GiB "
                                            "are free, enough for 3; expected --jobs 3 or fewer")
    monkeypatch.setattr(system_memory, "available_bytes", lambda: 100 << 20)
    assert refused(*words) == ("a run needs about 0.16 GiB of memory, 0.10 GiB are free: expected smaller "
                             "runs, or more memory")
    assert os.listdir(tmp_path) == []


def test_jobs_by_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def plan(*words: str, seeds: str = "0-9") -> sweeps.Plan:
        made = sweeps.read_grid(words)
        return sweeps.make_plan(Path("x"), "quick", sweeps.read_seeds(seeds), made,
                                lambda more: api.configure("quick", flags=[*flags(), *more]))

    def jobs_of(made: sweeps.Plan, flag: int | None) -> run_place.Sizes:
        return run_place.RunPlace().sizes(made.configs, len(made.tasks()), flag)

    monkeypatch.setattr(system_memory, "available_bytes", lambda: 64 << 30)
    assert jobs_of(plan(), None)[0] == 4
    assert jobs_of(plan(seeds="0-2"), None)[0] == 3
    assert jobs_of(plan("threads=1,64"), None)[0] == 1
    jobs, _, line = jobs_of(plan(), 6)
    assert jobs == 6 and "6 at a time, 2 threads each, on 8 cores; they compete for the cores; " in line
    monkeypatch.setattr(system_memory, "available_bytes", lambda: 500 << 20)
    assert 1 <= jobs_of(plan(), None)[0] <= 3  # chosen for the user: as many as fit


def test_folder_of_another_sweep_is_refused(
        undisturbed: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(undisturbed)
    monkeypatch.setattr(run_place, "Children", None)
    before = stamps(undisturbed)
    three = ("--name", "three")
    for words, expected in (
        (("--seeds", "0-2", *LONG, "--ppo.clip", "0.3"), "ppo.clip = 0.3 instead of 0.2"),
        (("--seeds", "0-2", *LONG, "--grid", "ppo.clip=0.2,0.3"),
         "--grid ppo.clip=0.2,0.3 instead of no grid"),
        (("--seeds", "0-1", *LONG), "seeds 0-1 instead of 0-2: no seed may be left out"),
        (("--seeds", "0-2"), " and 7 more; choose another --name"),
    ):
        output = refused("sweep", "quick", *three, *words)
        assert output.startswith("runs/three holds another sweep: ") and expected in output, output
    assert "runs/three holds another sweep: game = 'lattice' instead of 'pursuit'" in refused(
        "sweep", "lattice", *three, "--seeds", "0-2")
    assert "holds a run: choose another --name" in refused(
        "sweep", "quick", "--seeds", "0-2", *LONG, "--name", "runs/three/seed-0")
    assert "is not empty and not a sweep" in refused(
        "sweep", "quick", "--seeds", "0-2", *LONG, "--name", "runs/three/seed-0/checkpoints")
    assert stamps(undisturbed) == before


# --- the table --------------------------------------------------------------------------------------------


def test_finished_sweep_runs_nothing_again(
        undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(undisturbed)
    before = files(undisturbed)
    assert main.main(["sweep", "quick", "--seeds", "0-2", "--name", "three", *LONG, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert files(undisturbed) == before
    assert result == json.loads((undisturbed / "runs" / "three" / "sweep.json").read_text())
    assert (result["finished"], result["seeds"], result["added"], result["game"]) == (3, "0-2", "", "pursuit")
    (cell,) = result["cells"]
    for run in cell["runs"]:
        last = json.loads((undisturbed / "runs" / "three" / run["run"] / "history.json").read_text())[-1]
        assert run["measures"]["NE-GAP"] == {
            "value": last["gap"], "low": last["gap_low"], "high": last["gap_high"]}
        assert run["measures"]["SR_P"]["value"] == last["SR_P"] and run["verdict"] == last["verdict"]
        assert (run["step"], run["pairings"], run["games"]) == (3840, 2, 4)
    mean = sum(run["measures"]["score"]["value"] for run in cell["runs"]) / 3
    assert cell["iqm"]["score"]["value"] == pytest.approx(mean) and cell["iqm"]["score"]["n"] == 3


@pytest.mark.slow
def test_sweep_has_status_and_report(
        undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Runner,
        capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep has a status like a run; commands that need one run name one of its runs."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    table = json.loads(Path("runs/three/sweep.json").read_text())
    assert main.main(["status", "three", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert {key: output[key] for key in table} == table and output["exit"] == 0
    assert main.main(["status", "runs/three"]) == 0
    assert "3 of 3 runs finished" in capsys.readouterr().out
    assert main.main(["status", "three/seed-1"]) == 0  # by its name within runs/
    assert capsys.readouterr().out.startswith("runs/three/seed-1: pursuit, seed 1\n")
    for command in ("resume", "eval", "exploit"):
        assert refused(command, "three") == ("runs/three is not a run: it holds no config.yaml; "
                                           "runs/three/seed-0 is one")
    assert files(tmp_path) == before

    (tmp_path / "runs/three/seed-1/report.html").unlink()
    shutil.rmtree(tmp_path / "runs/three/seed-2")
    assert main.main(["status", "three"]) == 3
    output = capsys.readouterr().out
    assert "1 of 3 runs finished, 1 unfinished, 1 not started" in output
    assert "next: run the same sweep command again to continue" in output
    table["cells"][0]["runs"][1] |= {"state": "failed", "why": "the disk was full"}
    (tmp_path / "runs/three/sweep.json").write_text(json.dumps(table))
    assert main.main(["status", "three"]) == 1
    assert "FAILED seed-1: the disk was full" in capsys.readouterr().out
    assert main.main(["report", "three", "--games", "1"]) == 0
    output = capsys.readouterr().out
    assert "seed-0: " in output and "seed-1: " in output and "seed-2: " not in output

    for name in ("sweep.json", "sweep.yaml"):
        (tmp_path / "runs/three" / name).write_text("[")
    assert refused("status", "three") == "runs/three/sweep.yaml has unexpected content"


@pytest.mark.slow
def test_sweep_from_python_with_a_grid_and_an_added_seed(tmp_path: Path) -> None:
    changes = {"games": 100, "steps": 1, "total_steps": 100, "threads": 1, "evaluation.games": 2}
    ask = {"grid": {"network.hidden": [[4], [4, 4]]}, "changes": changes, "folder": tmp_path / "x"}
    first = rematch.sweep("gymnasium", seeds=[5], **ask)
    assert [cell["cell"] for cell in first["cells"]] == ["network.hidden=4", "network.hidden=4-4"]
    assert (tmp_path / "x" / "network.hidden=4-4" / "seed-5" / "config.yaml").exists()
    assert list(first["cells"][0]["iqm"]) == ["player's return"]
    second = rematch.sweep("gymnasium", seeds="5-6", **ask, limits=rematch.Limits(jobs=2))
    assert (second["finished"], second["seeds"], second["added"]) == (4, "5-6", "6")
    assert "Seeds 6 were added later" in (tmp_path / "x" / "sweep.md").read_text()
    with pytest.raises(ConfigError, match="seed has no effect in a sweep"):
        rematch.sweep("gymnasium", seeds=[1], changes={"seed": 3})


def test_sweep_prints_the_notes_of_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of each run is its warm-up: the table alone would look like a result."""
    words = flags(total_steps=64, threads=1, evaluation__games=4)
    turns = ["--schedule.kind", "alternating", "--schedule.warmup_steps", "1000000"]
    with contextlib.chdir(tmp_path):
        assert main.main(["sweep", "quick", "--seeds", "0", "--name", "x", *words, *turns]) == 0
        output = capsys.readouterr().out
        start, _, table = output.partition("Sweep x: ")
        assert f"note on every run: {ONLY_WARMUP}" in start and f"Note on every run: {ONLY_WARMUP}" in table
        assert ONLY_WARMUP in (tmp_path / "runs/x/sweep.md").read_text().replace("\\", "")
        assert main.main(["status", "x"]) == 0
        assert f"Note on every run: {ONLY_WARMUP}" in capsys.readouterr().out


def test_games_that_follow_from_a_grid_value_reach_the_run(tmp_path: Path) -> None:
    """The bound of a gap needs more games at a smaller threshold; cells share one file of settings."""
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps({"game": "pursuit", "curriculum": {"kind": "smooth", "by": "gap"}}))
    plan = sweeps.make_plan(tmp_path / "s", str(file), (0,), {"curriculum.gap_threshold": ("0.15", "0.1")},
                            lambda more: api.configure(str(file), flags=more))
    assert [cell.config.evaluation.games for cell in plan.cells] == [1000, 1550]
    commands = [task.command for task in plan.tasks()]
    assert [[word for word in each if "--evaluation" in word] for each in commands] == [
        [], ["--evaluation.games=1550"]]
    both = sweeps.make_plan(tmp_path / "s", str(file), (0,), {"evaluation.games": ("8", "9")},
                            lambda more: api.configure(str(file), flags=more))
    assert [sum("--evaluation" in word for word in task.command) for task in both.tasks()] == [1, 1]


def test_cell_names_are_readable_folders() -> None:
    for values, name in (({"ppo.lr": "0.001", "network.hidden": "[64, 64]"},
                          "ppo.lr=0.001_network.hidden=64-64"),
                         ({"world.id": "a/../b\n"}, "world.id=a-..-b-")):
        assert sweeps.cell_name(values) == name
    long = [sweeps.cell_name({"a": "x" * 200 + end}) for end in "12"]
    assert len(set(long)) == 2 and max(map(len, long)) == 120
    assert sweeps.read_grid(["network.hidden=[8,8],[16],4", "--ppo.minibatch_size=2"]) == {
        "network.hidden": ("[8,8]", "[16]", "4"), "ppo.minibatch_size": ("2",)}
