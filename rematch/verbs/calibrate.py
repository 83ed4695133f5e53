"""Finds the value of a setting at which trained agents reach a target win rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.evaluation.text import clean, human
from rematch.reporting.result import Block, Result, Table
from rematch.sweeps import calibration
from rematch.sweeps.calibration import Request, check_key, check_role
from rematch.sweeps.plan import read_seeds
from rematch.sweeps.run_place import Limits
from rematch.training import recipes
from rematch.verbs.arguments import Log, silent
from rematch.worlds import registry

MEANING = (
    "Interval of a value: 95 %, Student's over the seeds (never narrower than that of all games together). "
    "Interval of the result: it ends at the nearest values whose interval excludes the target; no model is "
    "assumed between them."
)


class CalibrationResult(Result):
    """The calibrated value with its interval, and the win rate at every value that was tried."""

    def blocks(self) -> Iterator[Block]:
        yield Table([["value", "mean win rate", "95 % interval", "seeds", "target is"],
                     *(point_cells(point) for point in self["points"])], right=(0, 1))
        yield ""
        yield self.sentence()
        yield MEANING

    def sentence(self) -> str:
        """The result in one sentence, with its cost."""
        key, role, target = self["key"], self["role"], self["target"]
        cost = f"{self['runs']} runs, {human(self['steps'])} steps"
        if self["failed"]:
            return clean(f"A run failed: {self['failed']}")
        if self["value"] is not None:
            return (f"{key} = {self['value']:.4g} [{self['low']:.4g}, {self['high']:.4g}]: there {role} "
                    f"wins {target:.0%} of the games ({cost}).")
        if len(self["points"]) < 2:
            return f"Stopped before both ends of the range were measured ({cost})."
        ends = " and ".join(f"{point['mean']:.3f} at {point['value']:g}"
                            for point in (self["points"][0], self["points"][-1]))
        return (f"The range does not contain the target: {role} wins {ends}, and {target:g} is wanted "
                f"({cost}). Choose another --range.")


def point_cells(point: Mapping[str, Any]) -> list[str]:
    rates = " ".join(f"{rate:.3f}" for rate in point["rates"])
    side = {"above": "below it", "below": "above it"}.get(point["side"], "within the interval")
    interval = f"[{point['low']:.3f}, {point['high']:.3f}]"
    return [f"{point['value']:g}", f"{point['mean']:.3f}", interval, rates, side]


def make_request(config: Config, recipe: str, options: Mapping[str, Any]) -> Request:
    """A request from `by`, `range`, `role`, `target`, `seeds`, `tolerance`, `rounds`; None: the default."""
    key = str(options["by"]).replace("-", "_")
    value = check_key(config, key)
    bounds = options.get("range")
    if bounds is None:
        if value <= 0:
            raise ConfigError(f"--by = {key}: its value is {value:g}, which suggests no range; expected "
                              "--range LOW,HIGH")
        bounds = (value / 2, value * 2)
    role = check_role(list(registry.find(config.game).spec(config.world).roles), options.get("role") or "")
    chosen = {name: options[name] for name in ("target", "seeds", "tolerance", "rounds")
              if options.get(name) is not None}
    return Request(recipe=recipe, key=key, low=float(bounds[0]), high=float(bounds[1]), role=role, **chosen)


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """How to search; None: the default."""

    range: tuple[float, float] | None = None  # of the setting; half to twice its value
    target: float | None = None  # win rate; 0.5
    role: str | None = None  # whose win rate; the first role
    seeds: str | Iterable[int] | None = None  # "0-2" or numbers; 0 to 2
    tolerance: float | None = None  # width of the bracket at which the search ends; 1 % of the range
    rounds: int | None = None  # values inside the range, at most; 8


def calibrate(
    recipe: str = "quick", *, by: str, options: CalibrationOptions | None = None,
    changes: Mapping[str, Any] | None = None, folder: Path | str | None = None,
    limits: Limits | None = None, log: Log = silent,
) -> CalibrationResult:  # fmt: skip
    """Find the value of the setting `by` at which a role wins the fraction `target` of its games.

    The same call again continues a search that was stopped.
    """
    chosen = options or CalibrationOptions()
    values = asdict(chosen)
    if chosen.seeds is not None:
        text = chosen.seeds if isinstance(chosen.seeds, str) else ",".join(map(str, chosen.seeds))
        values["seeds"] = read_seeds(text)

    def configure(more: Sequence[str]) -> Config:
        return recipes.configure(recipe, flags=more, changes=changes)

    request = make_request(configure([]), recipe, values | {"by": by})
    where = Path(folder) if folder is not None else calibration.usual_folder(recipe, request.key)
    result = calibration.calibrate(request, where, configure, limits or Limits(), log)
    return CalibrationResult(result)
