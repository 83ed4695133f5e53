"""A real Ray cluster whose nodes cannot be used: one line, exit code 2, no table, and runs that go on here.

    make test-cluster        or: REMATCH_CLUSTER=1 python -m pytest -n 0 tests/cluster/test_unusable_nodes.py
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
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

FLAGS = """--games 16 --steps 8 --total_steps 2560 --save_every 4 --threads 1 --stagger 0 --evaluation.games 4
    --evaluation.every 100 --evaluation.opponents random --network.hidden 8,8"""
TRAIN = ["train", "quick", *FLAGS.split()]
SWEEP = ["sweep", "quick", "--seeds", "0-1", *FLAGS.split()]
# Adds to a node's package; the cores themselves still see the processor that they were compiled for.
EDITS = {
    "processor": {
        "cluster/node_report.py": "\nreal_describe = describe\n\ndef describe():\n"
                                  "    here = real_describe()\n"
                                  "    return here | {'processor': here['processor'] + ' avx9000'}\n",
        "training/fingerprint.py": "\nreal_fingerprint = fingerprint\n\ndef fingerprint(config):\n"
                                   "    here = real_fingerprint(config)\n"
                                   "    return here | {'processor': here['processor'] + ' avx9000'}\n",
    },
    "core": {},
}  # fmt: skip
NAMED = {"processor": "processor", "core": "networks"}  # what the line names


def rematch(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of this checkout in a folder of its own: Ray's workers import from that folder first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run([sys.executable, "-m", "rematch", *words], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300)


def start(words: list[str], folder: Path, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.Popen([sys.executable, "-m", "rematch", *words], cwd=folder, env=environment,
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The only line of an error; lines about progress go before it."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("progress: ")]
    assert done.returncode == 2 and lines and "Traceback" not in done.stderr, (done.returncode, done.stderr)
    assert sum(line.startswith("rematch: ") for line in lines) == 1, done.stderr
    return lines[-1]


def assert_no_table(sweep: Path, output: str) -> None:
    """Neither in the folder of a sweep nor among its lines."""
    assert not [path.name for path in sweep.iterdir() if path.suffix in (".csv", ".json", ".md")]
    assert all(line.startswith(("sweep ", "[")) for line in output.splitlines()), output


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a sweep that never saw a cluster."""
    folder = tmp_path_factory.mktemp("local")
    for words in ([*TRAIN, "--name", "run"], [*SWEEP, "--name", "sweep", "--jobs", "1"]):
        done = rematch(words, folder)
        assert done.returncode == 0, done.stderr
    return folder / "runs"


def package_with(fault: str, folder: Path) -> Path:
    """A folder to import a faulty copy of Rematch from."""
    skipped = shutil.ignore_patterns("__pycache__", *(["fused*.so"] if fault == "core" else []))
    shutil.copytree(ROOT / "rematch", folder / "rematch", ignore=skipped)
    for name, text in EDITS[fault].items():
        with (folder / "rematch" / name).open("a") as file:
            file.write(text)
    return folder


