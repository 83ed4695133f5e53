"""rematch check: every enabled component once, in seconds, before hours are spent on a run.

`rehearse` plays a small copy of a run: first in this process with a config that notes what is read, then as
three commands: an undisturbed twin, one that is killed (SIGKILL) in the middle, and its resumption, whose
folders must be equal byte for byte. Everything happens in a temporary folder that is removed afterwards.
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
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.compare import compared, differences, event_log, events
from rematch.rehearsal.kill_and_resume import Stage as Stage
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import Recorder, play
from rematch.storage.policy_files import policy_names
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.components.past_policies import PastPolicies
from rematch.training.config import components_of, no_effect, section
from rematch.training.setup import RunSetup

__all__ = ["event_log", "rehearse"]

NAME_WIDTH = 24  # of a line's first column
PRODUCTS = {"picture": ("learning.png", b"\x89PNG"), "film": ("match.gif", b"GIF8"),
            "report": ("report.html", b"<!doctype html>")}


# --- what fired -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One line of the trial. `off` says why it is not enabled; `proof` is empty where it did not fire."""

    name: str
    proof: Callable[[], str]
    off: str = ""


def component_features(config: Config, trial: Recorder) -> Iterator[Feature]:
    """What every component says it did; why the others are switched off."""
    setup, built = RunSetup(config), {type(part): part for part in trial.trainer.parts}
    for kind in components_of(config):
        if kind in built:
            for line in built[kind].evidence(trial.record):
                proof = partial(str, line.proof)
                if line.without:
                    proof = partial(changed_run, config, line.without, trial.folder)
                yield Feature(name=line.name, proof=proof, off=line.off)
        elif kind is not PastPolicies:  # those are looked for in the finished run's folder
            off = kind.off(section(config, kind), setup) or "not built"
            yield Feature(name=kind.name, proof=str, off=off)


def changed_run(config: Config, without: Mapping[str, Any], folder: Path) -> str:
    """Whether the run in `folder` differs from one with the settings `without`."""
    other = settings.replace(settings.untracked(config), dict(without))
    return "without it the run is another" if event_log(other) != events(folder) else ""


def product_features(config: Config, folder: Path, iterations: int) -> Iterator[Feature]:
    """What lies in a finished run's folder, read back."""

    def saved() -> str:
        with Run.open(folder, write=False) as run:
            checkpoint = run.load()
        if checkpoint is None or checkpoint.manifest.iteration != iterations or checkpoint.skipped:
            return ""
        return f"{checkpoint.folder.name} verifies"

    def policies() -> str:
        found = sorted((folder / "policies").glob("*.safetensors"))
        return ", ".join(f"{path.stem} ({len(Run.read_policy(path)[0])} arrays)" for path in found)

    def past() -> str:
        kept = sorted(policy_names(folder, PAST_FOLDER))
        return f"kept after iterations {', '.join(str(int(name)) for name in kept)}" if kept else ""

    yield Feature(name="checkpoint", proof=saved)
    yield Feature(name="policies", proof=policies)
    setup = RunSetup(config)
    off = PastPolicies.off(config.past_policies, setup)
    yield Feature(name=PastPolicies.name, proof=past, off=off)
    for name, (file, magic) in PRODUCTS.items():
        def written(file: str = file, magic: bytes = magic) -> str:
            data = (folder / file).read_bytes()
            return f"{file}, {len(data):,} bytes" if data.startswith(magic) else ""

        draws = name != "film" or setup.game.renderer is not None
        yield Feature(name=name, proof=written, off="" if draws else f"{config.game} draws no pictures")


# --- kill and resume --------------------------------------------------------------------------------------


def killed_and_resumed(stage: Stage, twin: Path, resume: str = "state") -> Feature:
    """The Feature "kill and resume", played out now."""
    folder = stage.place / "killed"

    def proof() -> str:
        newest = stage.kill_midway(folder)
        stage.finish(stage.start("resume", str(folder)))
        unlike = differences(twin, folder)
        if unlike:
            raise ConfigError(f"not the undisturbed run's bytes: {', '.join(unlike[:5])}")
        return f"SIGKILL at {newest}, resumed: all {len(compared(twin))} files equal the undisturbed run's"

    anew = "the world does not repeat itself: its games begin anew, not to the same bits"
    return Feature(name="kill and resume", proof=proof, off=anew if resume == "episode" else "")


# --- the whole --------------------------------------------------------------------------------------------


def rehearse(config: Config) -> int:
    """Fire every enabled feature of a run once and print a line for each; 0 if all went well, else 1."""
    small, read = shrink(config), set[str]()
    failed = False
    with tempfile.TemporaryDirectory(prefix="rematch-check-") as place, \
            contextlib.closing(Stage(Path(place), small)) as stage:
        twin = Path(place) / "twin"
        undisturbed = stage.start("train", str(stage.recipe), "--name", str(twin))
        tracked = settings.track(small, read)
        seen, why = _guarded(lambda: play(tracked, Path(place) / "tracked"))
        if seen is None:
            return _tell("rollout and learning", why, False)
        for feature in component_features(small, seen):
            failed |= _perform(feature)
        _, why = _guarded(lambda: stage.finish(undisturbed))
        if why:
            return _tell("training as a command", why, False)
        resumed = killed_and_resumed(stage, twin, seen.trainer.setup.spec.resume)
        for feature in [*product_features(small, twin, seen.trainer.clock.iteration), resumed]:
            failed |= _perform(feature)
    return int(failed | _tell_unread(small, read, seen.trainer.setup))


def _guarded(act: Callable[[], Any]) -> tuple[Any, str]:
    """What `act` gives, or why it failed in one line: a rehearsal exists to meet errors of any kind."""
    try:
        return act(), ""
    except ConfigError as error:
        return None, str(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__}: {error} ({Path(at.filename).name} line {at.lineno})"


def _perform(feature: Feature) -> bool:
    """Print a feature's line; True if it is on and did not fire."""
    if feature.off:
        print(f"{feature.name:<{NAME_WIDTH}} off      {feature.off}", flush=True)
        return False
    proof, why = _guarded(feature.proof)
    return bool(_tell(feature.name, why or proof or "enabled but never fired", bool(proof)))


def _tell(name: str, text: str, fine: bool) -> int:
    result = "fired " if fine else "FAILED"
    print(f"{name:<{NAME_WIDTH}} {result}   {' '.join(str(text).split())}", flush=True)
    return int(not fine)


def _tell_unread(config: Config, read: set[str], setup: RunSetup | None = None) -> bool:
    """Name the settings that nothing read: a line for all of a part that idle for one reason, and one for
    each that has none. True if there is such a one."""
    every = [key for key, _, _ in settings.leaves(config)]
    unread = [key for key in every if key not in read]
    print(f"{'settings':<{NAME_WIDTH}} {len(every) - len(unread)} of {len(every)} were read", flush=True)
    idle: dict[tuple[str, str], list[str]] = {}
    for key in unread:
        part, _, name = key.rpartition(".")
        why = settings.has_effect(config, key) or (no_effect(config, key, setup) if setup else "")
        idle.setdefault((part, why) if why else (key, ""), []).append(name)
    for (part, why), leaves in idle.items():
        if not why:
            print(f"  {part}: NOTHING READ IT", flush=True)
            continue
        whole = len(leaves) == sum(key.startswith(f"{part}.") for key in every)
        which = f"all {len(leaves)}" if whole else ", ".join(leaves)
        print(f"  {part or 'run'}: {why}; no effect: {which}", flush=True)
    return not all(why for _, why in idle)
