"""Rematch on a real Ray cluster of three nodes on this machine; about three minutes on two cores.

    make test-all        or: REMATCH_CLUSTER=1 python -m pytest -n 0 tests/cluster/test_ray.py
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.source_tree import ROOT

from rematch.rehearsal.compare import differences

if not os.environ.get("REMATCH_CLUSTER"):
    pytest.skip("REMATCH_CLUSTER is not set", allow_module_level=True)

COMMAND = [sys.executable, "-m", "rematch"]
FLAGS = """--games 32 --steps 16 --total_steps 61440 --stagger 24 --save_every 10 --threads 1
    --evaluation.games 10 --evaluation.every 100 --evaluation.opponents random --network.hidden 8,8
    --league.snapshot_every 1 --league.rotate 1"""
RUN = ["train", "quick", *FLAGS.split()]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    from ray_nodes import RayNodes

    with RayNodes(3) as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without a cluster."""
    folder = tmp_path_factory.mktemp("local") / "run"
    rematch([*RUN, "--name", str(folder)]).check_returncode()
    return folder


def rematch(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], cwd=ROOT, env=os.environ | variables, capture_output=True,
                          text=True, timeout=300)


def wait_for_iteration(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{folder} has not reached iteration {count}")


def start(folder: Path, nodes: Any, actors: int) -> subprocess.Popen[str]:
    words = [*COMMAND, *RUN, "--name", str(folder), "--cluster", "ray", "--actors", str(actors)]
    return subprocess.Popen(words, cwd=ROOT, env=nodes.environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def test_client_of_a_cluster_gives_the_same_bytes(nodes: Any, local: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = rematch([*RUN, "--name", str(folder), "--cluster", nodes.address, "--actors", "2"])
    assert done.returncode == 0, done.stderr
    assert differences(local, folder) == []


def test_killed_node_and_hung_actor_change_no_byte(nodes: Any, local: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    child = start(folder, nodes, 3)
    wait_for_iteration(folder, 5)
    nodes.kill(0)
    wait_for_iteration(folder, 30)
    for process in nodes.workers(0):
        os.kill(process, signal.SIGSTOP)
    output, _ = child.communicate(timeout=300)
    nodes.add()
    assert child.returncode == 0, output
    assert output.count("was lost") >= 2
    assert differences(local, folder) == []


def test_eval_in_shards_prints_the_same_table(nodes: Any, local: Path) -> None:
    words = ["eval", str(local), "--games", "31", "--json"]
    here = rematch(words)
    there = rematch([*words, "--cluster", "ray"], RAY_ADDRESS=nodes.environment["RAY_ADDRESS"])
    assert here.returncode == there.returncode == 0, there.stderr
    assert here.stdout == there.stdout and '"games": 31' in here.stdout


def test_payoff_matrix_of_a_report_is_the_same(nodes: Any, local: Path, tmp_path: Path) -> None:
    environment = {"RAY_ADDRESS": nodes.environment["RAY_ADDRESS"]}
    for name, words, variables in (("here", [], {}), ("there", ["--cluster", "ray"], environment)):
        shutil.copytree(local, tmp_path / name)
        rematch(["report", str(tmp_path / name), "--games", "9", *words], **variables).check_returncode()
    assert (tmp_path / "here/payoff.json").read_bytes() == (tmp_path / "there/payoff.json").read_bytes()


def test_wrong_token_is_one_line(nodes: Any, local: Path) -> None:
    words = ["eval", str(local), "--games", "31", "--json", "--cluster"]
    for address in ("ray", nodes.address):
        done = rematch([*words, address], RAY_ADDRESS=nodes.environment["RAY_ADDRESS"],
                       RAY_AUTH_TOKEN="f" * 64)
        assert done.returncode == 2 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1 and "token" in done.stderr, done.stderr


def test_too_many_actors_are_one_line(nodes: Any, tmp_path: Path) -> None:
    words = [*RUN, "--name", str(tmp_path / "run"), "--cluster", "ray", "--actors", "99"]
    done = rematch(words, RAY_ADDRESS=nodes.environment["RAY_ADDRESS"])
    assert done.returncode == 2 and "expected that number at most" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_check_lists_every_node(nodes: Any) -> None:
    done = rematch(["cluster", "check", "--cluster", nodes.address])
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("nothing\n") == 1 + 1 + len(nodes.nodes)  # this machine, the head, the others


def test_sweep_is_shown_while_it_runs_and_outlives_a_node(nodes: Any, tmp_path: Path) -> None:
    """Five runs, and places for three: each place is used again."""
    import cluster as check  # tools/checks/cluster.py: leaves out clock times of all runs

    words = ["sweep", "quick", "--seeds", "0-4", *FLAGS.replace("61440", "245760").split()]
    here, there = tmp_path / "here/sweep", tmp_path / "there/sweep"
    rematch([*words, "--name", str(here), "--jobs", "1"]).check_returncode()
    child = subprocess.Popen([*COMMAND, *words, "--name", str(there), "--cluster", "ray"], cwd=ROOT,
                             env=nodes.environment, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    wait_for_iteration(there / "seed-0", 12)
    status = rematch(["status", str(there)])
    nodes.kill(0)
    nodes.add()
    output, _ = child.communicate(timeout=300)
    assert child.returncode == 0, output
    assert "running" in status.stdout, status.stdout + status.stderr
    assert "lost its node" in output
    assert check.differences(here, there) == []


def test_vanished_cluster_leaves_a_run_that_can_be_resumed(nodes: Any, local: Path, tmp_path: Path) -> None:
    """The last test: it ends the cluster."""
    folder = tmp_path / "run"
    child = start(folder, nodes, 2)
    wait_for_iteration(folder, 12)
    nodes.stop()
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 2, output
    assert "vanished" in output.splitlines()[-1]
    rematch(["resume", str(folder)]).check_returncode()
    assert differences(local, folder) == []
