"""The earlier project's card-game configuration file, unchanged: its translation, and that it runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rematch import api
from rematch.cli.main import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("blank_pictures")
ROOT = Path(__file__).resolve().parents[2] / "compat"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_iter600", ROOT / "train_iter600.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = script()
VALUES = SCRIPT.read_config(SCRIPT.CONFIG)
ON_CPU = VALUES | {"device": "cpu"}


def test_every_key_goes_over() -> None:
    """The recipe equals the translated file, except for machine settings and the first iteration."""
    changes, notes = SCRIPT.translate(ON_CPU)
    base = api.configure("iter600_to_1000")
    differ = {key for key, value in changes.items() if settings.get(base, key) != value}
    assert differ <= {"threads", "lag", "start_iteration", "evaluation.opponents", "league.bot_weights"}
    assert settings.get(base, "iterations") == 1000 and base.start_iteration == 600
    assert changes["evaluation.opponents"] == SCRIPT.BOTS == base.league.bots
    assert (base.network.width, base.network.heads, base.network.layers) == (256, 8, 4)
    assert base.league.opponent_share == 0.5 and base.league.bot_share == pytest.approx(0.8)
    assert changes["lag"] == 1
    pattern = r"note: async_num_workers 32: \d+ threads .*there are \d+ cores; \d+ of them generate the games"
    assert any(re.match(pattern, note) for note in notes)


@pytest.mark.parametrize(("changes", "words"), [
    ({"exploit_patch_steps": 0}, "exploit_patch_steps = 0: expected a whole number"),
    ({"exploit_patch_steps": "many"}, "exploit_patch_steps = 'many': expected a whole number"),
    ({"exploit_patch_steps": 100, "use_exploit_patch": False}, "exploit_patch_steps has no effect"),
])
def test_length_of_exploiters_is_checked(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SCRIPT.translate(ON_CPU | changes)


def test_opponent_weights_follow_the_file() -> None:
    """Shares of the current policy, of snapshots and of bots; among bots, the weights of the file."""
    changes, notes = SCRIPT.translate(ON_CPU)
    weights = dict(zip(changes["league.bots"], changes["league.bot_weights"]))
    assert weights["random"] == 0.1 and sum(weights.values()) == pytest.approx(0.4)
    assert {round(weight, 9) for name, weight in weights.items() if name != "random"} == {round(0.3 / 9, 9)}
    assert any("0.1 against random and 0.3 against the 9 others" in note for note in notes)
    two, _ = SCRIPT.translate(ON_CPU | {"use_heuristic_variants": False, "use_adaptive_weights": False})
    assert two["league.bot_weights"] == (0.1, 0.3) and two["league.matchmaking"] == "uniform"
    none, _ = SCRIPT.translate(ON_CPU | {"opponent_config.current_weight": 0.9,
                                         "opponent_config.random_weight": 0,
                                         "opponent_config.heuristic_weight": 0})
    assert none["league.bot_share"] == 0 and "league.bot_weights" not in none


def test_exploiters_train_as_long_as_iterations_of_the_file() -> None:
    """The length follows games_per_iteration; --exploiter-steps replaces it, and a note says both."""
    base = api.configure("iter600_to_1000")
    for changes, steps, iterations in (({}, base.exploiters.steps, "100"),
                                       ({"games_per_iteration": 16}, 100 * 16 * 24, "100"),
                                       ({"exploiter_steps": 24 * 8192 * 5}, 24 * 8192 * 5, "5")):
        result, notes = SCRIPT.translate(ON_CPU | changes)
        assert result["exploiters.steps"] == steps
        assert any(f"trains for {steps} steps, as many as {iterations} iterations" in note for note in notes)


def test_docs_table_has_every_key_of_the_file() -> None:
    """One row of docs/how_to/earlier_project.md for each key, with the setting that it becomes."""
    page = (ROOT.parent / "docs/how_to/earlier_project.md").read_text()
    part = page.partition("### Keys of the configuration file")[2].partition("\n## ")[0]
    rows = [[*re.findall(r"`([^`]+)`", line.split("|")[1]), line] for line in part.splitlines()
            if line.startswith("| `")]
    table = {key: row[-1] for row in rows for key in row[:-1]}
    assert sorted(table) == sorted(VALUES)
    for key, setting in SCRIPT.DIRECT_KEYS.items():
        assert f"`{setting}`" in table[key], key


def test_the_file_is_the_documents() -> None:
    text = SCRIPT.CONFIG.read_text()
    assert text.startswith("# configs/iter600_to_1000.yaml\n# Resume from iter600, run 400 more iterations\n")
    assert 'temperature_end: 0.5' in text and text.endswith("  - distilled_outcome\n")


CASES: list[tuple[dict[str, Any], str]] = [
    ({"force_cython": False}, r"force_cython = False: the native core is the only one; expected true"),
    ({"buffer_size": 100_000}, r"buffer_size = 100000: an iteration makes 196608 transitions"),
    ({"ppo_config.normalize_advantages": False}, r"normalize_advantages = false: they always are"),
    ({"temperature_schedule": "cosine"}, r"temperature_schedule = 'cosine': expected the shape of entropy"),
    ({"entropy_schedule": "wavy"}, r"entropy_schedule = 'wavy': expected one of linear, cosine, none"),
    ({"opponent_config.current_weight": 0.9}, r"opponent_config: the weights add up to 1.4; expected 1"),
]


@pytest.mark.parametrize(("changes", "line"), CASES)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        SCRIPT.translate(ON_CPU | changes)


def test_missing_gpu_is_one_line() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=r"device = cuda: there is no GPU here; expected --device cpu"):
        SCRIPT.translate(VALUES)


@pytest.mark.parametrize(("changes", "expected"), [
    ({"use_exploit_patch": False}, {"exploiters.every": 0}),
    ({"exploit_patch_interval": 7}, {"exploiters.every": 7}),
    ({"use_opponent_pool": False}, {"league.opponent_share": 0.0}),
    ({"use_adaptive_weights": False}, {"league.matchmaking": "uniform"}),
    ({"use_heuristic_variants": False}, {"league.bots": ("random", "heuristic")}),
    ({"temperature_schedule": "none"}, {"ppo.temperature_final": 1.0, "ppo.entropy_weight_final": 0.01}),
    ({"temperature_schedule": "none", "entropy_schedule": "none"}, {"ppo.anneal": "none"}),
    ({"ppo_config.clip_value": False}, {"ppo.value_clip": 0.0}),
    ({"async_game_generation": False}, {"threads": 1, "lag": 0}),
    ({"async_num_workers": 1}, {"threads": 1, "lag": 1}),
    ({"exploit_patch_steps": 5000}, {"exploiters.steps": 5000}),
])
def test_switches(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    result, _ = SCRIPT.translate(ON_CPU | changes)
    assert {key: result[key] for key in expected} == expected
    base = api.configure("iter600_to_1000")
    differ = {key: value for key, value in result.items() if settings.get(base, key) != value}
    api.configure("iter600_to_1000", changes=differ)


SMALL = {
    "hidden_dim: 256": "hidden_dim: 16", "num_layers: 4": "num_layers: 1", 'device: "cuda"': 'device: "cpu"',
    "_iteration: 8192": "_iteration: 16", "total_iterations: 1000": "total_iterations: 4",
    "minibatch_size: 2048": "minibatch_size: 128", "exploit_patch_interval: 100": "exploit_patch_interval: 3",
    "eval_frequency: 25": "eval_frequency: 2", "checkpoint_frequency: 50": "checkpoint_frequency: 1",
}  # fmt: skip


def test_command_starts_at_the_given_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SCRIPT.CONFIG.read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    only = text.index("  - heuristic\n")  # only the first of eval_opponents remains
    (tmp_path / "small.yaml").write_text(text[:only])
    real = api.configure
    quick = {"evaluation.games": 2, "past_policies.count": 0}
    monkeypatch.setattr(api, "configure", lambda *a, **k: settings.replace(real(*a, **k), quick)
                        if a == ("iter600_to_1000",) and k else real(*a, **k))
    words = ["--config", "small.yaml", "--exploiter-steps", "400"]
    assert main(words, act=SCRIPT.train) == 0, capsys.readouterr().err
    rows = [json.loads(line) for line in Path("runs/iter600_to_1000/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4 and all(row["train/grad_norm_post_clip"] <= 0.5 + 1e-6 for row in rows)
    assert rows[0]["player/temperature"] == 1.0 and rows[2]["player/temperature"] == 0.75
    log = Path("runs/iter600_to_1000/train.log").read_text()
    assert "lag: 1" in Path("runs/iter600_to_1000/config.yaml").read_text()
    assert "note: async_num_workers 32" in log and "Exploiter: player exploiter@3 wins" in log
    assert "exploiter trains for 400 steps" in log and SCRIPT.NO_CHECKPOINT in log
    assert "note: buffer_size 800000: an iteration makes 384" in log
    again = [*words, "--start-iteration", "2", "--from", "runs/iter600_to_1000", "--output", "later"]
    assert main(again, act=SCRIPT.train) == 0, capsys.readouterr().err
    assert SCRIPT.NO_CHECKPOINT not in Path("later/train.log").read_text()
    rows = [json.loads(line) for line in Path("later/metrics.jsonl").read_text().splitlines()]
    assert [row["player/temperature"] for row in rows] == [1.0, 0.75]  # over the remaining ones


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], act=SCRIPT.train) == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--config", "--device", "--start-iteration", "--from", "--output"))


def test_wrong_words_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SCRIPT.CONFIG.read_text().replace("target_kl", "target_lk"))
    short = tmp_path / "short.yaml"
    short.write_text(SCRIPT.CONFIG.read_text().replace("seed: 42\n", ""))
    for words, line in (
        (["--config", str(other)], "unknown key ppo_config.target_lk = 0.02; nearest: ppo_config.target_kl"),
        (["--config", str(short)], "seed is missing"),
        (["--config", str(tmp_path / "none.yaml")], "cannot be read"),
        (["--divice", "cpu"], "nearest: --device"),
    ):
        assert main(words, act=SCRIPT.train) == 2
        assert line in capsys.readouterr().err
