"""A bracket of the value of a game with two roles, from trained agents, best responses and scripted players.

    rematch sweep ra3 --seeds 0-2 --world.capture_radius 0.5
    rematch exploit runs/ra3-sweep/seed-0 --budget 3000000 --seeds 1      (and every other seed)
    python tools/experiments/game_value.py measure ra1 runs/ra3-sweep/seed-* --games 1000
    python tools/experiments/game_value.py measure v --recipe v          (scripted players alone)
    python tools/experiments/game_value.py publish

`measure` plays every player of the first role against every player of the second: the final policies of the
runs, the best responses that `rematch exploit` stored in them, and all scripted players. The rules of all
runs must be equal. It writes a line into docs/results/data/game_value.jsonl; `publish` writes the tables of
docs/results/game_value.md from it.

The lower end is the win rate of the first role's best player against the opponent that is worst for it, the
upper end that of the player that is best against the second role's best player. Players and opponents are
chosen on one set of games and reported on another. An end is a bound of the value only as far as no stronger
response exists: a better response would lower the lower end or raise the upper end, never narrow the bracket.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.cli.main import main as run_command  # noqa: E402
from rematch.core import config as settings  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.core.player import Player  # noqa: E402
from rematch.evaluation.match import Result, Scoreboard  # noqa: E402
from rematch.storage import policy_files  # noqa: E402
from rematch.training import recipes  # noqa: E402
from rematch.training.player_lookup import load_policy_file  # noqa: E402
from rematch.training.trained_run import world_builder  # noqa: E402
from rematch.worlds import registry  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/game_value.md", ROOT / "docs/results/data/game_value.jsonl"
BEGIN, END = "<!-- tools/experiments/game_value.py publish -->", "<!-- until here -->"
SEED_OFFSET = 1 << 44  # random streams of this program alone
SELECTION, REPORT = 1, 2  # indices of matches
VOID = 0.2  # width of a bracket above which nothing is concluded from its middle
# settings of pursuit that change rewards but no rule: the value is the capture rate
REWARDS = ("distance_scale", "capture_bonus", "timeout_penalty", "survival_bonus", "use_visibility_reward",
           "visibility_weight", "w_obs_approach", "w_vis_pursuer", "w_search", "w_collision", "w_wall",
           "sight_range", "sight_half_angle", "sight_occlusion", "reward_form", "stale_steps")

Line = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A player of one role, and the steps of its own training."""

    name: str
    player: Player
    steps: int = 0


def load_candidates(folder: Path, role: str) -> list[Candidate]:
    """The final policy of a run, and the best responses of `rematch exploit` in its folder."""
    trained = api.load(folder)
    name = "/".join(folder.resolve().parts[-2:])
    candidates = [Candidate(name, trained.policies[role], trained.step or 0)]
    for response in policy_files.policy_names(folder, "policies"):
        if not response.startswith(f"{policy_files.RESPONSE}{role}-"):
            continue
        file = folder / "policies" / f"{response}.safetensors"
        metadata = policy_files.read(file)[1]
        if metadata.get("learner") != "ppo":
            continue  # the value network of a lookahead response plays no game by itself
        player = load_policy_file(file, trained.config.game, str(file)).players[role]
        start = str(metadata["response"]["start"])
        candidates.append(Candidate(f"{name}: response ({start})", player, int(metadata["steps"])))
    return candidates


def scripted(game: Any, role: str) -> list[Candidate]:
    return [Candidate(name, game.bot(name, role)) for name in game.bots[role]]


def check_rules(folders: Sequence[Path]) -> Any:
    """The settings of the first run; ConfigError where another run has other rules."""
    config = api.load(folders[0]).config
    for folder in folders[1:]:
        other = api.load(folder).config
        for key, _, value in settings.leaves(config.world):
            theirs = settings.get(other.world, key) if other.game == config.game else None
            if key not in REWARDS and theirs != value:
                raise ConfigError(f"{folder}: world.{key} = {theirs}, {folders[0]} has {value}; expected the "
                                  "same rules")
    return config


# --- measuring ---------------------------------------------------------------------------------------------


class Bracket:
    """All players of the first role against all of the second, in games of this program alone."""

    def __init__(self, board: Scoreboard, firsts: Sequence[Candidate], lasts: Sequence[Candidate]) -> None:
        self.board, self.firsts, self.lasts = board, firsts, lasts

    def play(self, i: int, j: int, games: int, index: int) -> Result:
        """The result of the first role."""
        players = [self.firsts[i].player, self.lasts[j].player]
        cell = index + 4 * (i * len(self.lasts) + j)
        result: Result = self.board.results(players, games, cell)[0]
        return result

    def matrix(self, games: int) -> NDArray[np.float64]:
        """[firsts, lasts] scores of the first role on the games that choose players; shows its progress."""
        scores = np.zeros((len(self.firsts), len(self.lasts)))
        for i, first in enumerate(self.firsts):
            scores[i] = [self.play(i, j, games, SELECTION).score for j in range(len(self.lasts))]
            worst = f"{first.name} wins at least {scores[i].min():.3f}"
            print(f"{i + 1} of {len(self.firsts)}: {worst}", flush=True)
        return scores

    def ends(self, scores: NDArray[np.float64], games: int) -> dict[str, Line]:
        """Both ends of the bracket, played again on other games."""
        i, j = int(scores.min(1).argmax()), int(scores.max(0).argmin())
        cells = {"lower": (i, int(scores[i].argmin())), "upper": (int(scores[:, j].argmax()), j)}
        return {name: self.end(*cell, games) for name, cell in cells.items()}

    def end(self, i: int, j: int, games: int) -> Line:
        result = self.play(i, j, games, REPORT)
        low, high = result.interval
        return {"first": self.firsts[i].name, "last": self.lasts[j].name, "rate": round(result.score, 4),
                "low": round(low, 4), "high": round(high, 4), "games": result.games}


