"""Versions of checkpoints: older ones are brought forward, newer ones are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.core.errors import ConfigError, Damaged
from rematch.storage import atomic_files, checkpoint, migrations, policy_files
from rematch.storage.run_folder import Run

FINGERPRINT = {"numpy": "0"}


def renamed(parts: migrations.Parts) -> migrations.Parts:
    return {"learner.new": parts["learner.old"]}


def doubled(parts: migrations.Parts) -> migrations.Parts:
    return {"learner.new": {"weights": parts["learner.new"]["weights"] * 2}}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps that change something, and none after version 2."""
    unchanged = (dict,) * (migrations.VERSION - 2)
    monkeypatch.setattr(migrations, "STEPS", (renamed, doubled, *unchanged))


def saved(folder: Path, version: Any = None) -> Path:
    """A run with one checkpoint, whose manifest says `version`, or has no version as the oldest ones."""
    with Run.create(folder, "game: pursuit\n") as run:
        place = run.save(1, {"learner.old": {"weights": np.arange(3.0)}}, FINGERPRINT)
    path = place / checkpoint.MANIFEST_FILE
    body = atomic_files.decode_with_digest(path.read_bytes(), path.name)
    del body["version"]
    if version is not None:
        body["version"] = version
    path.write_bytes(atomic_files.encode_with_digest(body))
    return place


def read(folder: Path) -> Any:
    with Run.open(folder, write=False) as run:
        return run.load()


def test_manifest_says_the_present_version(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "game: pursuit\n") as run:
        place = run.save(1, {}, FINGERPRINT)
    body = atomic_files.decode_with_digest((place / checkpoint.MANIFEST_FILE).read_bytes(), "manifest.json")
    assert body["version"] == migrations.VERSION == len(migrations.STEPS)


def test_checkpoint_without_a_version_passes_every_step(tmp_path: Path, steps: None) -> None:
    saved(tmp_path / "run")
    (name, tree), = read(tmp_path / "run").parts.items()
    assert name == "learner.new" and tree["weights"].tolist() == [0.0, 2.0, 4.0]


def test_checkpoint_passes_only_the_steps_from_its_version_on(tmp_path: Path, steps: None) -> None:
    saved(tmp_path / "run", 2)
    assert list(read(tmp_path / "run").parts) == ["learner.old"]


def test_newer_checkpoint_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    """An older checkpoint beside it would verify: going back to it in silence would lose work."""
    place = saved(tmp_path / "run", migrations.VERSION + 1)
    before = {path: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(ConfigError, match="iter_00000001 is a checkpoint of a newer version") as caught:
        read(tmp_path / "run")
    assert "\n" not in str(caught.value) and not isinstance(caught.value, Damaged)
    assert {path: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize("version", [-1, 1.0, "0", True, [0]])
def test_version_that_is_none_is_damage(tmp_path: Path, version: Any) -> None:
    saved(tmp_path / "run", version)
    with pytest.raises(ConfigError, match="version = "):
        read(tmp_path / "run")


def test_state_that_a_step_cannot_read_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "STEPS", (doubled,) * migrations.VERSION)
    saved(tmp_path / "run")
    with pytest.raises(ConfigError, match="not one of version 0"):
        read(tmp_path / "run")


@pytest.mark.parametrize(("name", "present"), [
    ("rollout/length", "rollout/episode_length"),
    ("evader/r_way", "evader/demo/progress"),
    ("a/b/r_way", "a/b/demo/progress"),
    ("r_way", "r_way"),
    ("evader/r_way_mean", "evader/r_way_mean"),
    ("evader/lr", "evader/lr"),
    ("theta_DAWN", "milestone/DAWN"),
])  # fmt: skip
def test_alias_tables_rename_by_name_and_by_pattern(name: str, present: str) -> None:
    table = {"rollout/length": "rollout/episode_length", "*/r_way": "*/demo/progress",
             "theta_*": "milestone/*"}
    assert migrations.present_name(name, table) == present


def test_present_names_are_final() -> None:
    """A new name is in no table as an old one: a name renamed twice would depend on the reader."""
    for table in (migrations.METRIC_NAMES, migrations.HISTORY_NAMES, migrations.EVENT_NAMES,
                  migrations.COLUMN_NAMES, migrations.WEIGHT_NAMES, migrations.FILE_NAMES):
        for new in table.values():
            assert migrations.present_name(new, table) == new


@pytest.mark.parametrize(("old", "present"), [
    (["return_env", "return_rnd", "return_novel"], ["return_env", "return_rnd_images", "return_count_bonus"]),
    (["return_env", "return_rnd", "return_rnd_images"], ["return_env", "return_rnd", "return_rnd_images"]),
])  # fmt: skip
def test_term_of_version_0_that_another_term_is_called_now(old: list[str], present: list[str]) -> None:
    """rnd was the name of rnd_images; rows of version 0 have columns of all its terms."""
    assert migrations.present_columns(old) == present
    metrics = [name.replace("return_", "joypad/r_") for name in old]
    assert list(migrations.present_names(dict.fromkeys(metrics, 0.0), migrations.METRIC_NAMES)) == [
        name.replace("return_", "joypad/r_") for name in present]


OLD_ARRAYS = {"layer.0.ask": np.ones(2), "evader/layer.1.ask": np.ones(3)}  # the second as in a past policy


def test_policy_is_read_under_the_present_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = policy_files.write_file(tmp_path / "a.safetensors", OLD_ARRAYS, {}, replace=False)
    monkeypatch.setattr(migrations, "WEIGHT_NAMES", {"layer.*.ask": "layer.*.attn.qkv"})
    assert set(policy_files.read(path)[0]) == {"layer.0.attn.qkv", "evader/layer.1.attn.qkv"}
