"""The training loop at small scale: it learns, equally with any number of threads; stops; saves no NaN."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import toys
from support.stop_and_resume import stop_and_go_on
from support.trainers import resume_run, start_run

from rematch import api
from rematch.agents.learners.adam import Adam
from rematch.agents.learners.ppo import Ppo
from rematch.agents.policy import Policy
from rematch.cli import main
from rematch.core import config as settings
from rematch.core.component import ComponentError
from rematch.core.errors import ConfigError, LearnError
from rematch.core.recording import EpisodeRecording
from rematch.core.run_config import Config
from rematch.rehearsal.compare import differences, event_log
from rematch.rehearsal.trial import Recorder, play
from rematch.storage.checkpoint import TEMPORARY
from rematch.storage.run_folder import Run
from rematch.training.components.observation_summary import ObservationSummary, shortened
from rematch.training.loop import train
from rematch.training.trainer import Trainer
from rematch.worlds import registry


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys of tests/support/toys.py beside the real worlds."""
    names, find = registry.names, registry.find
    monkeypatch.setattr(registry, "names", lambda: [*names(), *toys.TOYS])
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


def small(game: str, **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 128, "steps": 16, "network.hidden": (32,), "ppo.minibatch_size": 512,
        "ppo.lr": 3e-3, "league.opponent_share": 0.0, "evaluation.every": 1000, "evaluation.games": 200,
    }
    tiny |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default(game), {"total_steps": 30 * tiny["games"] * tiny["steps"]} | tiny)


def scores(config: Config, folder: Path) -> dict[str, float]:
    """role/opponent -> score of the run's last evaluation."""
    row = play(config, folder).evaluations[-1]
    return {f"{entry['role']}/{entry['rival']}": entry["score"] for entry in row["table"]}


def test_run_learns_to_beat_an_opponent_and_its_control_does_not(tmp_path: Path) -> None:
    """Against an opponent that always shows heads, the matcher should show heads and the hider tails."""
    shared = {"league__opponent_share": 1.0, "league__bots": ("heads",), "league__bot_share": 1.0}
    learnt = scores(small("matching", **shared), tmp_path / "learnt")
    control = scores(small("matching", **shared, ppo__lr=0.0, ppo__anneal="none"), tmp_path / "control")
    for pairing in ("matcher/heads", "hider/heads"):
        assert learnt[pairing] > 0.95 and control[pairing] < 0.9, (pairing, learnt, control)
        assert learnt[pairing] > control[pairing] + 0.1


def test_averaged_weights_are_evaluated_and_stored(tmp_path: Path) -> None:
    config = small("matching", total_steps=128 * 16 * 10, ppo__average_fraction=0.7)
    seen = play(config, tmp_path / "run")
    for role, learner in seen.trainer.agents.learners.items():
        assert isinstance(learner, Ppo) and learner.averaged == 7  # of ten iterations
        assert np.array_equal(learner.policy.weights, learner.mean)
        summary = f"Average: {role} is the mean of its last 7 iterations"
        assert summary in (tmp_path / "run" / "train.log").read_text()
    with Run.open(tmp_path / "run", write=False) as run:
        stored = run.load()
    assert stored is not None and np.array_equal(
        stored.parts["learners"]["matcher"]["weights"], seen.trainer.agents.players["matcher"].weights
    )
    without = play(settings.replace(config, {"ppo.average_fraction": 0.0}), tmp_path / "without")
    assert not np.array_equal(
        without.trainer.agents.players["matcher"].weights, seen.trainer.agents.players["matcher"].weights
    )
    with pytest.raises(ConfigError, match=r"ppo\.average_fraction = 0\.7: convergence is judged on the"):
        settings.replace(config, {"schedule.convergence_consecutive": 2})


def test_run_learns_in_a_world_with_truncation(tmp_path: Path) -> None:
    """`drift`, one role with continuous actions: reach the shore against a wind that is not observed."""
    learnt = play(small("drift"), tmp_path / "learnt").rows
    control = play(small("drift", ppo__lr=0.0, ppo__anneal="none"), tmp_path / "control").rows

    def wins(rows: list[dict[str, Any]]) -> float:
        return float(np.mean([row["rollout/win_rafter"] for row in rows[-5:]]))

    assert wins(learnt) > 0.9 and wins(learnt) > wins(control) + 0.2


