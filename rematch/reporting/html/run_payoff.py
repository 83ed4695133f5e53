"""The payoff matrix of a run's past policies: played once, and stored in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rematch.core.errors import ConfigError
from rematch.curriculum.levels import stored_level
from rematch.evaluation import payoff_matrix
from rematch.evaluation.match import PlayElsewhere, Scoreboard
from rematch.evaluation.past_policies import PastPolicies, evenly_spaced, load_past_policies
from rematch.evaluation.payoff_matrix import Payoff
from rematch.evaluation.text import clean
from rematch.reporting import untrusted_folder
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.training.recipes import stored_config
from rematch.training.trained_run import with_available_device, world_builder

MATRIX = "payoff.json"
Log = Callable[[str], None]
Elsewhere = Callable[[Path, Sequence[PastPolicies]], PlayElsewhere]  # other processes play the matches


@dataclass
class MatrixPlayers:
    """The past policies of a run, and the games that they play."""

    board: Scoreboard
    past: list[PastPolicies]
    level: str  # of a curriculum; empty without one


def stored_matrix(path: Path, level: str | None = None) -> Payoff | None:
    """The matrix that an earlier report stored, if its settings and its level (None: any) are equal."""
    try:
        stored = untrusted_folder.read_json(path, MATRIX)
        if stored["config"] != atomic_files.sha256_hex(untrusted_folder.read(path, "config.yaml")):
            return None
        if level is not None and stored["level"] != level:
            return None
        return Payoff.from_json(stored["payoff"])
    except (untrusted_folder.Unreadable, ConfigError, KeyError, TypeError):
        return None


def matrix_players(path: Path, log: Log) -> MatrixPlayers | None:
    """The players of a run's matrix; None where fewer than two past policies can meet."""
    with Run.open(path, write=False) as run:
        config = with_available_device(stored_config(run))
        checkpoint = run.load(verify_chunks=False)
    if checkpoint is None:
        return None
    if checkpoint.fallback:
        log(f"{clean(path)}: {clean(checkpoint.fallback)}")
    curriculum = stored_level(config, checkpoint.parts)
    make, level = world_builder(config, curriculum), curriculum.name if curriculum else ""
    if make(1, 0, 0).spec.seats == 1:
        return None
    past, problems = load_past_policies(path, config, make, checkpoint.iteration, payoff_matrix.MOST_POLICIES)
    for problem in problems:
        log(clean(problem))
    board = Scoreboard(make, payoff_matrix.SEED_OFFSET + config.seed, config.threads)
    return MatrixPlayers(board, past, level) if len(past) > 1 else None


def matrix_of(
    path: Path, games: int | None, log: Log, elsewhere: Elsewhere | None = None, store: bool = True
) -> Payoff | None:
    """The payoff matrix of a run's past policies, from its folder; if absent, it is played, and stored."""
    players = matrix_players(path, log)
    if players is None:
        return None
    past, level = players.past, players.level
    stored, iterations = stored_matrix(path, level), [entry.iteration for entry in past]
    if stored is not None and games in (None, stored.games):
        # where games are slow, the matrix has fewer policies
        count = len(iterations) if games else max(2, len(stored.iterations))
        if list(stored.iterations) == evenly_spaced(iterations, count):
            return stored
    log(f"{clean(path)}: playing the payoff matrix of {len(past)} past policies ...")
    if elsewhere is not None:
        players.board.play_elsewhere = elsewhere(path, past)
    matrix = payoff_matrix.play(players.board, past, games, log)
    if not store:
        return matrix
    try:
        with Run.open(path, write=True) as run:
            tree = {"config": atomic_files.sha256_hex(run.config_text.encode()), "level": level,
                    "payoff": matrix.to_json()}
            run.write_file(MATRIX, json.dumps(tree).encode())
    except ConfigError as error:  # a training run has locked the folder, or it is read-only
        log(f"the payoff matrix was not stored: {clean(error)}")
    return matrix
