"""The command line: what it says when all is well; one line, exit code 2, nothing lost when it is not."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import flags

from rematch import api, cli
from rematch.engine import room
from rematch.engine.rollout import Rollout
from rematch.engine.run import Run

ROOT = Path(cli.__file__).parents[1]
Say = Callable[..., str]
PRODUCTS = ("learning.png", "match.gif", "report.html")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a finished tiny run in runs/done."""
    place = tmp_path_factory.mktemp("place")
    os.chdir(place)
    assert cli.main(["train", "quick", *flags(), "--name", "done"]) == 0
    return place


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of one's own with a copy of it, as working directory."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def wrong(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command that must end in exit code 2 and one line on stderr, within a second; returns it."""

    def run(*words: str) -> str:
        began = time.perf_counter()
        code = cli.main(words)
        seconds = time.perf_counter() - began
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), (words, code, out, err)
        assert err.startswith("rematch: ") and err.count("\n") == 1 and err.endswith("\n"), (words, err)
        assert len(err) < 700 and "Traceback" not in err
        assert seconds < 1.0, (words, seconds)
        return err[len("rematch: "):-1]

    return run


@pytest.fixture
def right(capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*words: str) -> str:
        assert cli.main(words) == 0, capsys.readouterr()
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def process(*words: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "rematch.cli", *words], env=environment, timeout=60,
                          stdin=subprocess.DEVNULL, capture_output="stdout" not in options, **options)


def piped(command: str, place: Path) -> subprocess.CompletedProcess[bytes]:
    line = f"set -o pipefail; {sys.executable} -m rematch.cli {command}"
    return subprocess.run(["bash", "-c", line], cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, timeout=60)


