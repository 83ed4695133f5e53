"""Stop requests inside long operations, and checkpoints by the clock: little is lost, no byte differs."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from support import single_seat_worlds, toys
from support.trainers import resume_run, start_run

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.run_config import Config
from rematch.core.system import interrupts
from rematch.core.system.interrupts import StopRequest, StopRequested
from rematch.evaluation import payoff_matrix
from rematch.evaluation.evaluator import EvaluationConfig, limited_games
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.past_policies import PastPolicies
from rematch.rehearsal.compare import differences
from rematch.reporting import match_film, run_outputs
from rematch.reporting.console import Console
from rematch.storage.checkpoint import RECENT, TEMPORARY
from rematch.storage.run_folder import Run
from rematch.training import run_log
from rematch.training.components.evaluator import Evaluator
from rematch.training.response_training import Response
from rematch.training.trainer import Trainer
from rematch.worlds import conformance, registry

GAMES, STEPS, EVALUATED = 16, 8, 7
# Slow steps, 0.1 s each, within which a stop request is honoured. They are counted, because all that follows
# takes longer on a busy machine.
MOST_STEPS = 20


class Slow(toys.Matching):
    """Matching pennies whose steps become slow: at the first slow step the process gets a signal."""

    slow_games: ClassVar[int | None] = None  # worlds with this number of games are slow; None: none
    skip: ClassVar[int] = 0  # steps of such worlds before the first slow one
    number: ClassVar[int] = signal.SIGTERM
    steps: ClassVar[int | None] = None  # slow steps since the signal; None: there was none yet

    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        kind = Slow
        if self.games != kind.slow_games:
            return
        kind.skip -= 1
        if kind.skip >= 0:
            return
        if kind.steps is None:
            kind.steps = 0
            os.kill(os.getpid(), kind.number)
        time.sleep(0.1)
        kind.steps += 1


BOTS = {"heads": lambda seat, uniform: np.zeros(len(uniform), np.int64),
        "random": lambda seat, uniform: (uniform >= 0.5).astype(np.int64)}  # fmt: skip


@pytest.fixture(autouse=True)
def slow_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    find, world = registry.find, toys.game(Slow, toys.MatchingConfig, BOTS, ("matcher", "hider"))
    games = toys.TOYS | {"slow": world}
    monkeypatch.setattr(registry, "find", lambda name: games[name] if name in games else find(name))
    monkeypatch.setattr(conformance, "check_user_game", lambda game, config: [])  # steps one game
    monkeypatch.setattr(interrupts, "GRACE", 0.3)
    monkeypatch.setattr(run_log, "SAVE_SHARE", math.inf)  # the saves of these runs are as long as iterations
    monkeypatch.setattr(run_outputs, "make", lambda trainer, run, missing: {})  # pictures take seconds
    make_fast()
    yield
    make_fast()


def make_fast() -> None:
    Slow.slow_games, Slow.skip, Slow.steps = None, 0, None
    Slow.number = signal.SIGTERM


def config_of(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "threads": 1, "games": GAMES, "steps": STEPS, "total_steps": GAMES * STEPS * 6,
        "network.hidden": (8,), "ppo.minibatch_size": 64, "league.opponent_share": 0.0,
        "evaluation.every": 3, "save_every": 100,
        "evaluation.games": EVALUATED, "world.rounds": 100, "past_policies.count": 0,
    }  # fmt: skip
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("slow"), values)


def checkpoint_of(folder: Path) -> Any:
    with Run.open(folder, write=False) as run:
        return run.load()


def check_stopped_and_resumed(config: Config, place: Path, history: list[int], at: int) -> str:
    """Train a run that is slow and signalled, resume it, compare it; returns the console output.

    `history`: iterations of its evaluations at the stop; at: iteration of its newest checkpoint, 0: none.
    """
    stream = io.StringIO()
    console = Console(stream, live=False)
    api.train(config, folder=place / "cut", console=console)
    assert Slow.steps is not None, "the run was never slow"
    assert Slow.steps <= MOST_STEPS
    rows = json.loads((place / "cut" / "history.json").read_text())
    assert [row["iteration"] for row in rows] == history
    checkpoint = checkpoint_of(place / "cut")
    assert (checkpoint.iteration if checkpoint else 0) == at
    make_fast()
    assert f"stopped ({'SIGTERM'})" in stream.getvalue()
    api.resume(place / "cut")
    api.train(config, folder=place / "whole")
    assert differences(place / "whole", place / "cut") == []
    return stream.getvalue()


def test_stop_request_ends_an_evaluation_which_is_pending(tmp_path: Path) -> None:
    Slow.slow_games, Slow.skip = EVALUATED, 10
    check_stopped_and_resumed(config_of(), tmp_path, history=[], at=3)


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_stop_request_ends_the_final_evaluation_which_is_pending(average: float, tmp_path: Path) -> None:
    """The average of the last weights is taken before the evaluation, once."""
    Slow.slow_games, Slow.skip = EVALUATED, 110
    config = config_of(evaluation__every=1000, ppo__average_fraction=average)
    check_stopped_and_resumed(config, tmp_path, history=[], at=6)


def test_stop_request_ends_the_rollout_and_the_first_games(tmp_path: Path) -> None:
    Slow.slow_games, Slow.skip = GAMES, 5
    text = check_stopped_and_resumed(config_of(stagger=64), tmp_path / "first", history=[], at=0)
    assert "repeats what follows iteration 0" in text
    Slow.slow_games, Slow.skip = GAMES, 4 * STEPS + 3
    text = check_stopped_and_resumed(config_of(), tmp_path / "rollout", history=[3], at=3)
    assert "repeats what follows iteration 3" in text


@pytest.mark.slow
def test_stop_request_ends_the_training_of_an_exploiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(league__opponent_share=0.5, league__snapshot_every=1, exploiters__every=2,
                       exploiters__steps=GAMES * STEPS * 20, evaluation__every=1)  # fmt: skip
    train = Response.train

    def slow_training(response: Response) -> None:
        if Slow.skip < 0:
            Slow.slow_games, Slow.skip = GAMES, 0
        train(response)

    monkeypatch.setattr(Response, "train", slow_training)
    Slow.skip = -1
    check_stopped_and_resumed(config, tmp_path, history=[1], at=1)


def test_stop_request_ends_the_matches_that_follow_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balanced pair is compared with the best bots when some components have recorded the evaluation."""
    config = config_of(schedule__convergence_consecutive=1, schedule__eta=1.0, evaluation__every=2,
                       world__heads=1.0)  # fmt: skip
    attach = Evaluator._attach_best_bots

    def slow_matches(evaluator: Evaluator, row: dict[str, Any]) -> None:
        if Slow.skip < 0:
            Slow.slow_games, Slow.skip = EVALUATED, 0
        attach(evaluator, row)

    monkeypatch.setattr(Evaluator, "_attach_best_bots", slow_matches)
    Slow.skip = -1
    text = check_stopped_and_resumed(config, tmp_path, history=[], at=0)
    assert "repeats what follows iteration 0" in text


