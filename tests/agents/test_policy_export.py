"""Exported policies: written, evaluated, used as a start, and refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.single_seat_worlds import SIZES

from rematch import api, evaluate, export, film
from rematch.agents import policy_export
from rematch.agents.learners import dqn
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.cli import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation import evaluator, past_policies
from rematch.rehearsal.compare import differences
from rematch.stability.rollback import Rollback
from rematch.storage import policy_files
from rematch.training import trained_run
from rematch.training.trainer import Trainer
from rematch.verbs.tournament import Match, play_match
from rematch.worlds import registry

pytestmark = pytest.mark.usefixtures("blank_pictures")

TINY: dict[str, Any] = {
    "threads": 1, "games": 16, "steps": 24, "total_steps": 16 * 24 * 3, "network.hidden": (8,),
    "league.opponent_share": 0.0, "ppo.minibatch_size": 64, "evaluation.games": 4,
    "evaluation.opponents": ("random",),
    "past_policies.count": 0, "save_every": 1,
}


def config(**changes: Any) -> Any:
    return settings.replace(api.default("beasty"),
                            TINY | {key.replace("__", "."): value for key, value in changes.items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    api.train(config(), folder=folder)
    return folder


@pytest.fixture(scope="module")
def file(run: Path) -> Path:
    (made,) = export(run, run.parent / "agent").policies
    return made


def test_exported_policy_plays_as_the_run_does(run: Path, file: Path) -> None:
    assert file.name == "agent.safetensors" and file.stat().st_size < 5_000_000
    metadata = json.loads(file.with_suffix(".json").read_text())["about"]
    assert metadata["world"]["players"] == 2 and metadata["network"]["hidden"] == [8]
    assert len(metadata["columns"]) == 100
    of_run, loaded = api.load(run).policies["player"], api.load(file).policies["player"]
    assert of_run.weights.tobytes() == loaded.weights.tobytes()
    one, two = (evaluate(path, against=["random", "heuristic"], games=30, greedy=True)["table"]
                for path in (run, file))
    keys = ("rival", "wins", "draws", "games", "win_low")
    assert [[row[key] for key in keys] for row in one] == [[row[key] for key in keys] for row in two]


def test_files_and_their_search_are_players(file: Path) -> None:
    rows = play_match("beasty", Match(players=[f"{file}+search:3", str(file)], games=20))["table"]
    assert rows[0]["player"].endswith("+search:3") and rows[0]["score"] > 0.5
    for name, line in (("agent.safetensors", "no such file"), (f"{file}+search:x", "expected search:")):
        with pytest.raises(ConfigError, match=line):
            play_match("beasty", Match(players=[name, "random"], games=2))


def test_export_never_overwrites_another_policy(run: Path, file: Path, tmp_path: Path) -> None:
    assert export(run, file).policies == (file,)  # the same bytes
    with pytest.raises(ConfigError, match="never silently overwritten"):
        api.train(config(seed=1), folder=tmp_path / "other")
        export(tmp_path / "other", file)
    with pytest.raises(ConfigError, match=r"--out = .*expected a name that ends in .safetensors"):
        export(run, tmp_path / "agent.bin")


def test_changed_file_is_detected(file: Path, tmp_path: Path) -> None:
    for name in (file.name, file.with_suffix(".json").name):
        (tmp_path / name).write_bytes((file.parent / name).read_bytes())
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    (tmp_path / file.name).write_bytes(raw)
    with pytest.raises(ConfigError, match="does not match its SHA-256"):
        api.load(tmp_path / file.name)


def test_without_onnx_nothing_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--onnx: onnx is not installed: "):
        export(run, tmp_path / "agent.safetensors", onnx=True)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_onnx_and_a_c_header_too(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="pip install onnx")
    made = export(run, tmp_path / "agent.safetensors", onnx=True, c_header=True).files
    assert [path.name for path in made] == ["agent.safetensors", "agent.json", "agent.onnx", "agent.h"]
    assert sorted(made) == sorted(tmp_path.iterdir())  # every file is named


def test_beasty_agent_is_small() -> None:
    agent = Path(registry.__file__).parent / "beasty" / "agent.safetensors"
    assert agent.stat().st_size <= 5_000_000
    assert policy_export.read(agent).game == "beasty"


@pytest.mark.slow
def test_gameboy_agent_finishes_its_cartridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """99 of 100 games are finished (README); of two at least one, on any machine. No bot is evaluated."""
    agent = Path(registry.__file__).parent / "gameboy" / "agent.safetensors"
    assert agent.stat().st_size <= 5_000_000
    monkeypatch.setattr(evaluator, "best_bots", lambda *_: {})
    (returns,) = evaluate(agent, games=2, seed=5)["returns"].values()
    assert returns["games"] == 2 and returns["success"] >= 0.5


# --- recurrent players --------------------------------------------------------------------------------


DQN: dict[str, Any] = {
    "learner": "dqn", "threads": 1, "games": 2, "steps": 16, "total_steps": 2 * 16 * 3, "dqn.sequence": 8,
    "dqn.burn_in": 2, "dqn.warmup": 0, "dqn.replay_size": 1000, "dqn.lstm": False, "world.cartridge": "tiny",
    "world.max_steps": 40, "world.mask": False, "world.screen": False, "evaluation.games": 2,
    "past_policies.count": 0, "save_every": 1,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remembers") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dqn, "SIZES", SIZES)
        api.train(settings.replace(api.default("gameboy"), DQN), folder=folder)
    return folder


@pytest.fixture
def dqn_run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a small recurrent network; networks built later have that size too."""
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    return trained


