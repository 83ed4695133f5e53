"""Policy files: verified when read, never silently overwritten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.fake_training import flip_bit

from rematch.core.errors import RunError
from rematch.storage.run_folder import Run


def test_policy_is_verified_and_never_silently_overwritten(tmp_path: Path) -> None:
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.zeros((0, 2))}
    with Run.create(tmp_path / "x", "") as run:
        path = run.write_policy("best", arrays, {"role": "pursuer", "score": 0.25})
        assert path == run.write_policy("best", arrays, {"role": "pursuer", "score": 0.25})
        with pytest.raises(RunError, match="never silently overwritten"):
            run.write_policy("best", {"w": np.ones(1)}, {})
        loaded, metadata = Run.read_policy(path)
        assert metadata == {"role": "pursuer", "score": 0.25} and np.array_equal(loaded["w"], arrays["w"])
        run.write_policy("best", {"w": np.ones(1)}, {}, replace=True)
        assert Run.read_policy(path)[1] == {}
        for name in ("../x", "", ".hidden", "a/b", "a\n"):
            with pytest.raises(RunError, match="name"):
                run.write_policy(name, arrays, {})
    for file in (path, path.with_suffix(".json")):
        for position in (0, file.stat().st_size // 2, file.stat().st_size - 1):
            flip_bit(file, position)
            with pytest.raises(RunError, match="does not verify"):
                Run.read_policy(path)
            flip_bit(file, position)
    Run.read_policy(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(RunError, match="missing"):
        Run.read_policy(path)
