"""The players that the page of beasty offers: the person, agents, runs of the served folder, bots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.core.player import Decision, Player, RngKey, Seat
from rematch.evaluation.text import clean
from rematch.reporting.untrusted_folder import Unreadable, first_bytes, policy_names
from rematch.storage.run_folder import PAST_FOLDER
from rematch.training.player_lookup import find_player
from rematch.verbs import runs
from rematch.web.run_data import RunData, UnknownRun
from rematch.worlds.beasty.bots import BOTS
from rematch.worlds.beasty.config import SCORINGS, Config
from rematch.worlds.beasty.play.saved_games import TEXT
from rematch.worlds.beasty.play.session import YOU
from rematch.worlds.shipped_agents import agent_file

WORLD, ROLE = "beasty", "player"
SEARCH = "+search:100"  # the budget of agents with search
AGENTS = {"agent": ("agent", "@beasty"), "agent_first": ("first agent", "@beasty_first")}  # key: title, name
SEARCHES = ("search:100", "search:400")
PAST_NAME = re.compile("[0-9]{8}")  # of the policies of an earlier iteration
MOST_PAST = 20  # earlier iterations of a run that are offered


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A player that the page offers; `players` and `scoring` are the rules that it needs (None: any)."""

    key: str
    title: str
    group: str
    players: int | None = None
    scoring: str | None = None


def choices(data: RunData) -> list[Choice]:
    """Everything that may sit at the table."""
    out = [Choice(key=YOU, title=YOU, group="you")]
    for key, (title, _) in AGENTS.items():
        out += [Choice(key=f"{key}{search}", title=f"{title}{words}", group="trained agents", players=2,
                       scoring="points") for search, words in (("", ""), (SEARCH, " with search"))]
    for run, folder in data.scan().items():
        rules = stored_rules(folder)
        if rules is not None:
            name = clean(runs.info(data.root, folder).name)[: TEXT - 40]
            titles = {"": name, SEARCH: f"{name} with search"}
            titles |= {f"@{past}": f"{name}, iteration {past}" for past in stored_iterations(folder)}
            out += [Choice(key=f"run:{run}{suffix}", title=title, group="runs in this folder",
                           players=rules.players, scoring=rules.scoring) for suffix, title in titles.items()]
    scripted = [name for name in BOTS[ROLE] if name != "search"]
    out += [Choice(key=name, title=name, group="search") for name in SEARCHES]
    return out + [Choice(key=name, title=name, group="scripted bots") for name in scripted]


def stored_iterations(folder: Path) -> list[int]:
    """The newest earlier iterations of a run whose policies are stored."""
    numbers = [int(name) for name in policy_names(folder, PAST_FOLDER) if PAST_NAME.fullmatch(name)]
    return sorted(numbers, reverse=True)[:MOST_PAST]


def stored_rules(folder: Path) -> Config | None:
    """The rules of a run of this game that the page can play; None for other runs."""
    try:
        text = first_bytes(folder / runs.CONFIG, runs.HEAD).decode("utf-8", "replace")
    except Unreadable:
        return None
    game = re.search(r"^game: *(\S+) *$", text, re.M)
    text = text.replace("  document_variant:", "  earlier_rules:")  # its name in older runs
    rules = dict(re.findall(r"^  (players|scoring|earlier_rules): *(\S{1,10}) *$", text, re.M))
    usable = rules.get("players") in ("2", "3", "4") and rules.get("scoring") in SCORINGS
    if game is None or game[1] != WORLD or not usable or rules.get("earlier_rules") != "false":
        return None
    return Config(players=int(rules["players"]), scoring=rules["scoring"], first=-1)


class AbsentPlayer:
    """Stands for a player that cannot be found any more: the game can be shown, but not continued."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
        raise ConfigError(f"{self.name} cannot play: {self.reason}")


def seat_player(data: RunData, key: str, name: str, rules: Config) -> Player | None:
    """The player of a key of `choices`; None for the person."""
    if key == YOU:
        return None
    if key not in {choice.key for choice in choices(data)}:
        return AbsentPlayer(name, "it is not in this folder any more")
    stem, search, budget = key.partition("+")
    place = str(agent_file(AGENTS[stem][1])) if stem in AGENTS else stem
    try:
        if stem.startswith("run:"):
            run, at, iteration = stem.removeprefix("run:").partition("@")
            place = f"{data.folder(run)}{at}{iteration}"
        return find_player(place + search + budget, WORLD, rules, ROLE)
    except UnknownRun:
        return AbsentPlayer(name, "its run was deleted")
    except ConfigError as error:
        return AbsentPlayer(name, clean(str(error).replace(place, "it"))[:300])
