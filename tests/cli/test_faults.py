"""Folders, disks, signals and numbers that go wrong: one line, exit code 2, nothing lost."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import commands
from support.commands import (
    PRODUCTS,
    Runner,
    cpu_seconds_of_children,
    files,
    finished,
    flip,
    newest,
    piped,
    process,
    refused,
    succeed,
    workdir,
)
from support.patience import PATIENCE
from support.tiny_run import flags

from rematch import api
from rematch.cli import main
from rematch.core.system.interrupts import FIRST_CTRL_C
from rematch.rollout.collector import ThreadCollector
from rematch.storage import checkpoint as disk
from rematch.storage.atomic_files import FileDigest, sha256_hex
from rematch.storage.run_folder import Run
from rematch.worlds import registry

__all__ = ["finished", "refused", "succeed", "workdir"]
pytestmark = pytest.mark.usefixtures("blank_pictures")


# --- folders that cannot be -------------------------------------------------------------------------------


def test_name_that_is_taken_is_refused(workdir: Path, refused: Runner) -> None:
    (workdir / "runs" / "thesis").mkdir()
    (workdir / "runs" / "thesis" / "chapter1").write_text("mine")
    (workdir / "runs" / "paper").write_text("mine")
    before = files(workdir)
    assert "runs/done holds a run already: continue it with `rematch resume runs/done`" in refused(
        "train", "quick", *flags(), "--name", "done")
    assert "runs/thesis is not empty and not a run" in refused("train", "quick", *flags(), "--name", "thesis")
    assert "runs/paper cannot be created: runs/paper: Not a directory" in refused(
        "train", "quick", *flags(), "--name", "paper")
    assert files(workdir) == before


def test_folder_that_cannot_be_made_is_refused(workdir: Path, refused: Runner) -> None:
    Path("file").write_text("")
    for name in ("file/run", "/proc/run", "/sys/run", "/dev/null/run", "/dev/full/x"):
        assert f"{name} cannot be created: " in refused("train", "quick", *flags(), "--name", name)


def humble() -> None:
    """Root writes where it has no permission: give that up for good (capabilities(7), bounding set)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
            os._exit(77)


def test_folder_without_permission_is_refused(workdir: Path) -> None:
    closed = workdir / "runs" / "done"
    before = files(closed)
    for folder, words, expected in (
        (closed, ["resume", str(closed)], rb"runs/done cannot be opened: .*/lock: Permission denied"),
        (workdir, ["train", "quick", *flags(), "--name", f"{workdir}/new"],
         rb"/new cannot be created: .*: Permission denied"),
    ):
        folder.chmod(0o500)
        done = process(*words, preexec_fn=humble if os.geteuid() == 0 else None)
        folder.chmod(0o700)
        if done.returncode == 77:
            pytest.skip("root cannot drop its privileges on this system")
        assert re.fullmatch(b"rematch: .*" + expected + b"\n", done.stderr), done.stderr
        assert done.returncode == 2
    assert files(closed) == before and not (workdir / "new").exists()


def test_run_of_another_process_is_refused(workdir: Path, refused: Runner) -> None:
    lock = workdir / "runs" / "done" / "lock"
    lock.write_text("process 1 on elsewhere since 2020\n")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = files(workdir)
        assert "runs/done is locked by process 1 on elsewhere since 2020" in refused("resume", "done")
        assert "locked by process 1" in refused("train", "quick", *flags(), "--name", "done")
        assert files(workdir) == before


# --- runs that were tampered with ---------------------------------------------------------------------------


def test_damaged_checkpoint_is_named_and_the_one_before_it_used(workdir: Path, succeed: Runner) -> None:
    whole = files(workdir / "runs" / "done")
    flip(newest(workdir / "runs" / "done") / "state.safetensors")
    output = succeed("resume", "done")
    assert "checkpoint iter_00000003 does not verify: state.safetensors does not match its SHA-256" in output
    assert "resumed runs/done at iteration 2" in output
    again = files(workdir / "runs" / "done")
    assert {name: again[name] for name in whole} == whole


def test_resume_refuses_where_no_checkpoint_verifies(workdir: Path, refused: Runner) -> None:
    for checkpoint in (workdir / "runs" / "done" / "checkpoints").iterdir():
        flip(checkpoint / "state.json")
    before = files(workdir)
    for command in ("resume", "eval"):
        assert re.search(r"runs/done: none of its 3 checkpoints verifies \(iter_00000003: .*\): refusing",
                         refused(command, "done"))
    assert files(workdir) == before


def test_run_without_checkpoints_resumes_from_the_beginning(
    workdir: Path, refused: Runner, succeed: Runner
) -> None:
    shutil.rmtree("runs/done/checkpoints")
    assert "runs/done: no checkpoint yet" in refused("eval", "done")
    assert "from the beginning" in succeed("resume", "done")
    assert "iter_00000003" in os.listdir("runs/done/checkpoints")