def measure(name: str, folders: Sequence[Path], games: int, recipe: str = "") -> Line:
    """The line of a game in the results file; without runs, of the scripted players in a recipe's game."""
    config = check_rules(folders) if folders else recipes.configure(recipe)
    game, make = registry.find(config.game), world_builder(config)
    roles = list(make(1, 0, 0).spec.roles)
    if len(roles) != 2:
        raise ConfigError(f"{name}: {config.game} has {len(roles)} roles; expected two")
    firsts, lasts = ([*scripted(game, role), *(c for f in folders for c in load_candidates(f, role))]
                     for role in roles)
    bracket = Bracket(Scoreboard(make, SEED_OFFSET, 1), firsts, lasts)
    scores = bracket.matrix(games)
    bots = [sum(not candidate.steps for candidate in players) for players in (firsts, lasts)]
    steps = sum(api.load(folder).step or 0 for folder in folders)
    responses = sum(candidate.steps for candidate in (*firsts, *lasts) if ": response" in candidate.name)
    return {"game": name, "roles": roles, "runs": len(folders), "steps": steps, "response_steps": responses,
            "games": games, "firsts": [c.name for c in firsts], "lasts": [c.name for c in lasts],
            "scores": np.round(scores, 4).tolist(), **bracket.ends(scores, games),
            "scripted": bracket.ends(scores[: bots[0], : bots[1]], games)}


# --- publishing --------------------------------------------------------------------------------------------


def load_lines() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def bracket_of(line: Line) -> tuple[float, float]:
    """The outer bounds of both ends; in order, since noise can exchange them."""
    low, high = line["lower"]["low"], line["upper"]["high"]
    return min(low, high), max(low, high)


def tables(lines: Sequence[Line]) -> list[str]:
    text = ["", "| game | bracket | middle | width | criterion by the middle | runs, steps | steps of "
            "responses |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for line in lines:
        low, high = bracket_of(line)
        use = "void: wider than 0.2" if high - low > VOID else "usable"
        use = use if line["response_steps"] else "none: without best responses it is no bracket"
        text.append(f"| {line['game']} | [{low:.3f}, {high:.3f}] | {(low + high) / 2:.3f} | {high - low:.3f} "
                    f"| {use} | {line['runs']}, {line['steps'] / 1e6:.1f} M "
                    f"| {line['response_steps'] / 1e6:.1f} M |")
    for line in lines:
        text += ["", f"### {line['game']}", "", *end_table(line), "", *score_table(line)]
    return text


def end_table(line: Line) -> list[str]:
    first, last = line["roles"]
    text = [f"| end | {first} | {last} | {first} wins | n |", "| --- | --- | --- | --- | --- |"]
    rows = {"lower": line["lower"], "upper": line["upper"], "lower, scripts alone": line["scripted"]["lower"],
            "upper, scripts alone": line["scripted"]["upper"]}
    for name, end in rows.items():
        text.append(f"| {name} | {end['first']} | {end['last']} | {end['rate']:.3f} [{end['low']:.3f}, "
                    f"{end['high']:.3f}] | {end['games']} |")
    return text


def score_table(line: Line) -> list[str]:
    """Each player's worst score, over all opponents, on the games that chose players."""
    first, last = line["roles"]
    scores = np.array(line["scores"])
    text = [f"Worst case of every player, n = {line['games']} a match, on the games that chose the players "
            "(so a little optimistic for the best and pessimistic for the rest):", "",
            "| role | player | wins at least | against |", "| --- | --- | --- | --- |"]
    for role, names, rates, opponents in ((first, line["firsts"], scores, line["lasts"]),
                                          (last, line["lasts"], 1 - scores.T, line["firsts"])):
        for i in np.argsort(-rates.min(1), kind="stable"):
            worst = int(rates[i].argmin())
            text.append(f"| {role} | {names[i]} | {rates[i, worst]:.3f} | {opponents[worst]} |")
    return text


def page() -> str:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    content = "\n".join(tables(load_lines()))
    return before + BEGIN + "\n" + content + "\n\n" + END + remainder.partition(END)[2]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "publish"))
    parser.add_argument("name", nargs="?", default="", help="name of the game in the tables")
    parser.add_argument("runs", nargs="*", type=Path, help="run folders with equal rules")
    parser.add_argument("--recipe", default="", help="recipe whose game scripted players play, without runs")
    parser.add_argument("--games", type=int, default=1000, help="games of each match (default %(default)s)")
    args = parser.parse_args(arguments)
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    if not args.name or bool(args.runs) == bool(args.recipe):
        raise ConfigError("measure: expected the name of the game, and run folders or --recipe")
    if args.games < 1:
        raise ConfigError(f"--games = {args.games}: expected at least 1")
    line = measure(args.name, args.runs, args.games, args.recipe)
    lines = {old["game"]: old for old in load_lines()} | {args.name: line}
    RESULTS.write_text("".join(json.dumps(lines[name]) + "\n" for name in sorted(lines)))
    low, high = bracket_of(line)
    print(f"{args.name}: {line['roles'][0]} wins between {low:.3f} and {high:.3f} ({line['runs']} runs, "
          f"{line['steps']:,} steps, responses {line['response_steps']:,} steps)")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(act=main))
