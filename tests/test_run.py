"""A run folder survives what disks, kernels and people do to it."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.config import ConfigError
from rematch.engine import checkpoint as disk
from rematch.engine import run as run_module
from rematch.engine.checkpoint import Checkpoint, RunError
from rematch.engine.run import Run, holder

CPU = {"cpu": "x", "threads": "2"}


def parts(iteration: int) -> dict[str, Any]:
    weights = np.full((4, 3), iteration, np.float32)
    return {"learner": {"w": weights, "step": iteration}, "league": {"names": ["a"]}}


def advance(run: Run, iteration: int, **keep: bool) -> None:
    """One iteration of a pretended training: everything it writes depends on `iteration` alone."""
    run.log_line(f"Eval iteration {iteration} SR_P {iteration / 7:.3f}")
    run.log({"iteration": iteration, "loss": 1 / (1 + iteration), "sr": np.float32(0.5)})
    if iteration % 2:
        run.append_history({"iteration": iteration, "gap": iteration / 3})
        run.write_policy(f"p{iteration}", {"w": np.arange(iteration)}, {"iteration": iteration})
    run.save(iteration, parts(iteration), CPU, **keep)


def go_on(folder: Path, until: int) -> None:
    with Run.open(folder, write=True) as run:
        checkpoint = run.load()
        assert run.rewind(checkpoint) == []
        for iteration in range(checkpoint.iteration + 1 if checkpoint else 0, until):
            advance(run, iteration)


def new(folder: Path, until: int) -> Path:
    Run.create(folder, "seed: 1\n").close()
    go_on(folder, until)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every compared byte: all files but timing.jsonl and damaged/."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()
            if name != "timing.jsonl" and not name.startswith("damaged/")}


def newest(folder: Path) -> Checkpoint:
    with Run.open(folder, write=False) as run:
        found = run.load()
    assert found is not None
    assert found.parts["learner"]["step"] == found.iteration
    assert np.array_equal(found.parts["learner"]["w"], parts(found.iteration)["learner"]["w"])
    return found


def one_line(caught: pytest.ExceptionInfo[ConfigError]) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- making and opening ---


def test_equal_runs_are_equal_to_the_byte_and_private(tmp_path: Path) -> None:
    a, b = new(tmp_path / "a", 6), new(tmp_path / "b", 6)
    assert contents(a) == contents(b)
    assert {name.split("/")[1] for name in contents(a) if name.startswith("checkpoints")} == \
        {"iter_00000003", "iter_00000004", "iter_00000005"}
    for path in [a, *a.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    text = b"".join(contents(a).values())
    assert str(os.getpid()).encode() not in re.findall(rb"process (\d+)", text)
    assert not any(path.name == "lock" for path in a.iterdir())


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 2)
    before = contents(folder)
    with pytest.raises(ConfigError, match="rematch resume") as caught:
        Run.create(folder, "seed: 2\n")
    assert str(folder) in one_line(caught)
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["thesis.txt", "train.log", "checkpoints"])
def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        Run.create(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_foreign_and_impossible_folders(tmp_path: Path) -> None:
    new(tmp_path / "quick_1", 0)
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "config.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "config.yaml").symlink_to("/etc/passwd")
    for name, word in (("quick1", "nearest: .*quick_1"), ("other", "no config.yaml"), ("file", "no such run"),
                       ("binary", "not text"), ("linked", "symbolic link")):
        for write in (False, True):
            with pytest.raises(ConfigError, match=word) as caught:
                Run.open(tmp_path / name, write=write)
            assert name in one_line(caught)
    assert not (tmp_path / "other" / "lock").exists()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError) as caught:
            Run.create(folder, "")
        one_line(caught)


def test_output_redirected_into_the_log_is_no_obstacle(tmp_path: Path) -> None:
    code = """if 1:
        import sys; from pathlib import Path; from rematch.engine.run import Run
        print("banner", flush=True)
        with Run.create(Path(sys.argv[1]), "") as run:
            assert run.stdout_is_log
            run.log_line("one"); print("stray", flush=True); run.log_line("two")
            run.save(1, {"x": {}}, {})
            print("late", flush=True)
        with Run.open(Path(sys.argv[1]), write=True) as run:
            assert run.rewind(run.load()) == []
    """
    with open(tmp_path / "train.log", "w") as log:
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, stdout=log, stderr=log)
    assert (tmp_path / "train.log").read_text() == "banner\none\nstray\ntwo\n"


# --- the lock ---

HOLD = """if 1:
    import sys, time; from pathlib import Path; from rematch.engine.run import Run
    run = Run.open(Path(sys.argv[1]), write=True)
    print("held", flush=True); time.sleep(60)
