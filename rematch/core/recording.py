"""Recorded games: a replay as data, and an episode of training with its pictures, scores and rewards."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats

DECIDED_END, CUT_OFF_END, BROKEN_OFF, RESIGNED = "decided", "cut off", "broken off", "resigned"
ENDS = (DECIDED_END, CUT_OFF_END, BROKEN_OFF, RESIGNED)


@dataclass(frozen=True)
class CompressedImage:
    """A compressed RGB image: a recording holds hundreds of them until its episode ends."""

    size: tuple[int, int]  # width, height
    data: bytes  # zlib

    @classmethod
    def of(cls, picture: Any) -> CompressedImage:
        """Compress a PIL.Image.Image."""
        return cls(picture.size, zlib.compress(picture.convert("RGB").tobytes(), 1))

    def image(self) -> Any:
        """The PIL.Image.Image."""
        from PIL import Image

        return Image.frombytes("RGB", self.size, zlib.decompress(self.data))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame of a recorded episode: picture, action, action scores, rewards and milestones."""

    picture: CompressedImage  # of the world's renderer
    action: int
    scores: Floats  # [A] Q values or probabilities of the actions
    rewards: Mapping[str, tuple[float, float]]  # term -> value of the previous step, sum so far
    milestones: tuple[tuple[str, float | None, bool], ...]  # name, posterior mean, whether it is reached


@dataclass(frozen=True, kw_only=True)
class EpisodeRecording:
    """A recorded episode with one frame per `steps_per_frame` steps."""

    name: str
    actions: tuple[str, ...]
    frames: list[Frame]
    steps_per_frame: int
    caption: str  # end of the episode: reason, steps, returns


@dataclass(frozen=True, kw_only=True)
class ReplayPlayer:
    """The player of one seat."""

    role: str
    name: str
    digest: str = ""  # SHA-256 of a policy's weights; empty for other players


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """One recorded game.

    The arrays of `values`, `probs` and `scores` hold nan where the seat was not to move.
    """

    world: str  # name of the world, or FILE.py:NAME
    build: str  # of its rules: other rules may give other states
    settings: Mapping[str, Any]  # of the world
    seed: int  # of the recorded match
    game: int  # number of the game in the match
    start: Bytes  # [S] the state before the first action
    players: tuple[ReplayPlayer, ...]  # by seat
    actions: Mapping[str, NDArray[Any]]  # role -> [T, k] int32, or [T, k, A] float32
    values: Mapping[int, Floats] = field(default_factory=dict)  # seat -> [T] value that the player expects
    probs: Mapping[int, Floats] = field(default_factory=dict)  # seat -> [T, A] action probabilities
    scores: Mapping[int, Floats] = field(default_factory=dict)  # seat -> [T, A] estimated action values
    end: str  # one of ENDS
    outcome: tuple[float, ...]  # by seat: 1 won, 0 lost, 0.5 drawn
    final: str  # SHA-256 of the state before the last action: an ended game restarts at once
    states: str  # SHA-256 of the states before every action, one after the other
    savestate: str = ""  # of a Game Boy game: the savestate that it started from
    step: int | None = None  # training steps of the run at this time, where a run recorded the game

    @property
    def length(self) -> int:
        return len(next(iter(self.actions.values())))

    def caption(self) -> str:
        """The result: "pursuer (lion) wins after 143 steps"."""
        after = f"after {self.length} {'step' if self.length == 1 else 'steps'}"
        if self.end == BROKEN_OFF:
            return f"still undecided {after}"
        if self.end == CUT_OFF_END:
            return f"undecided, cut off {after}"
        if len(self.players) == 1:  # no opponent
            return f"{'goal reached' if self.outcome[0] > 0.5 else 'over'} {after}"
        best = max(self.outcome)
        winners = [seat for seat, score in enumerate(self.outcome) if score == best]
        if best <= 0.5 or len(winners) == len(self.players):
            return f"drawn {after}"
        names = [self.seat_name(seat) for seat in winners]
        return f"{' and '.join(names)} {'wins' if len(names) == 1 else 'win'} {after}"

    def seat_name(self, seat: int) -> str:
        """A seat for people: "pursuer (lion)", "player 2 (random)"."""
        player = self.players[seat]
        seats = [number for number, other in enumerate(self.players) if other.role == player.role]
        number = f" {seats.index(seat) + 1}" if len(seats) > 1 else ""
        if player.name.startswith(player.role) and not number:
            return player.name
        return f"{player.role}{number} ({player.name})"
