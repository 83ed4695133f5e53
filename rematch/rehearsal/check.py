"""rematch check: a trial of every enabled component, in seconds, before a long run.

`rehearse` trains a small copy of a run: first in this process, with a config that records which settings are
read; then as commands: one run without interruption, and one that is killed (SIGKILL) in the middle and
resumed. The two folders must be equal byte for byte. All files are in a temporary folder that is removed.
"""

from __future__ import annotations

import contextlib
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.component import user_errors_named
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.evaluation import replay
from rematch.rehearsal.compare import comparable_files, differences, event_log, events
from rematch.rehearsal.kill_and_resume import CommandRunner as CommandRunner
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import Recorder, play
from rematch.storage.policy_files import policy_names
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.components.past_policies import PastPolicies
from rematch.training.config import components_of, no_effect, section
from rematch.training.device import places
from rematch.training.setup import RunSetup
from rematch.worlds import conformance

__all__ = ["event_log", "rehearse"]

NAME_WIDTH = 24  # characters of the first column
PRODUCTS = {"picture": ("learning.png", b"\x89PNG"), "film": ("match.gif", b"GIF8"),
            "report": ("report.html", b"<!doctype html>")}


# --- features ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Feature:
    """`off` is the reason why it is disabled; `proof()` is empty if it never fired."""

    name: str
    proof: Callable[[], str]
    off: str = ""


def component_features(config: Config, trial: Recorder) -> Iterator[Feature]:
    """The evidence of every built component, and the reasons why the others are off."""
    setup, built = RunSetup(config), {type(part): part for part in trial.trainer.parts}
    for kind in components_of(config):
        if kind in built:
            with user_errors_named(kind.name, "evidence"):
                lines = list(built[kind].evidence(trial.record))
            for line in lines:
                proof = partial(str, line.proof)
                if line.without:
                    proof = partial(changed_run, config, line.without, trial.folder)
                yield Feature(name=line.name, proof=proof, off=line.off)
        elif kind is not PastPolicies:  # product_features checks their files
            off = kind.off(section(config, kind), setup) or "not built"
            yield Feature(name=kind.name, proof=str, off=off)


def changed_run(config: Config, without: Mapping[str, Any], folder: Path) -> str:
    """A proof if the run in `folder` differs from a run with the settings `without`, else an empty string."""
    other = settings.replace(settings.untracked(config), dict(without))
    return "the run differs without it" if event_log(other) != events(folder) else ""


def product_features(config: Config, folder: Path, iterations: int) -> Iterator[Feature]:
    """The files in the folder of a finished run, read back."""

    def saved() -> str:
        with Run.open(folder, write=False) as run:
            checkpoint = run.load()
        if checkpoint is None or checkpoint.manifest.iteration != iterations or checkpoint.skipped:
            return ""
        return f"{checkpoint.folder.name} verifies"

    def policies() -> str:
        files = sorted((folder / "policies").glob("*.safetensors"))
        return ", ".join(f"{path.stem} ({len(Run.read_policy(path)[0])} arrays)" for path in files)

    def past() -> str:
        names = sorted(policy_names(folder, PAST_FOLDER))
        return f"stored after iterations {', '.join(str(int(name)) for name in names)}" if names else ""

    yield Feature(name="checkpoint", proof=saved)
    yield Feature(name="policies", proof=policies)
    setup = RunSetup(config)
    off = PastPolicies.off(config.past_policies, setup)
    yield Feature(name=PastPolicies.name, proof=past, off=off)
    for name, (file, magic) in PRODUCTS.items():
        def written(file: str = file, magic: bytes = magic) -> str:
            data = (folder / file).read_bytes()
            return f"{file}, {len(data):,} bytes" if data.startswith(magic) else ""

        enabled = name != "film" or (setup.game.renderer is not None and replay.repeatable(setup.spec))
        yield Feature(name=name, proof=written, off="" if enabled else f"{config.game} draws no pictures")


# --- kill and resume --------------------------------------------------------------------------------------


def kill_and_resume(runner: CommandRunner, undisturbed: Path, resume: str = "state") -> Feature:
    """The feature "kill and resume": a killed and resumed run must equal the run in `undisturbed`."""
    folder = runner.folder / "killed"

    def proof() -> str:
        newest = runner.kill_midway(folder)
        runner.finish(runner.start("resume", str(folder)))
        different = differences(undisturbed, folder)
        if different:
            raise ConfigError(f"files differ from the undisturbed run: {', '.join(different[:5])}")
        count = len(comparable_files(undisturbed))
        return f"SIGKILL at {newest}, resumed: all {count} files equal those of the undisturbed run"

    off = "the world is not reproducible: a resume restarts its episodes"
    return Feature(name="kill and resume", proof=proof, off=off if resume == "episode" else "")


