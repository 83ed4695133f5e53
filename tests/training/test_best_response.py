"""rematch exploit: known best responses, selection and report on different games, stored responses."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import toys

from rematch import api
from rematch.agents import policy_export
from rematch.agents.policy import Policy
from rematch.cli import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system import cuda
from rematch.evaluation.match import Scoreboard
from rematch.rehearsal.trial import play
from rematch.reporting import best_response_text
from rematch.storage.run_folder import Run, RunError
from rematch.training import best_response as engine
from rematch.training.best_response import ExploitRequest, exploit
from rematch.training.best_response_store import FILE, ResponseStore, response_name
from rematch.training.response_training import (
    FrozenAgents,
    LookaheadResponse,
    Response,
    can_look_ahead,
    response_config,
)
from rematch.verbs import exploit as verb
from rematch.worlds import registry

ASK = ExploitRequest(budget=40_000, seeds=1, games=600)


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys of tests/support/toys.py beside the real worlds."""
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


def small(game: str, **changes: Any) -> Config:
    """A run that does not learn: its players stay near uniform, and can be beaten."""
    tiny: dict[str, Any] = {
        "threads": 1, "games": 64, "steps": 16, "total_steps": 64 * 16, "network.hidden": (16,),
        "ppo.lr": 0.0, "ppo.anneal": "none", "ppo.minibatch_size": 256, "ppo.gamma": 1.0,
        "league.opponent_share": 0.0, "evaluation.games": 4,
    }
    tiny |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default(game), tiny)


def frozen_of(config: Config, folder: Path) -> FrozenAgents:
    players = play(config, folder).trainer.agents.players
    return FrozenAgents(config=config, players=players, iteration=1)


def weights_of(frozen: FrozenAgents) -> list[bytes]:
    return [policy.weights.tobytes() for policy in frozen.players.values() if isinstance(policy, Policy)]


def scripted(matcher: str, hider: str) -> dict[str, Any]:
    return {"matcher": toys.matching.bot(matcher, "matcher"), "hider": toys.matching.bot(hider, "hider")}


def quiet(line: str) -> None: ...


def measured(frozen: FrozenAgents, role: str, player: Any, games: int = 400) -> float:
    """The score of a player against the frozen ones."""
    board = Scoreboard(frozen.make, 5, 1)
    spec = frozen.make(1, 0, 0).spec
    players = engine.players_by_seat(spec, role, player, frozen.players)
    return board.results(players, games, 9)[spec.roles[role].seats[0]].score


def search(frozen: FrozenAgents, ask: ExploitRequest, folder: Path) -> dict[str, Any]:
    with Run.open(folder, write=True) as run:
        return exploit(frozen, ask, run, quiet)


# --- what it finds ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_best_response_to_random_coins_is_heads(tmp_path: Path) -> None:
    """Heads pays the matcher three: always heads wins 26 of 32 games of five rounds, chance fewer."""
    frozen = frozen_of(small("matching"), tmp_path / "run")
    before = weights_of(frozen)
    result = search(frozen, ASK, tmp_path / "run")
    matcher, hider = result["roles"]["matcher"], result["roles"]["hider"]
    assert matcher["high"] > 26 / 32 - 0.02 and matcher["gain_low"] > 0.02
    assert hider["gain_low"] > 0.05 and not hider["too_weak"]
    assert result["nash_conv_at_least"] == pytest.approx(matcher["gain_low"] + hider["gain_low"])
    assert result["steps"] == 40 * 64 * 16, "whole iterations: a little more than was asked for"
    assert matcher["gain"] == pytest.approx(matcher["score"] - matcher["incumbent"]["score"])
    assert matcher["games"] == matcher["incumbent"]["games"] == 600
    assert {(t["start"], t["seed"], t["play"]) for t in matcher["trials"]} == {
        (start, 0, how) for start in ("untrained", "fresh", "incumbent", "ahead")
        for how in ("sampled", "greedy")}
    assert weights_of(frozen) == before
    assert not any(player.greedy for player in frozen.players.values()), "greedy candidates are copies"