def files(folder: Path) -> dict[str, bytes]:
    """Every byte of a run but its clock."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in ("timing.jsonl", "lock")}


# --- words and numbers that cannot be -------------------------------------------------------------------


@pytest.mark.parametrize(("words", "expected"), [
    ("trian quick", "unknown command 'trian': expected one of train, .*; nearest: train"),
    ("train", "expected rematch train RECIPE .*, found nothing; recipes: .*quick"),
    ("train --games 3", "expected rematch train RECIPE .*found '--games'"),
    ("train qick", "unknown recipe 'qick': expected one of .*quick.*; nearest: quick"),
    ("train ''", "unknown recipe ''"),
    ("train nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
    ("train quick --ppo.clop 3", "unknown setting --ppo.clop = '3'; nearest: --ppo.clip"),
    ("train quick --ppo-clip 3", "unknown setting --ppo-clip"),
    ("train quick --gam 3", "unknown setting --gam = '3'; nearest: --game"),
    ("train quick --max-minuts 3", "unknown option '--max-minuts'; nearest: --max-minutes"),
    ("train quick --max-minutes 0", "--max-minutes = '0': expected a number above 0"),
    ("train quick --max-minutes nan", "--max-minutes = 'nan': expected a number"),
    ("train quick --max-minutes 5m", "--max-minutes = '5m': expected a number"),
    ("train quick --max-minutes", "--max-minutes needs a value"),
    ("train quick --max-minutes 1 --max-minutes 2", "--max-minutes is given twice"),
    ("train quick extra", "expected a flag, found 'extra'"),
    ("train quick --games", "--games needs a value"),
    ("train quick --games 8 --games 9", "--games is given twice"),
    ("train quick --games many", "games = 'many': expected a whole number from 1 to"),
    ("train quick --games 2.5", "games = '2.5': expected a whole number"),
    ("train quick --games -1", "games = '-1': expected a whole number from 1 to"),
    ("train quick --games 1e18", "games = '1e18': expected a whole number from 1 to"),
    ("train quick --games 4194304 --steps 1048576", "games = 4194304.* GiB.*; expected fewer games or steps"),
    ("train quick --seed -1", "seed = '-1': expected a whole number from 0 to 4294967295"),
    ("train quick --network.hidden 0", "network.hidden = '0': expected a list, each a whole number"),
    ("train quick --network.hidden=", "network.hidden|hidden = "),
    ("train quick --network.activation tan", "activation = 'tan': expected one of tanh, relu; nearest: tanh"),
    ("train quick --network.shared maybe", "shared = 'maybe': expected true or false"),
    ("train quick --ppo.lr inf", "ppo.lr = 'inf': expected a number"),
    ("train quick --world.arena_width -5", "world.arena_width = '-5': expected a number"),
    ("train quick --world.min_init_distance 9 --world.max_init_distance 3",
     "world.min_init_distance = 9: expected at most max_init_distance = 3"),
    ("train quick --world.min_init_distance 99 --world.max_init_distance 99",
     "world.min_init_distance = 99: expected less than"),
    ("train quick --world.n_obstacles_max 3 --world.n_obstacle_obs 0",
     "world.n_obstacle_obs = 0: expected -1 or at least n_obstacles_max = 3; the agents would be blind"),
    ("train quick --world.n_obstacles_min 4 --world.n_obstacles_max 2",
     "n_obstacles_min = 4: expected at most n_obstacles_max = 2"),
    ("train quick --league.pick uniform --league.pfsp_power 3",
     "pfsp_power = 3.0 has no effect: league.pick is 'uniform'"),
    ("train quick --league.scripted lyon", "league.scripted = 'lyon': expected one of .*; nearest: lion"),
    ("train quick --game lattice", "--game cannot change a recipe's world"),
    ("train quick --name=", "--name = '': expected the name of a new folder"),
    ("train quick --name ..", "--name = '..': expected the name of a new folder"),
    ("train quick --name .hidden", "--name = '.hidden': expected the name of a new folder"),
    ("train quick --name a/..", "--name = 'a/..': expected the name of a new folder"),
    ("train quick --name /", "--name = '/': expected the name of a new folder"),
    ("check qick", "unknown recipe 'qick'"),
    ("check quick --name x", "unknown setting --name"),
    ("resume", "expected rematch resume RUN, found nothing"),
    ("resume ''", "expected rematch resume RUN, found ''"),
    ("resume a b", "expected rematch resume RUN, found 'a' 'b'"),
    ("resume done --max-minute 3", "unknown option '--max-minute'; nearest: --max-minutes"),
    ("resume dome", "runs/dome: no such run; nearest: runs/done"),
    ("resume runs", "runs is not a run: it holds no config.yaml"),
    ("status dome", "runs/dome: no such run; nearest: runs/done"),
    ("eval dome", "runs/dome: no such run; nearest: runs/done"),
    ("eval pursuit", "eval pursuit: a world needs --players"),
    ("eval pursit --players random,random", "unknown world 'pursit': expected one of .*; nearest: pursuit"),
    ("eval pursuit --players random", "--players = random: expected 2 names, for pursuer, evader"),
    ("eval pursuit --players lyon,random", "no pursuer called 'lyon': expected one of .*; nearest: lion"),
    ("eval pursuit --players random,random --greedy", "--against and --greedy have no effect with --players"),
    ("eval done --against nobody", "--against = 'nobody': expected one of"),
    ("eval done --against ,", "--against = ',': expected names"),
    ("eval done --games 0", "--games = '0': expected a whole number from 1 to 100000"),
    ("eval done --games 1e9", "--games = '1e9': expected a whole number from 1 to 100000"),
    ("eval done --seed -1", "--seed = '-1': expected a whole number from 0"),
    ("eval done --gaems 3", "unknown option '--gaems'; nearest: --game"),
    ("worlds all", "expected rematch worlds, found 'all'"),
    ("recipes --json", "unknown option '--json'; usage: rematch recipes"),
    ("bench pursit", "unknown world 'pursit'"),
    ("bench --seconds 0", "--seconds = '0': expected a number above 0"),
])
def test_a_wrong_word_is_one_line_and_changes_nothing(
        finished: Path, wrong: Say, monkeypatch: pytest.MonkeyPatch, words: str, expected: str) -> None:
    monkeypatch.chdir(finished)
    before = files(finished)
    assert re.search(expected, wrong(*["" if word == "''" else word for word in words.split()]))
    assert files(finished) == before


def test_bytes_that_are_no_text_are_named(place: Path, wrong: Say) -> None:
    rubbish = os.fsdecode(b"\xff\xfe")
    for words in (("unheard",), ("train",), ("resume",), ("status",), ("eval",), ("train", "quick"),
                  ("train", "quick", "--name"), ("train", "quick", "--config"), ("train", "quick", "--games")):
        for word in (rubbish, "a\nb", "\0", "\x1b[31m", "x" * 5000):
            assert "\x1b" not in wrong(*words, word)
    wrong("train", "quick", "--" + rubbish, "3")
    wrong("train", "quick", "--name", "x" * 300, *flags())
    assert os.listdir("runs") == ["done"]


def test_a_run_larger_than_the_machine_is_refused_before_it_is_begun(
        place: Path, wrong: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "here", lambda: 1 << 28)
    assert re.search(r"games = 500000, steps = 4: this run needs about \d+\.\d GiB of memory, this machine "
                     r"has 0\.2; expected fewer games", wrong("train", "quick", *flags(games=500_000)))
    assert re.search(r"network.hidden = \[4096, 4096\]: .*GiB.*expected narrower layers",
                     wrong("train", "quick", *flags(network__hidden=[4096, 4096])))
    assert os.listdir("runs") == ["done"]


@pytest.mark.parametrize(("text", "expected"), [
    ("gamez: 3", "x.yaml: unknown setting gamez = 3; nearest: game"),
    ("games: [1]", r"x.yaml: games = \[1\]: expected a whole number"),
    ("ppo:\n  clip: high", "x.yaml: ppo.clip = 'high': expected a number"),
    ("- a\n- b", "expected settings as 'key: value' lines"),
    ("a: [", "x.yaml: line 1 not plain YAML"),
    ("game: chess", "unknown world 'chess'"),
    ("games: 8\ngames: 9", "x.yaml.*games.*twice|x.yaml.*repeated"),
    ("a: !!python/object/apply:os.system [ls]", "x.yaml: line 1 not plain YAML"),
    ("a: 2001-99-99", "x.yaml"),
    ("[" * 5000, "x.yaml"),
    ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ngames: [*c, *c]", "x.yaml"),
    ("b0: &b0 {x: 1}\n" + "".join(f"b{i}: &b{i} {{x: *b{i - 1}, y: *b{i - 1}}}\n" for i in range(1, 40)), "x.yaml"),
    ("x" * 3_000_000, "x.yaml"),
    ("seed: " + "1" * 30_000, "x.yaml.*4300 digits"),
    ("\0\1\2", "x.yaml"),
])
def test_a_settings_file_that_is_none(place: Path, wrong: Say, text: str, expected: str) -> None:
    Path("x.yaml").write_text(text)
    assert re.search(expected, wrong("train", "quick", "--config", "x.yaml"))
    wrong("train", "x.yaml")
    shutil.copy("x.yaml", "runs/done/config.yaml")
    for command in ("resume", "eval"):
        wrong(command, "done")
    assert os.listdir("runs") == ["done"]


def test_a_setting_without_effect_in_a_file(place: Path, wrong: Say) -> None:
    Path("x.yaml").write_text("league:\n  pfsp_power: 3\n")
    assert "x.yaml: league.pfsp_power = 3.0 has no effect: " in wrong("train", "quick", "--config", "x.yaml")


def test_settings_that_are_no_file(place: Path, wrong: Say) -> None:
    Path("binary.yaml").write_bytes(b"\x80\x81")
    for name in ("binary.yaml", "/dev/zero", "runs", "missing.yaml", ""):
        wrong("train", "quick", "--config", name)


# --- folders that cannot be -------------------------------------------------------------------------------


def test_a_name_that_is_taken(place: Path, wrong: Say) -> None:
    (place / "runs" / "thesis").mkdir()
    (place / "runs" / "thesis" / "chapter1").write_text("mine")
    (place / "runs" / "paper").write_text("mine")
    before = files(place)
    assert "runs/done holds a run already: go on with `rematch resume runs/done`" in wrong(
        "train", "quick", *flags(), "--name", "done")
    assert "runs/thesis is not empty and not a run" in wrong("train", "quick", *flags(), "--name", "thesis")
    assert "runs/paper cannot be made: runs/paper: Not a directory" in wrong(
        "train", "quick", *flags(), "--name", "paper")
    assert files(place) == before


def test_places_where_nothing_can_be_written(place: Path, wrong: Say) -> None:
    Path("file").write_text("")
    for name in ("file/run", "/proc/run", "/sys/run", "/dev/null/run", "/dev/full/x"):
        assert f"{name} cannot be made: " in wrong("train", "quick", *flags(), "--name", name)


def test_a_folder_without_permission(place: Path) -> None:
    """Root may write anywhere, so the command runs without root's privileges where we have them."""
    closed = place / "runs" / "done"
    command = [sys.executable, "-m", "rematch.cli", "resume", str(closed)]
    nobody: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        for path in (ROOT / "rematch", Path(sys.executable), place):
            if any(not parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents):
                pytest.skip(f"nobody else may look into {path}")
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        closed.chmod(0o500)
    before = files(closed)
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, **nobody)
    closed.chmod(0o700)
    assert done.returncode == 2 and re.fullmatch(
        rb"rematch: .*runs/done cannot be opened: .*lock: Permission denied\n", done.stderr), done.stderr
    assert files(closed) == before