# --- the trial --------------------------------------------------------------------------------------------


def rehearse(config: Config) -> int:
    """Try every enabled feature of a run once and print a line for each; 0 if all fired, else 1."""
    conformance.check_user_game(config.game, config.world)
    small, read = shrink(config), set[str]()
    failed = False
    with tempfile.TemporaryDirectory(prefix="rematch-check-") as name, \
            contextlib.closing(CommandRunner(Path(name), small)) as runner:
        undisturbed = runner.folder / "undisturbed"
        training = runner.start("train", str(runner.recipe), "--name", str(undisturbed))
        tracked = settings.track(small, read)
        trial, error = _guarded(lambda: play(tracked, runner.folder / "tracked"))
        if trial is None:
            return _print_result("rollout and learning", error, False)
        for feature in component_features(small, trial):
            failed |= _check_feature(feature)
        _, error = _guarded(lambda: runner.finish(training))
        if error:
            return _print_result("training as a command", error, False)
        resumed = kill_and_resume(runner, undisturbed, trial.trainer.setup.spec.resume)
        for feature in [*product_features(small, undisturbed, trial.trainer.clock.iteration), resumed]:
            failed |= _check_feature(feature)
    _print_places(config)
    _print_column_reads(trial)
    return int(failed | _print_unread(small, read, trial.trainer.setup))


def _guarded(function: Callable[[], Any]) -> tuple[Any, str]:
    """The result of a function and an empty string, or None and its error in one line, whatever the error."""
    try:
        return function(), ""
    except ConfigError as error:
        return None, str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__}: {error} ({Path(frame.filename).name} line {frame.lineno})"


def _check_feature(feature: Feature) -> bool:
    """Print the line of a feature; True if it is enabled and did not fire."""
    if feature.off:
        print(f"{feature.name:<{NAME_WIDTH}} off      {feature.off}", flush=True)
        return False
    proof, error = _guarded(feature.proof)
    return bool(_print_result(feature.name, error or proof or "enabled but never fired", bool(proof)))


def _print_result(name: str, text: str, fired: bool) -> int:
    """Print the line of a feature; returns 1 if it failed."""
    result = "fired " if fired else "FAILED"
    print(f"{name:<{NAME_WIDTH}} {result}   {' '.join(str(text).split())}", flush=True)
    return int(not fired)


def _print_places(config: Config) -> None:
    """Print where each part of the run is computed."""
    parts = places(RunSetup(config))
    print(f"{'place of each part':<{NAME_WIDTH}} {len(parts)} parts", flush=True)
    for part, place in parts.items():
        print(f"  {part}: {place}", flush=True)


def _print_column_reads(trial: Recorder) -> None:
    """Print the rollout columns that each component read; one on another device would be copied for it."""
    reads = trial.trainer.setup.collector.rollout.reads.columns
    distinct = set().union(*reads.values())
    title = "columns read on the host"
    print(f"{title:<{NAME_WIDTH}} {len(distinct)} by {len(reads)} components", flush=True)
    for name, columns in reads.items():
        print(f"  {name}: {', '.join(sorted(columns))}", flush=True)


def _print_unread(config: Config, read: set[str], setup: RunSetup | None = None) -> bool:
    """Print the settings that no code read: a line per section and reason, and one for each without a reason.

    True if there is a setting without a reason.
    """
    keys = [key for key, _, _ in settings.leaves(config)]
    unread = [key for key in keys if key not in read]
    print(f"{'settings':<{NAME_WIDTH}} {len(keys) - len(unread)} of {len(keys)} were read", flush=True)
    groups: dict[tuple[str, str], list[str]] = {}  # (section, reason), or (key, "") -> names
    for key in unread:
        group, _, name = key.rpartition(".")
        reason = settings.has_effect(config, key) or (no_effect(config, key, setup) if setup else "")
        groups.setdefault((group, reason) if reason else (key, ""), []).append(name)
    for (group, reason), leaves in groups.items():
        if not reason:
            print(f"  {group}: NOTHING READ IT", flush=True)
            continue
        complete = len(leaves) == sum(key.startswith(f"{group}.") for key in keys)
        unused = f"all {len(leaves)}" if complete else ", ".join(leaves)
        print(f"  {group or 'run'}: {reason}; no effect: {unused}", flush=True)
    return not all(reason for _, reason in groups)