@pytest.mark.slow
def test_best_response_on_a_small_lattice_has_the_exact_gain(tmp_path: Path) -> None:
    config = small("lattice", world__n=4, world__horizon=5, steps=8, games=128, network__hidden=(32,))
    frozen = frozen_of(config, tmp_path / "run")
    result = search(frozen, ExploitRequest(budget=150_000, seeds=1, games=2000), tmp_path / "run")
    for answer in result["roles"].values():
        exact = answer["exact"]
        assert exact["share_found"] >= 0.8, result
        assert exact["incumbent"] < exact["found"] <= exact["best"] + 1e-9
        assert answer["low"] - 0.02 < exact["found"] < answer["high"] + 0.02  # measured as it is
        own = answer["incumbent"]
        assert own["low"] - 0.02 < exact["incumbent"] < own["high"] + 0.02
    output = "\n".join(best_response_text.lines(result))
    assert output.count("% of the exact gain") == 2


@pytest.mark.parametrize("role", ["pursuer", "evader"])
def test_lookahead_response_is_close_to_the_exact_one(role: str, tmp_path: Path) -> None:
    """It uses the rules and the frozen player's action probabilities: 20 000 steps suffice."""
    config = small("lattice", world__n=4, world__horizon=5, steps=8, games=128, network__hidden=(32,))
    frozen = frozen_of(config, tmp_path / "run")
    assert engine.start_kinds(frozen, role) == ["fresh", "incumbent", "ahead"]
    spec = frozen.make(1, 0, 0).spec
    response = LookaheadResponse(frozen, response_config(config, 20_000, 0, spec), role, 7)
    before = engine.exact_scores(frozen, role, response.player)["exact"]["share_found"]
    response.search("ahead", lambda player: measured(frozen, role, player))
    exact = engine.exact_scores(frozen, role, response.player)["exact"]
    assert exact["share_found"] > max(0.85, before) and exact["found"] <= exact["best"] + 1e-9


def test_lookahead_is_refused_where_it_cannot_work(tmp_path: Path) -> None:
    assert not can_look_ahead(frozen_of(small("sticks"), tmp_path / "sticks"), "player")
    config = small("matching")
    faced = FrozenAgents(config=config, players=scripted("random", "heads"), iteration=1)  # no action_probs
    assert not can_look_ahead(faced, "matcher")
    frozen = frozen_of(config, tmp_path / "coins")
    assert can_look_ahead(frozen, "matcher")
    other = settings.replace(config, {"network.kind": "transformer"})  # not a network of ours in C
    elsewhere = FrozenAgents(config=other, players=frozen.players, iteration=1)
    assert not can_look_ahead(elsewhere, "matcher")


def test_response_takes_each_seat_if_there_is_one_role(tmp_path: Path) -> None:
    frozen = frozen_of(small("sticks"), tmp_path / "run")
    result = search(frozen, ASK, tmp_path / "run")
    assert list(result["roles"]) == ["player"] and "nash_conv_at_least" not in result
    assert result["roles"]["player"]["gain_low"] > 0.02
    assert result["roles"]["player"]["incumbent"]["score"] == pytest.approx(2 / 3, abs=0.06)


def test_bots_can_be_frozen_players(tmp_path: Path) -> None:
    """Scripted players have no weights: there is no incumbent to start from, and they keep their seats."""
    config = small("matching")
    play(config, tmp_path / "run")
    frozen = FrozenAgents(config=config, players=scripted("random", "heads"), iteration=1)
    request = ExploitRequest(budget=20_000, seeds=1, games=200, roles=("matcher",))
    result = search(frozen, request, tmp_path / "run")
    answer = result["roles"]["matcher"]
    assert answer["score"] == 1.0
    assert {trial["start"] for trial in answer["trials"]} == {"untrained", "fresh", "selfplay"}


def test_self_play_is_left_out_on_request(tmp_path: Path) -> None:
    frozen = frozen_of(small("sticks"), tmp_path / "run")
    request = ExploitRequest(budget=2000, seeds=1, games=30)
    result = search(frozen, request, tmp_path / "run")
    steps = {trial["start"]: trial["steps"] for trial in result["roles"]["player"]["trials"]}
    assert steps["selfplay"] == steps["incumbent"] + 1024, "the run itself had one iteration"
    without = ExploitRequest(budget=2000, self_play=0, seeds=1, games=30)
    result = search(frozen, without, tmp_path / "run")
    starts = {trial["start"] for trial in result["roles"]["player"]["trials"]}
    assert starts == {"untrained", "fresh", "incumbent"}
    assert request.self_play_steps == 20_000 and without.self_play_steps == 0


