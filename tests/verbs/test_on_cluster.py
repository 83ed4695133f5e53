"""Matches in shards and best responses by actors: the same tables and files, here without Ray."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.trainers import start_run

from rematch.cluster.node_report import exact_entries
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.rehearsal.compare import differences
from rematch.rollout.remote_collector import PlayerLost
from rematch.storage.run_folder import Run
from rematch.storage.tree_bytes import decode
from rematch.training import best_response
from rematch.training.best_response import ExploitRequest
from rematch.training.recipes import configure
from rematch.verbs.evaluate import evaluate
from rematch.verbs.on_cluster.match_shards import MatchActor, MatchShards, check_players, shipped
from rematch.verbs.on_cluster.response_actors import ResponseActor, frozen_agents, start_training
from rematch.verbs.tournament import Match, play_match

SMALL: dict[str, Any] = {
    "games": 8, "steps": 8, "total_steps": 8 * 8 * 2, "threads": 1, "network.hidden": (8,), "stagger": 0,
    "world.max_steps": 20, "evaluation.games": 2, "evaluation.opponents": ("random",),
}  # fmt: skip


class LocalActors:
    """Actors in this process; every third call loses one, which is built again."""

    def __init__(self, kind: type[Any], orders: Sequence[bytes]) -> None:
        self.kind, self.orders = kind, orders
        self.actors = [self._build(order) for order in orders]
        self.calls = self.lost = 0

    def _build(self, order: bytes) -> Any:
        actor = self.kind()
        reply = decode(actor.build(order))
        assert reply.get("fingerprint") == exact_entries(), reply
        return actor

    def play(self, part: int, shared: Any, message: bytes, check: Callable[[], None]) -> bytes:
        check()
        self.calls += 1
        if self.calls % 3 == 0:
            self.lost += 1
            self.actors[part] = self._build(self.orders[part])
            raise PlayerLost("lost by the test")
        reply: bytes = self.actors[part].play(shared, message)
        return reply


def local_shards(count: int, made: list[LocalActors]) -> MatchShards:
    def start(order: bytes) -> Any:
        made.append(LocalActors(MatchActor, [order] * count))
        return made[-1]

    return MatchShards(start, count)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    start_run(folder, settings.replace(configure("pursuit"), SMALL))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_eval_of_a_run_does_not_depend_on_shards(count: int, run: Path) -> None:
    """With more shards than games in one of them; the best scripted player is chosen by results."""
    made: list[LocalActors] = []
    for games in (2, 7):
        here = evaluate(run, games=games, against=("random", "lion"))
        there = evaluate(run, games=games, against=("random", "lion"), shards=local_shards(count, made))
        assert here.to_dict() == there.to_dict()
    assert all(actors.lost >= 1 for actors in made) and len(made) == 2


@pytest.mark.parametrize("match", [
    Match(players=("queue", "random", "noisy"), games=7, threads=1, round_robin=True),
    Match(players=("@beasty", "queue"), games=6, threads=1, greedy=True),
    Match(players=("queue",), games=4, threads=1, flags=("--world.players", "3")),
    Match(players=("queue", "random"), threads=1, until=0.2, games=200),
])  # fmt: skip
def test_matches_do_not_depend_on_shards(match: Match) -> None:
    made: list[LocalActors] = []
    assert play_match("beasty", match).to_dict() == play_match(
        "beasty", match, local_shards(3, made)).to_dict()
    assert made[0].calls > 0


def test_match_of_a_run_by_its_path(run: Path) -> None:
    match = Match(players=(str(run), "flee_straight"), games=5, threads=1)
    made: list[LocalActors] = []
    assert play_match("pursuit", match).to_dict() == play_match(
        "pursuit", match, local_shards(2, made)).to_dict()


def test_shipped_names_keep_iteration_and_search(run: Path) -> None:
    files, names = shipped(["queue", "@beasty", str(run), f"{run}@1", f"{run}+search:20"])
    assert names[:2] == ["queue", "@beasty"] and len(files) == 3
    assert names[2:] == ["{TOP}/0/small", "{TOP}/1/small@1", "{TOP}/2/small+search:20"]
    present = {entry[0].split("/")[1] for entry in files[0]["files"]}
    assert "config.yaml" in present and "metrics.jsonl" not in present


def test_bots_of_the_user_stay_on_this_machine() -> None:
    check_players("beasty", ["queue", "search:5", "@beasty", "runs/x+search:5"])
    with pytest.raises(ConfigError, match="my_bots:Bot is a bot of your own"):
        check_players("beasty", ["queue", "my_bots:Bot"])


def test_best_responses_of_actors_are_the_same_files(run: Path, tmp_path: Path) -> None:
    request = ExploitRequest(budget=256, seeds=1, games=4, roles=("evader",))
    folders = {}
    for place in ("here", "there"):
        folders[place] = tmp_path / place / "small"
        shutil.copytree(run, folders[place])
    frozen = frozen_agents(folders["here"])
    with Run.open(folders["here"], write=True) as stored:
        best_response.exploit(frozen, request, stored, lambda line: None)

    def elsewhere(keys: Any) -> Any:
        from rematch.cluster import folder_copy
        from rematch.storage.tree_bytes import encode

        fields = {"budget": 256, "seeds": 1, "games": 4, "roles": ["evader"]}
        order = encode({"request": fields, "name": "small", "run": folder_copy.whole(folders["there"])})
        actors: Any = LocalActors(ResponseActor, [order] * 2)
        assert [key.start for key in keys] == ["fresh", "incumbent", "selfplay"]
        return start_training(actors, keys)

    with Run.open(folders["there"], write=True) as stored:
        best_response.exploit(frozen_agents(folders["there"]), request, stored, lambda line: None, elsewhere)
    assert differences(folders["here"], folders["there"]) == []
    assert (folders["here"] / "exploit.json").stat().st_size > 0
