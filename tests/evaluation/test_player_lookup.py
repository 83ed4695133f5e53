"""Players by name: scripted, searches with a budget, runs, policy files, bots of one's own, nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation import past_policies
from rematch.evaluation.player_lookup import entrant, learnt, rules_of
from rematch.rehearsal.shrink import play
from rematch.storage.run_folder import Run
from rematch.worlds.beasty.bots import MOST, SearchPlayer
from rematch.worlds.beasty.config import Config


def small(**world: Any) -> Any:
    return settings.replace(
        api.default("beasty"),
        {
            "threads": 1,
            "games": 16,
            "steps": 8,
            "total_steps": 16 * 8,
            "network.hidden": (8,),
            "ppo.minibatch": 64,
            "evaluation.games": 2,
            "evaluation.rivals": ("random",),
            "league.history": 0.0,
            **{f"world.{key}": value for key, value in world.items()},
        },
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/plain and runs/document, and a policy file of each."""
    root = tmp_path_factory.mktemp("entrants")
    for name, world in (("plain", {}), ("document", {"document_variant": True})):
        config = small(**world)
        session = play(config, root / "runs" / name).session
        with Run.open(root / "runs" / name, write=True) as run:
            policy = session.policies["player"]
            run.write_policy("player", policy.arrays(), past_policies.card(config, policy, 1))
    return root


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def seat(name: str, rules: Config | None = None) -> Any:
    return entrant(name, "beasty", rules or Config(), "player")


def test_searches_have_their_budget_in_their_name() -> None:
    for name, completions, seconds in (
        ("search", 100, 0.0),
        ("search:7", 7, 0.0),
        ("search:1e3", 1000, 0.0),
        ("search:5ms", MOST, 0.005),
        ("search:0.5ms:online", MOST, 0.0005),
    ):
        player = seat(name)
        assert isinstance(player, SearchPlayer) and player.name == name
        assert (player.completions, player.seconds) == (completions, seconds)
    for wrong in ("search:", "search:0", "search:-3", "search:2.5", "search:x", "search:5s", "search:1e9"):
        with pytest.raises(ConfigError, match="expected search:COMPLETIONS or search:MILLISECONDSms"):
            seat(wrong)
    with pytest.raises(ConfigError, match=r"model = onlin: expected one of .*; nearest: online"):
        seat("search:5:onlin")


@pytest.mark.parametrize("name", ["plain", "runs/plain", "runs/plain/policies/player.safetensors"])
def test_what_was_learnt_plays(name: str, folder: Path) -> None:
    player = seat(name)
    assert player.name == name
    wanted = api.load(folder / "runs" / "plain").policies["player"].weights
    assert (player.weights == wanted).all()
    about = learnt(name, "beasty")
    assert about is not None and about.rules == Config()


@pytest.mark.parametrize("name", ["document", "runs/document/policies/player.safetensors"])
def test_other_rules_are_refused_naming_both(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"{name} learnt under other rules: document_variant = True, the match has "
        "False; expected the same",
    ):
        seat(name)
    with pytest.raises(
        ConfigError, match=f"{name} learnt under other rules: document_variant = True, plain under False"
    ):
        rules_of(["plain", "random", name], "beasty", {})
    with pytest.raises(ConfigError, match="document_variant = True, the match has False"):
        rules_of([name], "beasty", {"document_variant": "false"})
    assert rules_of(["random", name], "beasty", {}) == Config(document_variant=True)
    assert seat(name, Config(document_variant=True)).name == name


def test_who_begins_is_no_rule() -> None:
    """A policy that learnt with player 0 beginning may play where that is drawn."""
    assert seat("plain", Config(first=-1)).name == "plain"
    assert rules_of(["plain"], "beasty", {"first": "-1"}) == Config(first=-1)


def test_rules_without_anybody_learnt() -> None:
    assert rules_of(["random", "search:5"], "beasty", {}) == Config()
    assert rules_of(["random"], "beasty", {"players": "3", "scoring": "count"}) == Config(
        players=3, scoring="count"
    )
    with pytest.raises(ConfigError, match="players = '5': expected a whole number from 2 to 4"):
        rules_of(["random"], "beasty", {"players": "5"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "heuristc",
            "no player called 'heuristc': expected one of random, .*, a run or a .safetensors file, or "
            "module:Class of your own; nearest: heuristic",
        ),
        ("gone.safetensors", "gone.safetensors: no such file"),
        ("4", "4 is no name; how many sit at a table is --world.players 4"),
        ("a b:c", "no player called 'a b:c'"),
    ],
)
def test_nobody(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        seat(name)


def test_other_worlds(folder: Path) -> None:
    with pytest.raises(ConfigError, match="plain is a run of beasty, not of lattice"):
        learnt("plain", "lattice")
    with pytest.raises(ConfigError, match="is a policy of beasty; expected one of lattice"):
        learnt("runs/plain/policies/player.safetensors", "lattice")
    with pytest.raises(ConfigError, match="mine:Bot: lattice does not take bots of one's own"):
        from rematch.worlds.lattice.config import Config as Board

        entrant("mine:Bot", "lattice", Board(), "pursuer")
    damaged = folder / "damaged.safetensors"
    damaged.write_bytes(b"rubbish")
    with pytest.raises(ConfigError, match="damaged"):
        seat("damaged.safetensors")
