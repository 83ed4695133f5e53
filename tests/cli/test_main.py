"""The command line: what it says when all is well, and one line for each word that is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Runner, files, finished, refused, succeed, workdir
from support.tiny_run import flags

from rematch import api
from rematch.cli import main
from rematch.training import memory_estimate

pytestmark = pytest.mark.usefixtures("blank_pictures")

__all__ = ["finished", "refused", "succeed", "workdir"]


# --- all is well --------------------------------------------------------------------------------------------


def test_train_prints_its_plan_and_its_files(
        workdir: Path, succeed: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    (workdir / "elsewhere").mkdir()
    monkeypatch.chdir(workdir / "elsewhere")
    output = succeed("train", "quick", *flags(), "--name", "some/where").splitlines()
    assert output[0] == "run some/where: pursuit, seed 0, 3 iterations of 8 games x 4 steps"
    ends = dict(line.split() for line in output[-5:])
    assert ends == {"run": "some/where", "policies": "some/where/policies", "film": "some/where/match.gif",
                    "picture": "some/where/learning.png", "report": "some/where/report.html"}
    assert all((workdir / "elsewhere" / path).exists() for path in ends.values())
    for path in (workdir / "elsewhere" / "some" / "where").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert files(workdir / "elsewhere" / "some" / "where") == files(workdir / "runs" / "done")


def test_train_numbers_runs_without_a_name_and_takes_kebab_case(workdir: Path, succeed: Runner) -> None:
    words = [word.replace("_", "-") if word.startswith("--") else word for word in flags(games="1e1")]
    assert succeed("train", "quick", *words).startswith("run runs/quick-1: ")
    assert "games: 10\n" in Path("runs/quick-1/config.yaml").read_text()
    assert succeed("train", "quick", *words, "--max-minutes=1e-9").splitlines()[-1] == (
        "stopped (time) at iteration 1 of 3; continue with: rematch resume runs/quick-2")
    assert "resumed runs/quick-2 at iteration 1" in succeed("resume", "runs/quick-2")
    assert files(workdir / "runs" / "quick-1") == files(workdir / "runs" / "quick-2")


def test_resume_of_a_finished_run_changes_nothing(workdir: Path, succeed: Runner) -> None:
    whole = files(workdir / "runs" / "done")
    output = succeed("resume", "done")
    assert "runs/done is complete after 96 steps: there is nothing to train\n" in output
    assert "Scoreboard after 96 steps" in output and "runs/done/report.html" in output
    assert files(workdir / "runs" / "done") == whole


def test_one_world_is_described(succeed: Runner) -> None:
    output = succeed("worlds", "Pursuit")
    assert "Role evader (seat 1)" in output and "not observed" not in output.partition("Role")[0]
    assert re.search(r"^state +\d+ +-1 to 1 +\w+, ", output, re.M) and "capabilities: films" in output
    assert "actions: continuous, numbers from -1 to 1, which the world scales: speed, turn" in output
    assert re.search(r"^--world\.max_steps +\d+ +\w", output, re.M)
    sensors = succeed("worlds", "pursuit", "--world.full_obs", "false")
    assert re.search(r"^history +10 x 43 ", sensors, re.M) and not re.search("^history", output, re.M)
    page = json.loads(succeed("worlds", "lattice", "--json"))
    assert [role["name"] for role in page["roles"]] == ["pursuer", "evader"] and page["settings"]


@pytest.mark.parametrize(("words", "line"), [
    (["latice"], "unknown world 'latice': expected one of .*; nearest: lattice"),
    (["lattice", "--world.sise", "3"], "unknown setting --.*sise"),
    (["--jsn"], "unknown option '--jsn'"),
    (["./nowhere.py"], "there is no file"),
])  # fmt: skip
def test_world_that_cannot_be_described_is_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["worlds", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(line, error), error


def test_worlds_and_recipes_are_listed(succeed: Runner) -> None:
    output = succeed("worlds")
    assert re.search(r"^pursuit: \w.*", output, re.M)
    evader = r"^  evader: sees \d+ numbers, continuous actions speed, turn; scripted: random, .*flee_straight"
    assert re.search(evader, output, re.M)
    head, *recipes = succeed("recipes").splitlines()
    assert head.split()[:2] == ["recipe", "world"]
    assert [line for line in recipes if not line.endswith(".")] == []  # whole sentences
    worlds = dict(line.split()[:2] for line in recipes)
    assert worlds["quick"] == worlds["pursuit"] == worlds["ra2"] == "pursuit" and worlds["tiny"] == "gameboy"
    for command in ("worlds", "recipes"):
        assert json.loads(succeed(command, "--json"))[command][0]["name"]


def test_eval_of_a_run_prints_intervals(
    finished: Path, succeed: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    before = files(finished)
    options = ("--against", "random,lion", "--json")
    row = json.loads(succeed("eval", "done", "--games", "20", *options))
    assert row["run"] == "runs/done" and row["step"] == 96 and row["play"] == "sampled" and row["verdict"]
    assert [(entry["role"], entry["rival"], entry["games"]) for entry in row["table"]] == \
        [("pursuer", "random", 20), ("evader", "random", 20), ("evader", "lion", 20)]
    for entry in row["table"]:
        assert 0 <= entry["low"] <= entry["score"] <= entry["high"] <= 1 and entry["best_bot"]
    assert row == json.loads(succeed("eval", "runs/done", "--games", "2e1", *options))
    assert row != json.loads(succeed("eval", "done", "--games", "20", *options, "--seed", "1"))
    text = succeed("eval", "done", "--games", "4", "--greedy")
    assert "Scoreboard after 96 steps, policies play greedy" in text and "95 % interval" in text
    assert files(finished) == before


def test_eval_of_a_world_plays_named_players(
        finished: Path, succeed: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    players = ("--players", "pure_pursuit,stand_still")
    row = json.loads(succeed("eval", "pursuit", *players, "--games", "50", "--json"))
    hunter, prey = row["table"]
    assert (hunter["player"], hunter["rival"], hunter["games"]) == ("pure_pursuit", "stand_still", 50)
    assert hunter["low"] > 0.9 and prey["high"] < 0.1 and hunter["wins"] + prey["wins"] == 50
    text = succeed("eval", "pursuit", "--players", "done,random", "--games", "4")
    assert text.startswith("Match in pursuit, policies play sampled\n") and "done    random" in text


def test_eval_of_one_role_alone_is_refused(workdir: Path, succeed: Runner, refused: Runner) -> None:
    succeed("export", "done", "--out", "mine.safetensors")
    for words in (("eval",), ("eval", "--against", "lion"), ("film", "--out", "x.gif")):
        output = refused(words[0], "mine-pursuer.safetensors", *words[1:])
        assert "mine-pursuer.safetensors plays pursuer only, and no player has the role evader; " in output
    succeed("eval", "pursuit", "--players", "mine-pursuer.safetensors,random", "--games", "4")


def test_train_notes_general_sum_rewards_and_redrawn_starts(workdir: Path, succeed: Runner) -> None:
    narrow = flags(world__arena_width=4, world__arena_height=4, world__min_init_distance=4.5,
                   world__max_init_distance=15, world__w_wall=0.1, world__n_obstacles_min=2)
    text = succeed("train", "pursuit", *narrow, "--name", "narrow")
    for log in (text, Path("runs/narrow/train.log").read_text()):
        assert "Rewards are general-sum" in log
    rows = [json.loads(line) for line in Path("runs/narrow/metrics.jsonl").read_text().splitlines()]
    redraws = [row["rollout/spawn_redraws"] for row in rows]
    assert redraws == sorted(redraws) and redraws[-1] > 0
    assert f"World: spawn_redraws {redraws[-1]}" in text
    assert "general-sum" not in succeed("train", "pursuit", *flags(), "--name", "plain")


def test_eval_plays_under_the_rules_of_the_run(workdir: Path, succeed: Runner, refused: Runner) -> None:
    succeed("train", "quick", *flags(world__n_obstacles_max=3), "--name", "three")
    row = json.loads(succeed("eval", "pursuit", "--players", "three,random", "--games", "4", "--json"))
    assert row["settings"]["n_obstacles_max"] == 3 and row["settings"]["max_steps"] == 20
    output = refused("eval", "pursuit", "--players", "three,done", "--games", "4")
    assert "done was trained with other rules: n_obstacles_max = 2, three with 3; expected the same" in output


def test_status_exit_code_is_in_its_json(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.main(["status", "done"])
    out, err = capsys.readouterr()
    assert code in (0, 1) and err == "" and "runs/done" in out
    assert main.main(["status", "done", "--json"]) == code
    role_spec = json.loads(capsys.readouterr().out)
    assert role_spec["exit"] == code and role_spec["lines"]
    shutil.rmtree("runs/done/checkpoints/iter_00000003")
    assert main.main(["status", "done"]) in (1, 3)


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
    ("train quick --world.min_init_distance 5 --world.max_init_distance 5.000001",
     "no start found for .*min_init_distance.: 5.*; expected a wider range of distances"),
    ("train quick --evaluation.games 1e12", "evaluation.games = '1e12': expected a whole number from 1 to"),
    ("train quick --world.n_obstacles_max 3 --world.n_obstacle_obs 0",
     "world.n_obstacle_obs = 0: expected -1 or at least n_obstacles_max = 3; the agents would be blind"),
    ("train quick --world.n_obstacles_min 4 --world.n_obstacles_max 2",
     "n_obstacles_min = 4: expected at most n_obstacles_max = 2"),
    ("train quick --league.matchmaking uniform --league.pfsp_power 3",
     "pfsp_power = 3.0 has no effect: league.matchmaking is 'uniform'"),
    ("train quick --league.bots lyon", "league.bots = 'lyon': expected one of .*; nearest: lion"),
    ("train quick --game lattice", "--game cannot change a recipe's world"),
    ("train quick --name=", "--name = '': expected the name of a new folder"),
    ("train quick --name ..", "--name = '..': expected the name of a new folder"),
    ("train quick --name .hidden", "--name = '.hidden': expected the name of a new folder"),
    ("train quick --name a/..", "--name = 'a/..': expected the name of a new folder"),
    ("train quick --name /", "--name = '/': expected the name of a new folder"),
    ("check qick", "unknown recipe 'qick'"),
    ("check quick --name x", "unknown setting --name"),
    ("resume", "expected rematch resume RUN, found nothing; `rematch runs` lists runs"),
    ("resume ''", "expected rematch resume RUN, found ''"),
    ("resume a b", "expected rematch resume RUN, found 'a' 'b'"),
    ("resume done --max-minute 3", "unknown option '--max-minute'; nearest: --max-minutes"),
    ("resume dome", "runs/dome: no such run; nearest: runs/done"),
    ("resume runs", "runs is not a run: it holds no config.yaml; runs/done is one"),
    ("train quick --config=", "--config needs a value"),
    ("eval done --picture=", "--picture needs a value"),
    ("eval done --picture x.png --games 100000", "pursuit has no exact best responses"),
    ("export done --out=", "--out needs a value"),
    ("export done --out .", "--out = '.': expected a name that ends in .safetensors"),
    ("export done --out ..", "--out = '..': expected a name that ends in .safetensors"),
    ("export done --out runs", "--out = 'runs': expected a name that ends in .safetensors"),
    ("report done --out x.pdf", "--out = 'x.pdf': expected a name that ends in .html"),
    ("report done runs/done", "runs/done is given twice; expected each run once"),
    ("status done/checkpoints", "runs/done/checkpoints is not a run"),
    ("status dome", "runs/dome: no such run; nearest: runs/done"),
    ("status DO", "runs/DO: no such run; nearest: runs/done"),
    ("verdict done", "nearest: report"),
    ("train quick --world.evader_speed 2", "nearest: --world.evader_v_max"),
    ("eval dome", "runs/dome: no such run; nearest: runs/done"),
    ("eval nothing.safetensors", "^nothing.safetensors: no such file"),
    ("film runs --out x.gif", "runs is not a run: it holds no config.yaml; runs/done is one"),
    ("film nothing.safetensors --out x.gif", "^nothing.safetensors: no such file"),
    ("eval runs/done/train.log", "runs/done/train.log is a file: expected the folder of a run"),
    ("eval pursuit --players x.safetensors,random", "^x.safetensors: no such file"),
    ("play beasty --against nobody", "^no player called 'nobody': expected one of"),
    ("eval pursuit", "eval pursuit: a world needs --players"),
    ("eval pursit --players random,random", "unknown world 'pursit': expected one of .*; nearest: pursuit"),
    ("eval pursuit --players random", "--players = random: expected 2 names, for pursuer, evader"),
    ("eval pursuit --players lyon,random", "no pursuer called 'lyon': expected one of .*; nearest: lion"),
    ("eval pursuit --players random,random --greedy", "--greedy has no effect: no player of --players is"),
    ("eval done --against nobody", "--against = 'nobody': expected one of"),
    ("eval done --against ,", "--against = ',': expected names"),
    ("eval done --games 0", "--games = '0': expected a whole number from 1 to 100000"),
    ("eval done --games 1e9", "--games = '1e9': expected a whole number from 1 to 100000"),
    ("eval done --seed -1", "--seed = '-1': expected a whole number from 0"),
    ("eval done --gaems 3", "unknown option '--gaems'; nearest: --game"),
    ("worlds all", "unknown world 'all': expected one of beasty, "),
    ("recipes --jsn", "unknown option '--jsn'; nearest: --json"),
    ("completion tcsh", "completion 'tcsh': expected one of bash, zsh, fish"),
    ("completion", "expected rematch completion bash.zsh.fish, found nothing"),
    ("runs nowhere", "runs/nowhere: no such folder; expected a folder that holds runs"),
    ("runs runs/done/train.log", "runs/done/train.log: is a file; expected a folder that holds runs"),
    ("runs a b", r"expected rematch runs \[FOLDER\], found 'a' 'b'"),
    ("train quick --help pp", "unknown section 'pp': expected one of run, world, .*, all; nearest: ppo"),
    ("train quick --gmaes 3 --help", "unknown setting --gmaes"),
    ("play nowhere --help", "expected rematch play WORLD .* with one of beasty, gameboy, .*, or a run"),
    ("help trian", "unknown command 'trian'.*; nearest: train"),
    ("bench pursit", "unknown world 'pursit'"),
    ("bench --seconds 0", "--seconds = '0': expected a number above 0"),
])
def test_wrong_word_is_one_line_and_changes_nothing(
        finished: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch, words: str, expected: str) -> None:
    monkeypatch.chdir(finished)
    before = files(finished)
    assert re.search(expected, refused(*["" if word == "''" else word for word in words.split()]))
    assert files(finished) == before


def test_bytes_that_are_no_text_are_one_line(workdir: Path, refused: Runner) -> None:
    rubbish = os.fsdecode(b"\xff\xfe")
    quick = ("train", "quick")
    for words in (("unheard",), ("train",), ("resume",), ("status",), ("eval",), quick, (*quick, "--name"),
                  (*quick, "--config"), (*quick, "--games")):
        for word in (rubbish, "a\nb", "\x1b[31m", "x" * 5000):
            assert "\x1b" not in refused(*words, word)
    refused("train", "quick", "--" + rubbish, "3")
    refused("train", "quick", "--name", "x" * 300, *flags())
    assert os.listdir("runs") == ["done"]


def test_train_refuses_a_run_larger_than_the_machine(
        workdir: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "total_bytes", lambda: 1 << 28)
    assert re.search(r"games = 500000, steps = 4: this run needs about \d+\.\d GiB of memory, this machine "
                     r"has 0\.2; expected fewer games", refused("train", "quick", *flags(games=500_000)))
    assert re.search(r"network.hidden = \[4096, 4096\]: .*GiB.*expected narrower layers",
                     refused("train", "quick", *flags(network__hidden=[4096, 4096])))
    assert os.listdir("runs") == ["done"]


@pytest.mark.parametrize(("text", "expected"), [
    ("gamez: 3", "x.yaml: unknown setting gamez = 3; nearest: game"),
    ("games: [1]", r"x.yaml: games = \[1\]: expected a whole number"),
    ("ppo:\n  clip: high", "x.yaml: ppo.clip = 'high': expected a number"),
    ("- a\n- b", "expected settings as 'key: value' lines"),
    ("a: [", "x.yaml: line 1 not plain YAML"),
    ("game: chess", "x.yaml: game = 'chess' cannot change the world of quick"),
    ("games: 8\ngames: 9", "x.yaml.*games.*twice|x.yaml.*repeated"),
    ("a: !!python/object/apply:os.system [ls]", "x.yaml: line 1 not plain YAML"),
    ("a: 2001-99-99", "x.yaml"),
    ("[" * 1000, "x.yaml"),
    ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ngames: [*c, *c]", "x.yaml"),
    ("b0: &b0 {x: 1}\n" + "".join(f"b{i + 1}: &b{i + 1} {{x: *b{i}, y: *b{i}}}\n" for i in range(40)),
     "x.yaml"),
    ("x" * 3_000_000, "x.yaml"),
    ("seed: " + "1" * 30_000, "x.yaml.*4300 digits"),
    ("\0\1\2", "x.yaml"),
    ("", "x.yaml: no settings; expected lines such as"),
    ("# nothing yet\n", "x.yaml: no settings; expected lines such as"),
])
def test_settings_file_that_is_no_yaml_is_refused(
    workdir: Path, refused: Runner, text: str, expected: str
) -> None:
    Path("x.yaml").write_text(text)
    assert re.search(expected, refused("train", "quick", "--config", "x.yaml"))
    refused("train", "x.yaml")
    shutil.copy("x.yaml", "runs/done/config.yaml")
    for command in ("resume", "eval"):
        refused(command, "done")
    assert os.listdir("runs") == ["done"]


def test_settings_file_without_effect_is_refused(workdir: Path, refused: Runner) -> None:
    Path("x.yaml").write_text("league:\n  pick: uniform\n  pfsp_power: 3\n")
    message = refused("train", "quick", "--config", "x.yaml")
    assert "x.yaml: league.pfsp_power = 3.0 has no effect: " in message
    Path("x.yaml").write_text("like: quick\nleague:\n  pick: uniform\n  pfsp_power: 3\n")
    assert "x.yaml: league.pfsp_power = 3.0 has no effect: " in refused("train", "x.yaml")


def test_settings_file_may_be_switched_off_by_flags(workdir: Path) -> None:
    text = "ppo:\n  magnet: 0.1\n  magnet_decay: 0.9\n"
    Path("y.yaml").write_text("like: quick\n" + text)
    assert api.configure("y.yaml", flags=["--ppo.magnet_weight", "0"]).ppo.magnet_decay == 0.9
    Path("x.yaml").write_text(text)
    assert api.configure("quick", Path("x.yaml"), ["--ppo.magnet_weight", "0"]).ppo.magnet_decay == 0.9
    stored = "runs/done/config.yaml"  # lists what this run did not use, too
    again = api.configure(stored)
    assert again == api.configure("quick", Path(stored)) == api.load("runs/done").config


def test_settings_file_cannot_change_the_world_of_a_recipe(workdir: Path, refused: Runner) -> None:
    Path("other.yaml").write_text("game: lattice\n")
    assert "other.yaml: game = 'lattice' cannot change the world of quick; name the world instead" in refused(
        "train", "quick", "--config", "other.yaml")


def test_export_without_onnx_leaves_no_file(
        workdir: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    before = files(workdir)
    assert "--onnx: onnx is not installed: " in refused("export", "done", "--out", "a.safetensors", "--onnx")
    assert files(workdir) == before


def test_settings_file_that_cannot_be_read_is_refused(workdir: Path, refused: Runner) -> None:
    Path("binary.yaml").write_bytes(b"\x80\x81")
    for name in ("binary.yaml", "/dev/zero", "runs", "missing.yaml", ""):
        refused("train", "quick", "--config", name)


def test_interrupted_command_ends_although_a_thread_is_left() -> None:
    code = ("import sys, threading, time; from rematch.cli import main\n"
            "def act(words):\n    threading.Thread(target=time.sleep, args=(60,)).start()\n"
            "    raise KeyboardInterrupt\n"
            "sys.argv[1:] = []; sys.exit(main.main(None, act))")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 130 and result.stderr.startswith("rematch: interrupted")
