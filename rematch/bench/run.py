"""`rematch bench`: speed of Rematch and of other libraries, measured together. See docs/results/speed.md.

Everything is timed in one process, in turns. A missed target is reported and is not an error.
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
from rematch.bench.timing import (
    REPETITIONS,
    Measurement,
    Subject,
    announce,
    best,
    load_average,
    measure_in_turns,
    ratio,
)
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system.progress import PROGRESS
from rematch.reporting.result import Block, Lines, Result
from rematch.verbs.arguments import world_name
from rematch.worlds import registry
from rematch.worlds.capabilities import Benchmark

THREADS = (1, 2)
PEER_GAMES = 1024
SB3_MISSING = f"{NotInstalled('Stable-Baselines3', 'stable-baselines3')}; only Rematch is measured"
WORLD = "pursuit"  # that is measured where none is named
LEARNING_GAMES = 200  # per bot; the score is the mean over all bots


class BenchmarkResult(Result):
    """Measurements on one machine, and whether the targets were met."""

    def __init__(self, values: Mapping[str, Any], text: Sequence[str]) -> None:
        super().__init__(values)
        self.text = list(text)

    def blocks(self) -> Iterator[Block]:
        yield Lines(self.text)


def benchmark(world: str = WORLD, seconds: float = 5.0, device: str = "cpu") -> BenchmarkResult:
    """Measures a world. Each subject is timed for `seconds` in total, split into REPETITIONS parts.

    device: cpu; cuda: training on the GPU, beside Stable-Baselines3 with its networks on the same card.
    """
    world = world_name(world)
    check_device(world, device)
    if device == "cuda":
        from rematch.bench import gpu_benchmark

        report = gpu_benchmark.measure(world, seconds) | {"machine": machine()}
        return BenchmarkResult(report, lines(report))
    settings = registry.find(world).benchmark or Benchmark()
    if settings.measure is not None:
        report, text = settings.measure(seconds)
        if settings.recipe is not None:
            recipe, target = settings.recipe
            report["training"] = training(recipe, target, seconds)
            text.append(training_line(report["training"]))
        return BenchmarkResult(report, text)
    if settings.card_game is not None:
        report = card_games.measure(world, settings.card_game(), seconds, machine())
        return BenchmarkResult(report, card_games.lines(report, short))
    report = measure(world, seconds)
    return BenchmarkResult(report, lines(report))


def check_device(world: str, device: str) -> None:
    """ConfigError where this world cannot be measured on this device."""
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"--device = {device!r}: expected cpu or cuda")
    if device == "cuda":
        from rematch.bench import gpu_benchmark

        gpu_benchmark.check(world)


def training(recipe: str, target: float, seconds: float) -> dict[str, Any]:
    """Environment steps per second while a recipe trains, and whether the target was met."""
    (measurement,) = measure_in_turns([rematch_subject.warmed_up_training(recipe)], seconds / REPETITIONS)
    return measurement.row() | {"wanted": target, "met": measurement.median >= target}


def training_line(row: dict[str, Any]) -> str:
    low, high = min(row["rates"]), max(row["rates"])
    verdict = f"target {row['wanted']:.0f}: {'met' if row['met'] else 'missed'}"
    return f"  {row['name']}: {row['median']:.0f} steps/s ({low:.0f} to {high:.0f}; {verdict})"


def measure(world: str, seconds: float) -> dict[str, Any]:
    """All values of the report, as JSON-compatible data."""
    load_before = load_average()
    PROGRESS.report(0.0, "preparing the trainings of Rematch")
    alone: list[Subject] = [rematch_subject.WorldStepping(world, t) for t in THREADS]
    pinned = [
        rematch_subject.Training("rematch", rematch_subject.configure(world, t, rematch_subject.PINNED))
        for t in THREADS
    ]
    configs = [rematch_subject.configure(world, t, rematch_subject.EARLIER_PROJECT) for t in THREADS]
    earlier_project = [
        rematch_subject.Training("rematch, earlier project's settings", config) for config in configs
    ]
    role = next(iter(earlier_project[0].trainer.setup.spec.roles))
    one_role = [
        rematch_subject.Training("rematch, earlier project's settings, one role", config, role)
        for config in configs
    ]
    peers, peer_earlier_project, peer = peer_subjects(world, (role, one_role[0].settings["rival"]))
    groups: dict[str, Sequence[Subject]] = {
        "world": alone, "pinned": pinned, "peer": peers,
        "earlier_project": earlier_project, "one_role": one_role,
        "peer_earlier_project": peer_earlier_project,
    }  # fmt: skip
    subjects = [subject for group in groups.values() for subject in group]
    with PROGRESS.part(0.0, 0.8):
        measured = measure_in_turns(subjects, seconds / REPETITIONS)
    by_group = {name: [m for m in measured if m.subject in group] for name, group in groups.items()}
    for training in pinned:
        training.settings["rivals_share"] = training.opponent_seat_share()
    games = max(2, min(LEARNING_GAMES, round(LEARNING_GAMES * seconds)))
    announce(f"whether the timed training learns: {1.5 * seconds:g} s of training, then {games} games "
             "against each bot, several times")
    with PROGRESS.part(0.8, 1.0):
        learning = rematch_subject.learning(world, max(THREADS), 1.5 * seconds, games)
    return {
        "world": world, "seconds": seconds, "repetitions": REPETITIONS, "machine": machine(), "peer": peer,
        "measurements": [m.row() for m in measured],
        "targets": targets(by_group),
        "learning": learning,
        "load": {"before": load_before, "after": load_average()},
    }  # fmt: skip


def peer_subjects(
    world: str, players: tuple[str, str]
) -> tuple[list[Subject], list[Subject], dict[str, Any]]:
    """Stable-Baselines3 with many games (separate networks, its default, or a shared trunk), and with the
    settings of the earlier project; information about the library.
    """
    PROGRESS.report(0.0, "preparing the trainings of Stable-Baselines3")
    try:
        from rematch.bench.sb3_subject import VERSION, Sb3Training
    except (ImportError, ConfigError):
        return [], [], {"name": "stable-baselines3", "version": None, "missing": SB3_MISSING}
    many_games = rematch_subject.PINNED | {"games": PEER_GAMES}
    peers: list[Subject] = []
    for shared in (False, True):
        name = "Stable-Baselines3, shared trunk" if shared else "Stable-Baselines3"
        for t in THREADS:
            peers.append(
                Sb3Training(
                    name,
                    rematch_subject.configure(world, t, many_games | {"network.shared": shared}),
                    t,
                    players,
                )
            )
    config = rematch_subject.configure(world, 1, rematch_subject.EARLIER_PROJECT)
    earlier_project: list[Subject] = [
        Sb3Training("Stable-Baselines3, earlier project's settings", config, t, players) for t in THREADS
    ]
    return peers, earlier_project, {"name": "stable-baselines3", "version": VERSION, "missing": None}


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


def target(name: str, value: float | None, minimum: float, aim: float | None = None) -> dict[str, Any]:
    met = None if value is None else value >= minimum
    return {"name": name, "value": value, "wanted": minimum, "aim": aim, "met": met}


def targets(by_group: dict[str, list[Measurement]]) -> list[dict[str, Any]]:
    """The targets and whether they were met; value None: not measured."""
    one, two = by_group["world"]
    results = [
        target("world alone, arena-steps/s on one thread", one.median, 15e6),
        target("world alone, two threads over one", two.median / one.median, 1.7)
        | {"ratio": ratio("two threads over one", two, one)},
        target("learner steps/s with two threads", by_group["pinned"][1].median, 300_000),
    ]
    pairs = (
        ("over Stable-Baselines3's best, many games", "pinned", "peer", 2.0, 3.5),
        (
            "over Stable-Baselines3's best, earlier project's settings, both roles",
            "earlier_project",
            "peer_earlier_project",
            1.3,
            2.0,
        ),
        (
            "over Stable-Baselines3's best, earlier project's settings, one role",
            "one_role",
            "peer_earlier_project",
            1.3,
            2.0,
        ),
    )
    for name, own_group, peer_group, minimum, aim in pairs:
        if by_group[peer_group]:
            speedup = ratio(name, best(by_group[own_group]), best(by_group[peer_group]))
            results.append(target(name, speedup["value"], minimum, aim) | {"ratio": speedup})
        else:
            results.append(target(name, None, minimum, aim))
    return results


def short(value: float) -> str:
    """A number with about three digits: 17.2 M, 412 K, 1.71."""
    for size, letter in ((1e6, " M"), (1e3, " K")):
        if value >= size:
            return f"{value / size:.3g}{letter}" if value < 100 * size else f"{value / size:.0f}{letter}"
    return f"{value:.3g}"


def describe_settings(row: dict[str, Any]) -> str:
    """Settings of a measurement in a few words."""
    s = row["settings"]
    if "epochs" not in s:
        return f"{s['games']} games"
    trunk = "shared" if s["shared_trunk"] else "separate"
    network = "-".join(map(str, s["network"]))
    text = f"{s['games']} x {s['steps']}, {network} {trunk}, batch {s['batch']}, {s['epochs']} epochs"
    return text + ("" if "rivals_share" not in s else f", opponents in {s['rivals_share']:.0%} of seats")


def lines(report: dict[str, Any]) -> list[str]:
    """The report as lines of text."""
    m, rows = report["machine"], report["measurements"]
    card = f"{report['card']}, " if "card" in report else ""
    text = [
        f"world {report['world']}; {card}{m['processor']}, {m['processors']} processors; "
        f"load {report['load']['before']:.2f} before, {report['load']['after']:.2f} after",
        f"{report['repetitions']} repetitions in turns; median (range); CPU: processors used on average",
        "",
    ]
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        rate_range = f"({short(row['min'])} to {short(row['max'])})"
        text.append(
            f"{row['name']:<{width}}  threads {row['threads']}  {short(row['median']):>7} {rate_range:<19} "
            f"{row['unit']:<15} CPU {row['cpu_seconds'] / row['wall_seconds']:.2f}  {describe_settings(row)}"
        )
    if report["peer"]["missing"]:
        text.append(report["peer"]["missing"])
    text += [*report.get("not_measured", []), ""]
    for t in report["targets"]:
        met = "not measured" if t["met"] is None else "met" if t["met"] else "MISSED"
        value = "-" if t["value"] is None else short(t["value"])
        rate_range = f" ({short(t['ratio']['min'])} to {short(t['ratio']['max'])})" if "ratio" in t else ""
        aim = "" if t["aim"] is None else f", aim {short(t['aim'])}"
        text.append(f"{met:<12} {t['name']}: {value}{rate_range}; target {short(t['wanted'])}{aim}")
    return [*text, *learning_lines(report["learning"])]


def learning_lines(learning: dict[str, Any]) -> list[str]:
    """Lines of the report: whether the timed training learns."""
    roles = [key for key in learning["curve"][0] if key not in ("learner_steps", "seconds")]
    text = [
        f"{'met' if learning['learns'] else 'MISSED':<12} the timed training learns, its control does not: "
        f"mean score against all bots, {learning['games_per_rival']} games each"
    ]
    for point in learning["curve"]:
        scores = ", ".join(f"{role} {point[role]:.2f}" for role in roles)
        steps = f"after {short(point['learner_steps'])} learner steps ({point['seconds']:.1f} s)"
        text.append(f"  {steps:<44} {scores}")
    control = learning["control"]
    scores = ", ".join(f"{role} {control[role]:.2f}" for role in roles)
    weights = "unchanged" if learning["control_weights_unchanged"] else "CHANGED"
    steps = f"learning rate 0, after {short(control['learner_steps'])} learner steps"
    text.append(f"  {steps:<44} {scores} (weights {weights})")
    return text