def test_checkpoint_of_another_run_is_refused(workdir: Path, refused: Runner) -> None:
    with Run.create(workdir / "runs" / "other", Path("runs/done/config.yaml").read_text()) as run:
        run.save(3, {"session": {"iteration": 3}, "world": {"states": np.zeros(3)}}, {})
    line = refused("resume", "other")
    assert "runs/other" in line and ("--other-machine" in line or "not a checkpoint of this run" in line)
    assert "not a checkpoint of this run" in refused("resume", "other", "--other-machine")
    assert "not a checkpoint of this run" in refused("eval", "other")


def test_settings_edited_by_hand_are_refused(workdir: Path, refused: Runner) -> None:
    path = Path("runs/done/config.yaml")
    text = path.read_text()
    for edited in (text.replace("seed: 0", "seed: 1"), text + "# mine\n",
                   text.replace("games: 8", "games: -8"), text.replace("game: pursuit", "game: chess"),
                   text.replace("game: pursuit\n", ""), text.replace("prep_steps: 0", "prep_steps: 99")):
        path.write_text(edited)
        before = files(workdir)
        assert "runs/done" in refused("resume", "done")
        assert files(workdir) == before
    path.write_bytes(b"\xff\x00")
    assert "config.yaml is not text" in refused("resume", "done")
    path.unlink()
    assert "runs/done is not a run: it holds no config.yaml" in refused("resume", "done")


