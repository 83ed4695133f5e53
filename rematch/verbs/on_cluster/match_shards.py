"""Matches in shards: the actors of a cluster play the games of a match in equal parts.

Every actor loads the same players and plays the games that it is told, with the random numbers that these
games have in the whole match. So the table is the same whatever the number of shards.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch import api
from rematch.cluster import folder_copy
from rematch.cluster.connection import connected
from rematch.cluster.node_report import exact_entries
from rematch.cluster.request import ClusterRequest, actor_count
from rematch.cluster.rollout_actors import RayPlayers
from rematch.core.arrays import Tree, part_edges, stored_int, stored_text, stored_texts
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.world import World
from rematch.evaluation.match import MatchKey, Played, PlayElsewhere, Scoreboard, joined
from rematch.evaluation.past_policies import PastPolicies
from rematch.reporting.html.run_payoff import matrix_players
from rematch.rollout.remote_collector import ATTEMPTS, ERROR, PlayerLost, in_thread
from rematch.storage.tree_bytes import decode, encode
from rematch.training.player_lookup import SUFFIX, WITH_SEARCH
from rematch.verbs.arguments import folder_of, silent
from rematch.verbs.evaluate import deployed, run_board
from rematch.verbs.tournament import Match, Setup, loaded_players, prepare, set_greedy
from rematch.worlds import registry
from rematch.worlds.shipped_agents import is_short_name

LEFT_OUT = {"chunks", "replays", "damaged", "metrics.jsonl"}  # of a run: no player reads them
BOT = "bot "  # start of the name of a scripted player that the command did not name


# --- on a node --------------------------------------------------------------------------------------------


class MatchActor:
    """Plays games of matches between the players of one command. The methods are those of RolloutActor."""

    def __init__(self) -> None:
        self.counted = 0
        self.lock = threading.Lock()

    def build(self, order: bytes) -> bytes:
        try:
            tree = decode(order, "the order for matches")
            self.folder = tempfile.TemporaryDirectory(prefix="rematch-")
            for number, files in enumerate(tree["files"]):
                folder_copy.apply(Path(self.folder.name) / str(number), files)
            self._load(tree)
            return encode({"fingerprint": exact_entries(), "node": os.uname().nodename})
        except (ConfigError, ImportError, OSError, MemoryError) as error:
            return encode({ERROR: str(error), "node": os.uname().nodename})

    def _load(self, tree: Tree) -> None:
        names = [name.replace("{TOP}", self.folder.name) for name in stored_texts(tree, "names")]
        if tree["kind"] == "run":
            trained, self.game = deployed(Path(names[0]), bool(tree["greedy"]))
            self.board: Scoreboard = run_board(trained, self.game, stored_int(tree, "seed"))
            self.players: dict[str, Player] = dict(trained.policies)
            return
        if tree["kind"] == "matrix":
            matrix = matrix_players(Path(names[0]), silent)
            if matrix is None:
                raise ConfigError("the run has fewer than two past policies")
            self.board, self.players = matrix.board, past_players(matrix.past)
            return
        count = stored_int(tree, "players")
        values = dict(tree["match"]) | {"players": names[:count], "against": names[count:]}
        setup = prepare(stored_text(tree, "world"), Match(**values))
        with loaded_players(setup):
            set_greedy(setup)
        self.board, self.game, self.players = setup.board, setup.game, {}
        for key, local_key in zip(stored_texts(tree, "keys"), player_keys(setup.shared_role, names)):
            self.players[key] = setup.players[local_key]

    def play(self, shared: None, message: bytes) -> bytes:
        try:
            tree = decode(message)
            key = MatchKey(*(stored_int(tree, name) for name in ("games", "index", "turn")))
            games = range(stored_int(tree, "low"), stored_int(tree, "high"))
            with self.lock:
                seats = [self._player(name, seat) for seat, name in enumerate(stored_texts(tree, "players"))]
                played = self.board.shard(seats, key, games, self._count)
            return encode(played._asdict())
        except (ConfigError, OSError, MemoryError, ValueError, KeyError, TypeError) as error:
            return encode({ERROR: str(error) or type(error).__name__})

    def _player(self, name: str, seat: int) -> Player:
        """The player of a seat: one that the command names, or a scripted player that it adds itself."""
        if name in self.players:
            return self.players[name]
        return self.game.bot(name.removeprefix(BOT), self.board.spec.role_of(seat).name)

    def _count(self, world: World, step: int, running: int) -> None:
        self.counted += 1

    def steps(self) -> int:
        """Steps played so far."""
        return self.counted


# --- where the command runs -------------------------------------------------------------------------------


class MatchShards:
    """The actors of a cluster, as players of matches; `check` may raise while they play."""

    def __init__(self, start: Callable[[bytes], RayPlayers], count: int) -> None:
        self.start, self.count = start, count

    def of_run(self, trained: api.Trained, seed: int, greedy: bool) -> PlayElsewhere:
        """Matches of `rematch eval RUN`: its policies and the scripted players of its world."""
        files, names = shipped([str(trained.folder)])
        order = {"kind": "run", "files": files, "names": names, "seed": seed, "greedy": greedy}
        return self._play(order, lambda: trained.policies)

    def of_matrix(self, folder: Path, past: Sequence[PastPolicies]) -> PlayElsewhere:
        """Matches between the past policies of a run."""
        files, names = shipped([str(folder)])
        return self._play({"kind": "matrix", "files": files, "names": names}, lambda: past_players(past))

    def of_match(self, setup: Setup) -> PlayElsewhere:
        """Matches between the players that a command names."""
        match = setup.match
        words = [*match.players, *match.against]
        files, names = shipped(words)
        keys = player_keys(setup.shared_role, words)
        values = asdict(match) | {"flags": list(match.flags), "threads": 1}
        del values["players"], values["against"]
        order = {"kind": "match", "files": files, "names": names, "keys": keys, "match": values,
                 "world": setup.world, "players": len(match.players)}
        return self._play(order, lambda: setup.players)

    def _play(self, order: Tree, named: Callable[[], Any]) -> PlayElsewhere:
        actors = self.start(encode(order))

        def play(players: Sequence[Player], key: MatchKey) -> Played:
            seats = [player_key(player, named()) for player in players]
            edges = part_edges(key.games, self.count)
            jobs = []
            for part, (low, high) in enumerate(pairwise(edges)):
                message = encode({"players": seats, "games": key.games, "index": key.index, "turn": key.turn,
                                  "low": low, "high": high})
                jobs.append(in_thread(played_part, actors, part, message))
            return joined([job.result() for job in jobs])

        return play


def played_part(actors: RayPlayers, part: int, message: bytes) -> Played:
    """The games of one shard; another actor plays them again if the first is lost."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(PlayerLost):
            reply = decode(actors.play(part, None, message, lambda: None), "the reply of a shard")
            if ERROR in reply:
                raise ConfigError(str(reply[ERROR]))
            return Played(**reply)
    raise ConfigError(f"shard {part} of a match was lost {ATTEMPTS} times")


