"""Whether a Ray cluster of several nodes gives the bytes of one machine, also where nodes are killed.

    python tools/checks/cluster.py same                 every case with 1, 2 and 4 actors on 3 nodes
    python tools/checks/cluster.py kills --kills 30     the same while nodes are killed by SIGKILL
    python tools/checks/cluster.py faults               a hung actor, a restarted head, a killed client
    python tools/checks/cluster.py cost                 tools/checks/cluster_cost.py

All nodes are processes of this machine: on 127.0.0.1 (ray_nodes.py), or with --namespaces on addresses of
their own (ray_namespaces.py). Every file of a run must equal that of
the run without a cluster, byte for byte (except timing.jsonl and the output of processes). --only names
cases. Each result is printed, and appended to docs/results/data/cluster.jsonl with --record. Exit code 1:
something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from ray_namespaces import NamespaceNodes  # noqa: E402
from ray_nodes import RayNodes  # noqa: E402

from rematch.rehearsal.compare import comparable_files  # noqa: E402

RECORDS = ROOT / "docs/results/data/cluster.jsonl"
LEAGUE = "--league.snapshot_every 1 --league.rotate 1 --network.hidden 16,16 --evaluation.opponents random"
SMALL = "--save_every 10 --threads 1 --evaluation.games 20 --evaluation.every 1000"
CASES = {  # name -> command, without its folder
    "pursuit": f"train quick --games 64 --steps 16 --total_steps 307200 --stagger 24 {SMALL} {LEAGUE}",
    "pursuit_lag": f"train quick --games 64 --steps 16 --total_steps 102400 --lag 1 {SMALL} {LEAGUE}",
    "beasty_expert": f"train beasty_expert --games 32 --steps 24 --total_steps 61440 {SMALL} {LEAGUE} "
                     "--expert.positions 256 --expert.completions 2 --expert.replay_size 4096",
    "gameboy": "train tiny --games 8 --total_steps 10240 --stagger 64 --threads 1 --save_every 20 "
               "--world.workers 0 --dqn.warmup 1000 --dqn.replay_size 20000 --explorers.games 4 "
               "--evaluation.games 2 --evaluation.every 1000 --episode_video.interval 0",
    "gymnasium": f"train gymnasium --games 16 --steps 16 --total_steps 20480 {SMALL}",
    "sweep": f"sweep quick --seeds 0-7 --games 64 --steps 16 --total_steps 51200 --stagger 24 {SMALL} "
             f"{LEAGUE}",
    "calibrate": "calibrate quick --by world.capture_radius --range 0.2,2.0 --rounds 1 --seeds 0-2 "
                 f"--games 64 --steps 16 --total_steps 30720 --stagger 24 {SMALL} {LEAGUE}",
}  # fmt: skip
TABLES = {  # name -> command that prints a table; RUN is the run of the case pursuit
    "eval": "eval RUN --games 101 --json",
    "tournament": "tournament beasty @beasty queue random noisy --games 60 --json",
}
MORE_GAMES = {"eval": "20000", "tournament": "4000"}  # so that nodes can be killed in the meantime
EXPLOIT = ("--budget", "60000", "--seeds", "2", "--games", "100")
WHOLE_RUNS = ("sweep", "calibrate")  # cases that train whole runs on the nodes
ACTORS = (1, 2, 4)


class Check:
    """A scratch folder, the nodes, and the runs without a cluster that others are compared with."""

    def __init__(self, top: Path, record: bool) -> None:
        self.top, self.record = top, record
        self.failures = 0
        self.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                                     text=True).stdout.strip()

    def reference(self, case: str) -> Path:
        """The folder of a case without a cluster."""
        folder = self.top / "local" / case
        if not folder.exists():
            jobs = ["--jobs", "1"] if case in WHOLE_RUNS else []
            started = time.monotonic()
            done = command([*CASES[case].split(), *jobs, "--name", str(folder)])
            if done.returncode > int(case == "calibrate"):  # 1: the range does not contain the target
                raise SystemExit(f"{case} fails without a cluster: {done.stderr[-2000:]}")
            print(f"{case}: {time.monotonic() - started:.1f} s without a cluster", flush=True)
        return folder

    def exploited(self) -> Path:
        """The run of the case pursuit, with best responses that were trained here."""
        folder = self.top / "exploit-local" / "exploit"
        if not folder.exists():
            shutil.copytree(self.reference("pursuit"), folder)
            command(["exploit", str(folder), *EXPLOIT]).check_returncode()
        return folder

    def words(self, case: str, folder: Path, actors: int) -> list[str]:
        """The command of a case on the cluster."""
        resumes = case not in WHOLE_RUNS and (folder / "config.yaml").exists()
        first = ["resume", str(folder)] if resumes else [*CASES[case].split(), "--name", str(folder)]
        return [*first, "--cluster", "ray", *(["--actors", str(actors)] if case not in WHOLE_RUNS else [])]

    def report(self, entry: dict[str, Any], different: Sequence[str]) -> None:
        self.failures += bool(different)
        entry |= {"equal": not different, "commit": self.commit}
        if different:
            entry["different"] = list(different)[:20]
        print(json.dumps(entry), flush=True)
        if self.record:
            with RECORDS.open("a") as file:
                file.write(json.dumps(entry) + "\n")


def command(words: Sequence[str], environment: dict[str, str] | None = None) -> Any:
    return subprocess.run([sys.executable, "-m", "rematch", *words], cwd=ROOT, env=environment, text=True,
                          capture_output=True)


def started(
    words: Sequence[str], environment: dict[str, str], log: Path, output: Path | None = None
) -> subprocess.Popen[bytes]:
    """A command whose errors, and output where no file is named for it, are appended to a log."""
    with log.open("ab") as errors, (output or log).open("wb" if output else "ab") as out:
        return subprocess.Popen([sys.executable, "-m", "rematch", *words], cwd=ROOT, env=environment,
                                stdout=out, stderr=errors)


def differences(one: Path, two: Path) -> list[str]:
    """Names of files that differ, for runs and sweeps."""

    def files(folder: Path) -> dict[str, Path]:
        return {name: path for name, path in comparable_files(folder).items()
                if not name.endswith(("timing.jsonl", "lock")) and "damaged/" not in name
                and not (path.suffix == ".log" and path.name != "train.log")}

    first, second = files(one), files(two)
    missing = [f"{name} (in one only)" for name in first.keys() ^ second.keys()]
    both = first.keys() & second.keys()
    return sorted(missing + [name for name in both if first[name].read_bytes() != second[name].read_bytes()])


# --- the checks -------------------------------------------------------------------------------------------


def same(check: Check, nodes: RayNodes, cases: Sequence[str]) -> None:
    """Every case with 1, 2 and 4 actors; a sweep has as many runs at a time as nodes."""
    for case in [case for case in cases if case in CASES]:
        local = check.reference(case)
        for actors in ACTORS if case not in WHOLE_RUNS else (len(nodes.nodes),):
            folder, began = check.top / f"{actors}" / case, time.monotonic()  # a sweep's table has its name
            done = command(check.words(case, folder, actors), nodes.environment)
            good = done.returncode <= int(case == "calibrate")
            different = differences(local, folder) if good else [done.stderr[-500:]]
            check.report({"check": "same", "case": case, "actors": actors, "nodes": len(nodes.nodes),
                          "addresses": nodes.addresses, "seconds": round(time.monotonic() - began, 1),
                          "files": len(comparable_files(local))}, different)
            shutil.rmtree(folder, ignore_errors=True)
    for name in [name for name in cases if name in TABLES]:
        words = TABLES[name].replace("RUN", str(check.reference("pursuit"))).split()
        table = command(words).stdout
        for shards in ACTORS:
            done = command([*words, "--cluster", "ray", "--actors", str(shards)], nodes.environment)
            equal = done.returncode == 0 and table and done.stdout == table
            check.report({"check": "same", "case": name, "actors": shards, "nodes": len(nodes.nodes)},
                         [] if equal else [done.stderr[-500:] or "another table"])
    if "exploit" in cases:
        exploit(check, nodes)


def exploit(check: Check, nodes: RayNodes) -> None:
    """Best responses to the run of the case pursuit, trained here and on the cluster."""
    local = check.exploited()
    for actors in ACTORS:
        folder = check.top / "exploit"
        shutil.copytree(check.reference("pursuit"), folder)
        done = command(["exploit", str(folder), *EXPLOIT, "--cluster", "ray", "--actors", str(actors)],
                       nodes.environment)
        different = differences(local, folder) if done.returncode == 0 else [done.stderr[-500:]]
        check.report({"check": "same", "case": "exploit", "actors": actors, "nodes": len(nodes.nodes)},
                     different)
        shutil.rmtree(folder)


def kills(check: Check, nodes: RayNodes, cases: Sequence[str], count: int) -> None:
    """Commands whose nodes are killed at random instants, until `count` nodes were killed."""
    chance, killed, number = random.Random(check.commit), 0, 0
    while killed < count:
        case = cases[number % len(cases)]
        work = Disturbed(check, case, check.top / f"kills-{number}")
        number += 1
        began, here = time.monotonic(), 0
        child = work.start(nodes, 3)
        while child.poll() is None:
            wait_while(child, chance.uniform(1.0, 6.0))
            if child.poll() is None and killed < count:
                nodes.kill(chance.randrange(len(nodes.nodes)))
                killed, here = killed + 1, here + 1
                nodes.add()
        failed = [] if child.returncode in work.codes else [f"exit code {child.returncode}: {tail(check)}"]
        check.report({"check": "kills", "case": case, "actors": 3, "nodes": len(nodes.nodes), "kills": here,
                      "addresses": nodes.addresses, "seconds": round(time.monotonic() - began, 1)},
                     failed or work.differences())
        shutil.rmtree(work.top, ignore_errors=True)
    print(f"{killed} nodes killed in {number} runs, {check.failures} of which differ", flush=True)


class Disturbed:
    """A case in a folder of its own, while something happens to the cluster; its result without a cluster."""

    def __init__(self, check: Check, case: str, top: Path) -> None:
        self.check, self.case, self.top = check, case, top
        self.codes = (0, 1) if case == "calibrate" else (0,)  # 1: the range does not contain the target
        self.folder, self.output = top / case, top / "output"
        top.mkdir()
        if case in CASES:
            self.local = check.reference(case)
        elif case in TABLES:
            self.local = check.top / "local" / f"{case}.json"
            if not self.local.exists():
                done = command(self._words())
                if done.returncode:
                    raise SystemExit(f"{case} fails without a cluster: {done.stderr[-2000:]}")
                self.local.write_text(done.stdout)
        else:
            self.local = check.exploited()
            shutil.copytree(check.reference("pursuit"), self.folder)

    def _words(self) -> list[str]:
        """The command of a case that is no training."""
        if self.case not in TABLES:
            return ["exploit", str(self.folder), *EXPLOIT]
        words = TABLES[self.case].replace("RUN", str(self.check.reference("pursuit"))).split()
        words[words.index("--games") + 1] = MORE_GAMES[self.case]
        return words

    def words(self, actors: int) -> list[str]:
        """The command on the cluster, or the one that continues it."""
        if self.case in CASES:
            return self.check.words(self.case, self.folder, actors)
        return [*self._words(), "--cluster", "ray", "--actors", str(actors)]

    def start(self, nodes: RayNodes, actors: int) -> subprocess.Popen[bytes]:
        output = self.output if self.case in TABLES else None
        return started(self.words(actors), nodes.environment, self.check.top / "kills.log", output)

    def differences(self) -> list[str]:
        if self.case not in TABLES:
            return differences(self.local, self.folder)
        equal = self.local.stat().st_size > 0 and self.output.read_bytes() == self.local.read_bytes()
        return [] if equal else ["another table"]

    def wait_until_busy(self, child: subprocess.Popen[bytes], nodes: RayNodes) -> None:
        """Until five iterations are logged, or actors have played matches or responses for two seconds."""
        if self.case in CASES:
            while child.poll() is None and self.lines() < 5:
                time.sleep(0.05)
            return
        while child.poll() is None and not nodes.workers(0):
            time.sleep(0.05)
        wait_while(child, 2.0)

    def lines(self) -> int:
        """Iterations that are logged so far, of all runs."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.rglob("metrics.jsonl"))

    def again(self, nodes: RayNodes) -> int:
        """Give the command once more, with two actors; its exit code."""
        child = self.start(nodes, 2)
        return child.wait()


