"""Check the claims of a policy's card: play a random part of its games again."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rematch import api
from rematch.agents.policy import digest
from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.text import clean, number
from rematch.reporting.result import Block, Result, Table
from rematch.storage import policy_files
from rematch.training.fingerprint import fingerprint
from rematch.verbs.arguments import MOST_SEED, POLICY, check_integer, folder_of
from rematch.verbs.exact_runs import claims

GAMES = 50  # games that are played again
MOST_REPLAYED = 10_000
TRUE, FALSE, UNKNOWN = "true", "FALSE", "unknown"


class Verification(Result):
    """A policy's claims and whether the games that were played again have the claimed results."""

    @property
    def exit_code(self) -> int:
        return 0 if self["verdict"] == TRUE else 1

    def blocks(self) -> Iterator[Block]:
        yield (f"{self['file']}: {self['game']}, {self['role']}, weights {self['weights'][:16]}, trained for "
               f"{self['step']:,} steps" if self["step"] is not None else f"{self['file']}: {self['game']}")
        rows = [("opponent", "games claimed", "result", "95 % interval", "played again", "as claimed")]
        for row in self["matches"]:
            bounds = f"[{number(row['low'])}, {number(row['high'])}]"
            rows.append((clean(row["opponent"]) or "-", str(row["games"]), number(row["value"]), bounds,
                         str(row["replayed"]), str(row["equal"])))
        yield Table(rows, right=(1, 2, 4, 5))
        for example in self["examples"]:
            yield clean(example)
        yield f"{self['verdict']}: {self['sentence']}"
        yield f"The games were drawn with --seed {self['seed']}."


def verify(file: Path | str, games: int = GAMES, seed: int | None = None) -> Verification:
    """Play a random part of the games that a policy's card claims, and compare each result.

    `file` is a policy of `rematch export RUN --games N`. `seed` draws the games; by default nobody can know
    it beforehand. The verdict is "true" (all equal), "FALSE" (one differs on the same processor and cores, or
    the card contradicts itself) or "unknown" (one differs, on another processor or with other cores).
    """
    check_integer("games", games, 1, MOST_REPLAYED)
    seed = secrets.randbelow(MOST_SEED) if seed is None else seed
    check_integer("seed", seed, 0, MOST_SEED)
    path = folder_of(file)
    if path.suffix != POLICY:
        raise ConfigError(f"{file}: expected a policy file that ends in {POLICY}; `rematch export RUN "
                          "--games N` writes one with claims")
    _, card = policy_files.read(path)
    stated = check_card(path, card)
    trained = api.load(path)
    (role, policy), = trained.policies.items()
    table = claims.Table.of(trained.config, role, policy, stated["seed"])
    for match in stated["matches"]:
        if match["opponent"] not in table.opponents:
            raise ConfigError(f"{path}: it claims games against {match['opponent']!r:.40}; expected one of "
                              f"{', '.join(table.opponents)}")
    drawn = draw(stated["matches"], games, seed)
    rows, examples = replayed(table, stated["matches"], drawn)
    same_machine = stated["fingerprint"] == fingerprint(trained.config)
    verdict, sentence = judge(rows, stated["matches"], same_machine)
    step = card.get("step") if isinstance(card.get("step"), int) else None
    return Verification({
        "file": str(path), "game": trained.config.game, "role": role, "step": step,
        "weights": digest(policy.weights), "matches": rows, "examples": examples, "seed": seed,
        "replayed": len(drawn), "same_machine": same_machine, "verdict": verdict, "sentence": sentence,
    })  # fmt: skip


def check_card(path: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """The claims of a card, which may come from anyone; ConfigError where there are none or they are odd."""
    stated = card.get(claims.CLAIMS)
    if stated is None:
        raise ConfigError(f"{path}: its card has no claims; `rematch export {path} --out FILE --games N` "
                          "writes a card with some")
    try:
        matches, seed = stated["matches"], stated["seed"]
        valid = type(seed) is int and 0 <= seed <= MOST_SEED and isinstance(stated["fingerprint"], dict)
        valid = valid and 0 < len(matches) <= 1000
        for match in matches:
            valid = valid and type(match["opponent"]) is str and type(match["games"]) is int
            valid = valid and 0 < match["games"] <= claims.MOST_CLAIMED
            valid = valid and isinstance(match["results"], str | list)
            valid = valid and len(match["results"]) == match["games"] and _numbers(match)
    except (KeyError, TypeError):
        valid = False
    if not valid:
        raise ConfigError(f"{path}: its card has claims of an unknown form")
    return dict(stated)


def _numbers(match: Mapping[str, Any]) -> bool:
    values = [match["score" if isinstance(match["results"], str) else "mean"], match["low"], match["high"]]
    values += [] if isinstance(match["results"], str) else match["results"]
    return all(type(value) in (int, float) for value in values)


def draw(matches: list[dict[str, Any]], games: int, seed: int) -> list[tuple[int, int]]:
    """(match, number of the game), drawn without replacement from all claimed games."""
    everything = [(i, game) for i, match in enumerate(matches) for game in range(match["games"])]
    return sorted(random.Random(seed).sample(everything, min(games, len(everything))))


def replayed(
    table: claims.Table, matches: list[dict[str, Any]], drawn: list[tuple[int, int]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each match with the number of equal games, and up to three differences as sentences."""
    rows = [{"opponent": match["opponent"], "games": match["games"],
             "value": match.get("score", match.get("mean")), "low": match["low"], "high": match["high"],
             "replayed": 0, "equal": 0} for match in matches]
    examples: list[str] = []
    for index, game in PROGRESS.each(drawn):
        match, row = matches[index], rows[index]
        result = table.replay(match["opponent"], match["games"], game)
        row["replayed"] += 1
        row["equal"] += result == match["results"][game]
        if result != match["results"][game] and len(examples) < 3:
            examples.append(f"Game {game} against {match['opponent'] or 'nobody'}: claimed "
                            f"{match['results'][game]!r:.20}, played {result!r:.20}")
    return rows, examples


def judge(
    rows: list[dict[str, Any]], matches: list[dict[str, Any]], same_machine: bool
) -> tuple[str, str]:
    """The verdict and its reason."""
    if not all(claims.consistent(match) for match in matches):
        return FALSE, "a score of the card does not follow from its games"
    n, equal = sum(row["replayed"] for row in rows), sum(row["equal"] for row in rows)
    claimed = sum(row["games"] for row in rows)
    if equal == n:
        share = 0.0 if n == claimed else 1 - 0.05 ** (1 / n)
        return TRUE, (f"{equal} of {n} games that were played again have the claimed result; at 95 % "
                      f"confidence at most {100 * share:.1f} % of all {claimed} claimed games differ")
    if same_machine:
        return FALSE, f"{n - equal} of {n} games that were played again have another result than claimed"
    return UNKNOWN, (f"{n - equal} of {n} games have another result, and the claims were made on another "
                     "processor or with other cores, on which networks round differently")