@pytest.mark.parametrize("game", ["pursuit", "matching", "sticks", "drift"])
def test_threads_never_change_a_run(game: str) -> None:
    shared: dict[str, Any] = {"games": 37, "total_steps": 37 * 16 * 4, "evaluation__games": 7}
    shared |= {"evaluation__every": 2, "league__opponent_share": 0.5, "league__snapshot_every": 1}
    shared |= {"league__rotate": 1}
    if game == "pursuit":
        shared |= {"world__max_steps": 12, "evaluation__opponents": ("random",), "league__bots": ("lion",)}
    assert len({event_log(small(game, threads=threads, **shared)) for threads in (1, 2, 3)}) == 1


# --- where games begin ------------------------------------------------------------------------------------


def board(**changes: Any) -> Config:
    return small("lattice", world__n=7, world__horizon=5, games=2000, total_steps=2000 * 16 * 3, **changes)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_random_starts_have_their_fraction_of_the_games(share: float) -> None:
    trainer = Trainer(board(random_starts__fraction=share))
    setup, clock = trainer.setup, trainer.clock
    place = setup.spec.stage.index("anywhere")
    seen = []
    for clock.iteration in range(3):
        trainer.before_rollout()
        seen.append(setup.world.next.stage[:, place].copy())
        trainer.before_rollout()  # drawn by the iteration's number: the same again
        assert np.array_equal(setup.world.next.stage[:, place], seen[-1])
        assert set(np.unique(seen[-1])) <= {0.0, 1.0} and seen[-1].mean() == pytest.approx(share, abs=0.05)
    if 0 < share < 1:
        assert not np.array_equal(seen[0], seen[1])
    world = setup.make_world(50, 0, 1)  # evaluations keep the game's own starts
    assert not world.next.stage[:, place].any()


def test_random_starts_are_refused_where_the_world_has_none() -> None:
    for game in ("pursuit", "drift"):
        why = f"random_starts.fraction = 0.5: {game} cannot start from a random state; expected 0"
        with pytest.raises(ConfigError, match=why):
            small(game, random_starts__fraction=0.5)


# --- stopping ---------------------------------------------------------------------------------------------


class Interrupting:
    """A display that sends Ctrl-C while it shows progress."""

    def __init__(self, at: int, number: int) -> None:
        self.at, self.number, self.seen = at, number, 0

    def line(self, text: str) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def activity(self, text: str) -> None: ...

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        return {}

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), self.number)


def started(config: Config, run: Run, display: Interrupting | None = None) -> Trainer:
    trainer = Trainer(config)
    trainer.bind(run, display or Recorder(trainer))
    trainer.start()
    return trainer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_iteration_saves_and_stops(number: int, tmp_path: Path) -> None:
    config = small("matching", total_steps=128 * 16 * 8, save_every=100)
    before = signal.getsignal(number)
    with Run.create(tmp_path / "run", settings.to_yaml(config)) as run, api.StopRequest(None) as stop:
        assert not stop() and not train(started(config, run, Interrupting(3, number)), stop)
        assert stop.reason == signal.Signals(number).name
        checkpoint = run.load()
        assert checkpoint is not None and checkpoint.manifest.iteration == 3
        assert checkpoint.manifest.keep == TEMPORARY
    assert signal.getsignal(number) is before  # nothing stays behind


@pytest.mark.parametrize("save_every", [2, 100])
def test_stop_request_skips_pending_evaluation(save_every: int, tmp_path: Path) -> None:
    """Evaluations can take minutes, too long after a SIGTERM. The resumed run starts with it."""
    config = small("matching", total_steps=128 * 16 * 6, save_every=save_every, evaluation__every=2)
    with Run.create(tmp_path / "run", settings.to_yaml(config)) as run:
        trainer = started(config, run)
        assert not train(trainer, lambda: trainer.clock.iteration >= 4)
        assert [row["iteration"] for row in run.history] == [2]
        checkpoint = run.load()
        assert checkpoint is not None and checkpoint.manifest.keep == TEMPORARY
        again = Trainer(config)
        again.load_state_dict(checkpoint.parts)
        run.rewind(checkpoint)
        again.bind(run, Recorder(again))
        again.start(resumed=True)
        assert not train(again, lambda: True), "who is stopped at once comes on, too"
        assert [row["iteration"] for row in run.history] == [2, 4] and not again.clock.evaluation_pending
    stop_and_go_on(config, tmp_path / "cut", 4)
    with Run.create(tmp_path / "whole", settings.to_yaml(config)) as run:
        assert train(started(config, run), lambda: False)
        assert [row["iteration"] for row in run.history] == [2, 4, 6]
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    with api.StopRequest(None) as stop, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        os.kill(os.getpid(), signal.SIGINT)


