"""Observation codec: packed observations come back; fields are identified by shape and name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import single_seat_worlds

from rematch.agents.networks.observation_codec import ObservationCodec, pack_levels, unpack_levels
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role


def role(*fields: Field) -> Role:
    return Role(name="one", fields=fields, actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))


@given(st.integers(0, 3).flatmap(lambda n: st.lists(st.integers(0, 3), min_size=n, max_size=21)))
def test_levels_come_back(levels: list[int]) -> None:
    array = np.array([levels, levels[::-1]], np.uint8)
    packed = pack_levels(array)
    assert packed.shape == (2, -(-len(levels) // 4))
    assert (unpack_levels(packed, len(levels)) == array).all()


def test_whole_observation_comes_back() -> None:
    world = single_seat_worlds.stroll.make(single_seat_worlds.StrollConfig(), 5)
    role_spec = world.spec.roles["joypad"]
    for step in range(4):
        world.step({"joypad": np.full((5, 1), step % 3, np.int32)})
    obs = np.concatenate([world.view["joypad"][f.name] for f in role_spec.fields], axis=-1)[:, 0]
    senses = ObservationCodec(role_spec)
    packed = senses.pack(obs)
    sizes = {name: array.shape[1] for name, array in packed.items()}
    assert sizes == {"frame": 1440, "visited": 288, "numbers": 4}
    seen = senses.unpack(packed)
    assert seen.frames is not None and seen.visited is not None
    assert np.array_equal(seen.frames.reshape(5, -1) / np.float32(3), obs[:, :5760])
    assert np.array_equal(seen.visited.reshape(5, -1), obs[:, 5764:]) and seen.visited.any()
    assert np.array_equal(seen.numbers, obs[:, 5760:5764].astype(np.float16))
    assert senses.categories == (0, 0, 0, 3)


def test_large_numbers_are_stored_in_single_precision() -> None:
    wide = Field(name="far", columns=("x",), low=0.0, high=1e6)
    assert ObservationCodec(role(wide)).number_dtype == np.float32
    assert ObservationCodec(role(Field(name="near", columns=("x",)))).number_dtype == np.float16
    named = Field(name="who", columns=("id",), low=0.0, categories=(5000,))
    assert ObservationCodec(role(named)).number_dtype == np.float32


def test_history_is_no_image_and_mask_is_a_square() -> None:
    past = Field(name="history", columns=tuple("abcdef"), shape=(2, 3))
    assert ObservationCodec(role(past)).image_field is None
    with pytest.raises(ConfigError, match="visited has 6 numbers; expected a square"):
        ObservationCodec(role(Field(name="visited", columns=tuple("abcdef"))))
