"""A component that raises in a hook: the last whole iteration is saved, and the run can be resumed."""

from __future__ import annotations

import contextlib
import gc
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.emulated_training import TINY, emulated_gpu, emulated_training
from support.local_players import LocalPlayers, local_place
from support.single_seat_worlds import SIZES

from rematch import api
from rematch.agents.learners import dqn
from rematch.cluster.place import RemotePlace
from rematch.cluster.request import ClusterRequest
from rematch.core.component import ComponentError
from rematch.core.errors import LearnError
from rematch.core.system import user_code
from rematch.rehearsal.compare import differences
from rematch.reporting.status import status
from rematch.storage.run_folder import Run
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer

__all__ = ["emulated_gpu", "emulated_training"]
FAILING = '''
from dataclasses import dataclass
from pathlib import Path

from rematch.core.component import Component
from rematch.core.config import knob

SWITCH = Path(__file__).with_suffix(".txt")  # "HOOK ITERATION": where it raises


class Failing(Component):
    """Changes its state in every hook, before that hook may raise."""

    name = "failing"

    @dataclass(frozen=True)
    class Config:
        """Counts its hooks."""

        scale: float = knob(1.0, "factor of the count", low=0)

    def __init__(self, config, setup):
        super().__init__(config, setup)
        self.count = self.iteration = 0

    def _hook(self, hook, clock=None):
        self.count += 1
        if clock is not None:
            self.iteration = clock.iteration
        words = SWITCH.read_text().split() if SWITCH.exists() else []
        if words and words[0] == hook and self.iteration >= int(words[1]):
            {"OSError": open}.get(words[-1], int)("no such file or number")

    def before_rollout(self, clock, next): self._hook("before_rollout", clock)
    def after_rollout(self, rollout, clock): self._hook("after_rollout", clock)
    def update(self, rollout, clock): return self._hook("update", clock) or {}
    def after_update(self, rollout, metrics, clock): self._hook("after_update", clock)
    def metrics(self): return self._hook("metrics") or {"count": self.count * self.config.scale}
    def requests(self, clock): return self._hook("requests", clock) or ()
    def evaluation_fields(self, clock): return self._hook("evaluation_fields", clock) or {}
    def evaluate(self, clock, fields, last): return self._hook("evaluate", clock) or ()
    def after_evaluation(self, evaluation, rollout, clock): self._hook("after_evaluation", clock)
    def end_iteration(self, clock): self._hook("end_iteration", clock)
    def finish(self, clock): self._hook("finish", clock)

    def before_checkpoint(self, clock):  # the state may not depend on how often it is saved
        count = self.count
        self._hook("before_checkpoint", clock)
        self.count = count

    def state_dict(self):
        count = self.count
        self._hook("state_dict")
        self.count = count
        return {"count": count, "iteration": self.iteration}

    def load_state_dict(self, tree):
        self.count, self.iteration = tree["count"], tree["iteration"]
'''
HOOKS = ["before_rollout", "after_rollout", "update", "after_update", "metrics", "requests",
         "evaluation_fields", "evaluate", "after_evaluation", "end_iteration", "before_checkpoint",
         "state_dict"]  # fmt: skip
CASES = [*[("ppo", hook) for hook in HOOKS],
         *[("dqn", hook) for hook in HOOKS if hook not in ("requests", "metrics", "evaluation_fields")]]
BEFORE_COUNTING = HOOKS[:3]  # in these the clock does not yet count the iteration
PPO: dict[str, Any] = {
    "games": 8, "steps": 8, "total_steps": 8 * 8 * 7, "save_every": 100, "save_seconds": 0,
    "evaluation.games": 2, "evaluation.every": 3, "evaluation.opponents": ["random"], "world.max_steps": 20,
    "world.prep_steps": 0, "network.hidden": [8],
}  # fmt: skip
DQN: dict[str, Any] = {
    "learner": "dqn", "games": 4, "steps": 16, "total_steps": 4 * 16 * 7, "save_every": 100,
    "save_seconds": 0, "dqn.sequence": 8, "dqn.burn_in": 2, "dqn.batch": 4, "dqn.replay_size": 4 * 120,
    "dqn.warmup": 64, "evaluation.games": 2, "evaluation.every": 3,
}  # fmt: skip
RUNS = {"ppo": ("quick", PPO), "dqn": ("gym", DQN)}


