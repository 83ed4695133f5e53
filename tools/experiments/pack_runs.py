"""Packs run folders into a few small archives: first histories, then the last checkpoints, then metrics.

    python tools/experiments/pack_runs.py OUT/named runs/named/*     OUT/named-0.tar.gz and so on
    python tools/experiments/pack_runs.py OUT/named-*.tar.gz --unpack runs/named

An archive has at most --size MiB, and there are at most --archives of them; what has no room is named and
left out. Older checkpoints, films, pictures, reports, replays and past policies are never packed. An archive
replaces an earlier one of the same name as a whole, so an interrupted command leaves no broken one.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
HISTORIES = ("config.yaml", "lineage.json", "history.json", "train.log", "timing.jsonl")
METRICS = ("metrics.jsonl", "events.jsonl")
SHRINKS = 0.8  # part of its size to which a large file is compressed; weights hardly shrink
HEADER = 2048  # bytes of a member beside its content, at most


@dataclass(frozen=True)
class Member:
    """A file of a run, with its name in the archive."""

    path: Path
    name: str


@dataclass
class Archive:
    """The members of one archive, and their compressed size."""

    members: list[tuple[Member, bytes]] = field(default_factory=list)
    size: int = 0


def newest_checkpoint(run: Path) -> list[Path]:
    """The files of the newest checkpoint; one that is still being written has another name."""
    folders = sorted(run.glob("checkpoints/iter_*"), key=lambda folder: int(folder.name[5:]))
    return sorted(path for path in folders[-1].rglob("*") if path.is_file()) if folders else []


def members(runs: Sequence[Path], states: bool) -> Iterator[Member]:
    """The files to pack, the most important first; without `states` histories alone."""
    histories = [(run, [run / name for name in HISTORIES]) for run in runs]
    checkpoints = [(run, [*newest_checkpoint(run), *sorted(run.glob("policies/*"))]) for run in runs]
    metrics = [(run, [run / name for name in METRICS]) for run in runs]
    for run, files in [*histories, *checkpoints, *metrics] if states else histories:
        yield from (Member(path, f"{run.name}/{path.relative_to(run)}") for path in files)


def read(path: Path) -> bytes | None:
    """The content of a file; None where there is none: a run that is training deletes old checkpoints."""
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None


def fill(files: Iterator[Member], size: int, count: int) -> tuple[list[Archive], list[str]]:
    """At most `count` archives of at most `size` bytes, and the names of files that have no room."""
    archives, left_out = [Archive() for _ in range(count)], list[str]()
    for member in files:
        content = read(member.path)
        if content is None:
            continue
        room = size - min(archive.size for archive in archives)
        if len(content) > MIB and len(content) * SHRINKS > room:  # not worth compressing
            left_out.append(member.name)
            continue
        needed = len(gzip.compress(content, 6)) + HEADER
        for archive in archives:
            if archive.size + needed <= size:
                archive.members.append((member, content))
                archive.size += needed
                break
        else:
            left_out.append(member.name)
    return [archive for archive in archives if archive.members], left_out


def write(archive: Archive, path: Path) -> None:
    """Write one archive; it appears under its name when it is complete."""
    unfinished = path.with_name(f".{path.name}")
    with tarfile.open(unfinished, "w:gz", compresslevel=6) as tar:
        for member, content in archive.members:
            info = tarfile.TarInfo(member.name)
            info.size, info.mode = len(content), 0o600
            tar.addfile(info, io.BytesIO(content))
    os.replace(unfinished, path)


def pack(
    prefix: Path, runs: Sequence[Path], size: int = 15 * MIB, count: int = 7, states: bool = True
) -> list[str]:
    """Pack these runs as PREFIX-0.tar.gz and so on; the names of files that have no room."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    archives, left_out = fill(members(runs, states), size, count)
    for number in range(count):
        path = prefix.with_name(f"{prefix.name}-{number}.tar.gz")
        if number < len(archives):
            write(archives[number], path)
        else:
            path.unlink(missing_ok=True)
    return left_out


def unpack(archives: Sequence[Path], folder: Path) -> None:
    """Extract archives into a folder of runs; names that lead out of it are refused."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in archives:
        with tarfile.open(path) as tar:
            tar.extractall(folder, filter="data")


def main(arguments: list[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("paths", nargs="+", type=Path, help="PREFIX and run folders; with --unpack: archives")
    parser.add_argument("--unpack", type=Path, metavar="FOLDER", help="extract the archives into this folder")
    parser.add_argument("--size", type=float, default=15.0, help="MiB of an archive, at most (%(default)s)")
    parser.add_argument("--archives", type=int, default=7, help="archives, at most (%(default)s)")
    options = parser.parse_args(arguments)
    if options.unpack:
        unpack(options.paths, options.unpack)
        return 0
    prefix, *runs = options.paths
    runs = [run for run in runs if (run / "config.yaml").exists()]
    if not runs:
        parser.error("no folder of a run was named")
    left_out = pack(prefix, runs, int(options.size * MIB), options.archives)
    for name in left_out:
        print(f"no room: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
