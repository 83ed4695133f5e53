"""Append-only logs: plain lines, written at once; values that are not finite are refused by key."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_training import CPU, single_line

from rematch.core.errors import RunError
from rematch.storage import append_log
from rematch.storage.atomic_files import file_digest
from rematch.storage.run_folder import Run


def test_log_line_is_plain_text_and_written_at_once(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log_line("10%\r20% \x1b[1;31mred\x1b[0m \x1b]0;title\x07é\x00\x9b3m\r\n")
        assert (tmp_path / "x" / "train.log").read_bytes() == "10% 20% red é\n".encode()
        run.log_line("lone \ud800")
    assert b"\r" not in (tmp_path / "x" / "train.log").read_bytes()


@pytest.mark.parametrize("bad", [math.nan, math.inf, np.float32("nan"), [1.0, math.nan], object()])
def test_row_with_a_non_finite_value_is_refused_by_key(tmp_path: Path, bad: Any) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log({"fine": 0.1, "n": np.int64(3)})
        for write, file in ((run.log, "metrics"), (run.timing, "timing"), (run.append_history, "history")):
            with pytest.raises(RunError, match=f"{file}.*: loss = ") as caught:
                write({"fine": 1, "loss": bad})
            single_line(caught)
        assert run.history == []
    assert (tmp_path / "x" / "metrics.jsonl").read_text() == '{"fine": 0.1, "n": 3}\n'


def test_history_file_is_complete_after_every_append(tmp_path: Path) -> None:
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


def test_log_row_and_checkpoint_are_fast(tmp_path: Path) -> None:
    row = {"iteration": 1, "loss": 0.1234567, "kl": 1e-3, "entropy": np.float32(1.5), "sr": 0.5, "clip": 0.1}
    weights = {"w": np.random.default_rng(0).random(1_310_720, np.float32)}
    with Run.create(tmp_path / "x", "") as run:
        logs, saves = [], []
        for i in range(40):  # CPU time, and the fastest counts: a busy machine makes single ones slow
            if logs and min(logs) < 50e-6 and min(saves) < 0.2:
                break
            begin = time.process_time()
            for _ in range(200):
                run.log(row)
            middle = time.process_time()
            run.save(i, {"learner": weights}, CPU)
            logs.append((middle - begin) / 200)
            saves.append(time.process_time() - middle)
    assert min(logs) < 50e-6 and min(saves) < 0.2


def test_table_rows_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that writes no line for some time delays the checkpoint and nothing else."""
    write, ready, waited = append_log.write_all, threading.Event(), list[int]()

    def write_when_ready(fd: int, data: bytes) -> None:
        if not ready.wait(20):
            waited.append(fd)
        write(fd, data)

    with Run.create(tmp_path / "x", "") as run:
        monkeypatch.setattr(append_log, "write_all", write_when_ready)
        for i in range(20):
            run.table("episodes.csv", str(i), "episode_id")
        ready.set()  # reached although no line could be written
        run.save(1, {}, CPU)
        assert not waited
        written = (tmp_path / "x" / "episodes.csv").read_text()
    assert written.split() == ["episode_id", *map(str, range(20))]


def test_full_disk_gives_one_error_line_and_no_partial_row(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.event({"step": 1})
        run.save(1, {}, CPU)

        def full(fd: int, data: bytes) -> int:
            os.write(fd, data[:3])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(append_log, "write_all", full)
        run.event({"step": 2})
        with pytest.raises(RunError, match=r"events.jsonl: No space left on device") as caught:
            run.save(2, {}, CPU)
        single_line(caught)
        with pytest.raises(RunError, match="No space left"):
            run.event({"step": 3})
    assert (tmp_path / "x" / "events.jsonl").read_text() == '{"step": 1}\n'
    monkeypatch.undo()
    with Run.open(tmp_path / "x", write=True) as run:
        run.rewind(run.load())
        run.event({"step": 2})
    assert (tmp_path / "x" / "events.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_table_started_after_the_checkpoint_is_deleted_by_rewind(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.save(1, {}, CPU)
        run.table("progress.csv", "1", "step")
    with Run.open(tmp_path / "x", write=True) as run:
        run.rewind(run.load())
        assert not (tmp_path / "x" / "progress.csv").exists()
        run.table("progress.csv", "2", "step")
        run.save(2, {}, CPU)
    (tmp_path / "x" / "progress.csv").write_text("step\n3\n")
    with Run.open(tmp_path / "x", write=True) as run, pytest.raises(RunError, match=r"progress.csv was"):
        run.rewind(run.load())


def test_log_writer_error_is_raised_and_drain_does_not_hang(tmp_path: Path) -> None:
    log, writer = append_log.AppendLog(tmp_path / "a.csv"), append_log.LogWriter()
    for error in (MemoryError("no memory"), KeyboardInterrupt()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "append", lambda _, error=error: (_ for _ in ()).throw(error))
            writer.put(log, "x")
            with pytest.raises(type(error)):
                writer.drain()
        with pytest.raises(type(error)):
            writer.put(log, "y")
        writer.stop()
        writer = append_log.LogWriter()
    writer.put(log, "z")
    writer.drain()
    writer.stop()
    assert (tmp_path / "a.csv").read_text() == "z\n"


def test_digest_follows_a_truncated_log(tmp_path: Path) -> None:
    log = append_log.AppendLog(tmp_path / "a.log")
    log.append("first")
    log.append("second")
    log.sync()
    log.truncate(len("first\n"))
    log.append("third and longer")
    assert log.sync() == file_digest(b"first\nthird and longer\n")
    log.close()