def past_players(past: Sequence[PastPolicies]) -> dict[str, Player]:
    """Past policies by iteration and role."""
    return {f"{entry.iteration} {role}": player for entry in past for role, player in entry.players.items()}


def player_keys(shared_role: bool, names: Sequence[str]) -> list[str]:
    """The keys of named players in `Setup.players`."""
    return list(names) if shared_role else [f"{seat} {name}" for seat, name in enumerate(names)]


def player_key(player: Player, named: Any) -> str:
    """The name under which an actor finds a player: that of the command, or that of a scripted player."""
    return next((key for key, other in named.items() if other is player), BOT + player.name)


def shipped(names: Sequence[str]) -> tuple[list[Tree], list[str]]:
    """The files of the runs and policies among these names, and the names under which an actor finds them."""
    files: list[Tree] = []
    out = []
    for name in names:
        stem, search, budget = name.partition(WITH_SEARCH)
        stem, at, iteration = stem.rpartition("@") if not is_short_name(stem) else ("", "", stem)
        path = folder_of(stem or iteration)
        if not path.exists() or is_short_name(iteration):
            out.append(name)
            continue
        files.append(_files_of(path))
        place = f"{{TOP}}/{len(files) - 1}/{path.name}"
        out.append(f"{place}{at}{iteration if at else ''}{search}{budget}")
    return files, out


def _files_of(path: Path) -> Tree:
    """A run without what no player reads, or a policy file with the file that describes it."""
    if path.suffix == SUFFIX:
        present = [file.name for file in (path, path.with_suffix(".json")) if file.is_file()]
        return {"files": folder_copy.whole_files(path.parent, present), "removed": []}
    entries = [[f"{path.name}/{name}", offset, data]
               for name, offset, data in folder_copy.whole(path, LEFT_OUT)["files"]]
    return {"files": entries, "removed": []}


@contextlib.contextmanager
def match_shards(request: ClusterRequest | None) -> Iterator[MatchShards | None]:
    """Shards on the actors of a cluster until the end of the block; None: matches are played here."""
    if request is None:
        yield None
        return
    with connected(request.address, request.actors or None) as cluster:
        count, entries = actor_count(cluster, request), exact_entries()

        def start(order: bytes) -> RayPlayers:
            return RayPlayers(cluster, [order] * count, entries, silent, request.patience, kind=MatchActor)

        yield MatchShards(start, count)


def check_players(world: str, names: Sequence[str]) -> None:
    """ConfigError for bots of the user: they are processes of this machine."""
    scripted = {bot for bots in registry.find(world).bots.values() for bot in bots}
    for name in names:
        if ":" in name and name.partition(":")[0] not in scripted and WITH_SEARCH not in name:
            raise ConfigError(f"--cluster: {name} is a bot of your own, which plays on this machine only; "
                              "expected no --cluster")