"""


def test_second_process_is_told_who_holds_the_run_and_a_killed_one_is_no_obstacle(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 1)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        told = f"process {process.pid} on "
        with pytest.raises(ConfigError, match=f"is held by {told}.* since 20") as caught:
            Run.open(folder, write=True)
        assert str(folder) in one_line(caught)
        with pytest.raises(ConfigError, match=told):
            Run.create(folder, "")
        assert holder(folder).startswith(told)
        Run.open(folder, write=False).close()  # readers are welcome
        process.kill()
    assert (folder / "lock").exists() and holder(folder) == ""
    go_on(folder, 2)
    assert not (folder / "lock").exists()


def forked(work: Callable[[], int]) -> int:
    """Start `work` in a process of its own; its result is the exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return pid


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_of_many_that_create_one_run_at_once_one_wins(tmp_path: Path) -> None:
    for attempt in range(5):
        folder, start = tmp_path / str(attempt), time.time() + 0.03

        def work(folder: Path = folder, start: float = start) -> int:
            time.sleep(max(0.0, start - time.time()))
            try:
                run = Run.create(folder, "seed: 1\n")
            except ConfigError:
                return 1
            time.sleep(0.2)
            run.close()
            return 0

        assert sorted(exit_status(pid) for pid in [forked(work) for _ in range(4)]) == [0, 1, 1, 1]


def test_a_forked_worker_that_outlives_us_does_not_hold_the_run(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 1)
    read, write = os.pipe()

    def parent() -> int:
        run = Run.open(folder, write=True)
        worker = forked(lambda: time.sleep(30) or 0)
        os.write(write, b"%d" % worker)
        os.kill(os.getpid(), signal.SIGKILL)
        run.close()
        return 0

    assert exit_status(forked(parent)) == -signal.SIGKILL
    worker = int(os.read(read, 20))
    try:
        Run.open(folder, write=True).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(read)
        os.close(write)


# --- logs ---


