"""Every recipe loads, sets nothing without effect, and says what it is for."""

from __future__ import annotations

import pytest

from rematch import api
from rematch.core import config


@pytest.mark.parametrize("name", sorted(api.recipes()))
def test_recipes_load_and_set_nothing_idle(name: str) -> None:
    text = api.recipes()[name]
    if "game: openspiel" in text:
        pytest.importorskip("pyspiel")
    made = api.configure(name)
    layer = config.read_yaml(text, name)
    config.refuse_inert(made, [key.replace("-", "_") for key in layer if key != "like"], name)
    assert text.startswith(f"# {name}"), "the header says what the recipe is for and what it should reach"
    assert config.apply(api.default(made.game), config.read_yaml(config.to_yaml(made), name), name) == made