def wait_while(child: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def tail(check: Check) -> str:
    lines = (check.top / "kills.log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def faults(check: Check, nodes: RayNodes, cases: Sequence[str]) -> None:
    """A hung actor; a client that is killed and resumed with another number of actors; a restarted head."""
    for case in cases:
        for fault in ("hung actor", "killed client", "restarted head"):
            work, began = Disturbed(check, case, check.top / "faults"), time.monotonic()
            child = work.start(nodes, 3)
            work.wait_until_busy(child, nodes)
            assert child.poll() is None, f"{case} ended before anything could happen to it: {tail(check)}"
            codes = []
            if fault == "hung actor":
                for process in nodes.workers(0):
                    os.kill(process, signal.SIGSTOP)
            elif fault == "killed client":
                child.kill()
            else:
                nodes.restart_head()
            codes.append(child.wait())
            line = tail(check)
            if fault != "hung actor":
                codes.append(work.again(nodes))
            else:
                nodes.kill(0)
                nodes.add()
            failed = [] if codes[-1] in work.codes else [f"exit codes {codes}: {tail(check)}"]
            check.report({"check": "faults", "case": case, "fault": fault, "exit_codes": codes, "line": line,
                          "addresses": nodes.addresses, "seconds": round(time.monotonic() - began, 1)},
                         failed or work.differences())
            shutil.rmtree(work.top, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("check", choices=("same", "kills", "faults", "cost"))
    parser.add_argument("--only", nargs="+", choices=(*CASES, *TABLES, "exploit"),
                        default=[*CASES, *TABLES, "exploit"])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS, help="of a cost measurement")
    parser.add_argument("--rounds", type=int, default=5, help="of a cost measurement")
    parser.add_argument("--processors", type=int, default=2, help="processors that each node offers")
    parser.add_argument("--namespaces", action="store_true", help="every node has a network of its own")
    parser.add_argument("--record", action="store_true", help=f"append results to {RECORDS.name}")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # also in the background: all nodes are ended
        signal.signal(number, lambda *_: sys.exit(130))
    with tempfile.TemporaryDirectory(prefix="rematch-cluster-") as top:
        check = Check(Path(top), options.record)
        if options.check == "cost":
            import cluster_cost

            check.report({"check": "cost"} | cluster_cost.measure(options.actors, options.rounds), [])
            return 0
        kind = NamespaceNodes if options.namespaces else RayNodes
        with kind(options.nodes, options.processors) as nodes:
            if options.check == "same":
                same(check, nodes, options.only)
            elif options.check == "kills":
                kills(check, nodes, options.only, options.kills)
            else:
                faults(check, nodes, options.only)
        return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
