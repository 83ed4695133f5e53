"""Players by name: scripted, searches with a budget, runs, policy files, the user's own bots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation import past_policies
from rematch.rehearsal.trial import play
from rematch.storage.run_folder import Run
from rematch.training.player_lookup import find_player, find_trained, match_rules
from rematch.worlds.beasty.bots import MAX_COMPLETIONS, SearchPlayer
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
            "ppo.minibatch_size": 64,
            "evaluation.games": 2,
            "evaluation.opponents": ("random",),
            "league.opponent_share": 0.0,
            **{f"world.{key}": value for key, value in world.items()},
        },
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/plain and runs/document, and a policy file of each."""
    root = tmp_path_factory.mktemp("players")
    for name, world in (("plain", {}), ("document", {"earlier_rules": True})):
        config = small(**world)
        trainer = play(config, root / "runs" / name).trainer
        with Run.open(root / "runs" / name, write=True) as run:
            policy = trainer.agents.players["player"]
            run.write_policy("player", policy.arrays(), past_policies.policy_metadata(config, policy, 1))
    return root


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def seat(name: str, rules: Config | None = None) -> Any:
    return find_player(name, "beasty", rules or Config(), "player")


def test_search_has_its_budget_in_its_name() -> None:
    for name, completions, seconds in (
        ("search", 100, 0.0),
        ("search:7", 7, 0.0),
        ("search:1e3", 1000, 0.0),
        ("search:5ms", MAX_COMPLETIONS, 0.005),
        ("search:0.5ms:online", MAX_COMPLETIONS, 0.0005),
    ):
        player = seat(name)
        assert isinstance(player, SearchPlayer) and player.name == name
        assert (player.completions, player.seconds) == (completions, seconds)
    for wrong in ("search:", "search:0", "search:-3", "search:2.5", "search:x", "search:5s", "search:1e9",
                  "search:inf", "search:nan", "search:infms"):
        with pytest.raises(ConfigError, match="expected search:COMPLETIONS or search:MILLISECONDSms"):
            seat(wrong)
    with pytest.raises(ConfigError, match=r"model = onlin: expected one of .*; nearest: online"):
        seat("search:5:onlin")


@pytest.mark.parametrize("name", ["plain", "runs/plain", "runs/plain/policies/player.safetensors"])
def test_run_or_policy_file_is_a_player(name: str, folder: Path) -> None:
    player = seat(name)
    assert player.name == name
    wanted = api.load(folder / "runs" / "plain").policies["player"].weights
    assert (player.weights == wanted).all()
    trained = find_trained(name, "beasty")
    assert trained is not None and trained.rules == Config()


@pytest.mark.parametrize("name", ["document", "runs/document/policies/player.safetensors"])
def test_other_rules_are_refused_with_both_values(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"{name} was trained with other rules: earlier_rules = True, the match has "
        "False; expected the same",
    ):
        seat(name)
    with pytest.raises(
        ConfigError, match=f"{name} was trained with other rules: earlier_rules = True, plain with False"
    ):
        match_rules(["plain", "random", name], "beasty", {})
    with pytest.raises(ConfigError, match="earlier_rules = True, the match has False"):
        match_rules([name], "beasty", {"earlier_rules": "false"})
    assert match_rules(["random", name], "beasty", {}) == Config(earlier_rules=True)
    assert seat(name, Config(earlier_rules=True)).name == name


def test_free_setting_may_differ() -> None:
    """A policy that learnt with player 0 beginning may play where that is drawn."""
    assert seat("plain", Config(first=-1)).name == "plain"
    assert match_rules(["plain"], "beasty", {"first": "-1"}) == Config(first=-1)


def test_match_rules_without_a_trained_player() -> None:
    assert match_rules(["random", "search:5"], "beasty", {}) == Config()
    assert match_rules(["random"], "beasty", {"players": "3", "scoring": "count"}) == Config(
        players=3, scoring="count"
    )
    with pytest.raises(ConfigError, match="players = '5': expected a whole number from 2 to 4"):
        match_rules(["random"], "beasty", {"players": "5"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "heuristc",
            "no player called 'heuristc': expected one of random, .*, a run, a .safetensors file, "
            r"an agent of Rematch \(@beasty, @beasty_first, @small\), or "
            "module:Class of your own; nearest: heuristic",
        ),
        ("gone.safetensors", "gone.safetensors: no such file"),
        ("4", "4 is not the name of a player; --world.players 4 sets their number"),
        ("a b:c", "no player called 'a b:c'"),
    ],
)
def test_unknown_player_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        seat(name)


def test_player_of_another_world_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="plain is a run of beasty, not of lattice"):
        find_trained("plain", "lattice")
    with pytest.raises(ConfigError, match="is a policy of beasty; expected one of lattice"):
        find_trained("runs/plain/policies/player.safetensors", "lattice")
    with pytest.raises(ConfigError, match="mine:Bot: lattice does not accept bots of your own"):
        from rematch.worlds.lattice.config import Config as Board

        find_player("mine:Bot", "lattice", Board(), "pursuer")
    damaged = folder / "damaged.safetensors"
    damaged.write_bytes(b"rubbish")
    with pytest.raises(ConfigError, match="damaged"):
        seat("damaged.safetensors")


def test_other_rules_are_played_where_they_are_allowed() -> None:
    """Where observations and actions stay the same; with more seats they do not."""
    document = Config(earlier_rules=True)
    assert match_rules(["plain"], "beasty", {"earlier_rules": "true"}, other_rules=True) == document
    assert match_rules(["plain", "document"], "beasty", {}, other_rules=True) == Config()
    assert find_player("plain", "beasty", document, "player", other_rules=True).name == "plain"
    with pytest.raises(ConfigError, match="plain: the observations or actions of player are others under"):
        match_rules(["plain"], "beasty", {"players": "3"}, other_rules=True)
