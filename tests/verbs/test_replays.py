"""`rematch replay` and `rematch film`: games are listed, chosen, verified, recorded and filmed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.recorded_games import recorded
from support.tiny_run import SMALL

import rematch
from rematch import GameChoice
from rematch.cli.main import main
from rematch.core.errors import ConfigError
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.verbs.replays import Film, Replays, names_by_seat

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    rematch.train("quick", SMALL | {"evaluation.every": 1}, folder=folder / "runs/done")
    return folder


@pytest.fixture
def workdir(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_replays_of_a_run_are_listed_and_verified(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = rematch.replay("done", verify=True)
    assert isinstance(listed, Replays) and len(listed.replays) == listed.verified == 3
    assert main(["replay", "done", "--verify"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == "verified: 60 steps of 3 games gave the recorded states to the byte"
    assert "00000001-1.replay" in output and "wins after 20 steps" in output
    assert main(["replay", "done", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [entry["length"] for entry in facts["replays"]] == [20, 20, 20]
    assert facts["replays"][0]["players"][0]["role"] == "pursuer"


def test_new_game_of_chosen_players_is_recorded_verified_and_filmed(workdir: Path) -> None:
    made = rematch.replay("done", GameChoice(players=["lion", "done@1"], seed=4), out="game.replay")
    assert isinstance(made, Film) and made.file == Path("game.replay")
    replay = replay_files.read(Path("game.replay"))
    assert [player.name for player in replay.players] == ["lion", "done@1"] and replay.players[1].digest
    rematch.replay("game.replay", verify=True)
    again = rematch.replay("done", GameChoice(players=["lion", "done@1"], seed=4), out="again.replay")
    assert Path("again.replay").read_bytes() == Path("game.replay").read_bytes() and again
    film = rematch.film("game.replay", "game.gif")
    assert Path("game.gif").read_bytes().startswith(b"GIF8") and film.caption == replay.caption()
    assert rematch.film("done", "other.replay", GameChoice(seed=4)).file.suffix == ".replay"


def test_game_is_chosen_by_its_outcome(workdir: Path) -> None:
    for text, outcome in (("evader loses", (1.0, 0.0)), ("evader wins", (0.0, 1.0))):
        rematch.film("lattice", "game.replay", GameChoice(players=["chase", "random"], choose=text))
        assert replay_files.read(Path("game.replay")).outcome == outcome
    assert rematch.replay("done", GameChoice(choose="longest")).replays[0].length == 20  # type: ignore[union-attr]


def test_altered_replay_is_one_line_and_exit_code_2(workdir: Path, capsys: Any) -> None:
    replay = recorded("lattice")
    body = json.loads(replay_files.encode(replay))
    del body["sha256"]
    altered = replay_files.atomic_files.encode_with_digest(body | {"states": "0" * 64})
    Path("altered.replay").write_bytes(altered)
    Path("newer.replay").write_bytes(altered.replace(b'"version": 1', b'"version": 2'))
    Path("cut.replay").write_bytes(altered[:-40])
    for name, problem in (("altered", "is not the recorded one"), ("newer", "is newer than this Rematch"),
                          ("cut", "not well-formed JSON")):  # fmt: skip
        assert main(["replay", f"{name}.replay", "--verify"]) == 2
        output, error = capsys.readouterr()
        assert error.startswith("rematch: ") and problem in error and error.count("\n") == 1 and not output


@pytest.mark.parametrize(("words", "problem"), [
    ("replay nothing", "nothing: no such run or .replay file"),
    ("replay nothing.replay", "nothing.replay: no such file"),
    ("replay done --seed 3", "--seed has no effect without --players"),
    ("replay done --players lion,random", "--players plays a new game: expected --out FILE"),
    ("replay done --players lion --out x.gif", "expected 2 names, for pursuer, evader"),
    ("replay done --players lyon,random --out x.gif", "no pursuer called 'lyon'"),
    ("replay done --out x.avi", "expected a name that ends in .gif, .mp4 or .replay"),
    ("replay done --choose drawn", "none of 3 games ended so"),
    ("replay done --choose", "--choose needs a value"),
    ("replay done --chose drawn", "unknown option '--chose'; nearest: --choose"),
    ("film pursuit --out x.gif", "pursuit is a world: expected --players"),
    ("film done --out x.gif --choose evader", "for example \"evader loses\""),
    ("film done --out x.gif --games 0", "--games = '0': expected a whole number from 1"),
    ("film done --out x.gif --seconds 1", "--seconds = '1': expected a number above 3"),
    ("film done", "needs --out FILE"),
])  # fmt: skip
def test_wrong_words_are_one_line(words: str, problem: str, workdir: Path, capsys: Any) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1


def test_names_are_for_seats_or_for_roles() -> None:
    roles = ["player", "player", "dealer"]
    assert names_by_seat(["a", "b", "c"], roles) == ["a", "b", "c"]
    assert names_by_seat(["a", "c"], roles) == ["a", "a", "c"]
    with pytest.raises(ConfigError, match="expected 3 names"):
        names_by_seat(["a"], roles)


def test_recorded_card_game_verifies(workdir: Path) -> None:
    rematch.film("beasty", "cards.replay", GameChoice(players=["heuristic", "random"]))
    replay = replay_files.read(Path("cards.replay"))
    Playback(replay).verify()
    assert replay.caption().endswith(f"after {replay.length} steps") and len(replay.players) == 2