def test_log_lines_are_plain_and_there_at_once(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log_line("10%\r20% \x1b[1;31mred\x1b[0m \x1b]0;title\x07é\x00\x9b3m\r\n")
        assert (tmp_path / "x" / "train.log").read_bytes() == "10% 20% red é\n".encode()
        run.log_line("lone \ud800")
    assert b"\r" not in (tmp_path / "x" / "train.log").read_bytes()


@pytest.mark.parametrize("bad", [math.nan, math.inf, np.float32("nan"), [1.0, math.nan], object()])
def test_numbers_that_are_none_are_refused_by_name(tmp_path: Path, bad: Any) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log({"fine": 0.1, "n": np.int64(3)})
        for write, file in ((run.log, "metrics"), (run.timing, "timing"), (run.append_history, "history")):
            with pytest.raises(RunError, match=f"{file}.*: loss = ") as caught:
                write({"fine": 1, "loss": bad})
            one_line(caught)
        assert run.history == []
    assert (tmp_path / "x" / "metrics.jsonl").read_text() == '{"fine": 0.1, "n": 3}\n'


def test_history_is_whole_at_every_moment(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        assert json.loads((tmp_path / "x" / "history.json").read_text()) == []
        for i in range(3):
            run.append_history({"i": i, "x": np.float64(0.1)})
            assert json.loads((tmp_path / "x" / "history.json").read_text()) == run.history
    with Run.open(tmp_path / "x", write=False) as run:
        assert [row["i"] for row in run.history] == [0, 1, 2]
        for write in (lambda: run.log({}), lambda: run.save(1, {}, {}), lambda: run.timing({}),
                      lambda: run.write_file("a", b""), lambda: run.rewind(None)):
            with pytest.raises(RunError, match="reading only"):
                write()


def test_an_opened_run_must_say_where_its_logs_go_on(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 2)
    with Run.open(folder, write=True) as run:
        for write in (lambda: run.log({"a": 1}), lambda: run.log_line("x"), lambda: run.save(9, {}, {})):
            with pytest.raises(RunError, match="rewind"):
                write()


def test_logging_and_saving_are_cheap(tmp_path: Path) -> None:
    row = {"iteration": 1, "loss": 0.1234567, "kl": 1e-3, "entropy": np.float32(1.5), "sr": 0.5, "clip": 0.1}
    weights = {"w": np.random.default_rng(0).random(1_310_720, np.float32)}
    with Run.create(tmp_path / "x", "") as run:
        logs, saves = [], []
        for i in range(5):
            begin = time.perf_counter()
            for _ in range(200):
                run.log(row)
            middle = time.perf_counter()
            run.save(i, {"learner": weights}, CPU)
            logs.append((middle - begin) / 200)
            saves.append(time.perf_counter() - middle)
    assert min(logs) < 50e-6 and min(saves) < 0.2


# --- saving, pruning, resuming ---


def test_three_stay_and_milestones_and_a_passing_one_only_until_the_next(tmp_path: Path) -> None:
    def there() -> list[int]:
        return sorted(int(name[5:]) for name in os.listdir(tmp_path / "x" / "checkpoints"))

    with Run.create(tmp_path / "x", "") as run:
        for i in range(5):
            advance(run, i, milestone=i == 1)
        assert there() == [1, 2, 3, 4]
        advance(run, 7, passing=True)
        assert there() == [1, 2, 3, 4, 7]
    with Run.open(tmp_path / "x", write=True) as run:
        checkpoint = run.load()
        assert checkpoint and checkpoint.iteration == 7
        run.rewind(checkpoint)
        assert there() == [1, 2, 3, 4, 7]
        advance(run, 9)
        assert there() == [1, 3, 4, 9]


def test_what_came_after_the_checkpoint_is_cut_and_done_again(tmp_path: Path) -> None:
    twin, folder = new(tmp_path / "twin", 6), new(tmp_path / "x", 4)
    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        run.log_line("lost")
        run.log({"lost": 1})
        run.append_history({"lost": 1})
        run.write_policy("p5", {"w": np.zeros(3)}, {"of": "another time"})
        run.timing({"event": "stop", "at": 1.5})
    (folder / ".tmp-report.html").write_text("half")
    (folder / "policies" / ".tmp-p5.json").write_text("half")
    (folder / "checkpoints" / ".tmp-iter_00000004").mkdir()
    go_on(folder, 6)
    assert contents(folder) == contents(twin)
    assert json.loads((folder / "timing.jsonl").read_text()) == {"event": "stop", "at": 1.5}


def test_a_run_killed_before_its_first_checkpoint_starts_afresh(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        run.log_line("lost")
        run.append_history({"a": 1})
    go_on(tmp_path / "x", 3)
    assert contents(tmp_path / "x") == contents(new(tmp_path / "twin", 3))


def test_saving_one_iteration_twice(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        first = run.save(3, parts(3), CPU, passing=True)
        inode = first.stat().st_ino
        assert run.save(3, parts(3), CPU, passing=True) == first and first.stat().st_ino == inode
        run.save(3, {**parts(3), "more": {}}, CPU)
        assert os.listdir(first.parent) == [first.name]
    assert "more" in newest(tmp_path / "x").parts


def damage(path: Path, position: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1 << bit
    path.write_bytes(raw)


@pytest.mark.parametrize("name", [disk.ARRAYS, disk.REST, disk.MANIFEST])
def test_a_flipped_bit_is_found_named_and_the_previous_one_used(tmp_path: Path, name: str) -> None:
    folder, chance = new(tmp_path / "x", 4), random.Random(3)
    path = folder / "checkpoints" / "iter_00000003" / name
    for _ in range(10):
        position, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        damage(path, position, bit)
        found = newest(folder)
        assert found.iteration == 2
        ((skipped, why),) = found.skipped
        assert skipped == "iter_00000003" and name in why
        damage(path, position, bit)
    damage(path, 1)
    go_on(folder, 5)
    assert contents(folder) == contents(new(tmp_path / "twin", 5))
    assert os.listdir(folder / "damaged") == ["iter_00000003"]


def test_where_none_verifies_nothing_is_started_or_changed(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 4)
    for path in (folder / "checkpoints").glob("*/state.json"):
        damage(path, 0)
    before = contents(folder)
    with Run.open(folder, write=True) as run:
        with pytest.raises(ConfigError, match=r"none of its 3 .*iter_00000003: state.json.*refus") as caught:
            run.load()
        one_line(caught)
        with pytest.raises(RunError, match="has checkpoints"):
            run.rewind(None)
    assert contents(folder) == before


def test_checkpoints_of_another_run_or_under_another_name_are_not_taken(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 3)
    with Run.create(tmp_path / "other", "seed: 2\n") as run:
        advance(run, 8)
    there = folder / "checkpoints"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "iter_00000008", there / "iter_00000008")
    shutil.copytree(there / "iter_00000001", there / "iter_00000009")
    (there / "iter_00000010").symlink_to(tmp_path / "other" / "checkpoints" / "iter_00000008")
    found = newest(folder)
    assert found.iteration == 2
    assert [name for name, _ in found.skipped] == [f"iter_{n:08d}" for n in (10, 9, 8)]
    assert "config.yaml" in found.skipped[2][1]
    go_on(folder, 4)
    assert contents(folder) == contents(new(tmp_path / "twin", 4))
    assert newest(tmp_path / "other").iteration == 8


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "history.json"])
def test_an_altered_log_is_an_error_and_a_deleted_one_begins_anew(tmp_path: Path, name: str) -> None:
    folder = new(tmp_path / "x", 4)
    path = folder / name
    raw = path.read_bytes()
    for spoiled in (raw[:-9], b"", raw.replace(b"1", b"2", 1)):
        path.write_bytes(spoiled)
        with Run.open(folder, write=True) as run:
            checkpoint = run.load()
            with pytest.raises(RunError, match=f"{name} was altered") as caught:
                run.rewind(checkpoint)
            assert "delete it" in one_line(caught)
        assert path.read_bytes() == spoiled and len(os.listdir(folder / "checkpoints")) == 3
    path.unlink()
    with Run.open(folder, write=True) as run:
        (note,) = run.rewind(run.load())
        assert name in note and "anew" in note
        advance(run, 4)
    go_on(folder, 6)


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".tmp-mine").write_text("")
    for name in ("train.log", "metrics.jsonl", "timing.jsonl", "checkpoints", "policies", "lock", "damaged"):
        folder = new(tmp_path / f"x-{name}", 2)
        if name == "damaged":
            damage(folder / "checkpoints" / "iter_00000001" / disk.REST, 0)
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
        is_file = "." in name or name == "lock"
        (folder / name).symlink_to(outside / "f" if is_file else outside)
        with pytest.raises(ConfigError) as caught:
            go_on(folder, 4)
            with Run.open(folder, write=True) as run:
                run.timing({"a": 1})
        one_line(caught)
        assert os.listdir(outside) == [".tmp-mine"], name


# --- policies and other files ---


def test_policies_are_verified_and_never_silently_overwritten(tmp_path: Path) -> None:
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.zeros((0, 2))}
    with Run.create(tmp_path / "x", "") as run:
        path = run.write_policy("best", arrays, {"role": "pursuer", "score": 0.25})
        assert path == run.write_policy("best", arrays, {"role": "pursuer", "score": 0.25})
        with pytest.raises(RunError, match="never silently overwritten"):
            run.write_policy("best", {"w": np.ones(1)}, {})
        back, about = Run.read_policy(path)
        assert about == {"role": "pursuer", "score": 0.25} and np.array_equal(back["w"], arrays["w"])
        run.write_policy("best", {"w": np.ones(1)}, {}, replace=True)
        assert Run.read_policy(path)[1] == {}
        for name in ("../x", "", ".hidden", "a/b", "a\n"):
            with pytest.raises(RunError, match="name"):
                run.write_policy(name, arrays, {})
    for file in (path, path.with_suffix(".json")):
        for position in (0, file.stat().st_size // 2, file.stat().st_size - 1):
            damage(file, position)
            with pytest.raises(RunError, match="does not verify"):
                Run.read_policy(path)
            damage(file, position)
    Run.read_policy(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(RunError, match="missing"):
        Run.read_policy(path)


def test_files_stay_in_the_folder_and_off_the_runs_own(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        assert run.write_file("films/match.gif", b"GIF").read_bytes() == b"GIF"
        run.write_file("report.html", b"one")
        assert run.write_file("report.html", b"two").read_bytes() == b"two"
        for name in ("../x", "/etc/x", "a/b/c", "config.yaml", "lock", "checkpoints/x", "", "a/", ".x", "\0"):
            with pytest.raises(RunError, match="name"):
                run.write_file(name, b"")
    assert os.listdir(tmp_path) == ["x"] and run.config_text == "seed: 1\n"


# --- faults ---


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of fsyncs, none of which needs a real disk here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


class Crash(BaseException):
    """The machine stops here: no clean-up code may touch the disk after it."""


class Kernel:
    """Stands in for `os`: counts the calls that touch the disk, fails at one, remembers what was synced.

    Whatever lies under `root` at the start counts as synced. From then on a file's synced bytes are those
    at its last fsync, and a folder's synced names those at its own.
    """

    COUNTED = frozenset({"open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir", "ftruncate",
                         "listdir", "lstat"})

    def __init__(self, root: Path, fail_at: int = -1, error: BaseException | None = None,
                 lasting: bool = False) -> None:
        self.root, self.fail_at, self.error, self.lasting = root, fail_at, error, lasting
        self.calls: list[str] = []
        self.fresh = itertools.count()
        self.numbers: dict[int, int] = {}  # inode -> a number of our own, for inodes are used again
        self.bytes: dict[int, bytes] = {}
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}
        for path in [root, *root.rglob("*")]:
            self.sync(path)

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.COUNTED:
            return real

        def call(*args: Any) -> Any:
            index = len(self.calls)
            self.calls.append(name)
            if self.error and (index == self.fail_at or (self.lasting and index > self.fail_at)):
                raise self.error
            made = name == "mkdir" or (name == "open" and args[1] & os.O_EXCL)
            result = real(*args)
            if made:
                self.numbers.pop(os.lstat(args[0]).st_ino, None)
            if name == "fsync":
                self.sync(Path(os.readlink(f"/proc/self/fd/{args[0]}")))
            return result

        return call

    def number(self, path: Path) -> int:
        inode = path.lstat().st_ino
        if inode not in self.numbers:
            self.numbers[inode] = next(self.fresh)
        return self.numbers[inode]

    def listing(self, folder: Path) -> dict[str, tuple[int, bool]]:
        return {path.name: (self.number(path), path.is_dir()) for path in folder.iterdir()}

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[self.number(path)] = self.listing(path)
        else:
            self.bytes[self.number(path)] = path.read_bytes()

    def power_loss(self, target: Path, names: str, data: str) -> Path:
        """What the disk may hold now. names: synced | all; what was not synced: lost | torn | written."""
        now = {self.number(path): path for path in [self.root, *self.root.rglob("*")]}

        def put(number: int, target: Path) -> None:
            target.mkdir()
            live = self.listing(now[number]) if number in now else {}
            for name, (inner, folder) in (live if names == "all" else self.names.get(number, {})).items():
                if folder:
                    put(inner, target / name)
                    continue
                old = self.bytes.get(inner, b"")
                new = now[inner].read_bytes() if inner in now else old
                half = new[:(len(old) + len(new)) // 2].ljust(len(new), b"\0")
                (target / name).write_bytes({"lost": old, "torn": half, "written": new}[data])

        put(self.number(self.root), target)
        return target


def under(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "os", kernel)
    monkeypatch.setattr(run_module, "os", kernel)


def about_to_save(folder: Path, iteration: int) -> Run:
    """The run in `folder` right before the save of `iteration`."""
    run = Run.open(folder, write=True)
    run.rewind(run.load())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "save", lambda *args: None)
        advance(run, iteration)
    return run


@pytest.mark.parametrize("again", [False, True], ids=["next", "replacing"])
def test_every_prefix_of_a_save_recovers_to_the_old_or_the_new(
        memory: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Stop before each call; lose, tear or keep what was not synced; resume; end like the twin."""
    start, twin = new(memory / "start", 4), contents(new(memory / "twin", 5))
    if again:  # iteration 4 is there already, as a passing one
        with about_to_save(start, 4) as run:
            run.save(4, parts(4), CPU, passing=True)
    old = newest(start).manifest
    outcomes: set[tuple[int, str]] = set()
    committed = False
    for index in range(1000):
        folder = memory / f"{index}"
        shutil.copytree(start, folder)
        if again:
            run = Run.open(folder, write=True)
            run.rewind(run.load())
        else:
            run = about_to_save(folder, 4)
        kernel = Kernel(folder, index, Crash())
        for log in run._logs.values():  # lines after the last save have not reached the disk
            kernel.bytes[kernel.number(log.path)] = log.path.read_bytes()[:log._hashed]
        under(kernel, monkeypatch)
        try:
            run.save(4, parts(4), CPU)
            done = True
        except Crash:
            done = False
        under(os, monkeypatch)
        run.close()
        synced = 0  # the commit point: the fsync that follows the last rename of the new folder
        if "rename" in kernel.calls:
            tail = kernel.calls[kernel.calls.index("rename") + (2 if again else 1):]
            synced = tail.count("fsync") - (not done and tail[-1:] == ["fsync"])
        committed = committed or synced > 0
        for names, data in (("all", "written"), ("all", "lost"), ("all", "torn"), ("synced", "lost"),
                            ("synced", "torn")):
            disk_now = kernel.power_loss(memory / f"{index}-{names}-{data}", names, data)
            found = newest(disk_now)
            assert (found.iteration, found.manifest.keep) in ((old.iteration, old.keep), (4, "recent"))
            outcomes.add((found.iteration, found.manifest.keep))
            if synced:
                assert found.manifest.keep == "recent" and found.iteration == 4
            if again and found.manifest.keep == "passing":
                with Run.open(disk_now, write=True) as run:
                    run.rewind(run.load())
                    run.save(4, parts(4), CPU)
            else:
                go_on(disk_now, 5)
            assert contents(disk_now) == twin, (index, names, data)
            assert not (disk_now / "damaged").exists()  # a crash alone damages nothing
            shutil.rmtree(disk_now)
        shutil.rmtree(folder)
        if done:
            break
    assert committed and index > 25 and len(outcomes) == 2


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_a_valid_checkpoint_and_a_save_that_can_be_tried_again(
        memory: Path, monkeypatch: pytest.MonkeyPatch, code: int, lasting: bool) -> None:
    start, twin = new(memory / "start", 4), contents(new(memory / "twin", 5))
    told = 0
    for index in range(1000):
        folder = memory / f"{index}"
        shutil.copytree(start, folder)
        with about_to_save(folder, 4) as run:
            kernel = Kernel(folder, index, OSError(code, os.strerror(code)), lasting)
            under(kernel, monkeypatch)
            try:
                run.save(4, parts(4), CPU)
                saved = True
            except RunError as error:
                saved = False
                told += 1
                assert "iter_00000004 was not saved: " in str(error) and os.strerror(code) in str(error)
                assert "\n" not in str(error)
            under(os, monkeypatch)
            found = run.load()
            assert found and found.iteration in ((4,) if saved else (3, 4) if lasting else (3,))
            if not saved and not lasting:
                assert sorted(os.listdir(folder / "checkpoints")) == [f"iter_{n:08d}" for n in (1, 2, 3)]
            run.save(4, parts(4), CPU)
        go_on(folder, 5)
        assert contents(folder) == twin, index
        shutil.rmtree(folder)
        if len(kernel.calls) <= index:
            break
    assert told > 20


def test_a_disk_that_lies_is_caught_by_reading_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new(tmp_path / "x", 4)
    before = contents(folder)

    class Lying(Kernel):
        def write(self, fd: int, data: bytes) -> int:
            return os.write(fd, bytes(data).replace(b"a", b"b", 1))

    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        under(Lying(folder), monkeypatch)
        with pytest.raises(RunError, match=r"00004 was not saved: .*does not match") as caught:
            run.save(4, parts(4), CPU)
        one_line(caught)
        under(os, monkeypatch)
    assert contents(folder) == before


def test_an_unwritable_log_is_one_line_and_leaves_no_half_row(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log({"a": 1})
        real = os.write

        class Full(Kernel):
            def write(self, fd: int, data: bytes) -> int:
                if len(data) < 8:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(fd, data[:5])

        under(Full(tmp_path), monkeypatch)
        for write in (lambda: run.log({"abcdefg": 1.5}), lambda: run.log_line("a line of text"),
                      lambda: run.append_history({"b": 1}), lambda: run.timing({"abcdefg": 1}),
                      lambda: run.write_file("report.html", b"x" * 12),
                      lambda: run.write_policy("p", {"w": np.ones(3)}, {})):
            with pytest.raises(RunError, match="No space left") as caught:
                write()
            one_line(caught)
        under(os, monkeypatch)
        run.log({"b": 2})
        assert run.history == []
    assert (tmp_path / "x" / "metrics.jsonl").read_text() == '{"a": 1}\n{"b": 2}\n'
    assert (tmp_path / "x" / "train.log").read_text() == ""
    assert not list((tmp_path / "x").rglob(".tmp-*"))


FULL = """if 1:
    import resource, sys; from pathlib import Path; import numpy as np
    from rematch.engine.run import Run, RunError
    with Run.create(Path(sys.argv[1]), "") as run:
        run.save(1, {"x": {"w": np.zeros(100)}}, {})
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
        for attempt in range(2):
            try:
                run.save(2, {"x": {"w": np.zeros(100_000)}}, {})
            except RunError as error:
                print(error)
        assert run.load().iteration == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        run.save(2, {"x": {"w": np.zeros(100_000)}}, {})
        assert run.load().iteration == 2
    assert "torch" not in sys.modules
"""


def test_a_limit_that_the_kernel_itself_enforces(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "x")], check=True, capture_output=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 2 and all("state.safetensors: File too large" in line for line in lines)


def test_killed_at_random_instants_a_run_ends_with_the_bytes_of_its_twin(memory: Path) -> None:
    until, chance, kills = 50, random.Random(4), 0
    folder = memory / "x"

    def work() -> int:
        go_on(folder, until)
        return 0

    while kills < 30:
        if not folder.exists():
            Run.create(folder, "seed: 1\n").close()
            before = -1
        pid = forked(work)
        time.sleep(chance.uniform(0.001, 0.04))
        os.kill(pid, signal.SIGKILL)
        if exit_status(pid) == 0:  # it was done already: once more from the start
            shutil.rmtree(folder)
            continue
        kills += 1
        with Run.open(folder, write=False) as run:
            found = run.load()
        assert found is None or not found.skipped
        reached = found.iteration if found else -1
        assert reached >= before  # nothing that was saved is ever lost
        before = reached
    work()
    assert contents(folder) == contents(new(memory / "twin", until)) and not (folder / "damaged").exists()