class FailingRuns:
    """Runs with the component above in one folder, and the undisturbed run of each learner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file, self.switch = folder / "failing.py", folder / "failing.txt"
        self.file.write_text(FAILING)

    def config(self, learner: str, **changes: Any) -> Any:
        recipe, small = RUNS[learner]
        return configure(recipe, changes=small | changes | {"components": [f"{self.file}:Failing"]})

    def whole(self, learner: str) -> Path:
        folder = self.folder / f"whole-{learner}"
        if not folder.exists():
            api.train(self.config(learner), folder=folder)
        return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingRuns]:
    with user_code.nothing_allowed():
        yield FailingRuns(tmp_path_factory.mktemp("failing"))


@pytest.fixture(autouse=True)
def small_runs_without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    monkeypatch.setattr(api, "finish", lambda *_, **__: None)


def newest(folder: Path) -> int:
    with Run.open(folder, write=False) as run:
        return max(run.checkpoint_iterations(), default=0)


@pytest.mark.parametrize(("learner", "hook"), CASES)
def test_last_whole_iteration_is_saved(learner: str, hook: str, runs: FailingRuns, tmp_path: Path) -> None:
    """In iteration 6, whose evaluation is due, 3 after the newest checkpoint: 5 is saved, the run resumes."""
    whole = runs.whole(learner)
    runs.switch.write_text(f"{hook} {5 if hook in BEFORE_COUNTING else 6}")
    with pytest.raises(ComponentError) as caught:
        api.train(runs.config(learner), folder=tmp_path / "run")
    runs.switch.unlink()
    why = rf"component failing failed in {hook}: ValueError: .* \(failing.py line \d+, in _hook\)"
    assert re.fullmatch(f"{why}; the run can be resumed", str(caught.value))
    assert newest(tmp_path / "run") == 5
    assert api.resume(tmp_path / "run").folder == tmp_path / "run"
    assert differences(whole, tmp_path / "run") == []


def test_last_whole_iteration_is_saved_while_the_next_rollout_is_played(
    runs: FailingRuns, tmp_path: Path
) -> None:
    config = runs.config("ppo", lag=1)
    api.train(config, folder=tmp_path / "whole")
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError):
        api.train(config, folder=tmp_path / "run")
    runs.switch.unlink()
    assert newest(tmp_path / "run") == 5
    api.resume(tmp_path / "run")
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_last_whole_iteration_is_saved_where_a_cluster_plays_the_games(
    runs: FailingRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three players, each lost at a fifth of its messages, also while iterations are trained again."""
    made: list[LocalPlayers] = []

    @contextlib.contextmanager
    def local_cluster(request: ClusterRequest | None) -> Iterator[RemotePlace | None]:
        yield local_place(3, 0.2, made) if request is not None else None

    monkeypatch.setattr(api, "place_of", local_cluster)
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError, match="component failing failed in after_update"):
        api.train(runs.config("ppo"), folder=tmp_path / "run", cluster=ClusterRequest("ray"))
    runs.switch.unlink()
    assert newest(tmp_path / "run") == 5
    assert len(made) == 2 and all(players.lost for players in made)
    api.resume(tmp_path / "run", cluster=ClusterRequest("ray"))
    assert len(made) == 3 and differences(runs.whole("ppo"), tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
def test_last_whole_iteration_is_saved_on_a_gpu(
    runs: FailingRuns, tmp_path: Path, emulated_training: None
) -> None:
    """In an emulation of the GPU; the state of learners and games is copied from there."""
    changes = TINY | {"save_every": 100, "save_seconds": 0, "components": f"{runs.file}:Failing"}
    config = configure("pursuit", flags=[f"--{key}={value}" for key, value in changes.items()])
    api.train(config, folder=tmp_path / "whole")
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError, match="component failing failed in after_update"):
        api.train(config, folder=tmp_path / "run")
    runs.switch.unlink()
    assert newest(tmp_path / "run") == 5
    api.resume(tmp_path / "run")
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_failure_in_the_first_iterations_saves_from_the_beginning(runs: FailingRuns, tmp_path: Path) -> None:
    runs.switch.write_text("after_update 3")
    with pytest.raises(ComponentError):
        api.train(runs.config("ppo"), folder=tmp_path / "run")
    assert newest(tmp_path / "run") == 2
    with pytest.raises(ComponentError):  # it fails again, in the first iteration: nothing new to save
        api.resume(tmp_path / "run")
    assert newest(tmp_path / "run") == 2
    runs.switch.unlink()
    api.resume(tmp_path / "run")
    assert differences(runs.whole("ppo"), tmp_path / "run") == []