def test_stop_request_ends_the_film_of_a_complete_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(replays__games=0)

    def make(trainer: Trainer, run: Run, missing: bool) -> dict[str, Path]:
        film, _ = match_film.film(run_outputs._match(trainer), before_step=trainer.setup.check_stop)
        return {"film": run.write_file("match.gif", film)}

    monkeypatch.setattr(run_outputs, "make", make)
    Slow.slow_games = 1
    Slow.skip = 5
    stream = io.StringIO()
    api.train(config, folder=tmp_path / "run", console=Console(stream, live=False))
    assert Slow.steps is not None and Slow.steps <= MOST_STEPS
    assert "complete and saved; write the missing files with" in stream.getvalue()
    assert not (tmp_path / "run" / "match.gif").exists()
    make_fast()
    api.resume(tmp_path / "run")
    assert (tmp_path / "run" / "match.gif").exists()


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_payoff_matrix(threads: int) -> None:
    """`rematch report` and `rematch eval` raise KeyboardInterrupt; threads must not play their games on."""
    config = config_of()
    trainer = Trainer(config)
    past = [PastPolicies(iteration=i, step=i, players=dict(trainer.agents.players)) for i in (1, 2, 3)]
    Slow.slow_games, Slow.number = EVALUATED if threads == 1 else EVALUATED // 2, signal.SIGINT
    board = Scoreboard(trainer.setup.make_world, 0, threads)
    with pytest.raises(KeyboardInterrupt):
        payoff_matrix.play(board, past, EVALUATED, lambda line: None)
    assert Slow.steps is not None and Slow.steps <= MOST_STEPS


