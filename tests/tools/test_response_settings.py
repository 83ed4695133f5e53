"""tools/experiments/response_settings.py: the settings of its variants, and a search that is continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import response_settings

from rematch import api
from rematch.core.errors import ConfigError
from rematch.training.response_training import FrozenAgents

SMALL: dict[str, Any] = {
    "games": 32, "steps": 8, "total_steps": 4 * 256, "threads": 1, "network.hidden": [8], "stagger": 0,
    "evaluation.games": 4, "evaluation.opponents": ["random"], "evaluation.every": 2, "save_every": 2,
    "world.max_steps": 10, "ppo.minibatch_size": 64, "replays.games": 0,
}  # fmt: skip


def test_variants_change_what_they_say() -> None:
    config = api.configure("pursuit")
    frozen = FrozenAgents(config=config, players={}, iteration=1)
    made = {name: response_settings.variant_config(frozen, "fresh", name, 10**6).ppo
            for name in response_settings.VARIANTS}  # fmt: skip
    own = config.ppo
    for key in response_settings.OWN:
        assert getattr(made["recipe"], key) == getattr(own, key)
    assert made["first"].magnet_weight == made["no_magnet"].magnet_weight == 0.0
    assert made["wide"].entropy_weight == made["first"].entropy_weight > own.entropy_weight
    assert made["wide"].magnet_weight == own.magnet_weight > 0
    assert made["gentle"].lr == own.lr / 10 and made["gentle"].entropy_weight == own.entropy_weight_final


def test_every_response_is_a_line_and_is_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.train("pursuit", SMALL, tmp_path / "run")
    words = [str(tmp_path / "run"), "--budget", "2000", "--games", "20", "--roles", "evader", "--variants",
             "second,recipe", "--out", str(tmp_path / "lines.jsonl")]  # fmt: skip
    monkeypatch.setattr(response_settings, "CHECKPOINT_GAMES", 10)
    assert response_settings.main([*words, "--minutes", "0"]) == 0
    assert not (tmp_path / "lines.jsonl").exists()
    assert response_settings.main([*words, "--starts", "fresh"]) == 0
    assert response_settings.main(words) == 0
    lines = [json.loads(text) for text in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [(line["start"], line["variant"]) for line in lines] == [
        (start, variant) for start in ("fresh", "incumbent") for variant in ("second", "recipe")]  # fmt: skip
    for line in lines:
        assert 0 <= line["greedy"] <= 1 and 0 <= line["incumbent"] <= 1 and line["n"] == 20
        assert line["steps"] >= 1000 and len(line["checkpoints"]) >= 2
    with pytest.raises(ConfigError, match="narrow: expected some of first, second"):
        response_settings.main([str(tmp_path / "run"), "--variants", "narrow"])


def test_response_starts_from_the_agents_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seed in (("run", 0), ("other", 1)):
        api.train("pursuit", SMALL | {"seed": seed}, tmp_path / name)
    words = [str(tmp_path / "run"), "--budget", "1000", "--games", "20", "--roles", "evader", "--variants",
             "first", "--starts", "selfplay", "--out", str(tmp_path / "lines.jsonl")]  # fmt: skip
    monkeypatch.setattr(response_settings, "CHECKPOINT_GAMES", 10)
    began: list[Any] = []
    plain = response_settings.Response.search

    def search(self: Any, start: str, score: Any) -> int:
        began.append(self.policy.weights.copy())
        return plain(self, start, score)

    monkeypatch.setattr(response_settings.Response, "search", search)
    assert response_settings.main([*words, "--other", str(tmp_path / "other")]) == 0
    (line,) = [json.loads(text) for text in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert line["other"] == 1 and line["seed"] == 0 and set(line["untrained"]) == {"sampled", "greedy"}
    assert np.array_equal(began[0], api.load(tmp_path / "other").policies["evader"].weights)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="belong together"):
        response_settings.main(words)