@pytest.fixture(scope="module", params=sorted(EDITS))
def odd(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A cluster whose only node has a faulty package: the fault, and the address of the cluster."""
    from ray_nodes import RayNodes

    package = package_with(request.param, tmp_path_factory.mktemp("package"))
    with RayNodes(1, 2, variables={"PYTHONPATH": str(package)}) as nodes:
        yield request.param, nodes.environment["RAY_ADDRESS"]


def test_run_on_an_odd_node_is_refused_and_goes_on_here(
        odd: tuple[str, str], local: Path, tmp_path: Path) -> None:
    fault, address = odd
    words = [*TRAIN, "--name", "run", "--cluster", "ray", "--actors", "1"]
    assert NAMED[fault] in last_line(rematch(words, tmp_path, RAY_ADDRESS=address))
    folder = tmp_path / "runs/run"
    again = rematch(["resume", "run"] if folder.exists() else [*TRAIN, "--name", "run"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert differences(local / "run", folder) == []


def test_sweep_on_an_odd_node_has_no_table_and_goes_on_here(
        odd: tuple[str, str], local: Path, tmp_path: Path) -> None:
    fault, address = odd
    words = [*SWEEP, "--name", "sweep"]
    done = rematch([*words, "--cluster", "ray"], tmp_path, RAY_ADDRESS=address)
    assert NAMED[fault] in last_line(done)
    assert_no_table(tmp_path / "runs/sweep", done.stdout)
    again = rematch([*words, "--jobs", "1"], tmp_path)
    assert again.returncode == 0, again.stderr
    for run in sorted(path for path in (local / "sweep").iterdir() if (path / "config.yaml").exists()):
        assert differences(run, tmp_path / "runs/sweep" / run.name) == []


@pytest.mark.parametrize("words", [
    ["eval", "{run}", "--games", "20", "--json"],
    ["tournament", "beasty", "queue", "random", "noisy", "--games", "20", "--json"],
])
def test_match_on_an_odd_node_prints_no_table(
        words: list[str], odd: tuple[str, str], local: Path, tmp_path: Path) -> None:
    fault, address = odd
    words = [word.format(run=local / "run") for word in words]
    done = rematch([*words, "--cluster", "ray"], tmp_path, RAY_ADDRESS=address)
    assert NAMED[fault] in last_line(done) and done.stdout == ""


def test_check_names_what_an_odd_node_lacks(odd: tuple[str, str], tmp_path: Path) -> None:
    fault, address = odd
    done = rematch(["cluster", "check"], tmp_path, RAY_ADDRESS=address)
    assert done.returncode == 1 and NAMED[fault] in done.stdout, done.stdout + done.stderr


OTHER_VERSION = """
import json, os, sys
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY as key
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER as space
from ray._raylet import GcsClient
client = GcsClient(address=os.environ["RAY_ADDRESS"])
stored = json.loads(client.internal_kv_get(key, namespace=space)) | json.loads(sys.argv[1])
client.internal_kv_put(key, json.dumps(stored).encode(), overwrite=True, namespace=space)
"""


def test_cluster_of_another_ray_or_python_is_refused(local: Path, tmp_path: Path) -> None:
    """The versions that the head has stored are changed, as if another installation had started it."""
    from ray_nodes import RayNodes

    words = [[*TRAIN, "--name", "run"], [*SWEEP, "--name", "sweep"],
             ["eval", str(local / "run"), "--games", "20", "--json"], ["cluster", "check"]]
    with RayNodes(1, 1) as nodes:
        address = nodes.environment["RAY_ADDRESS"]
        for changes in ('{"ray_version": "2.50.0"}', '{"ray_version": "%s", "python_version": "3.9.1"}'):
            version = importlib.metadata.version("ray")
            subprocess.run([sys.executable, "-c", OTHER_VERSION, changes.replace("%s", version)], check=True,
                           env=os.environ | {"RAY_ADDRESS": address}, capture_output=True)
            for command in words:
                cluster = [] if command[0] == "cluster" else ["--cluster", "ray"]
                done = rematch([*command, *cluster], tmp_path, RAY_ADDRESS=address)
                line = last_line(done)
                assert "another version of Ray or Python runs there" in line and done.stdout == "", line
                assert ("2.50.0" if "2.50.0" in changes else "3.9.1") in line
    assert not list(tmp_path.iterdir())


def test_vanished_cluster_leaves_a_sweep_without_a_table(local: Path, tmp_path: Path) -> None:
    import cluster as check  # tools/checks/cluster.py: leaves out clock times of all runs
    from ray_nodes import RayNodes

    words = [*SWEEP, "--name", "sweep"]
    with RayNodes(1, 1) as nodes:
        child = start([*words, "--cluster", "ray"], tmp_path, RAY_ADDRESS=nodes.environment["RAY_ADDRESS"])
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/sweep/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.05)
        nodes.stop()
        out, err = child.communicate(timeout=120)
    done = subprocess.CompletedProcess([], child.returncode, out, err)
    assert "vanished" in last_line(done)
    assert_no_table(tmp_path / "runs/sweep", out)
    again = rematch([*words, "--jobs", "1"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert check.differences(local / "sweep", tmp_path / "runs/sweep") == []


def test_cluster_that_vanishes_during_an_evaluation_prints_no_table(local: Path, tmp_path: Path) -> None:
    from ray_nodes import RayNodes

    words = ["eval", str(local / "run"), "--games", "100000", "--json", "--cluster", "ray"]
    with RayNodes(1, 1) as nodes:
        child = start(words, tmp_path, RAY_ADDRESS=nodes.environment["RAY_ADDRESS"])
        deadline = time.monotonic() + 120
        while not nodes.workers(0) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)
        assert child.poll() is None
        nodes.stop()
        out, err = child.communicate(timeout=120)
    assert "vanished" in last_line(subprocess.CompletedProcess([], child.returncode, out, err)) and out == ""


FILL = """
import time, numpy as np, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Place

@ray.remote(num_cpus=0)
class Filler:
    def fill(self):
        self.kept, errors = [], []
        for size in (1 << 20, 1 << 17, 1 << 14):
            try:
                while True:
                    self.kept.append(ray.put(np.zeros(size, np.uint8)))
            except Exception as error:
                errors.append(type(error).__name__)
        return errors

ray.init("auto", log_to_driver=False, logging_level="CRITICAL")
fillers = [Filler.options(scheduling_strategy=Place(node["NodeID"], soft=False)).remote()
           for node in ray.nodes()]
print(ray.get([filler.fill.remote() for filler in fillers]), flush=True)
time.sleep(600)
"""


def test_full_object_store_is_one_line_and_the_run_goes_on_here(tmp_path: Path) -> None:
    """Stores that may not use the disk either, full of what another program keeps there."""
    from ray_nodes import RayNodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_local_fs_capacity_threshold", "0.000001")
        with RayNodes(1, 2, system={"automatic_object_spilling_enabled": False}) as nodes:
            address = nodes.environment["RAY_ADDRESS"]
            filler = subprocess.Popen([sys.executable, "-c", FILL], stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.DEVNULL, env=os.environ | {"RAY_ADDRESS": address})
            assert filler.stdout is not None
            try:
                assert filler.stdout.readline().count("OutOfDisk") == 2 * 3
                wide = [*TRAIN[:-1], "128,128", "--name", "run"]  # messages that find no gap
                done = rematch([*wide, "--cluster", "ray", "--actors", "1"], tmp_path, RAY_ADDRESS=address)
            finally:
                filler.kill()
                filler.communicate()
    assert "object store of the Ray cluster is full" in last_line(done)
    again = rematch(["resume", "run"], tmp_path)
    assert again.returncode == 0, again.stderr
