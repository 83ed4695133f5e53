"""Values of settings: numbers that no one means are refused."""

from __future__ import annotations

import pytest

from rematch import api
from rematch.core.errors import ConfigError


@pytest.mark.parametrize("flag", [
    "--evaluation.every=1__0", "--evaluation.every=\u0661\u0660", "--seed=-0.0",
    "--ppo.lr_final=1e30", "--ppo.magnet_weight=1e30",
])
def test_senseless_numbers_are_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"command line: {flag[2:].partition('=')[0]} = .* expected"):
        api.configure("quick", None, [flag])
    assert api.configure("quick", None, ["--evaluation.every=1_0"]).evaluation.every == 10
