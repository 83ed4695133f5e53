"""rematch check: every feature fires, with kill and resume; failures and unread settings are named."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch import api
from rematch.agents.learners.ppo import Ppo
from rematch.cli import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.rehearsal import check
from rematch.rehearsal.check import NAME_WIDTH
from rematch.rehearsal.compare import differences
from rematch.rehearsal.shrink import ITERATIONS, shrink
from rematch.rehearsal.trial import play
from rematch.training.components.evaluator import FEW
from rematch.worlds import registry

__all__ = ["little"]

ALL_ON = ["--ppo.magnet_weight", "0.1", "--ppo.value-clip", "0.2", "--ppo.target_kl", "0.02",
          "--league.matchmaking", "pfsp", "--league.bots", "lion,flee_straight", "--stagger", "64",
          "--evaluation.opponents", "random", "--schedule.kind", "alternating", "--schedule.max_phases", "12",
          "--schedule.convergence_consecutive", "3", "--schedule.dampen_threshold", "0.1",
          "--schedule.level_warmup_steps", "50000", "--curriculum.kind", "smooth", "--curriculum.mixed_ratio",
          "0.2", "--world.min_init_distance", "3", "--world.max_init_distance", "15",
          "--rollback.checkpoints_back", "3", "--rollback.bilateral", "true", "--rnd.weight", "0.1",
          "--ewc.weight", "10"]
FEATURES = ["curriculum", "mixed levels", "warm-up", "phases", "phase limit", "level warm-up", "convergence",
            "damping", "balance", "imitation", "savestates", "explorers", "demonstrations", "random_starts",
            "rnd", "rnd_images", "count_bonus", "milestones", "demo_progress",
            "learning of pursuer", "temperature of pursuer", "belief of pursuer", "magnet of pursuer",
            "average of pursuer", "value clipping", "target KL of pursuer",
            "learning of evader", "temperature of evader", "belief of evader", "magnet of evader",
            "average of evader", "target KL of evader", "centralized critic", "rollout", "lag", "episode_log",
            "world_map", "rollback", "snapshots", "opponents seated", "scripted opponents", "exploiters",
            "ewc", "episode_video", "replays", "evaluation",
            "checkpoint", "policies", "past_policies", "picture", "film", "report", "kill and resume"]
# Not in this world, or disabled:
ABSENT = {"lag", "balance", "imitation", "savestates", "explorers", "demonstrations", "random_starts",
          "rnd_images", "count_bonus", "milestones", "demo_progress", "temperature of pursuer",
          "temperature of evader", "belief of pursuer", "belief of evader", "average of pursuer",
          "average of evader", "centralized critic", "episode_log", "world_map",
          "exploiters", "episode_video"}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(text: str) -> dict[str, str]:
    """Feature -> fired, FAILED or off."""
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    return {line[:NAME_WIDTH].strip(): line[NAME_WIDTH + 1 :].split()[0] for line in lines}


@pytest.mark.slow
def test_every_feature_fires_and_no_file_remains(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.main(["check", "quick", *ALL_ON])
    out = capsys.readouterr().out
    result = results(out)
    counts = ("settings", "columns read on the host", "place of each part")
    assert [name for name in result if name not in counts] == FEATURES, out
    assert {result[name] for name in ABSENT} == {"off"}
    assert {result[name] for name in FEATURES if name not in ABSENT} == {"fired"} and code == 0, out
    total = sum(1 for _ in settings.leaves(api.default("pursuit")))
    assert f" of {total} were read" in out and "NOTHING READ IT" not in out
    assert "\n  training games: processor\n  networks in training: processor\n" in out, out
    assert "\n  league: ended, length, outcome, slot\n" in out and "\n  ewc: acted, obs, slot\n" in out, out
    assert list(place.iterdir()) == []


def break_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> dict[str, float]:
        raise ZeroDivisionError("a feature that\ncrashes at first use")

    monkeypatch.setattr(Ppo, "learn", broken)


def test_crash_is_one_line_and_exit_code_1(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_learning(monkeypatch)
    assert check.rehearse(api.configure("quick")) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out and "ZeroDivisionError: a feature that crashes at first use" in out
    assert len(out.splitlines()) == 1 and list(place.iterdir()) == []


@pytest.mark.slow
def test_resume_with_different_bytes_fails(place: Path) -> None:
    """After a change of one byte in the undisturbed run, the comparison names the file."""
    config = settings.replace(shrink(api.configure("quick")), {"evaluation.opponents": ("random",)})
    runner = check.CommandRunner(place, config)
    undisturbed = place / "twin"
    runner.finish(runner.start("train", str(runner.recipe), "--name", str(undisturbed)))
    log = undisturbed / "train.log"
    log.write_bytes(log.read_bytes()[:-2] + b"!\n")
    with pytest.raises(ConfigError, match=r"files differ from the undisturbed run: train\.log$"):
        check.kill_and_resume(runner, undisturbed).proof()
    runner.close()


def test_failed_command_has_its_last_line(place: Path) -> None:
    runner = check.CommandRunner(place, shrink(api.configure("quick")))
    with pytest.raises(ConfigError, match="no such run"):
        runner.finish(runner.start("resume", str(place / "nowhere")))


def test_unread_settings_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    config = api.configure("quick")
    every = {key for key, _, _ in settings.leaves(config)}
    assert not check._print_unread(config, every - {"ppo.magnet_decay"})
    assert "  ppo: ppo.magnet_weight is 0.0 (it needs another value); no effect: magnet_decay\n" in \
        capsys.readouterr().out
    unread = ("dqn.", "schedule.phase_", "schedule.short_", "schedule.micro")
    off = {key for key in every if key.startswith(unread)}
    assert not check._print_unread(config, every - off)
    count = sum(key.startswith("dqn.") for key in every)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  schedule: schedule.kind is 'simultaneous' (it needs alternating); no effect: phase_steps, "
        "short_phases",
        "  schedule: schedule.kind is 'simultaneous' (it needs micro); no effect: micro_phase_steps",
        f"  dqn: learner is 'ppo' (it needs dqn); no effect: all {count}"]
    assert check._print_unread(config, every - {"ppo.gamma"})
    assert "ppo.gamma: NOTHING READ IT" in capsys.readouterr().out


def test_enabled_feature_without_proof_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert check._check_feature(check.Feature(name="bonus", proof=lambda: ""))
    assert not check._check_feature(check.Feature(name="bonus", proof=lambda: "", off="it is off"))
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("bonus") and "FAILED" in out[0] and "off" in out[1]


def test_setting_without_effect_has_no_proof(tmp_path: Path) -> None:
    changes = {"ppo.value_clip": 0.2, "evaluation.opponents": ("random",), "threads": 1}
    small = shrink(api.configure("quick", changes=changes))
    folder = play(small, tmp_path / "run").folder
    assert check.changed_run(small, {"ppo.value_clip": 0.0}, folder)
    assert check.changed_run(small, {"threads": 2}, folder) == ""


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["dqn", "ppo"])
def test_reward_terms_and_episodes_have_evidence_with_each_learner(
    little: None, learner: str, tmp_path: Path
) -> None:
    small = shrink(single_seat_worlds.small(learner=learner, rnd__weight=0.1))
    lines = list(check.component_features(small, play(small, tmp_path / "run")))
    names = [line.name for line in lines]
    assert len(set(names)) == len(names)
    expected = {"rnd", "rnd_images", "count_bonus", "episode_log", "episode_video", "learning of joypad"}
    expected |= {"replay", "target network"} if learner == "dqn" else {"rollout"}
    proofs = {line.name: line.off or line.proof() for line in lines if line.name in expected}
    assert proofs.keys() == expected and all(proofs.values()), proofs
    assert not any(line.off for line in lines if line.name in expected)
    off = {line.name: line.off for line in lines if line.off}
    assert off["milestones"] == "the world has no milestones"
    assert off["league"] and "past_policies" not in off


SWITCHES = ("ppo.magnet_weight", "ppo.average_fraction", "ppo.value_clip", "ppo.target_kl",
            "league.opponent_share",
            "league.bots", "stagger", "ppo.lr")


@pytest.mark.parametrize("name", list(api.recipes()))
@pytest.mark.parametrize("on", [False, True])
def test_shrink_keeps_enabled_and_disabled_parts(name: str, on: bool) -> None:
    if "game: openspiel" in api.recipes()[name]:
        pytest.importorskip("pyspiel")
    config = api.configure(name)
    changes: dict[str, Any] = {"league.opponent_share": 0.0, "ppo.lr": 0.0}
    if on:
        changes = {"ppo.magnet_weight": 0.5, "ppo.average_fraction": 0.1, "ppo.value_clip": 9.0,
                   "ppo.target_kl": 0.5}
        changes["stagger"] = 10**6
        if config.schedule.convergence_consecutive:  # excludes averaged weights
            changes["ppo.average_fraction"] = 0.0
    config = settings.replace(config, changes)
    small = shrink(config)
    for key in SWITCHES:
        assert bool(settings.get(small, key)) == bool(settings.get(config, key)), key
    limit = 2**13 if hasattr(registry.find(config.game), "short") else 2**16  # long games need time to end
    phases = small.schedule.kind == "alternating" and small.schedule.max_phases > 0
    if phases and small.schedule.iterations(2, 1) is None:  # the number of iterations is open
        assert small.iterations == 4 * ITERATIONS and small.total_steps <= 2 * limit
    else:
        assert small.iterations == ITERATIONS and small.total_steps <= limit
    assert small.network.hidden == tuple(min(w, 64) for w in config.network.hidden)
    module = registry.find(config.game)
    for names in module.bots.values():  # few opponents, to save time
        opponents = set(names) & set(small.evaluation.opponents)
        assert opponents and (config.evaluation.opponents or len(opponents) <= FEW)


def test_run_with_learning_rate_zero_is_no_failure(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"ppo.lr": 0.0, "ppo.anneal": "none", "ppo.value_clip": 0.2,
               "evaluation.opponents": ("random",)}
    small = shrink(api.configure("quick", changes=changes))
    trial = play(small, place / "run")
    learning = [feature for feature in check.component_features(small, trial)
                if feature.name.startswith(("learning of", "value clipping"))]
    failed = [check._check_feature(feature) for feature in learning]
    assert not any(failed)
    assert capsys.readouterr().out.count("ppo.lr is 0") == 3


def test_differences_compares_all_files_but_clock_times(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "checkpoints" / "iter_00000001").mkdir(parents=True)
        (folder / "checkpoints" / "iter_00000001" / "state.json").write_bytes(b"{}")
        (folder / "train.log").write_bytes(b"line\n")
        (folder / "timing.jsonl").write_bytes(folder.name.encode())
    shutil.copytree(one / "checkpoints", two / "damaged")
    assert differences(one, two) == []
    (two / "checkpoints" / "iter_00000001" / "state.json").write_bytes(b"{]")
    (two / ".tmp-report.html").write_bytes(b"")
    assert [line.split()[0] for line in differences(one, two)] == [
        ".tmp-report.html", "checkpoints/iter_00000001/state.json"]