def test_component_that_fails_again_keeps_what_was_reached(
    runs: FailingRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While iterations 4 and 5 are trained again, another hook fails in 5: then 4 is saved."""
    train_again, lasts = api._train_again, []

    def failing_earlier(folder: Path, last: int, *rest: Any) -> None:
        lasts.append(last)
        assert not [thing for thing in gc.get_objects() if type(thing) is Trainer], "its memory is free"
        runs.switch.write_text("after_rollout 4")
        train_again(folder, last, *rest)

    monkeypatch.setattr(api, "_train_again", failing_earlier)
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError, match="failed in after_update"):
        api.train(runs.config("ppo"), folder=tmp_path / "run")
    runs.switch.unlink()
    assert lasts == [5, 4] and newest(tmp_path / "run") == 4
    api.resume(tmp_path / "run")
    assert differences(runs.whole("ppo"), tmp_path / "run") == []


def test_failure_to_save_leaves_the_error_and_the_newest_checkpoint(
    runs: FailingRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(api, "_train_again", full_disk)
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError, match="failed in after_update"):
        api.train(runs.config("ppo"), folder=tmp_path / "run")
    runs.switch.unlink()
    assert newest(tmp_path / "run") == 3
    api.resume(tmp_path / "run")
    assert differences(runs.whole("ppo"), tmp_path / "run") == []


def test_system_error_in_own_component_is_named(runs: FailingRuns, tmp_path: Path) -> None:
    """An OSError of Rematch has a clear message; one of the user's file needs component, hook and line."""
    runs.switch.write_text("requests 1 OSError")
    why = r"component failing failed in requests: FileNotFoundError: .* \(failing.py line \d+, in _hook\)"
    with pytest.raises(ComponentError, match=why):
        api.train(runs.config("ppo"), folder=tmp_path / "run")
    runs.switch.unlink()


def test_status_names_the_failure_after_its_iteration_was_saved(runs: FailingRuns, tmp_path: Path) -> None:
    runs.switch.write_text("after_update 6")
    with pytest.raises(ComponentError):
        api.train(runs.config("ppo"), folder=tmp_path / "run")
    runs.switch.unlink()
    facts = status(tmp_path / "run")
    assert facts["last_event"] == "failed" and "failing failed in after_update" in str(facts["alarms"])


def test_learner_that_fails_saves_the_last_whole_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are not finite end a run as a component does."""
    from rematch.agents.learners.ppo import Ppo

    learn = Ppo.learn

    def poisoned(self: Ppo, rollout: Any, progress: float, iteration: int) -> dict[str, float]:
        metrics = learn(self, rollout, progress, iteration)
        if iteration == 5:
            raise LearnError("the weights of pursuer are not finite")
        return metrics

    api.train(configure("quick", changes=PPO), folder=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Ppo, "learn", poisoned)
        with pytest.raises(LearnError):
            api.train(configure("quick", changes=PPO), folder=tmp_path / "run")
    assert newest(tmp_path / "run") == 5
    api.resume(tmp_path / "run")
    assert differences(tmp_path / "whole", tmp_path / "run") == []
