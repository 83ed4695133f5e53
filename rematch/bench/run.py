"""`rematch bench`: how fast it is, beside its peers, in one run. See docs/results/speed.md.

Everything is timed in one process, in turns. A missed target is said, and is no error: this is a measurement.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rematch.bench import card_games, rematch_subject
from rematch.bench.timing import REPETITIONS, Measurement, Subject, best, in_turns, load, ratio
from rematch.core.errors import ConfigError, NotInstalled
from rematch.reporting.result import Block, Lines, Result
from rematch.verbs.arguments import world_name
from rematch.worlds import registry
from rematch.worlds.capabilities import Benchmark

THREADS = (1, 2)
PEER_GAMES = 1024
MISSING = f"{NotInstalled('Stable-Baselines3', 'stable-baselines3')}; ours is measured alone"
LEARNING_GAMES = 200  # per scripted rival; the score is the mean over all of them


class BenchmarkResult(Result):
    """Measurements of one machine, and whether the targets were met."""

    def __init__(self, values: Mapping[str, Any], text: Sequence[str]) -> None:
        super().__init__(values)
        self.text = list(text)

    def blocks(self) -> Iterator[Block]:
        yield Lines(self.text)


def benchmark(world: str = "pursuit", seconds: float = 5.0) -> BenchmarkResult:
    """Measure a world. Each thing is timed for `seconds` in all, REPETITIONS times a part of it."""
    world = world_name(world)
    asked = registry.find(world).benchmark or Benchmark()
    if asked.measure is not None:
        about, told = asked.measure(seconds)
        if asked.recipe is not None:
            recipe, wanted = asked.recipe
            about["training"] = training(recipe, wanted, seconds)
            told.append(training_line(about["training"]))
        return BenchmarkResult(about, told)
    if asked.card_game is not None:
        about = card_games.measure(world, asked.card_game(), seconds, machine())
        return BenchmarkResult(about, card_games.lines(about, short))
    about = measure(world, seconds)
    return BenchmarkResult(about, lines(about))


def training(recipe: str, wanted: float, seconds: float) -> dict[str, Any]:
    """Environment steps a second while a recipe trains, and whether that is what was wanted."""
    (measured,) = in_turns([rematch_subject.trained(recipe)], seconds / REPETITIONS)
    return measured.row() | {"wanted": wanted, "met": measured.median >= wanted}


def training_line(row: dict[str, Any]) -> str:
    low, high = min(row["rates"]), max(row["rates"])
    wanted = f"wanted {row['wanted']:.0f}: {'met' if row['met'] else 'missed'}"
    return f"  {row['name']}: {row['median']:.0f} steps/s ({low:.0f} to {high:.0f}; {wanted})"


def measure(world: str, seconds: float) -> dict[str, Any]:
    """Everything that the table shows, as plain data."""
    started = load()
    alone: list[Subject] = [rematch_subject.WorldAlone(world, t) for t in THREADS]
    pinned = [
        rematch_subject.Training("rematch", rematch_subject.configure(world, t, rematch_subject.PINNED))
        for t in THREADS
    ]
    asked = [rematch_subject.configure(world, t, rematch_subject.DOCUMENTS) for t in THREADS]
    documents = [rematch_subject.Training("rematch, documents'", config) for config in asked]
    role = next(iter(documents[0].trainer.setup.spec.roles))
    lone = [rematch_subject.Training("rematch, documents', one role", config, role) for config in asked]
    peers, peer_documents, peer = peer_subjects(world, (role, lone[0].settings["rival"]))
    groups: dict[str, Sequence[Subject]] = {
        "alone": alone, "pinned": pinned, "peer": peers,
        "documents": documents, "lone": lone, "peer_documents": peer_documents,
    }  # fmt: skip
    measured = in_turns([subject for group in groups.values() for subject in group], seconds / REPETITIONS)
    found = {name: [m for m in measured if m.subject in group] for name, group in groups.items()}
    for training in pinned:
        training.settings["rivals_share"] = training.rivals_share()
    games = max(2, min(LEARNING_GAMES, round(LEARNING_GAMES * seconds)))
    return {
        "world": world, "seconds": seconds, "repetitions": REPETITIONS, "machine": machine(), "peer": peer,
        "measurements": [m.row() for m in measured],
        "targets": targets(found),
        "learning": rematch_subject.learning(world, max(THREADS), 1.5 * seconds, games),
        "load": {"before": started, "after": load()},
    }  # fmt: skip


def peer_subjects(
    world: str, players: tuple[str, str]
) -> tuple[list[Subject], list[Subject], dict[str, Any]]:
    """Stable-Baselines3 with many games (two networks, its default; a shared trunk), and the documents'."""
    try:
        from rematch.bench.sb3_subject import VERSION, Peer
    except (ImportError, ConfigError):
        return [], [], {"name": "stable-baselines3", "version": None, "missing": MISSING}
    many = rematch_subject.PINNED | {"games": PEER_GAMES}
    peers: list[Subject] = []
    for shared in (False, True):
        name = "Stable-Baselines3, shared trunk" if shared else "Stable-Baselines3"
        for t in THREADS:
            peers.append(
                Peer(name, rematch_subject.configure(world, t, many | {"network.shared": shared}), t, players)
            )
    asked = rematch_subject.configure(world, 1, rematch_subject.DOCUMENTS)
    documents: list[Subject] = [Peer("Stable-Baselines3, documents'", asked, t, players) for t in THREADS]
    return peers, documents, {"name": "stable-baselines3", "version": VERSION, "missing": None}


