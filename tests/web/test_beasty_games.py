"""Games of Beasty Bar through the server: whole games, what a page may know, and attacks."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.patience import PATIENCE

import rematch
from rematch.web import server
from rematch.web.run_data import RunData
from rematch.web.worlds import beasty
from rematch.web.worlds.beasty_players import choices
from rematch.worlds.beasty.config import SPECIES
from rematch.worlds.shipped_agents import FILES

TOKEN = "a-token-of-this-test"
API = "/api/worlds/beasty"
pytestmark = pytest.mark.usefixtures("blank_pictures")


class Client:
    """Requests to a server on this machine; answers are JSON, errors are texts."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = {"Cookie": f"{server.cookie_name(self.port)}={TOKEN}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", API + path, data, sent)
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        return response.status, json.loads(raw) if response.status == 200 else raw.decode()

    def get(self, path: str, body: Any = None) -> Any:
        status, value = self.ask(path, body)
        assert status == 200, (path, status, value)
        return value

    def refused(self, path: str, body: Any = None, **headers: str) -> str:
        """The one line of an answer that refuses."""
        status, text = self.ask(path, body, **headers)
        assert 400 <= status < 500 and "\n" not in text and text, (path, body, status, text)
        assert "Traceback" not in text
        return str(text)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    listening = server.bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = server.make_app(tmp_path, TOKEN, server.host_names("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield Client(port)
    running.should_exit = True
    thread.join(10)


def finish(client: Client, game: Any) -> Any:
    while not game["over"]:
        move = {"action": game["moves"][-1]["action"], "step": game["step"]}
        game = client.get(f"/games/{game['id']}/move", move)
    return game


# --- whole games --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seats",
    [
        ["you", "agent"],
        ["agent+search:100", "you"],
        ["random", "you", "search:100"],
        ["you", "random", "queue", "skunk"],
    ],
    ids=len,
)
def test_whole_game_with_hints_and_review(client: Client, seats: list[str]) -> None:
    game = client.get("/games", {"seats": seats})
    assert game["names"][seats.index("you")] == "you" and game["person"] == seats.index("you")
    hint = client.get(f"/games/{game['id']}/hint")
    assert {int(action) for action in hint["values"]} == {move["action"] for move in game["moves"]}
    assert hint["best"] in {move["action"] for move in game["moves"]}
    game = finish(client, game)
    assert game["end"] in ("You win.", "You lose.", "A draw.") and len(game["outcomes"]) == len(seats)
    history = client.get(f"/games/{game['id']}/history")
    assert len(history["positions"]) == game["step"] + 1 == len(history["turns"]) + 1
    assert history["positions"][-1] == game["position"]
    review = client.get(f"/games/{game['id']}/review")
    assert all(0 <= chance["played"] <= chance["best"] <= 1 for chance in review["chances"])
    assert review["mistakes"] and "it is not your turn" in client.refused(f"/games/{game['id']}/hint")
    (entry,) = client.get("/games")["games"]
    assert entry["over"] and entry["points"] == [player["points"] for player in game["position"]["players"]]


def test_page_never_gets_hidden_cards(client: Client) -> None:
    """Every answer of a game: hands of others are null, decks are numbers, the deal is not told."""
    game = client.get("/games", {"seats": ["you", "search:100", "random"], "deal": 987654321})
    while not game["over"]:
        for part in ("", "/history", "/review", "/hint"):
            answer = client.get(f"/games/{game['id']}{part}")
            text = json.dumps(answer)
            assert "987654321" not in text and '"seed"' not in text
            for position in [*answer.get("positions", []), answer.get("position")]:
                if position:
                    players = position["players"]
                    assert [player["hand"] is None for player in players] == [False, True, True]
                    assert all(isinstance(player["deck"], int) for player in players)
        game = client.get(
            f"/games/{game['id']}/move", {"action": game["moves"][0]["action"], "step": game["step"]}
        )
    assert game["deal"] == 987654321


def test_short_address_leads_to_the_page(client: Client) -> None:
    for path, status, place in (("/play/beasty", 303, "/#/world/beasty"), ("/play/nothing", 404, None)):
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE)
        connection.request("GET", path, headers={"Cookie": f"{server.cookie_name(client.port)}={TOKEN}"})
        response = connection.getresponse()
        assert (response.status, response.headers.get("location")) == (status, place)
        connection.close()


def test_undo_resign_and_retry(client: Client) -> None:
    first = client.get("/games", {"seats": ["you", "random"], "deal": 4})
    base = f"/games/{first['id']}"
    later = client.get(f"{base}/move", {"action": first["moves"][0]["action"], "step": first["step"]})
    back = client.get(f"{base}/undo", {"step": later["step"]})
    assert {**back, "turns": []} == {**first, "turns": []}
    assert "nothing to take back" in client.refused(f"{base}/undo", {"step": back["step"]})
    game = finish(client, back)
    review = client.get(f"{base}/review")
    step = review["mistakes"][0]["step"]
    again = client.get(f"{base}/retry", {"step": step})
    assert again["id"] != game["id"] and again["step"] == step and again["moves"]
    assert again["position"] == review["mistakes"][0]["position"]
    assert client.get(base)["over"], "the finished game stays"
    assert client.get(f"/games/{again['id']}/resign", {})["end"] == "You resign."
    assert "expected one of your moves" in client.refused(f"{base}/retry", {"step": game["step"]})
    undone = client.get(f"/games/{again['id']}/undo", {"step": again["step"]})
    assert not undone["over"]
    client.get(f"{base}/delete", {})
    assert [entry["id"] for entry in client.get("/games")["games"]] == [again["id"]]