def test_recurrent_policy_is_exported(dqn_run: Path, tmp_path: Path) -> None:
    (made,) = export(dqn_run, tmp_path / "agent").policies
    of_run, loaded = (api.load(path).policies["joypad"] for path in (dqn_run, made))
    assert of_run.weights.tobytes() == loaded.weights.tobytes() and of_run.weights.any()
    assert loaded.epsilon == of_run.epsilon == 0.01
    rows = [evaluate(path, games=2, greedy=True) for path in (dqn_run, made)]
    one, two = (row["returns"] for row in rows)
    keys = ("mean", "games", "success", "milestones")
    assert [one["joypad"][key] for key in keys] == [two["joypad"][key] for key in keys]
    assert one["joypad"]["games"] == 1  # greedy and deterministic: all games would be equal
    assert evaluate(made, games=2)["returns"]["joypad"]["games"] == 2
    assert [row["step"] for row in rows] == [DQN["total_steps"]] * 2  # of these weights
    returns = play_match("gameboy", Match(players=[str(made)], games=2, greedy=True))["returns"]
    assert returns.keys() == one.keys()
    with pytest.raises(ConfigError, match="--c-header: expected a network of fully connected layers"):
        export(dqn_run, tmp_path / "other", c_header=True)
    assert not list(tmp_path.glob("other*"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_policy_trained_on_a_gpu_plays_without_one(
    dqn_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_run, stored = api.load(dqn_run), trained_run.stored_config
    for module in (api, trained_run):
        monkeypatch.setattr(
            module, "stored_config", lambda run: settings.replace(stored(run), {"dqn.device": "cuda"})
        )
    loaded = api.load(dqn_run)
    assert loaded.config.dqn.device == "cuda"
    assert loaded.policies["joypad"].weights.tobytes() == of_run.policies["joypad"].weights.tobytes()
    with pytest.raises(ConfigError, match="torch finds no CUDA device"):
        api.resume(dqn_run)


def test_dqn_starts_from_a_policy_of_the_same_shape_only(dqn_run: Path, tmp_path: Path) -> None:
    (made,) = export(dqn_run, tmp_path / "agent").policies
    basis = settings.replace(api.default("gameboy"), DQN | {"dqn.lr": 0.0, "dqn.lr_final": 0.0})
    trained = api.train_from(made, basis, tmp_path / "run")
    expected = api.load(made).policies["joypad"].weights
    assert trained.policies["joypad"].weights.tobytes() == expected.tobytes()  # lr 0
    trainer = Trainer(basis)
    api.start_from(trainer, policy_export.initial_policies(made, basis))
    assert trainer.agents.learners["joypad"].state_dict()["target"].tobytes() == expected.tobytes()
    for changes, line in (({"dqn.gru": False}, "dqn.gru is True in the policy and False in the run"),
                          ({"learner": "ppo"}, "trained by dqn; the run has learner ppo")):
        with pytest.raises(ConfigError, match=line):
            policy_export.initial_policies(made, settings.replace(basis, changes))


def test_film_of_a_run_and_of_a_policy(
    dqn_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made,) = export(dqn_run, tmp_path / "agent").policies
    for number, subject in enumerate((dqn_run, made)):
        words = ["film", str(subject), "--out", str(tmp_path / f"{number}.gif"), "--seconds", "3.5"]
        assert main.main(words) == 0
        assert "cut off after 40 steps" in capsys.readouterr().out
    assert (tmp_path / "0.gif").read_bytes() == (tmp_path / "1.gif").read_bytes()
    for words, line in (
        (["film", str(made)], "needs --out FILE"),
        (["film", str(made), "--out", str(tmp_path / "film.avi")], "expected a name that ends in .gif"),
        (["film", str(made), "--out", str(tmp_path / "no" / "film.gif")], "in a folder that exists"),
        (["film", str(made), "--out", str(tmp_path / "film.gif"), "--seconds", "1"], "number above 3"),
    ):
        assert main.main(words) == 2
        assert line in capsys.readouterr().err


def test_without_an_encoder_no_mp4(
    dqn_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rematch.reporting.mp4.encoder", lambda: "")
    with pytest.raises(ConfigError, match="no MP4 encoder was found"):
        film(dqn_run, tmp_path / "film.mp4", seconds=4.0)


# --- beginning from a policy ------------------------------------------------------------------------------


def test_run_starts_from_an_exported_policy(file: Path, tmp_path: Path) -> None:
    late = config(start_iteration=2, total_steps=16 * 24 * 4, ppo__lr=0.0, ppo__anneal="none")
    trained = api.train_from(file, late, tmp_path / "run")
    weights = api.load(file).policies["player"].weights
    assert trained.policies["player"].weights.tobytes() == weights.tobytes()  # lr 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [3, 4]
    assert (tmp_path / "run" / "observations.json").exists()  # of its first rollout, whatever its number
    assert "Starts from the weights of agent.safetensors" in (tmp_path / "run" / "train.log").read_text()


def test_schedules_cover_the_remaining_iterations() -> None:
    clock = Trainer(config(start_iteration=1)).clock
    assert clock.progress == 0.0
    clock.iteration = 2
    assert clock.progress == 0.5
    with pytest.raises(ConfigError, match="start_iteration = 3: expected less than the run's 3"):
        config(start_iteration=3)


def test_run_killed_at_once_continues_identically(file: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """What it began with stands in no setting: it must be in the folder before anything happens."""
    api.train_from(file, config(), tmp_path / "one")

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(api, "loop", stop)
        with pytest.raises(KeyboardInterrupt):
            api.train_from(file, config(), tmp_path / "two")
    api.resume(tmp_path / "two")
    assert differences(tmp_path / "one", tmp_path / "two") == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"network.hidden": (9,)}, r"network.hidden is \(8,\) in the policy and \(9,\) in the run"),
        ({"world.earlier_rules": True}, "earlier_rules is False in the policy and True in the run"),
    ],
)
def test_another_network_or_other_rules_are_refused(
    changes: dict[str, Any], line: str, file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        api.train_from(file, settings.replace(config(), changes), tmp_path / "run")
    assert not (tmp_path / "run").exists() and "\n" not in str(caught.value)


def test_another_game_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a policy of beasty; expected one of lattice"):
        api.train_from(file, api.configure("lattice"), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"expected a policy .* or a finished run"):
        policy_export.initial_policies(tmp_path, config())


def test_commands(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["export", str(run), "--out", "mine.safetensors"]) == 0
    assert "mine.safetensors" in capsys.readouterr().out
    flags = [word for key, value in TINY.items() for word in (
        f"--{key}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value))]
    Path("tiny.yaml").write_text("game: beasty\n")  # the world's of_run defaults
    assert main.main(["train", "tiny.yaml", *flags, "--from", "mine.safetensors", "--name", "new"]) == 0
    assert main.main(["train", "tiny.yaml", *flags, "--from", str(run), "--name", "newer"]) == 0
    assert np.array_equal(api.load("runs/new").policies["player"].weights,
                          api.load("runs/newer").policies["player"].weights)
    assert main.main(["export", str(run)]) == 2 and "needs --out" in capsys.readouterr().err


def test_rollback_never_restores_weights_before_the_loaded_ones(file: Path) -> None:
    made = policy_export.initial_policies(file, config())
    trainer = Trainer(config())
    rollback = trainer.setup.get(Rollback)
    assert rollback is not None
    rollback.guard.config = settings.replace(rollback.guard.config, {"checkpoints_back": 2})
    api.start_from(trainer, made)
    (stored,) = rollback.guard.rolling
    assert stored["roles"]["player"]["weights"].tobytes() == made["player"].weights.tobytes()


def written(path: Path, shape: NetworkConfig, **role_spec: Any) -> Path:
    """A policy of the lattice pursuer with changed metadata."""
    base = api.default("lattice")
    role = registry.find("lattice").make(base.world, 1, 0, 0).spec.roles["pursuer"]
    policy = Policy(role, shape, "x")
    policy.initialise(1)
    return policy_files.write_file(
        path, policy.arrays(), past_policies.policy_metadata(base, policy, 3) | role_spec, replace=True
    )


def test_odd_metadata(tmp_path: Path) -> None:
    path, plain = tmp_path / "x.safetensors", NetworkConfig(hidden=(4,))
    assert policy_export.read(written(path, plain)).iteration == 3
    with pytest.raises(ConfigError, match=r"a policy for role '\[\]'"):
        policy_export.read(written(path, plain, role=[]))
    with pytest.raises(ConfigError, match="a value network of lookahead"):
        policy_export.read(written(path, plain, learner="lookahead"))
    assert policy_export.read(path, values=True).policy.role.name == "pursuer"
    small = NetworkConfig(kind="transformer", width=8, heads=2, layers=1, embedding=4)
    on_gpu = settings.tree(small) | {"device": "cuda"}
    assert policy_export.read(written(path, small, network=on_gpu)).policy.config.device == "cpu"


def test_number_of_workers_is_no_rule_of_the_game(dqn_run: Path, tmp_path: Path) -> None:
    (made,) = export(dqn_run, tmp_path / "agent").policies
    other_config = settings.replace(api.load(dqn_run).config, {"world.workers": 1})
    assert list(policy_export.initial_policies(made, other_config)) == ["joypad"]
    with pytest.raises(ConfigError, match=r"world.max_steps is 40 in the policy and 50 in the run"):
        policy_export.initial_policies(made, settings.replace(other_config, {"world.max_steps": 50}))


def test_eval_prints_a_scoreboard_where_deals_are_mirrored(
    run: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: `rematch eval` of a card game ended in a traceback."""
    for path, after in ((run, "Scoreboard after 1.15 K steps"), (file, "Scoreboard after 1.15 K steps")):
        assert main.main(["eval", str(path), "--games", "8", "--against", "random", "--greedy"]) == 0
        output = capsys.readouterr().out
        assert output.startswith(after) and ") was played from every seat" in output
        assert "Verdict: " in output


def test_policy_of_a_renamed_game_is_read(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    config = settings.replace(api.default("gymnasium"), {"network.hidden": (8,)})
    role = registry.find("gymnasium").spec(config.world).roles["player"]
    policy = Policy(role, config.network, "player")
    earlier = {"game": "gym"}  # as a run of an earlier version stored it
    stored = past_policies.policy_metadata(config, policy, 3) | earlier
    path = policy_files.write_file(tmp_path / "mine.safetensors", policy.arrays(), stored, replace=False)
    exported = policy_export.read(path)
    assert exported.game == "gymnasium" and exported.world == config.world