def test_a_run_that_another_process_holds(place: Path, wrong: Say) -> None:
    lock = place / "runs" / "done" / "lock"
    lock.write_text("process 1 on elsewhere since 2020\n")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        before = files(place)
        assert "runs/done is held by process 1 on elsewhere since 2020" in wrong("resume", "done")
        assert "held by process 1" in wrong("train", "quick", *flags(), "--name", "done")
        assert files(place) == before


# --- runs that were tampered with ---------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").iterdir())


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(place: Path, right: Say) -> None:
    whole = files(place / "runs" / "done")
    flip(newest(place / "runs" / "done") / "state.safetensors")
    said = right("resume", "done")
    assert "checkpoint iter_00000003 does not verify: state.safetensors does not match its SHA-256" in said
    assert "resumed runs/done at iteration 2" in said
    again = files(place / "runs" / "done")
    assert {name: again[name] for name in whole} == whole


def test_where_no_checkpoint_is_whole_nothing_is_begun(place: Path, wrong: Say) -> None:
    for checkpoint in (place / "runs" / "done" / "checkpoints").iterdir():
        flip(checkpoint / "state.json")
    before = files(place)
    for command in ("resume", "eval"):
        assert re.search(r"runs/done: none of its 3 checkpoints verifies \(iter_00000003: .*\): refusing",
                         wrong(command, "done"))
    assert files(place) == before