def test_game_outlives_the_server(client: Client, tmp_path: Path) -> None:
    game = client.get("/games", {"seats": ["you", "heuristic"], "deal": 5})
    game = client.get(
        f"/games/{game['id']}/move", {"action": game["moves"][0]["action"], "step": game["step"]}
    )
    room = beasty.GameRoom(RunData(tmp_path))
    with room.opened(game["id"]) as (_, session):
        shown = beasty.seat_view.game_json(session)
    assert shown["position"] == game["position"] and shown["moves"] == game["moves"]


def test_file_that_another_server_has_written_is_read_again(client: Client, tmp_path: Path) -> None:
    game = client.get("/games", {"seats": ["you", "random"]})
    data = RunData(tmp_path)
    other = beasty.GameRoom(data)
    with other.opened(game["id"]) as (saved, session):
        session.play(game["moves"][0]["action"])
        other.play_on(game["id"], saved, session, [])
    text = client.refused(
        f"/games/{game['id']}/move", {"action": game["moves"][0]["action"], "step": game["step"]}
    )
    assert "moved on" in text
    assert client.get(f"/games/{game['id']}")["step"] > game["step"]


def test_nobody_plays_and_the_game_is_shown(client: Client) -> None:
    game = client.get("/games", {"seats": ["random", "heuristic", "random", "search:100"]})
    assert game["over"] and game["person"] is None and not game["moves"]
    assert "nothing to take back" in client.refused(f"/games/{game['id']}/undo", {"step": game["step"]})
    assert client.get(f"/games/{game['id']}/review")["seat"] == 0


@pytest.fixture(scope="module")
def run_of_beasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "one"
    changes = {
        "games": 8,
        "steps": 8,
        "total_steps": 128,
        "evaluation.games": 2,
        "network.hidden": [8],
        "evaluation.opponents": ["random"],
    }
    rematch.train("beasty", changes, folder=folder)
    return folder


def test_policies_of_runs_play_and_a_lost_run_is_said(
    client: Client, tmp_path: Path, run_of_beasty: Path
) -> None:
    run_of_beasty.rename(tmp_path / "one")
    keys = [
        choice["key"]
        for choice in client.get("/options")["choices"]
        if choice["group"] == "runs in this folder"
    ]
    assert len(keys) > 2 and all("@" in key for key in keys[2:]), (
        "the newest policy, with search, earlier ones"
    )
    for key in keys:
        finish(client, client.get("/games", {"seats": ["you", key]}))
    assert "other rules: players = 2" in client.refused("/games", {"seats": ["you", keys[0], "random"]})
    game = client.get("/games", {"seats": ["you", keys[0]]})
    (tmp_path / "one").rename(tmp_path.parent / f"{tmp_path.name}-gone")
    (tmp_path / f"saved_games/{game['id']}.json").touch()
    move = {"action": game["moves"][0]["action"], "step": game["step"]}
    assert "cannot play: it is not in this folder" in client.refused(f"/games/{game['id']}/move", move)
    shown = client.get(f"/games/{game['id']}")
    assert shown["step"] == game["step"] + 1 and not shown["moves"], "the move of the person is stored"
    assert "cannot play" in client.refused(f"/games/{game['id']}/continue", {})
    assert client.get(f"/games/{game['id']}/undo", {"step": shown["step"]})["moves"]


# --- attacks ------------------------------------------------------------------------------------------------


def test_wrong_requests_are_one_line_and_change_nothing(client: Client) -> None:
    game = client.get("/games", {"seats": ["you", "random"], "deal": 1})
    base, before = f"/games/{game['id']}", client.get(f"/games/{game['id']}")
    legal = {move["action"] for move in game["moves"]}
    values: list[Any] = [None, -1, 33, 10**30, 1.5, "1", True, [], {}, "x" * 1000]
    for value in [*values, *(set(range(33)) - legal)]:
        client.refused(f"{base}/move", {"action": value, "step": game["step"]})
    action = min(legal)
    for value in [*values, game["step"] + 1]:
        client.refused(f"{base}/move", {"action": action, "step": value})
        client.refused(f"{base}/undo", {"step": value})
        client.refused(f"{base}/retry", {"step": value})
    seats: list[Any] = [
        None,
        "you",
        [],
        ["you"],
        ["you"] * 2,
        ["random"] * 5,
        ["you", 1],
        ["you", None],
        ["you", "nobody"],
        ["you", "os:system"],
        ["you", "../one"],
        ["you", "run:../.."],
        ["you", "search:999999"],
        ["you", "agent+search:1000000"],
        ["you", "run:" + "0" * 16],
        ["you", "x" * 5000],
        {"0": "you"},
        [["you"], "random"],
        ["you", "agent", "random"],
    ]
    for value in seats:
        client.refused("/games", {"seats": value})
    for key, wrong in (("scoring", ["", 3, None, "Points"]), ("deal", [-1, 1.5, "7", True, 2**31, []])):
        for value in wrong:
            client.refused("/games", {"seats": ["you", "random"], key: value})
    assert client.get(base) == before
    assert len(client.get("/games")["games"]) == 1