def test_stop_request_raises_after_its_grace_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now))
    with StopRequest(None) as stop:
        stop.check()
        os.kill(os.getpid(), signal.SIGTERM)
        now += interrupts.GRACE
        stop.check()
        now += 0.01
        with pytest.raises(StopRequested, match="SIGTERM"):
            stop.check()
    with StopRequest(0.0) as stop:
        assert stop()
        stop.check()
        now += interrupts.GRACE + 0.01
        with pytest.raises(StopRequested, match="time"):
            stop.check()


# --- checkpoints by the clock ---------------------------------------------------------------------------


def test_every_evaluation_is_followed_by_a_checkpoint(tmp_path: Path) -> None:
    config = config_of(world__rounds=5, total_steps=GAMES * STEPS * 20)
    start_run(tmp_path / "run", config, lambda trainer: False)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["iter_00000015", "iter_00000018", "iter_00000020"]
    with Run.open(tmp_path / "run", write=False) as run:
        checkpoint = run.load()
    assert checkpoint is not None and checkpoint.manifest.keep == RECENT


@pytest.mark.parametrize("iterations", [{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 6, 8, 9}])
def test_files_of_a_run_do_not_depend_on_checkpoints_by_the_clock(
    iterations: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow machines save at other iterations than fast ones."""
    config = config_of(world__rounds=5, evaluation__every=4, total_steps=GAMES * STEPS * 10, save_every=7)
    start_run(tmp_path / "undisturbed", config)
    saved: list[str] = []

    def note_checkpoint(trainer: Trainer) -> bool:
        if trainer.clock.iteration == 7:
            saved.extend(path.name for path in (tmp_path / "slow" / "checkpoints").iterdir())
        return False

    monkeypatch.setattr(Trainer, "save_due", lambda trainer: trainer.clock.iteration in iterations)
    start_run(tmp_path / "slow", config, note_checkpoint)
    assert "iter_00000006" in saved
    assert differences(tmp_path / "undisturbed", tmp_path / "slow") == []


def test_clock_checkpoint_is_temporary_and_resumes_exactly(tmp_path: Path) -> None:
    config = config_of(world__rounds=5, evaluation__every=1000, save_seconds=1e-9)

    class Killed(BaseException):
        """Ends the process's part in a run without a save, as SIGKILL does."""

    def kill(trainer: Trainer) -> bool:
        if trainer.clock.iteration == 5:
            raise Killed
        return False

    with pytest.raises(Killed):
        start_run(tmp_path / "cut", config, kill)
    checkpoint = checkpoint_of(tmp_path / "cut")
    assert checkpoint.iteration == 4 and checkpoint.manifest.keep == TEMPORARY
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == ["iter_00000004"]
    resume_run(tmp_path / "cut")
    start_run(tmp_path / "whole", config)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_long_saves_are_rarer_than_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "SAVE_SHARE", 0.05)
    log = run_log.RunLog()
    assert not log.save_due(1e-9), "a trial without a folder"
    log.saved_at = time.monotonic() - 100
    assert log.save_due(60) and not log.save_due(200) and not log.save_due(0)
    log.save_seconds = 6.0
    assert not log.save_due(60)


