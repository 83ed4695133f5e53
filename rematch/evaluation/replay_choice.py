"""Choice of a recorded game by its outcome: "evader loses", "player 2 wins", "drawn", "longest"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematch.core.errors import ConfigError
from rematch.core.recording import DECIDED_END, RESIGNED, Replay

VERBS = ("wins", "loses", "draws")
WORDS = ("drawn", "undecided", "shortest", "longest")
WON, LOST = 0.75, 0.25  # outcome of a seat above, below which it won or lost


@dataclass(frozen=True)
class Choice:
    """A condition on a game: a role, a seat such as `player 2` or a player, and a verb; or one word."""

    subject: str  # empty for a word
    verb: str

    @classmethod
    def parse(cls, text: str) -> Choice:
        words = text.split()
        if len(words) == 1 and words[0].lower() in WORDS:
            return cls("", words[0].lower())
        if len(words) >= 2 and words[-1].lower() in VERBS:
            return cls(" ".join(words[:-1]), words[-1].lower())
        raise ConfigError(f"--choose = {text!r:.80}: expected a role or player and wins, loses or draws, for "
                          f'example "evader loses"; or {", ".join(WORDS)}')

    def seats(self, replay: Replay) -> list[int]:
        """The seats of the subject; ConfigError where the game has none."""
        names: dict[str, list[int]] = {}
        for seat, player in enumerate(replay.players):
            same_role = [number for number, other in enumerate(replay.players) if other.role == player.role]
            for name in {player.role, f"{player.role} {same_role.index(seat) + 1}", player.name}:
                names.setdefault(name.lower(), []).append(seat)
        if self.subject.lower() not in names:
            raise ConfigError(f"--choose: {self.subject!r:.60} is not in the game; expected one of "
                              f"{', '.join(sorted(names))}")
        return names[self.subject.lower()]

    def matches(self, replay: Replay) -> bool:
        decided = replay.end in (DECIDED_END, RESIGNED)
        if self.verb in ("shortest", "longest"):
            return True
        if self.verb == "undecided":
            return not decided
        scores = [replay.outcome[seat] for seat in (self.seats(replay) if self.subject else range(1))]
        if self.verb == "wins":
            return decided and max(scores) > WON
        if self.verb == "loses":
            return decided and min(scores) < LOST
        return decided and any(LOST <= score <= WON for score in scores)

    def select(self, replays: Sequence[Replay]) -> Replay:
        """The first game that matches, the shortest or the longest; ConfigError where none does."""
        if self.verb in ("shortest", "longest") and replays:
            ordered = sorted(replays, key=lambda replay: replay.length)
            return ordered[0 if self.verb == "shortest" else -1]
        for replay in replays:
            if self.matches(replay):
                return replay
        text = f"{self.subject} {self.verb}".strip()
        games = f"{len(replays)} games" if len(replays) != 1 else "1 game"
        raise ConfigError(f"--choose = {text!r:.80}: none of {games} ended so; try more with --games, or "
                          "another --seed")