def test_foreign_identifiers_bodies_and_types_are_refused(client: Client) -> None:
    game = client.get("/games", {"seats": ["you", "random"]})
    names = [
        "0" * 32,
        "..",
        "%2e%2e",
        "a" * 3000,
        "%00",
        game["id"][:-1],
        game["id"].upper() + "x",
        game["id"] + ".json",
    ]
    for name in names:
        for part in ("", "/hint", "/history", "/review"):
            client.refused(f"/games/{name}{part}")
        for part in ("move", "undo", "retry", "resign", "continue", "delete"):
            client.refused(f"/games/{name}/{part}", {"step": 0, "action": 0})
    for body in (b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", b"[" * 60_000, b"{" + b" " * (1 << 20) + b"}"):
        client.refused(f"/games/{game['id']}/move", body)
    client.refused("/games", {"seats": ["you", "random"]}, Content_Type="text/plain")
    client.refused("/games", {"seats": ["you", "random"]}, Origin="http://evil.example")
    client.refused("/games", {"seats": ["you", "random"]}, Sec_Fetch_Site="cross-site")
    client.refused("/games", {"seats": ["you", "random"]}, Cookie=f"{server.cookie_name(client.port)}=wrong")
    assert len(client.get("/games")["games"]) == 1 and client.get(f"/games/{game['id']}") is not None


def test_hostile_files_in_the_folder_are_said(client: Client, tmp_path: Path) -> None:
    game = client.get("/games", {"seats": ["you", "random"]})
    path = tmp_path / f"saved_games/{game['id']}.json"
    good = json.loads(path.read_text())
    hostile = [
        b"",
        b"{" * 5000,
        json.dumps(good | {"actions": [0, 0, 0]}).encode(),
        json.dumps(good | {"seats": ["you", "os:system"]}).encode(),
        json.dumps(good | {"names": ["<img src=x onerror=alert(1)>", "you"], "actions": [32]}).encode(),
    ]
    for raw in hostile:
        path.write_bytes(raw)
        (entry,) = client.get("/games")["games"]
        assert entry.get("problem") or entry["names"]
        status, text = client.ask(f"/games/{game['id']}")
        assert status in (200, 400) and "Traceback" not in str(text)
    assert client.get("/options")["choices"]


def test_double_clicks_play_one_move(client: Client) -> None:
    game = client.get("/games", {"seats": ["you", "search:400"]})
    move = {"action": game["moves"][0]["action"], "step": game["step"]}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.ask(f"/games/{game['id']}/move", move), range(8)))
    assert sorted(status for status, _ in answers) == [200] + [400] * 7
    assert len(client.get(f"/games/{game['id']}")["log"]) == game["step"] + 2


def test_sessions_in_memory_are_few_and_files_bring_them_back(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beasty, "OPEN_SESSIONS", 2)
    games = [client.get("/games", {"seats": ["you", "random"]}) for _ in range(5)]
    room = next(room for data, room in beasty.ROOMS.items() if data.root == tmp_path)
    assert len(room._sessions) <= 2
    for game in games:
        shown = client.get(f"/games/{game['id']}")
        assert shown["position"] == game["position"]


def test_every_agent_that_comes_with_rematch_plays(client: Client) -> None:
    offered = {choice["key"]: choice for choice in client.get("/options")["choices"]}
    agents = [name for name, file in FILES.items() if file.startswith("beasty/")]
    shown = [key for key, choice in offered.items() if choice["group"] == "trained agents"]
    assert len(shown) == 2 * len(agents) == 4
    for key in ("agent_first", "agent_first+search:100"):
        game = client.get("/games", {"seats": ["you", key], "deal": 3})
        step = game["step"]
        game = client.get(f"/games/{game['id']}/move", {"action": game["moves"][0]["action"], "step": step})
        assert game["step"] == step + 2 and game["names"][1] == offered[key]["title"]


def test_offered_players_name_no_path(client: Client, tmp_path: Path) -> None:
    text = json.dumps(client.get("/options"))
    assert str(tmp_path) not in text and "safetensors" not in text
    assert {animal["name"] for animal in json.loads(text)["animals"]} == set(SPECIES)
    assert len({choice.key for choice in choices(RunData(tmp_path))}) == len(choices(RunData(tmp_path)))
