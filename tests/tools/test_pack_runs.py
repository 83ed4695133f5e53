"""tools/experiments/pack_runs.py: what goes into the archives, their size, and back."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pack_runs
import pytest

NAMES = (*pack_runs.HISTORIES, "metrics.jsonl", "match.gif", "past/00000002.safetensors",
         "checkpoints/iter_00000002/arrays", "checkpoints/iter_00000011/arrays",
         "checkpoints/.tmp-iter_00000012/arrays", "policies/final.safetensors")  # fmt: skip
PACKED = (*pack_runs.HISTORIES, "metrics.jsonl", "checkpoints/iter_00000011/arrays",
          "policies/final.safetensors")  # fmt: skip


def run_folder(place: Path, size: int = 100) -> Path:
    for name in NAMES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(os.urandom(size))
    return place


def names_of(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return set(tar.getnames())


def test_a_run_comes_back_with_its_newest_checkpoint(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "runs/w-0")
    assert pack_runs.main([str(tmp_path / "out/named"), str(run), str(tmp_path / "none")]) == 0
    assert os.listdir(tmp_path / "out") == ["named-0.tar.gz"]
    pack_runs.main([str(tmp_path / "out/named-0.tar.gz"), "--unpack", str(tmp_path / "back")])
    back = tmp_path / "back/w-0"
    assert {str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()} == set(PACKED)
    assert all((back / name).read_bytes() == (run / name).read_bytes() for name in PACKED)


def test_histories_come_first_and_what_has_no_room_is_named(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / f"runs/w-{seed}", size=20_000) for seed in range(3)]
    assert pack_runs.pack(tmp_path / "out/named", runs, size=250_000, count=2, states=False) == []
    assert all("checkpoint" not in name for name in names_of(tmp_path / "out/named-0.tar.gz"))
    left_out = pack_runs.pack(tmp_path / "out/named", runs, size=250_000, count=2)
    archives = sorted((tmp_path / "out").iterdir())
    assert len(archives) == 2 and all(path.stat().st_size <= 250_000 for path in archives)
    packed = names_of(archives[0]) | names_of(archives[1])
    assert {f"w-{seed}/{name}" for seed in range(3) for name in pack_runs.HISTORIES} <= packed
    every = {f"w-{seed}/{name}" for seed in range(3) for name in PACKED}
    assert left_out and packed | set(left_out) == every and not packed & set(left_out)
    assert pack_runs.pack(tmp_path / "out/named", runs[:1], size=250_000, count=2) == []
    assert os.listdir(tmp_path / "out") == ["named-0.tar.gz"]  # no archive of the earlier command stays


def test_archives_cannot_write_outside(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar.gz"
    with tarfile.open(bad, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(tarfile.OutsideDestinationError):
        pack_runs.unpack([bad], tmp_path / "runs/named")
    assert not (tmp_path / "runs/outside").exists()


def test_prefix_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pack_runs.main([str(tmp_path / "named"), str(tmp_path)])
    assert "no folder of a run was named" in capsys.readouterr().err