def test_a_run_without_checkpoints(place: Path, wrong: Say, right: Say) -> None:
    shutil.rmtree("runs/done/checkpoints")
    assert "runs/done: no checkpoint yet" in wrong("eval", "done")
    assert "from the beginning" in right("resume", "done")
    assert "iter_00000003" in os.listdir("runs/done/checkpoints")


def test_a_foreign_checkpoint_is_not_taken(place: Path, wrong: Say) -> None:
    with Run.create(place / "runs" / "other", Path("runs/done/config.yaml").read_text()) as run:
        run.save(3, {"session": {"iteration": 3}, "world": {"states": np.zeros(3)}}, {})
    line = wrong("resume", "other")
    assert "runs/other" in line and ("--other-machine" in line or "not a checkpoint of this run" in line)
    assert "not a checkpoint of this run" in wrong("resume", "other", "--other-machine")
    assert "not a checkpoint of this run" in wrong("eval", "other")


def test_settings_edited_by_hand_are_noticed(place: Path, wrong: Say) -> None:
    path = Path("runs/done/config.yaml")
    text = path.read_text()
    for edited in (text.replace("seed: 0", "seed: 1"), text + "# mine\n",
                   text.replace("games: 8", "games: -8"), text.replace("game: pursuit", "game: chess"), text.replace("game: pursuit\n", "")):
        path.write_text(edited)
        before = files(place)
        assert "runs/done" in wrong("resume", "done")
        assert files(place) == before
    path.write_bytes(b"\xff\x00")
    assert "config.yaml is not text" in wrong("resume", "done")
    path.unlink()
    assert "runs/done is not a run: it holds no config.yaml" in wrong("resume", "done")