@pytest.mark.parametrize("game", ["matching", "sticks"])
def test_frozen_players_have_their_seats_from_the_first_step(game: str, tmp_path: Path) -> None:
    frozen = frozen_of(small(game), tmp_path / "run")
    role = list(frozen.players)[-1]
    spec = frozen.make(1, 0, 0).spec
    response = Response(frozen, response_config(frozen.config, 10_000, 0, spec), role, 5)
    for iteration in range(3):
        response.seating[role].place(0, response.policy.weights)
        response.seat(iteration)
        rollout = response.collector.collect(iteration)
        slots = np.concatenate([track.slot for track in rollout.tracks.values()], axis=2)
        assert set(np.unique(slots)) == {0, 1}
        if game == "matching":
            assert (rollout["matcher"].slot == 1).all() and (rollout["hider"].slot == 0).all()
        else:
            assert ((slots == 0).sum(2) == 1).all()  # one seat of each game
            share = (slots == 0).mean((0, 1))
            assert np.all(np.abs(share - 1 / 3) < 0.2)


# --- what it says -------------------------------------------------------------------------------------------


def spoil(self: Response, start: str, score: Any) -> int:
    """A response that learns to lose: always tails."""
    self.policy.weights[:] = 0.0
    bias = next(at for name, _, at in self.policy.layout if name == "policy.head.bias")
    self.policy.weights[bias : bias + 2] = (-9.0, 9.0)
    self.policy.set(self.policy.weights.copy())
    return 1


def test_fresh_response_below_the_incumbent_is_called_too_weak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Response, "search", spoil)
    config = small("matching")
    play(config, tmp_path / "run")
    frozen = FrozenAgents(config=config, players=scripted("heads", "tails"), iteration=1)
    ask = ExploitRequest(budget=1000, seeds=1, games=200, roles=("hider",))
    result = search(frozen, ask, tmp_path / "run")
    answer = result["roles"]["hider"]
    assert answer["too_weak"] is False and answer["gain"] == 0.0  # tails was right there
    assert answer["fresh"]["share"] == 1.0 and answer["fresh"]["reaches"]
    assert "100 % of the incumbent's score" in "\n".join(best_response_text.lines(result))
    frozen = FrozenAgents(config=config, players=scripted("random", "heads"), iteration=2)
    request = ExploitRequest(budget=1000, seeds=1, games=200, roles=("matcher",))
    result = search(frozen, request, tmp_path / "run")
    answer = result["roles"]["matcher"]
    assert answer["too_weak"] and answer["fresh"]["score"] == 0.0 < answer["incumbent"]["score"]
    assert answer["start"] == "untrained" and answer["gain"] == 0.0, "the incumbent is a candidate"
    output = "\n".join(best_response_text.lines(result))
    assert "the responses were too weak: the best fresh response scores 0.000" in output
    assert "0 % of the incumbent's score; the bound is uninformative" in output
    answer["too_weak"], answer["gain_low"] = False, 0.1  # as if a response from the incumbent had won
    output = "\n".join(best_response_text.lines(result))
    assert "the responses were too weak" in output and "the gain is real" in output


def test_response_is_selected_and_reported_on_different_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = frozen_of(small("matching"), tmp_path / "run")
    played: list[tuple[int, str, bool]] = []
    plain = Scoreboard.results

    def noted(self: Scoreboard, players: Any, games: int, index: int) -> Any:
        own_player = players[0]
        played.append((index, own_player.name, getattr(own_player, "greedy", False)))
        return plain(self, players, games, index)

    monkeypatch.setattr(Scoreboard, "results", noted)
    search(frozen, ExploitRequest(budget=3000, seeds=2, games=50, roles=("matcher",)), tmp_path / "run")
    chosen = [entry for entry in played if entry[0] == engine.SELECTION]
    summary = [entry for entry in played if entry[0] == engine.REPORT]
    assert len(chosen) == 14 and chosen[0][1] == "matcher (learnt)"
    assert {name for _, name, _ in chosen[2:]} == {"matcher (response)"}
    assert len(summary) == 3
    assert summary[1][1] == "matcher (learnt)", "the best, the incumbent, the best fresh one"
    checkpoints = [entry for entry in played if entry[0] == engine.CHECKPOINT]
    assert checkpoints and len(played) == len(chosen) + len(summary) + len(checkpoints)


