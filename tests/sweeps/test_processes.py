"""Child processes: their ends are reported, memory and locks are waited for, none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import ROOT
from support.patience import wait_until

from rematch.core.system import system_memory
from rematch.storage.run_lock import RunLock
from rematch.sweeps import processes
from rematch.sweeps.processes import Children, Task


def never() -> bool:
    return False


def test_failed_child_has_its_last_line_as_reason(tmp_path: Path) -> None:
    """Two wrong commands, one that ends well without having made a run; earlier output is not theirs."""
    tasks = [Task("a", tmp_path / "a", ["train", "nonsense"]), Task("b", tmp_path / "b", ["recipes"])]
    tasks[0].output.write_text("an old line\n")
    output: list[str] = []
    Children(tasks, 2, 1, output.append).run(never)
    assert [task.state for task in tasks] == ["failed", "failed"]
    assert tasks[0].why.startswith("unknown recipe 'nonsense': expected one of ")
    assert tasks[1].why.startswith("the process ended before the run was complete: z2 ")
    assert output[-1].startswith("[0/2, 2 failed] ")
    assert tasks[0].output.read_text().startswith("an old line\n")


@pytest.mark.parametrize(("code", "text", "expected"), [
    (2, "x\n\x1b[31mrematch: no\n\n", "no"),
    (1, "", "no output"),
    (-9, "y\n", "killed by SIGKILL, perhaps because memory ran out; last line of output: y"),
    (-11, "y" * 9000, f"killed by SIGSEGV; last line of output: {'y' * 500}"),
])
def test_last_line_by_exit_code(tmp_path: Path, code: int, text: str, expected: str) -> None:
    task = Task("a", tmp_path / "a", [])
    task.output.write_text(text)
    assert task.last_line(code) == expected


def test_warnings_of_children_are_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; print('rematch: the disk is slow', file=sys.stderr)"
    monkeypatch.setattr(processes, "CHILD", program)
    monkeypatch.setattr(Task, "finished", lambda task: task.output.exists())
    tasks = [Task(name, tmp_path / name, ["train"]) for name in "ab"]
    output: list[str] = []
    Children(tasks, 1, 1, output.append).run(never)
    assert [line for line in output if "warned" in line] == ["[0/2] a warned: the disk is slow"]


def test_children_run_one_after_the_other_without_memory_for_two(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_memory, "available_bytes", lambda: 5 << 29)
    monkeypatch.setattr(system_memory, "process_bytes", lambda _: (1 << 30, 2 << 30))  # above the estimate
    monkeypatch.setattr(processes, "_has_iteration", lambda _: True)
    output: list[str] = []
    tasks = [Task(name, tmp_path / name, ["recipes"]) for name in "ab"]
    Children(tasks, 2, 1 << 30, output.append).run(never)
    words = [line.split()[-1] if "memory" in line else line.split("]")[1].split()[1] for line in output]
    assert words == ["started", "ends", "FAILED:", "started", "FAILED:"]
    assert "a run takes 2.00 GiB and 2.50 GiB are free beside the 1 running" in output[1]


def test_children_wait_until_the_size_of_the_first_is_known(tmp_path: Path) -> None:
    output: list[str] = []
    Children([Task(name, tmp_path / name, ["recipes"]) for name in "ab"], 2, 1, output.append).run(never)
    assert [line.split("]")[1].split()[0] for line in output] == ["a", "a", "b", "b"]


def test_children_wait_for_a_held_run_and_the_others_continue(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    folders[0].mkdir()
    lock, output = RunLock(folders[0]), list[str]()

    def release_once_b_is_done() -> bool:
        if any("b FAILED" in line for line in output):
            lock.release()
        return False

    try:
        tasks = [Task(folder.name, folder, ["recipes"]) for folder in folders]
        Children(tasks, 1, 1, output.append).run(release_once_b_is_done)
    finally:
        lock.release()
    summary = [line.split("]", 1)[1].split()[:2] for line in output]
    assert summary == [["a", "is"], ["b", "started"], ["b", "FAILED:"], ["a", "started"], ["a", "FAILED:"]]
    assert f"is locked by process {os.getpid()} on " in output[0]


def test_second_interruption_leaves_no_child(tmp_path: Path) -> None:
    children = Children([Task("a", tmp_path / "a", ["bench", "--seconds", "60"])], 1, 1, lambda _: None)

    def interrupted() -> bool:
        if children.running:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        children.run(interrupted)
    assert children.running[0][1].returncode == -signal.SIGKILL and children.tasks[0].state == "unfinished"


def test_child_gets_sigterm_when_its_parent_ends(tmp_path: Path) -> None:
    child = (
        "import sys, time; from pathlib import Path\n"
        "from rematch.core.system.interrupts import StopRequest, stop_with_parent\n"
        "stop_with_parent(int(sys.argv[1]))\n"
        "with StopRequest(1) as stop:\n"
        "    Path('begun').touch()\n"
        "    while not stop(): time.sleep(0.01)\n"
        "Path('.end').write_text(stop.reason); Path('.end').rename('end')\n"
    )
    words = f"[sys.executable, '-c', {child!r}, str(os.getpid())]"
    parent = f"import os, subprocess, sys; subprocess.run({words})"
    started = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path,
                               env=os.environ | {"PYTHONPATH": str(ROOT)})
    for name in ("begun", "end"):
        wait_until((tmp_path / name).exists, name)
        started.kill()
    started.wait()
    assert (tmp_path / "end").read_text() == "SIGTERM"


def test_progress_of_a_run_is_read_from_its_metrics(tmp_path: Path) -> None:
    task = Task("seed-0", tmp_path, [], total=1000)
    assert task.progress() == (0.0, "starting")
    row = '{"iteration": 1, "step": 250, "rollout/win_pursuer": 0.25, "rollout/win_evader": null}'
    (tmp_path / "metrics.jsonl").write_text(f'{row}\n{{"step": 300')  # the last line is not whole yet
    assert task.progress()[0] in (0.0, 0.25)
    (tmp_path / "metrics.jsonl").write_text(f"{row}\n")
    assert task.progress() == (0.25, "250 of 1.00 K steps  pursuer wins 0.250  evader wins -")


def test_warnings_of_a_running_run_are_reported_once(tmp_path: Path) -> None:
    lines: list[str] = []
    tasks = [Task(f"seed-{i}", tmp_path / f"seed-{i}", []) for i in range(2)]
    for task in tasks:
        task.output.write_text("rematch: all of it is wrong\nother words\n")
    children = Children(tasks, 1, 1, lines.append)
    for task in tasks:
        children.hoist_warnings(task)
    assert lines == ["[0/2] seed-0 warned: all of it is wrong"]
