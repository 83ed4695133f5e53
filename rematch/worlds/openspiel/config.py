"""The settings of an OpenSpiel world: which game, and what a seat sees of it."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob

from . import games, hidden_states


@dataclass(frozen=True, kw_only=True)
class Config:
    """A two-player game of OpenSpiel."""

    game: str = knob(
        "kuhn_poker", 'name of the game with its parameters: "leduc_poker", "goofspiel(num_cards=4)"'
    )
    observation: str = knob(
        "auto", "observation of a seat; information_state: everything it has observed so far; observation: "
        "the present only; auto: information_state where the game has one",
        choices=("auto", "information_state", "observation"),
    )  # fmt: skip
    named: bool = knob(
        False, "add the number of the information state to the observation, for a tabular policy; only for "
        "games whose states can be enumerated",
    )  # fmt: skip

    def load(self) -> games.Game:
        game = games.load(self.game, self.observation)
        return hidden_states.numbered(game) if self.named else game

    def check(self) -> None:
        self.load()