# --- what it keeps ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stored_responses_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    frozen = frozen_of(small("matching"), folder)
    trained: list[tuple[str, str, int]] = []
    plain: dict[Any, Any] = {kind: kind.search for kind in (Response, LookaheadResponse)}

    def count(most: int) -> None:
        def counted(self: Any, start: str, score: Any) -> int:
            if len(trained) == most:
                raise KeyboardInterrupt
            iterations: int = plain[type(self)](self, start, score)
            trained.append((self.role, type(self).__name__, self.seed))
            return iterations

        for kind in plain:
            monkeypatch.setattr(kind, "search", counted)

    count(3)
    ask = ExploitRequest(budget=5000, seeds=1, games=100)
    with pytest.raises(KeyboardInterrupt):
        search(frozen, ask, folder)
    assert len(json.loads((folder / FILE).read_text())["responses"]) == 3
    count(100)
    interrupted = search(frozen, ask, folder)
    assert len(trained) == len(set(trained)) == 6
    names = {record["name"] for record in json.loads((folder / FILE).read_text())["responses"]}
    assert names <= {path.stem for path in (folder / "policies").glob("*.safetensors")} and len(names) == 6
    again = frozen_of(small("matching"), tmp_path / "twin")
    assert search(again, ask, tmp_path / "twin") == interrupted  # as if nothing had happened
    # A policy that was damaged is trained again; one of other settings too; the first result stays.
    metadata = json.loads((folder / FILE).read_text())["responses"][0]["about"]
    (folder / "policies" / f"{response_name(metadata)}.safetensors").write_bytes(b"")
    del trained[:]
    search(frozen, ExploitRequest(budget=5000, seeds=1, games=120), folder)
    assert len(trained) == 1
    search(frozen, ExploitRequest(budget=6000, seeds=1, games=100, roles=("hider",)), folder)
    assert len(trained) == 4
    results = json.loads((folder / FILE).read_text())["results"]
    assert [entry["question"]["budget"] for entry in results] == [5000, 5000, 6000]
    assert results[0] == interrupted
    # Responses are policies like others, and nobody begins with them who did not ask for one.
    with pytest.raises(ConfigError, match="or a finished run"):
        policy_export.initial_policies(folder, small("matching"))
    ahead, fresh = sorted(names)[:2]
    assert policy_export.read(folder / "policies" / f"{fresh}.safetensors").policy.role.name == "hider"
    with pytest.raises(ConfigError, match="a value network of lookahead"):
        policy_export.read(folder / "policies" / f"{ahead}.safetensors")


def test_results_of_later_players_are_stored_separately(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    frozen = frozen_of(small("matching"), folder)
    ask = ExploitRequest(budget=2000, seeds=1, games=50, roles=("hider",))
    first = search(frozen, ask, folder)
    policy = frozen.players["matcher"]
    assert isinstance(policy, Policy)
    policy.set(policy.weights + np.float32(0.5))
    second = search(frozen, ask, folder)
    assert first["question"] != second["question"]
    assert first["roles"]["hider"]["policy"] != second["roles"]["hider"]["policy"]
    with Run.open(folder, write=False) as run:
        assert ResponseStore(run).result(first["question"]) == first
        assert ResponseStore(run).result(second["question"]) == second


def test_foreign_exploit_file_is_one_line(tmp_path: Path) -> None:
    play(small("matching"), tmp_path / "run")
    for text in ("[]", '{"responses": 3, "results": []}', '{"responses": [], "results": [1]}', "{"):
        (tmp_path / "run" / FILE).write_text(text)
        with Run.open(tmp_path / "run", write=False) as run, pytest.raises((RunError, ConfigError)) as caught:
            ResponseStore(run)
        assert "\n" not in str(caught.value)


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pursuit without learning, in two seconds."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    config = settings.replace(api.default("pursuit"), {
        "threads": 1, "games": 32, "steps": 16, "total_steps": 32 * 16, "world.max_steps": 12,
        "world.prep_steps": 0, "network.hidden": (8,), "evaluation.games": 4,
        "evaluation.opponents": ("random",)})
    play(config, folder)
    return folder


FLAGS = ["--budget", "2e3", "--seeds", "1", "--games", "30"]


