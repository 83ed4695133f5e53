"""The description of settings: values, sources, reasons, and what each accepts."""

from __future__ import annotations

import rematch
from rematch import api
from rematch.core.config import leaves
from rematch.verbs.settings import accepts


def test_accepts_says_the_range_of_every_leaf() -> None:
    default = api.default("pursuit")
    for key, field, _ in leaves(default):
        assert field.metadata["help"] and isinstance(accepts(default, key), str)
    texts = {key: accepts(default, key) for key in (
        "threads", "total_steps", "network.activation", "network.shared", "network.hidden", "game",
        "evaluation.opponents", "world.capture_bonus")}
    assert texts == {
        "threads": "1 to 64", "total_steps": "at least 1", "network.activation": "tanh | relu",
        "network.shared": "true | false", "network.hidden": "list, each 1 to 4096", "game": "",
        "evaluation.opponents": "list, each text", "world.capture_bonus": "number"}


def test_describe_settings_says_value_source_and_reason() -> None:
    table = rematch.describe_settings("RA1", {"seed": 5})
    settings = {setting.key: setting for setting in table}
    assert settings["seed"].value == "5" and settings["seed"].source == "changes"
    assert settings["world.prep_steps"].source == "recipe ra1" and settings["ppo.lr"].default == "0.001"
    assert "learner is 'ppo'" in settings["dqn.batch"].idle and settings["learner"].choices[0] == "ppo"
    assert "evaluation: " in repr(table)
