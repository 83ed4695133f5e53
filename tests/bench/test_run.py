"""`rematch bench`: short runs; the tests check the reports, not the speed."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import pytest

from rematch.bench import rematch_subject, timing
from rematch.bench.run import benchmark, lines, short, targets
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.reporting.terminal import progress_display
from rematch.training.components.world_state import WorldState
from rematch.worlds import registry
from rematch.worlds.capabilities import Benchmark

SMALL = {
    "games": 8,
    "steps": 8,
    "ppo.minibatch_size": 16,
    "ppo.epochs": 1,
    "network.hidden": [16],
    "stagger": 16,
}


class Counter:
    """A subject that does ten units in each run."""

    name, unit, threads = "counter", "numbers", 1

    def __init__(self, journal: list[Counter]) -> None:
        self.journal, self.settings = journal, {"games": 1}

    def run(self, seconds: float) -> int:
        self.journal.append(self)
        return 10


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_measurements_announce_their_time_and_show_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe one line; on a terminal also the measurement that is running."""
    journal: list[Counter] = []
    timing.measure_in_turns([Counter(journal), Counter(journal)], 0.5)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "2 measurements of 2.5 s each, in 5 rounds: 5 s in all, plus warm-up\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_display, "REFRESH", 0.0)
    terminal = Terminal()
    with progress_display.ProgressDisplay(stream=terminal):
        timing.measure_in_turns([Counter(journal), Counter(journal)], 0.5)
    text = terminal.getvalue()
    assert "warm-up 2 of 2: counter" in text
    assert "92 %" in text and "round 5 of 5, measurement 2 of" in text
    assert text.endswith("\r\x1b[J"), "the progress is erased at the end"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small settings, with which a whole benchmark takes a second or two."""
    monkeypatch.setattr(rematch_subject, "PINNED", rematch_subject.PINNED | SMALL)
    monkeypatch.setattr(
        rematch_subject,
        "EARLIER_PROJECT",
        rematch_subject.EARLIER_PROJECT | SMALL | {"games": 2, "stagger": 0},
    )
    for world, shorter in {"pursuit": {"world.max_steps": 40}, "lattice": {"world.horizon": 10}}.items():
        game = registry.find(world)
        assert game.benchmark is not None
        monkeypatch.setattr(game, "benchmark", Benchmark(settings={**game.benchmark.settings, **shorter}))
    monkeypatch.setattr("rematch.bench.run.PEER_GAMES", 8)


def test_progress_is_shown_while_the_trainings_are_prepared(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[float, str]] = []
    monkeypatch.setattr("rematch.bench.run.measure_in_turns", lambda *_: pytest.fail("prepared"))
    stop = pytest.raises(pytest.fail.Exception, match="prepared")
    with PROGRESS.shown_by(lambda share, text: shown.append((share, text))), stop:
        benchmark("pursuit", 0.2)
    assert shown == [(0.0, f"preparing the trainings of {name}") for name in ("Rematch", "Stable-Baselines3")]


def test_subjects_take_turns() -> None:
    journal: list[Counter] = []
    a, b = Counter(journal), Counter(journal)
    measured = timing.measure_in_turns([a, b], 0.0)
    assert journal == [a, b] * (1 + timing.REPETITIONS)  # the first round is not timed
    assert all(len(m.rates) == len(m.load) == timing.REPETITIONS >= 5 for m in measured)
    row = measured[0].row()
    assert row["min"] <= row["median"] <= row["max"] and row["n"] == timing.REPETITIONS


def test_ratio_is_of_medians_with_the_range_of_rounds() -> None:
    fast = timing.Measurement(Counter([]), [4.0, 6.0, 9.0])
    slow = timing.Measurement(Counter([]), [2.0, 2.0, 3.0])
    assert timing.ratio("x", fast, slow) | {"over": 0, "under": 0} == {
        "name": "x", "value": 3.0, "min": 2.0, "max": 3.0, "over": 0, "under": 0
    }  # fmt: skip
    assert timing.best([slow, fast]) is fast


def check(report: dict[str, Any], peers: bool, world: str = "pursuit") -> None:
    rows = report["measurements"]
    assert {row["threads"] for row in rows} == {1, 2}
    for row in rows:
        assert row["n"] >= 5 and 0 < row["min"] <= row["median"] <= row["max"]
        assert row["wall_seconds"] > 0 and row["cpu_seconds"] >= 0 and len(row["load"]) == row["n"]
        assert row["settings"]["world"] == world
        if row["unit"] == "learner steps/s":
            required = {"games", "steps", "network", "epochs", "batch", "shared_trunk", "learning"}
            assert required <= set(row["settings"])
    assert any("Stable-Baselines3" in row["name"] for row in rows) == peers
    for entry in report["targets"]:
        assert entry["met"] is (None if entry["value"] is None else entry["value"] >= entry["wanted"])
    unmeasured = [entry["name"] for entry in report["targets"] if entry["value"] is None]
    assert len(unmeasured) == (0 if peers else 3)
    learning = report["learning"]
    assert len(learning["curve"]) == 3 and learning["control_weights_unchanged"] is True
    # The number of iterations is the same; the number of learner steps depends on the seated opponents.
    steps = learning["curve"][-1]["learner_steps"]
    assert abs(learning["control"]["learner_steps"] - steps) < 0.1 * steps
    text = "\n".join(lines(report))
    assert "the timed training learns" in text and ("met" in text or "MISSED" in text)


@pytest.mark.parametrize("world", ["pursuit", "lattice"])
def test_json_report_with_stable_baselines3(
    world: str, small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3")
    assert main.main(["bench", world, "--json", "--seconds", "0.1"]) == 0
    check(json.loads(capsys.readouterr().out), peers=True, world=world)


def test_without_stable_baselines3_only_rematch_is_measured(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "rematch.bench.sb3_subject", raising=False)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    measured = benchmark("pursuit", 0.1)
    report = json.loads(json.dumps(measured.to_dict()))
    check(report, peers=False)
    text = "\n".join(lines(report))
    assert repr(measured) == text
    assert "not installed: .venv/bin/pip install -c constraints.txt stable-baselines3" in text
    assert text.count("not measured") == 3


def test_unknown_world_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"unknown world 'pursiut'.*nearest: pursuit"):
        benchmark("pursiut", 1.0)
    assert main.main(["bench", "pursiut"]) == 2
    assert main.main(["bench", "pursuit", "--seconds", "soon"]) == 2
    assert capsys.readouterr().out == ""


def test_timed_games_have_seated_opponents(small: None) -> None:
    timed = rematch_subject.Training(
        "x", rematch_subject.configure("pursuit", 1, rematch_subject.PINNED | {"games": 256})
    )
    done = timed.run(0.0)
    share = timed.opponent_seat_share()
    assert 0.10 < share < 0.20  # 30 % of games have an opponent in one of two seats
    assert done == round(2 * 256 * 8 * (1 - share))  # all decisions of learning seats, and no others


def test_timed_games_are_staggered(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    start, starts = WorldState.start, []
    monkeypatch.setattr(
        WorldState, "start", lambda part, clock: (starts.append(clock.step), start(part, clock))
    )
    rematch_subject.Training("x", rematch_subject.configure("pursuit", 1, rematch_subject.PINNED))
    assert len(starts) == 1


def test_only_one_role_learns(small: None) -> None:
    timed = rematch_subject.Training(
        "x", rematch_subject.configure("pursuit", 1, rematch_subject.EARLIER_PROJECT), "pursuer"
    )
    config, players = timed.trainer.config, timed.trainer.agents.players
    weights = {role: policy.weights.copy() for role, policy in players.items()}
    for _ in range(10):  # games that began before the bot was seated end after 40 steps
        done = timed.iterate()
    assert done == config.games * config.steps
    assert not np.array_equal(weights["pursuer"], players["pursuer"].weights)
    assert np.array_equal(weights["evader"], players["evader"].weights)
    assert (timed.trainer.world.slot[:, 1] == len(timed.trainer.setup.seating["evader"].packed)).all()


def test_stable_baselines3_plays_the_same_world() -> None:
    pytest.importorskip("stable_baselines3")
    from rematch.adapters.gymnasium_env import GymVector
    from rematch.bench.sb3_subject import GymVecEnv

    config = rematch_subject.configure("pursuit", 1, {"world.max_steps": 20})
    games = GymVecEnv(GymVector("pursuit", config.world, "pursuer", "random", 6))
    twin = GymVector("pursuit", config.world, "pursuer", "random", 6)
    assert np.array_equal(games.reset(), twin.reset(seed=0)[0])
    before, ends = games.reset(), 0
    twin.reset(seed=0)
    for _ in range(60):
        actions = np.zeros((6, 2), np.float32)
        obs, reward, done, infos = games.step(actions)
        expected, its_reward, terminated, truncated, _ = twin.step(actions)
        assert np.array_equal(obs, expected) and np.array_equal(reward, its_reward)
        assert np.array_equal(done, terminated | truncated)
        for i, info in enumerate(infos):
            assert ("terminal_observation" in info) == done[i]
            if done[i]:
                ends += 1
                assert np.array_equal(info["terminal_observation"], before[i])
        before = obs
    assert ends >= 18


def test_category_embedding_equals_one_hot_product() -> None:
    pytest.importorskip("stable_baselines3")
    import torch

    from rematch.bench.sb3_subject import CategoryEmbedding, Sb3Training

    embedding = CategoryEmbedding((3, 4), 5)
    categories = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    one_hot = torch.zeros(2, 7)
    one_hot[[0, 0, 1, 1], [2, 3, 1, 6]] = 1
    assert torch.allclose(embedding(categories), one_hot @ embedding.embedding.weight)
    for shared in (True, False):
        overrides = rematch_subject.EARLIER_PROJECT | {
            "games": 2,
            "steps": 8,
            "ppo.minibatch_size": 16,
            "network.hidden": [6, 6],
        }
        overrides["network.shared"] = shared
        peer = Sb3Training("x", rematch_subject.configure("lattice", 1, overrides), 1, ("pursuer", "random"))
        layers = [part for part in peer.model.policy.modules() if isinstance(part, CategoryEmbedding)]
        assert len(layers) == (1 if shared else 2)
        assert peer.run(0.0) == 16


def test_short_numbers() -> None:
    assert [short(v) for v in (17_234_567, 312_345, 1.708, 2.0, 95.3, 1500)] == [
        "17.2 M", "312 K", "1.71", "2", "95.3", "1.5 K"
    ]  # fmt: skip


def test_missed_targets_are_reported(small: None) -> None:
    slow = [timing.Measurement(Counter([]), [1.0] * 5), timing.Measurement(Counter([]), [1.0] * 5)]
    results = targets(
        dict.fromkeys(
            ("world", "pinned", "peer", "earlier_project", "one_role", "peer_earlier_project"), slow
        )
    )
    assert [entry["met"] for entry in results] == [False] * 6