def test_a_checkpoint_of_another_machine_needs_leave(
        place: Path, wrong: Say, right: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    here = api.fingerprint
    monkeypatch.setattr(api, "fingerprint", lambda config: here(config) | {"numpy": "0.1"})
    assert "saved with another numpy: .*--other-machine" and "--other-machine" in wrong("resume", "done")
    right("resume", "done", "--other-machine")


# --- trouble while it works ---------------------------------------------------------------------------------


def test_a_reward_that_is_no_number_stops_the_run_and_keeps_what_was_saved(
        place: Path, capsys: pytest.CaptureFixture[str], right: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = Rollout.collect

    def spoiled(self: Rollout, iteration: int) -> Any:
        tape = collect(self, iteration)
        if iteration == 2:
            tape["evader"].reward[1, 3] = np.nan
        return tape

    with monkeypatch.context() as patch:
        patch.setattr(Rollout, "collect", spoiled)
        assert cli.main(["train", "quick", *flags(), "--name", "x"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "evader: a reward or value is not finite" in err
    assert newest(place / "runs" / "x").name == "iter_00000002"
    right("resume", "x")
    assert files(place / "runs" / "x") == files(place / "runs" / "done")


FULL = """if 1:
    import resource, sys
    from rematch import cli
    from rematch.engine.run import Run
    save = Run.save
    def fuller(self, iteration, *rest, **keep):  # from the second save on, files are short
        if iteration == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        return save(self, iteration, *rest, **keep)
    Run.save = fuller
    sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_disk_that_fills_up_costs_nothing_that_was_saved(place: Path, right: Say) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, "train", "quick", *flags(), "--name", "x"],
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 2 and re.fullmatch(
        rb"rematch: checkpoint iter_00000002 was not saved: .*File too large\n", done.stderr), done.stderr
    assert os.listdir("runs/x/checkpoints") == ["iter_00000001"]
    assert "resumed runs/x at iteration 1" in right("resume", "x")
    assert files(place / "runs" / "x") == files(place / "runs" / "done")


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_that_cannot_be_written_is_one_line_and_made_by_resume(
        place: Path, capsys: pytest.CaptureFixture[str], right: Say, monkeypatch: pytest.MonkeyPatch,
        product: str) -> None:
    whole = files(place / "runs" / "done")
    for name in PRODUCTS:
        (place / "runs" / "done" / name).unlink()
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
        assert cli.main(["resume", "done"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"{product} was not written: " in err and "No space left on device" in err
    assert "the training itself is complete and saved: make the rest with `rematch resume runs/done`" in err
    assert "runs/done is complete: 96 steps are done, nothing is left to train" in right("resume", "done")
    assert files(place / "runs" / "done") == whole


def test_a_film_that_went_missing_is_made_again_and_nothing_else_changes(place: Path, right: Say) -> None:
    whole = files(place / "runs" / "done")
    (place / "runs" / "done" / "match.gif").unlink()
    inode = (place / "runs" / "done" / "learning.png").stat().st_ino
    right("resume", "done")
    assert files(place / "runs" / "done") == whole
    assert (place / "runs" / "done" / "learning.png").stat().st_ino == inode


def test_a_reader_that_leaves_is_no_error(finished: Path) -> None:
    for words in ("train quick --help", "worlds", "eval done --games 2 --json"):
        done = piped(f"{words} | head -c 1", finished)
        assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) == 1, words


def test_output_that_does_not_fit_is_one_line(finished: Path) -> None:
    for words in (("worlds",), ("eval", "done", "--games", "2")):
        with open("/dev/full", "w") as full:
            done = process(*words, cwd=finished, stdout=full, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (2, b"rematch: output: No space left on device\n")


def test_training_goes_on_when_its_reader_leaves(place: Path) -> None:
    words = " ".join(["train", "quick", *flags(), "--name", "x"])
    done = piped(f"{words} | head -n 1", place)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"run runs/x: pursuit, seed 0, 3 iterations of 8 games x 4 steps")
    assert files(place / "runs" / "x") == files(place / "runs" / "done")


START = """if 1:
    import sys
    from rematch.cli import main
    print("ready", flush=True)
    sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_at_any_moment_of_starting_up(place: Path) -> None:
    words = ["train", "quick", *flags(total_steps=10**9, save_every=10**6, evaluation__every=10**6)]
    for i, delay in enumerate((0.0, 0.05, 0.15, 0.3, 0.6)):
        command = [sys.executable, "-c", START, *words, "--name", f"x{i}"]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            assert child.stdout and child.stdout.readline() == b"ready\n"
            time.sleep(delay)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=30)
        if child.returncode == 0:  # it was training already: saved, and says how to go on
            assert err == b"" and b"stopped (SIGINT)" in out and f"rematch resume runs/x{i}".encode() in out
            assert Path(f"runs/x{i}/checkpoints").exists()
        else:
            assert (child.returncode, err) == (130, b"rematch: interrupted; what was saved stands\n")
            assert not Path(f"runs/x{i}/lock").exists()


def test_real_processes_say_the_same(finished: Path) -> None:
    for words, text in (
        (("trian",), b"unknown command 'trian'"), (("train", "quick", "--gmaes", "3"), b"nearest: --game"),
        (("resume", "done2"), b"nearest: runs/done"), ((b"\xff",), b"unknown command '\\udcff'"),
    ):
        began = time.perf_counter()
        done = process(*words, cwd=finished)
        assert time.perf_counter() - began < 3  # about half a second alone; the machine may be busy
        assert done.returncode == 2 and done.stdout == b"" and text in done.stderr
        assert done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr


# --- all is well --------------------------------------------------------------------------------------------


def test_training_says_what_it_will_do_and_where_things_lie(
        place: Path, right: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    said = right("train", "quick", *flags(), "--name", "some/where").splitlines()
    assert said[0] == "run some/where: pursuit, seed 0, 3 iterations of 8 games x 4 steps"
    ends = dict(line.split() for line in said[-5:])
    assert ends == {"run": "some/where", "policies": "some/where/policies", "film": "some/where/match.gif",
                    "picture": "some/where/learning.png", "report": "some/where/report.html"}
    assert all((place / "elsewhere" / path).exists() for path in ends.values())
    for path in (place / "elsewhere" / "some" / "where").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert files(place / "elsewhere" / "some" / "where") == files(place / "runs" / "done")


def test_runs_without_a_name_are_numbered_and_kebab_case_works(place: Path, right: Say) -> None:
    words = [word.replace("_", "-") if word.startswith("--") else word for word in flags(games="1e1")]
    assert right("train", "quick", *words).startswith("run runs/quick-1: ")
    assert "games: 10\n" in Path("runs/quick-1/config.yaml").read_text()
    assert right("train", "quick", *words, "--max-minutes=1e-9").splitlines()[-1] == (
        "stopped (time) at iteration 1 of 3; go on with: rematch resume runs/quick-2")
    assert "resumed runs/quick-2 at iteration 1" in right("resume", "runs/quick-2")
    assert files(place / "runs" / "quick-1") == files(place / "runs" / "quick-2")


def test_resuming_a_finished_run_says_so(place: Path, right: Say) -> None:
    whole = files(place / "runs" / "done")
    said = right("resume", "done")
    assert "runs/done is complete: 96 steps are done, nothing is left to train\n" in said
    assert "Scoreboard after 96 steps" in said and "runs/done/report.html" in said
    assert files(place / "runs" / "done") == whole


def test_help_lists_every_flag_with_its_value_and_meaning(finished: Path, right: Say) -> None:
    from rematch.config import leaves

    said = right("train", "quick", "--games", "1e3", "--help").splitlines()
    rows = {line.split()[0]: line for line in said[1:]}
    config = api.configure("quick")
    assert set(rows) == {f"--{key}" for key, _, _ in leaves(config)}
    for key, field, _ in leaves(config):
        assert field.metadata["help"] and field.metadata["help"] in rows[f"--{key}"]
    assert re.search(r"--games +1000 +games that step together", rows["--games"])
    assert re.search(r"--network.activation +\w+ +.*\(tanh \| relu\)", rows["--network.activation"])
    for words in (["--help"], ["train", "--help"], ["eval", "-h"], ["help"]):
        assert "rematch train RECIPE" in right(*words)
    assert right("--version").startswith("rematch 0.")


def test_worlds_and_recipes(right: Say) -> None:
    said = right("worlds")
    assert re.search(r"^pursuit: \w.*", said, re.M)
    evader = r"^  evader: sees \d+ numbers, continuous actions speed, turn; scripted: random, .*flee_straight"
    assert re.search(evader, said, re.M)
    names = [line.partition(":")[0] for line in right("recipes").splitlines()]
    assert {"quick", "pursuit"} <= set(names)


def test_eval_of_a_run(finished: Path, right: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    before = files(finished)
    options = ("--against", "random,lion", "--json")
    row = json.loads(right("eval", "done", "--games", "20", *options))
    assert row["run"] == "runs/done" and row["step"] == 96 and row["play"] == "sampled" and row["verdict"]
    assert [(entry["role"], entry["rival"], entry["games"]) for entry in row["table"]] == \
        [("pursuer", "random", 20), ("evader", "random", 20), ("evader", "lion", 20)]
    for entry in row["table"]:
        assert 0 <= entry["low"] <= entry["score"] <= entry["high"] <= 1 and entry["best_bot"]
    assert row == json.loads(right("eval", "runs/done", "--games", "2e1", *options))
    assert row != json.loads(right("eval", "done", "--games", "20", *options, "--seed", "1"))
    text = right("eval", "done", "--games", "4", "--greedy")
    assert "Scoreboard after 96 steps, policies play greedy" in text and "95 % interval" in text
    assert files(finished) == before


def test_eval_of_a_world(finished: Path, right: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    players = ("--players", "pure_pursuit,stand_still")
    row = json.loads(right("eval", "pursuit", *players, "--games", "50", "--json"))
    hunter, prey = row["table"]
    assert (hunter["player"], hunter["rival"], hunter["games"]) == ("pure_pursuit", "stand_still", 50)
    assert hunter["low"] > 0.9 and prey["high"] < 0.1 and hunter["wins"] + prey["wins"] == 50
    text = right("eval", "pursuit", "--players", "done,random", "--games", "4")
    assert text.startswith("Match in pursuit\n") and "pursuer (learnt)  random" in text


def test_status_of_a_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["status", "done"])
    out, err = capsys.readouterr()
    assert code in (0, 1) and err == "" and "runs/done" in out
    assert cli.main(["status", "done", "--json"]) == code
    about = json.loads(capsys.readouterr().out)
    assert about["exit"] == code and about["lines"]
    shutil.rmtree("runs/done/checkpoints/iter_00000003")
    assert cli.main(["status", "done"]) in (1, 3)