def test_stop_request_outside_the_main_thread_leaves_signals_unchanged() -> None:
    before, output = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with api.StopRequest(0.0) as stop:
            output.append(stop() and stop.reason == "time" and signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert output == [True]


# --- what is not a number -----------------------------------------------------------------------------------


class Poisoned(toys.Matching):
    """Matching pennies that pays NaN once, in the fifth iteration of 16 steps."""

    steps = 0
    poison = float("nan")

    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.steps += 1
        if self.steps == 16 * 4 + 7:
            self.view.reward[5, 0] = self.poison


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_nan_reward_is_an_error_and_never_saved(
    poison: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bots = {"heads": lambda seat, uniform: np.zeros(len(uniform), np.int64)}
    world = toys.game(Poisoned, toys.MatchingConfig, bots, ("matcher", "hider"))
    monkeypatch.setattr(Poisoned, "poison", poison)
    monkeypatch.setitem(toys.TOYS, "poisoned", world)
    folder = tmp_path / "run"
    flags = ["--games", "32", "--steps", "16", "--total_steps", str(32 * 16 * 9), "--save_every", "1",
             "--threads", "1", "--league.opponent_share", "0", "--network.hidden", "8", "--evaluation.games",
             "10"]
    assert main.main(["train", "poisoned", *flags, "--name", str(folder)]) == 2
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1
    assert all(word in output for word in ("matcher", "reward", "not finite"))
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == [
        "iter_00000002", "iter_00000003", "iter_00000004"]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 4
    assert not any(word in (folder / "metrics.jsonl").read_text() for word in ("NaN", "Infinity"))
    with Run.open(folder, write=False) as run:
        checkpoint = run.load()
        assert checkpoint is not None and checkpoint.manifest.iteration == 4 and not checkpoint.skipped


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("update", [9, 10, 12])
@pytest.mark.parametrize("game", ["pursuit", "matching"])
def test_nan_weight_is_an_error_and_never_saved(
    game: str, update: int, poison: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of the third iteration, of four each, the last among them, leaves one bad weight."""
    plain = Adam.step

    def step(self: Adam, policy: Policy, grad: Any, lr: float, scale: float = 1.0) -> None:
        plain(self, policy, grad, lr, scale)
        if self.updates == update:
            weights = policy.weights.copy()
            weights[0] = poison
            policy.set(weights)

    monkeypatch.setattr(Adam, "step", step)
    config = small(game, games=16, steps=8, total_steps=16 * 8 * 5, save_every=1, ppo__epochs=4)
    with Run.create(tmp_path / "run", settings.to_yaml(config)) as run:
        with pytest.raises(LearnError, match="weights are not finite"):
            train(started(config, run), lambda: False)
        checkpoint = run.load()
    assert checkpoint is not None and checkpoint.manifest.iteration == 2
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_overflow_is_an_error_in_the_same_update(tmp_path: Path) -> None:
    """A learning rate beyond float32: the first iteration must end it, with nothing logged or saved."""
    config = small("matching", games=16, total_steps=16 * 16 * 3, ppo__lr=1e39, ppo__epochs=1, save_every=1)
    with Run.create(tmp_path / "run", settings.to_yaml(config)) as run:
        with pytest.raises(LearnError, match="not finite"):
            train(started(config, run), lambda: False)
        assert run.load() is None and (tmp_path / "run" / "metrics.jsonl").read_bytes() == b""


def test_shortened_has_the_first_and_the_last_of_many_columns() -> None:
    names = [f"ray_{n}" for n in range(41)]
    assert shortened(names[:40]) == names[:40] and shortened(names) == ["ray_0", "...", "ray_40"]


# --- a component that fails -------------------------------------------------------------------------------


def test_component_that_raises_is_named_and_the_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the fifth iteration: four are saved, and the resumed run ends as an undisturbed one."""
    config = small("matching", games=16, total_steps=16 * 16 * 6, save_every=1, evaluation__games=10)
    play(config, tmp_path / "whole")

    after_update = ObservationSummary.after_update

    def broken(self: ObservationSummary, rollout: Any, metrics: Any, clock: Any) -> None:
        after_update(self, rollout, metrics, clock)
        if clock.iteration == 5:
            raise KeyError("no such column")

    with monkeypatch.context() as patch:
        patch.setattr(ObservationSummary, "after_update", broken)
        why = "component observation_summary failed in after_update: KeyError: 'no such column'; the run"
        with pytest.raises(ComponentError, match=why) as caught:
            start_run(tmp_path / "run", config)
    assert "\n" not in str(caught.value)
    assert resume_run(tmp_path / "run").trainer.clock.done
    assert differences(tmp_path / "whole", tmp_path / "run") == []