def machine() -> dict[str, Any]:
    try:
        words = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(":")[2].strip() for line in words if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    if "torch" in sys.modules:
        versions["torch"] = sys.modules["torch"].__version__
    return {"processor": processor, "processors": os.cpu_count(), "versions": versions}


def target(name: str, value: float | None, wanted: float, aim: float | None = None) -> dict[str, Any]:
    met = None if value is None else value >= wanted
    return {"name": name, "value": value, "wanted": wanted, "aim": aim, "met": met}


def targets(found: dict[str, list[Measurement]]) -> list[dict[str, Any]]:
    """What issue and design ask for, and whether it was reached here. value None: not measured."""
    one, two = found["alone"]
    out = [
        target("world alone, arena-steps/s on one thread", one.median, 15e6),
        target("world alone, two threads over one", two.median / one.median, 1.7)
        | {"ratio": ratio("two threads over one", two, one)},
        target("learner steps/s with two threads", found["pinned"][1].median, 300_000),
    ]
    pairs = (
        ("over Stable-Baselines3's best, many games", "pinned", "peer", 2.0, None),
        ("over Stable-Baselines3's best, documents', both roles", "documents", "peer_documents", 1.3, 2.0),
        ("over Stable-Baselines3's best, documents', one role", "lone", "peer_documents", 1.3, 2.0),
    )
    for name, mine, theirs, wanted, aim in pairs:
        if found[theirs]:
            times = ratio(name, best(found[mine]), best(found[theirs]))
            out.append(target(name, times["value"], wanted, aim) | {"ratio": times})
        else:
            out.append(target(name, None, wanted, aim))
    return out


def short(value: float) -> str:
    """Three or so digits: 17.2 M, 412 K, 1.71."""
    for size, letter in ((1e6, " M"), (1e3, " K")):
        if value >= size:
            return f"{value / size:.3g}{letter}" if value < 100 * size else f"{value / size:.0f}{letter}"
    return f"{value:.3g}"


def described(row: dict[str, Any]) -> str:
    """A measurement's settings in a few words."""
    s = row["settings"]
    if "epochs" not in s:
        return f"{s['games']} games"
    trunk = "shared" if s["shared_trunk"] else "separate"
    network = "-".join(map(str, s["network"]))
    words = f"{s['games']} x {s['steps']}, {network} {trunk}, batch {s['batch']}, {s['epochs']} epochs"
    return words + ("" if "rivals_share" not in s else f", rivals in {s['rivals_share']:.0%} of seats")


def lines(about: dict[str, Any]) -> list[str]:
    """The table for people."""
    m, rows = about["machine"], about["measurements"]
    out = [
        f"world {about['world']}; {m['processor']}, {m['processors']} processors; "
        f"load {about['load']['before']:.2f} before, {about['load']['after']:.2f} after",
        f"{about['repetitions']} repetitions in turns; median (range), and the processors it got on average",
        "",
    ]
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        span = f"({short(row['min'])} to {short(row['max'])})"
        out.append(
            f"{row['name']:<{width}}  threads {row['threads']}  {short(row['median']):>7} {span:<19} "
            f"{row['unit']:<15} CPU {row['cpu_seconds'] / row['wall_seconds']:.2f}  {described(row)}"
        )
    if about["peer"]["missing"]:
        out.append(about["peer"]["missing"])
    out.append("")
    for t in about["targets"]:
        met = "not measured" if t["met"] is None else "met" if t["met"] else "MISSED"
        value = "-" if t["value"] is None else short(t["value"])
        span = f" ({short(t['ratio']['min'])} to {short(t['ratio']['max'])})" if "ratio" in t else ""
        aim = "" if t["aim"] is None else f", aim {short(t['aim'])}"
        out.append(f"{met:<12} {t['name']}: {value}{span}; wanted {short(t['wanted'])}{aim}")
    return [*out, *learning_lines(about["learning"])]


def learning_lines(about: dict[str, Any]) -> list[str]:
    """Whether the timed set-up learns."""
    roles = [key for key in about["curve"][0] if key not in ("learner_steps", "seconds")]
    out = [
        f"{'met' if about['learns'] else 'MISSED':<12} the timed set-up learns, its control does not: "
        f"mean score against every scripted rival, {about['games_per_rival']} games each"
    ]
    for point in about["curve"]:
        scores = ", ".join(f"{role} {point[role]:.2f}" for role in roles)
        steps = f"after {short(point['learner_steps'])} learner steps ({point['seconds']:.1f} s)"
        out.append(f"  {steps:<44} {scores}")
    control = about["control"]
    scores = ", ".join(f"{role} {control[role]:.2f}" for role in roles)
    still = "unchanged" if about["control_weights_unchanged"] else "CHANGED"
    steps = f"rate 0, after {short(control['learner_steps'])} learner steps"
    out.append(f"  {steps:<44} {scores} (weights {still})")
    return out