def test_checkpoint_of_another_machine_needs_permission(
        workdir: Path, refused: Runner, succeed: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = api.fingerprint
    monkeypatch.setattr(api, "fingerprint", lambda config: fingerprint(config) | {"numpy": "0.1"})
    output = refused("resume", "done")
    assert "saved with another numpy: " in output and "--other-machine" in output
    succeed("resume", "done", "--other-machine")


def test_checkpoint_of_other_compiled_rules_needs_permission(
        workdir: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.find("pursuit"), "build", "other text")
    assert "saved with another world: " in refused("resume", "done")


@pytest.mark.parametrize(("part", "name", "value"), [
    ("clock", "iteration", "x"), ("clock", "iteration", -7), ("learners/pursuer", "updates", "x"),
    ("league/pools", "pursuer", {}), ("rollback", "dim", 1.5), ("rollback", "judged", 1.5),
    ("rollback", "rolling", [1]), ("rollback", "count", "x"), ("league/pools/pursuer", "open", [1.5]),
    ("league/pools/pursuer", "since", ["x"] * 5), ("league/pools/evader", "seen", -1),
    ("league", "learned", ["x"]), ("schedule", "phase", 7), ("schedule/phase", "last", "x"),
    ("schedule/phase", "roles", ["pursuer"]), ("schedule", "upcoming", []), ("world_state", "stage", 1.5),
])
def test_checkpoint_that_verifies_and_holds_nonsense_is_refused(
        workdir: Path, refused: Runner, part: str, name: str, value: Any) -> None:
    """Seals are no secret: a stranger's folder can carry consistent ones."""
    checkpoint_folder = newest(workdir / "runs" / "done")
    checkpoint = disk.read_checkpoint(checkpoint_folder)
    tree: Any = checkpoint.parts
    for key in part.split("/"):
        tree = tree[key]
    tree[name] = value
    contents = disk.encode_state(checkpoint.parts)
    marks = {file: FileDigest(len(raw), sha256_hex(raw)) for file, raw in contents.items()}
    for file, raw in contents.items():
        (checkpoint_folder / file).write_bytes(raw)
    (checkpoint_folder / "manifest.json").write_bytes(replace(checkpoint.manifest, files=marks).encode())
    assert "not a checkpoint of this run" in refused("resume", "done")


# --- trouble while it works ---------------------------------------------------------------------------------


def test_reward_that_is_not_finite_stops_the_run_and_keeps_checkpoints(
        workdir: Path, capsys: pytest.CaptureFixture[str], succeed: Runner, monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = ThreadCollector.submit

    def spoiled(self: ThreadCollector, iteration: int) -> None:
        submit(self, iteration)
        if iteration == 2:
            self.rollout["evader"].reward[1, 3] = np.nan

    with monkeypatch.context() as patch:
        patch.setattr(ThreadCollector, "submit", spoiled)
        assert main.main(["train", "quick", *flags(), "--name", "x"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "evader: a reward or value is not finite" in err
    assert newest(workdir / "runs" / "x").name == "iter_00000002"
    assert main.main(["status", "x"]) == 1  # an alarm and the verdict, until the run is resumed
    assert "verdict: COLLAPSED: evader: a reward or value is not finite" in capsys.readouterr().out
    succeed("resume", "x")
    assert main.main(["status", "x"]) != 1 and "not finite" not in capsys.readouterr().out
    assert files(workdir / "runs" / "x") == files(workdir / "runs" / "done")


FULL = """if 1:
    import resource, sys
    from rematch.cli import main
    from rematch.storage.run_folder import Run
    save = Run.save
    def fuller(self, iteration, *rest, **keep):  # from the second save on, files are short
        if iteration == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        return save(self, iteration, *rest, **keep)
    Run.save = fuller
    sys.exit(main.main(sys.argv[1:]))
"""


def test_full_disk_costs_no_checkpoint(workdir: Path, succeed: Runner) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, "train", "quick", *flags(), "--name", "x"],
                          env=commands.environment(), capture_output=True)
    assert done.returncode == 2 and re.fullmatch(
        rb"rematch: checkpoint iter_00000002 was not saved: .*File too large\n", done.stderr), done.stderr
    assert os.listdir("runs/x/checkpoints") == ["iter_00000001"]
    assert "resumed runs/x at iteration 1" in succeed("resume", "x")
    assert files(workdir / "runs" / "x") == files(workdir / "runs" / "done")


@pytest.mark.parametrize("product", PRODUCTS)
def test_product_that_cannot_be_written_is_one_line_and_made_by_resume(
        workdir: Path, capsys: pytest.CaptureFixture[str], succeed: Runner, monkeypatch: pytest.MonkeyPatch,
        product: str) -> None:
    whole = files(workdir / "runs" / "done")
    for name in PRODUCTS:
        (workdir / "runs" / "done" / name).unlink()
    write = Run.write_file

    def no_space(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def full(self: Run, name: str, data: bytes) -> Path:
        with monkeypatch.context() as patch:
            if name == product:
                patch.setattr(os, "write", no_space)
            return write(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_file", full)
        assert main.main(["resume", "done"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"{product} was not written: " in err and "No space left on device" in err
    assert "the training itself is complete and saved: write the missing files with `rematch resume" in err
    assert "runs/done is complete after 96 steps: there is nothing to train" in succeed("resume", "done")
    assert files(workdir / "runs" / "done") == whole


def test_missing_film_is_made_again_and_nothing_else_changes(workdir: Path, succeed: Runner) -> None:
    whole = files(workdir / "runs" / "done")
    (workdir / "runs" / "done" / "match.gif").unlink()
    inode = (workdir / "runs" / "done" / "learning.png").stat().st_ino
    succeed("resume", "done")
    assert files(workdir / "runs" / "done") == whole
    assert (workdir / "runs" / "done" / "learning.png").stat().st_ino == inode


def test_reader_that_leaves_is_no_error(finished: Path) -> None:
    for words in ("train quick --help", "worlds", "eval done --games 2 --json"):
        done = piped(f"{words} | head -c 1", finished)
        assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) == 1, words


def test_output_that_does_not_fit_is_one_line(finished: Path) -> None:
    for words in (("worlds",), ("eval", "done", "--games", "2")):
        with open("/dev/full", "w") as full:
            done = process(*words, cwd=finished, stdout=full, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (2, b"rematch: output: No space left on device\n")


def test_training_continues_when_its_reader_leaves(workdir: Path) -> None:
    words = " ".join(["train", "quick", *flags(), "--name", "x"])
    done = piped(f"{words} | head -n 1", workdir)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"run runs/x: pursuit, seed 0, 3 iterations of 8 games x 4 steps")
    assert files(workdir / "runs" / "x") == files(workdir / "runs" / "done")


# "ready" comes from inside `main`: before that a Ctrl-C is Python's own business.
START = """if 1:
    import sys
    from rematch.cli import main
    dispatch = main.dispatch
    main.dispatch = lambda words: print("ready", flush=True) or dispatch(words)
    sys.exit(main.main(sys.argv[1:]))
"""


def interrupted(name: str, delay: float) -> str:
    """Ctrl-C so many seconds after a training began to start: what was wrong with its end, or nothing."""
    words = ["train", "quick", *flags(total_steps=10**9, save_every=10**6, evaluation__every=10**6)]
    command = [sys.executable, "-c", START, *words, "--name", name]
    with subprocess.Popen(command, env=commands.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        try:
            out, err = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "it went on"
        finally:
            child.kill()
    if child.returncode == 0:  # it was training already: saved, and says how to go on
        answer = err == f"{FIRST_CTRL_C}\n".encode()
        printed = answer and b"stopped (SIGINT)" in out and f"rematch resume runs/{name}".encode() in out
        return "" if printed and Path(f"runs/{name}/checkpoints").exists() else f"{out!r} {err!r}"
    expected = (130, b"rematch: interrupted; checkpoints that were saved are intact\n")
    printed = (child.returncode, err) == expected
    return "" if printed and not Path(f"runs/{name}/lock").exists() else f"{child.returncode} {err!r}"


def test_ctrl_c_at_any_moment_of_start_is_one_line(workdir: Path) -> None:
    for i, delay in enumerate((0.0, 0.05, 0.15, 0.3, 0.6)):
        assert interrupted(f"x{i}", delay) == ""


def test_processes_print_the_same_lines(finished: Path) -> None:
    for words, text in (
        (("trian",), b"unknown command 'trian'"), (("train", "quick", "--gmaes", "3"), b"nearest: --game"),
        (("resume", "done2"), b"nearest: runs/done"), ((b"\xff",), b"unknown command '\\udcff'"),
    ):
        began = cpu_seconds_of_children()
        done = process(*words, cwd=finished)
        assert cpu_seconds_of_children() - began < 3  # about half a second alone, longer on a busy machine
        assert done.returncode == 2 and done.stdout == b"" and text in done.stderr
        assert done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr
