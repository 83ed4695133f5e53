"""The columns of some games of a rollout by name: how a rollout travels between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from rematch.core.arrays import Tree, stored_array, stored_int, stored_list, stored_text
from rematch.rollout.rollout_buffer import RolloutBuffer

OF_ROLLOUT = ("ended", "length", "states", "forced", "demo_index")  # [T, N, ...]
OF_ROLE = (
    "obs", "action", "mask", "privileged", "logp", "value", "reward", "acted", "slot", "outcome",
    "cut_value",
)  # fmt: skip
LAST = ("last_value", "last_acting")  # [N, k]
Convert = Callable[[Any], Any]


def columns(rollout: RolloutBuffer, games: slice) -> dict[str, NDArray[Any]]:
    """Name -> the rows of these games, views of the buffer's own memory."""
    out = {name: getattr(rollout, name)[:, games] for name in OF_ROLLOUT
           if getattr(rollout, name) is not None}
    for role, track in rollout.tracks.items():
        for name in OF_ROLE:
            if getattr(track, name) is not None:
                out[f"{role}.{name}"] = getattr(track, name)[:, games]
        for name in LAST:
            out[f"{role}.{name}"] = getattr(track, name)[games]
    return out


def events(rollout: RolloutBuffer, pack: Convert) -> Tree:
    """The lists of a rollout; `pack` makes an array of a savestate."""
    return {"events": [list(event) for event in rollout.events],
            "captured": [[t, game, pack(state)] for t, game, state in rollout.captured],
            "episode_infos": [list(info) for info in rollout.episode_infos]}


def load_columns(rollout: RolloutBuffer, games: slice, tree: Tree) -> None:
    """Write the columns of these games; ValueError where a name, shape or type differs."""
    targets = columns(rollout, games)
    if tree.keys() != targets.keys():
        raise ValueError(f"columns {', '.join(sorted(tree.keys() ^ targets.keys()))}: expected in both")
    for name, target in targets.items():
        target[...] = stored_array(tree, name, target)


def load_events(rollout: RolloutBuffer, games: slice, tree: Tree, unpack: Convert) -> None:
    """Append the lists of these games; `unpack` is the inverse of `pack`."""
    most = {"step": rollout.steps - 1, "game": games.stop - games.start - 1}

    def place(entry: Any) -> tuple[int, int]:
        pair = dict(zip(("step", "game"), entry[:2]))
        step = stored_int(pair, "step", 0, most["step"])
        return step, games.start + stored_int(pair, "game", 0, most["game"])

    rollout.events.extend(
        [(*place(entry), stored_text({"name": entry[2]}, "name")) for entry in stored_list(tree, "events")])
    rollout.captured.extend(
        [(*place(entry), unpack(entry[2])) for entry in stored_list(tree, "captured")])
    rollout.episode_infos.extend(
        [(*place(entry), dict(entry[2])) for entry in stored_list(tree, "episode_infos")])