def test_run_killed_in_a_long_evaluation_loses_no_iteration(tmp_path: Path) -> None:
    config = config_of(world__rounds=5, evaluation__every=1000, save_seconds=1e-9)

    class Killed(BaseException):
        """As SIGKILL in the last evaluation."""

    trainer = Trainer(config)

    def killed(text: str) -> None:
        raise Killed

    trainer.log.activity = killed  # type: ignore[method-assign]
    from rematch.rehearsal.trial import Recorder
    from rematch.training.loop import train

    with Run.create(tmp_path / "cut", settings.to_yaml(config)) as run, pytest.raises(Killed):
        trainer.bind(run, Recorder(trainer))
        trainer.start()
        train(trainer, lambda: False)
    assert checkpoint_of(tmp_path / "cut").iteration == 6
    resumed = resume_run(tmp_path / "cut")
    assert resumed.trainer.clock.done and len(resumed.rows) == 0, "no iteration is repeated"
    start_run(tmp_path / "whole", config)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


# --- the console ----------------------------------------------------------------------------------------


def test_ctrl_c_is_answered_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Slow.slow_games, Slow.skip, Slow.number = EVALUATED, 10, signal.SIGINT
    answers: list[int | None] = []
    notice = Console.notice

    class Listening(Console):
        def notice(self, text: str) -> None:
            answers.append(Slow.steps)
            notice(self, text)

    api.train(config_of(), folder=tmp_path / "run", console=Listening(io.StringIO(), live=False))
    assert answers[0] in (0, 1), "within a step of a tenth of a second"
    assert "saving; press Ctrl-C again to stop without saving" in capfd.readouterr().err


def test_long_evaluation_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rematch.reporting import console

    monkeypatch.setattr(console, "ACTIVITY_SECONDS", 0.0)
    stream = io.StringIO()
    api.train(config_of(world__rounds=30), folder=tmp_path / "run", console=Console(stream, live=False))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("evaluation: ")]
    assert any("matcher" in line and f"step 29, 0 of {EVALUATED} games finished" in line for line in lines)
    assert not any(line.startswith("evaluation: ") for line in (tmp_path / "run" / "train.log").open())


# --- the limit of an evaluation -------------------------------------------------------------------------


def test_evaluation_beyond_its_limit_counts_unfinished_games_and_says_so(tmp_path: Path) -> None:
    config = config_of(evaluation__max_steps=EVALUATED * 20)
    api.train(config, folder=tmp_path / "run")
    row = json.loads((tmp_path / "run" / "history.json").read_text())[-1]
    assert row["step_limit"] == EVALUATED * 20
    assert all(entry["unfinished"] == EVALUATED and entry["length"] == 20 for entry in row["table"])
    assert all(entry["score"] == 0.5 for entry in row["table"]), "a game without a result is half a point"
    assert row["rates"]["matcher"]["unfinished"] == EVALUATED
    log = (tmp_path / "run" / "train.log").read_text()
    assert f"of {EVALUATED} games ({EVALUATED} unfinished)" in log
    assert f"Eval limit: {EVALUATED * 20} steps of all games of a match (evaluation.max_steps)" in log


def test_game_boy_evaluation_plays_as_many_whole_games_as_its_limit_allows() -> None:
    game, world = registry.find("gameboy"), registry.find("gameboy").Config()
    assert limited_games(EvaluationConfig(), game, world) == (32, 131_072)
    assert limited_games(EvaluationConfig(games=20), game, world) == (20, 131_072)
    small = api.configure("small")
    assert limited_games(small.evaluation, game, small.world)[0] == 100
    assert limited_games(EvaluationConfig(max_steps=1), game, world) == (1, 4096), "one whole game at least"


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, {2, 5, 9, 13}])
def test_replay_chunks_do_not_depend_on_checkpoints_by_the_clock(
    iterations: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find", single_seat_worlds.known(registry.find))
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)
    config = settings.replace(single_seat_worlds.small(), single_seat_worlds.KILLED)
    start_run(tmp_path / "undisturbed", config)
    assert any((tmp_path / "undisturbed" / "chunks").iterdir())
    monkeypatch.setattr(Trainer, "save_due", lambda trainer: trainer.clock.iteration in iterations)
    start_run(tmp_path / "slow", config)
    assert differences(tmp_path / "undisturbed", tmp_path / "slow") == []
