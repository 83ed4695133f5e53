"""Rematch from Python: train, resume, load, and the page of the documentation about them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.commands import files
from support.tiny_run import SMALL

import rematch
from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.system import interrupts
from rematch.core.world import World
from rematch.evaluation.match import Scoreboard
from rematch.reporting.console import Console
from rematch.rollout.collector import ThreadCollector
from rematch.storage.run_folder import Run
from rematch.training.components import world_state
from rematch.training.config import ONLY_WARMUP, start_notes
from rematch.training.trainer import Trainer
from rematch.worlds import registry

pytestmark = pytest.mark.usefixtures("blank_pictures")

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> api.Trained:
    return rematch.train("quick", SMALL, folder=tmp_path_factory.mktemp("runs") / "done")


def test_python_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "how_to/python.md").read_text(), re.S)
    assert len(blocks) == 5
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/how_to/python.md", "exec"), space)
    assert (tmp_path / "runs" / "first" / "report.html").exists()


def test_train_is_silent_and_load_reads_its_run(
        trained: api.Trained, capsys: pytest.CaptureFixture[str]) -> None:
    result = rematch.load(trained.folder)
    assert capsys.readouterr() == ("", "")
    assert result.config == trained.config and result.history == trained.history
    assert list(result.policies) == ["pursuer", "evader"]
    for role, policy in result.policies.items():
        assert np.array_equal(policy.weights, trained.policies[role].weights)
        arrays, role_spec = Run.read_policy(trained.folder / "policies" / f"{role}.safetensors")
        assert role_spec["role"] == role and role_spec["iteration"] == 3
        assert all(np.array_equal(arrays[name], value) for name, value in policy.arrays().items())
    for row in result.scoreboard():
        assert row["games"] == 4 and row["low"] <= row["score"] <= row["high"]
    assert result.scoreboard() == trained.scoreboard() != []


def test_loaded_policies_play_as_they_were_trained(trained: api.Trained) -> None:
    pursuit = registry.find("pursuit")

    def results(run: api.Trained) -> list[dict[str, object]]:
        def make(games: int, first: int, seed: int) -> World:
            return pursuit.make(run.config.world, games, first, seed)

        players = [run.policies["pursuer"], pursuit.bot("flee_straight", "evader")]
        return [row.row() for row in Scoreboard(make, 3, 2).results(players, 50, 0)]

    ours, theirs = results(trained)
    assert results(rematch.load(trained.folder)) == [ours, theirs]
    assert ours["games"] == 50
    assert (ours["player"], theirs["player"]) == ("pursuer (learnt)", "flee_straight")


def test_settings_from_python_are_as_strict_as_flags(tmp_path: Path) -> None:
    for changes, word in (
        ({"gamez": 3}, "unknown setting gamez = 3; nearest: game"), ({"games": "many"}, "games = 'many'"),
        ({"games": 2.5}, "games = 2.5: expected a whole"), ({"games": True}, "games = True"),
        ({"world.max_steps": -1}, "world.max_steps = -1"), ({"ppo.lr": float("nan")}, "ppo.lr = nan"),
        ({"league.matchmaking": "uniform", "league.pfsp_power": 3.0}, "has no effect"),
        ({"evaluation.opponents": ["random"] * 3000},
         r"settings of \d+ characters: `resume` could not read them"),
    ):
        with pytest.raises(ConfigError, match=word) as caught:
            rematch.train("quick", changes, folder=tmp_path / "x")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()


def test_existing_run_is_not_overwritten_and_missing_run_not_loaded(trained: api.Trained) -> None:
    before = files(trained.folder)
    with pytest.raises(ConfigError, match="holds a run already"):
        rematch.train("quick", SMALL, folder=trained.folder)
    for call in (rematch.load, rematch.resume):
        with pytest.raises(ConfigError, match=r"no such run; nearest: .*done"):
            call(trained.folder.with_name("dome"))
    assert files(trained.folder) == before


def test_run_stopped_and_resumed_in_a_thread_ends_the_same(trained: api.Trained, tmp_path: Path) -> None:
    """A thread has no signals; time alone stops it."""
    ends: list[api.Trained] = []

    def work() -> None:
        rematch.train("quick", SMALL, folder=tmp_path / "x", minutes=0)
        ends.append(rematch.resume(tmp_path / "x"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ends[0].scoreboard() == trained.scoreboard()
    assert files(tmp_path / "x") == files(trained.folder)


def test_output_redirected_into_the_log_leaves_it_unchanged(trained: api.Trained, tmp_path: Path) -> None:
    """`rematch train ... > runs/x/train.log` must neither fail nor double its lines."""
    code = ("import sys, rematch\nfrom rematch.reporting.console import Console\n"
            "from support.tiny_run import SMALL\n"
            "rematch.train('quick', SMALL, folder=sys.argv[1], console=Console())")
    with open(tmp_path / "train.log", "w") as log:
        path = os.pathsep.join([str(DOCS.parent), str(Path(__file__).parent), os.environ["PYTHONPATH"]])
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, stdout=log,
                       env={"PYTHONPATH": path, "PATH": ""})
    assert files(tmp_path) == files(trained.folder)


def test_failing_console_does_not_stop_a_run(trained: api.Trained, tmp_path: Path) -> None:
    console = Console(live=False)
    console.stream = None  # type: ignore[assignment]
    rematch.train("quick", SMALL, folder=tmp_path / "x", console=console)
    assert files(tmp_path / "x") == files(trained.folder)


def test_run_that_is_all_warmup_has_a_note() -> None:
    """The pursuer would never learn: the default warm-up has 200 000 steps."""
    for total, output in ((150_000, True), (250_000, False)):
        changes = {"schedule.kind": "alternating", "total_steps": total, "games": 8}
        trainer = Trainer(api.configure("lattice", changes=changes))
        assert (ONLY_WARMUP in start_notes(trainer.config, trainer.setup.spec)) == output


@pytest.mark.parametrize(
    ("game", "flags", "why"),
    [
        ("lattice", ("--network.log_std", "0.1"), "log_std = 0.1 has no effect: all actions are discrete"),
        (
            "lattice",
            ("--network.fourier", "3"),
            "fourier = 3 has no effect: players observe categories only, no numbers",
        ),
        (
            "lattice",
            (
                "--schedule.kind",
                "alternating",
                "--schedule.phase_steps",
                "300",
                "--schedule.short_phases",
                "1000,2000",
            ),
            "has no effect: none of it is shorter than schedule.phase_steps = 300",
        ),
        ("beasty", ("--evaluation.alarm_gap", "0.5"), "only a game of two roles has a gap"),
        ("gym", ("--past_policies.count", "7"), "the world has one seat"),
        ("gym", ("--league.opponent_share", "0.9"), "the world has one seat"),
    ],
)
def test_settings_without_effect_in_the_world_are_refused(
    game: str, flags: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        api.configure(game, flags=flags)


def test_stop_request_ends_staggered_start_and_resume_repeats_it(
        trained: api.Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    submit = ThreadCollector.submit
    monkeypatch.setattr(ThreadCollector, "submit", lambda self, i: (collected.append(i), submit(self, i))[1])
    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "GRACE", 0.0)
        api.train("quick", SMALL | {"stagger": 2**20}, folder=tmp_path / "long", minutes=1e-9)
        api.train("quick", SMALL, folder=tmp_path / "cut", minutes=1e-9)
    assert len(collected) <= 2, "the first rollout of each start is broken off"
    assert not (tmp_path / "cut" / "checkpoints").exists()
    collected.clear()
    api.resume(tmp_path / "cut")
    assert collected[0] == world_state.STAGGERED and len(collected) == 19 + 3
    assert files(tmp_path / "cut") == files(trained.folder)


def test_short_start_is_played_to_its_end_despite_a_stop_request(tmp_path: Path) -> None:
    api.train("quick", SMALL, folder=tmp_path / "run", minutes=1e-9)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["iter_00000001"]


def test_stagger_has_an_upper_bound() -> None:
    with pytest.raises(ConfigError, match=r"stagger = 1099511627776: expected .* to 1048576"):
        api.configure("quick", changes={"stagger": 2**40})