def test_exploit_command_prints_and_stores(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["exploit", str(finished), *FLAGS, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["roles"]) == {"pursuer", "evader"} and result["question"]["budget"] == 2000
    assert result in json.loads((finished / FILE).read_text())["results"]
    with (finished / "lock").open("w") as held:  # somebody trains: there is nothing to write any more
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main.main(["exploit", str(finished), *FLAGS]) == 0
        output = capsys.readouterr().out
        assert output.count("a response scores at least 0.") + output.count("at least 1.") == 2
        assert "at most 2.05 K steps each, 30 games per match" in output  # whole iterations: 2048 steps
        assert main.main(["exploit", str(finished), *FLAGS[:2], "--seeds", "2"]) == 2
        assert "is locked by" in capsys.readouterr().err
    (finished / "lock").unlink()


def test_responses_on_the_runs_own_device_are_not_trained_again(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []
    for words in ([], ["--device", "cpu"]):
        assert main.main(["exploit", str(finished), *FLAGS, *words, "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    stored = json.loads((finished / FILE).read_text())["results"]
    assert results[0] == results[1] and len(stored) == 1


def test_stored_responses_of_a_gpu_are_shown_without_one(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a new response needs the card."""
    assert main.main(["exploit", str(finished), *FLAGS]) == 0
    shown = capsys.readouterr().out.splitlines()[-5:]

    def on(device: str, frozen: FrozenAgents) -> FrozenAgents:
        return replace(frozen, config=settings.replace(frozen.config, {"device": device}))

    load, identity = verb.frozen_agents, verb.request_identity
    monkeypatch.setattr(verb, "frozen_agents", lambda *words: on("cuda", load(*words)))
    monkeypatch.setattr(cuda, "no_gpu", lambda: "PyTorch finds no NVIDIA GPU")
    assert main.main(["exploit", str(finished), *FLAGS]) == 2
    assert "device = cuda: PyTorch finds no NVIDIA GPU; expected cpu" in capsys.readouterr().err
    monkeypatch.setattr(verb, "request_identity", lambda frozen, ask: identity(on("cpu", frozen), ask))
    assert main.main(["exploit", str(finished), *FLAGS]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == shown


@pytest.mark.parametrize(("words", "expected"), [
    (["--role", "evaders"], "--role = 'evaders': expected one of pursuer, evader; nearest: evader"),
    (["--budget", "0"], "--budget = '0': expected a whole number from 1"),
    (["--self-play", "-1"], "--self-play = '-1': expected a whole number from 0"),
    (["--seeds", "x"], "--seeds = 'x': expected a whole number"),
    (["--bugdet", "3"], "unknown option '--bugdet'; nearest: --budget"),
    (["--device", "gpu"], "command line: device = 'gpu': expected one of cpu, cuda, auto"),
    (["--device", "cpu", "--cluster", "ray"], "device = cpu: the actors of a cluster use the run's own"),
])  # fmt: skip
def test_wrong_words_are_one_line(
    words: list[str], expected: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["exploit", str(finished), *words]) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1


def test_exploit_of_a_world_with_one_seat_is_refused(tmp_path: Path) -> None:
    play(small("drift"), tmp_path / "run")
    with pytest.raises(ConfigError, match="exploit: drift has one seat: the agent has no opponent"):
        verb.exploit(tmp_path / "run", ExploitRequest(), quiet)


def test_exploit_reports_wins_and_draws_of_a_card_game(tmp_path: Path) -> None:
    """Beasty Bar against a policy that plays nearly at random: the response learns to win more than half."""
    play(small("beasty", evaluation__opponents=("random",)), tmp_path / "run")
    output: list[str] = []
    result = verb.exploit(tmp_path / "run", ExploitRequest(budget=60_000, seeds=1, games=600), output.append)
    answer = result["roles"]["player"]
    assert answer["low"] > 0.5 and not answer["too_weak"]
    assert abs(answer["incumbent"]["score"] - 0.5) < 0.08
    assert answer["win"] == pytest.approx(answer["score"] - answer["draws"] / 2 / answer["games"])
    text = "\n".join(best_response_text.lines(result))
    assert f"won {answer['win']:.3f} [" in text and len(output) == 3
    assert verb.exploit(tmp_path / "run", ExploitRequest(budget=60_000, seeds=1, games=600)) == result
