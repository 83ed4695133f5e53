"""The server of the page: what it shows, what it refuses, and that it stays up with hostile folders."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.commands import environment
from support.served_pages import TOKEN, Client, serving
from support.tiny_run import SMALL, flags

import rematch
from rematch.cli.main import main
from rematch.core.errors import ConfigError
from rematch.verbs import runs
from rematch.web import server
from rematch.web.metric_columns import POINTS
from rematch.web.run_data import RunData, curves

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "one"
    rematch.train("quick", SMALL, folder=folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, trained: Path) -> Path:
    shutil.copytree(trained, tmp_path / "runs/one")
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    with serving(root) as port:
        yield Client(port)


# --- what it shows -----------------------------------------------------------------------------------------


def test_list_and_run_show_what_the_folder_holds(client: Client, root: Path) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    assert entry["name"] == "one" and entry["state"] == "finished" and entry["world"] == "pursuit"
    assert "folder" not in entry and len(entry["spark"]) == len(
        json.loads((root / "one/history.json").read_text())
    )
    run = client.json(f"/api/runs/{entry['id']}")
    weak = run["verdict"].partition(":")[0] in ("weak", "balanced but weak", "forgetting", "declining")
    assert bool(run["causes"]) == weak and all(". To try: " in cause for cause in run["causes"])
    assert run["verdict"] == entry["verdict"] and run["evaluations"][-1]["rates"].keys() == {
        "pursuer",
        "evader",
    }
    assert {row["key"] for row in run["changed"]} >= {"games", "total_steps"}
    logged = [json.loads(line) for line in (root / "one/metrics.jsonl").read_text().splitlines()]
    columns = client.json(f"/api/runs/{entry['id']}/curves")
    assert columns["step"] == [row["step"] for row in logged]
    assert columns["series"]["pursuer/entropy"] == [row["pursuer/entropy"] for row in logged]
    assert client.json(f"/api/runs/{entry['id']}/log")["lines"][-1].startswith("Verdict")
    status, headers, body = client.send(f"/api/runs/{entry['id']}/film/match.gif")
    assert (status, headers["content-type"]) == (200, "image/gif") and body.startswith(b"GIF8")


def test_page_and_its_files_are_served(client: Client) -> None:
    status, headers, body = client.send("/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"/static/app.js" in body
    for name, kind in server.STATIC.items():
        status, headers, body = client.send(f"/static/{name}")
        assert status == 200 and headers["content-type"].startswith(kind) and body
        assert b"http://" not in body.replace(b"http://www.w3.org", b"") or name == "uplot.js"


def test_runs_of_a_sweep_are_listed_one_by_one(client: Client, root: Path) -> None:
    (root / "sweep").mkdir()
    (root / "sweep/sweep.yaml").write_text("recipe: quick\n")
    for seed in (0, 1):
        shutil.copytree(root / "one", root / f"sweep/seed-{seed}")
    names = {entry["name"] for entry in client.json("/api/runs")["runs"]}
    assert names == {"one", "sweep/seed-0", "sweep/seed-1"}


def test_runs_have_a_recipe_and_the_command_that_continues_them(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    assert (entry["recipe"], entry["command"]) == ("quick", "")
    (root / "one/report.html").unlink()
    (entry,) = client.json("/api/runs")["runs"]
    assert entry["state"] == "stopped" and entry["command"] == f"rematch resume {root.resolve() / 'one'}"
    assert client.json(f"/api/runs/{entry['id']}")["command"] == entry["command"]
    monkeypatch.chdir(root.parent)
    os.utime(root / "one/train.log")  # a run that has not changed is not read again
    assert client.json("/api/runs")["runs"][0]["command"] == "rematch resume runs/one"
    (root / "one/config.yaml").write_text("game: [" * 50)
    assert client.json("/api/runs")["runs"][0]["recipe"] == ""


def test_runs_that_differ_in_the_seed_are_one_line_with_a_band(client: Client, root: Path) -> None:
    for seed in (1, 2, 3):
        rematch.train("quick", SMALL | {"seed": seed}, folder=root / f"sweep/seed-{seed}")
    (root / "sweep/sweep.yaml").write_text("recipe: quick\n")
    ids = {entry["name"]: entry["id"] for entry in client.json("/api/runs")["runs"]}
    seeds = [ids[f"sweep/seed-{seed}"] for seed in (1, 2, 3)]
    charts = client.json(f"/api/compare/{','.join(seeds)}")
    first = charts[0]
    assert first["title"] == "Win rate of pursuer against the other role of its run" and first["share"]
    band, *thin = first["lines"]
    assert band["label"] == "sweep, 3 seeds" and [line["label"] for line in thin] == [
        f"sweep/seed-{seed}" for seed in (1, 2, 3)] and all(line["thin"] for line in thin)
    mean = sum(line["values"][-1] for line in thin) / 3
    assert band["values"][-1] == pytest.approx(mean)
    assert band["low"][-1] <= mean <= band["high"][-1]
    (single,) = client.json(f"/api/compare/{seeds[0]}")[0]["lines"]
    assert single["label"] == "sweep/seed-1" and len(single["low"]) == len(single["values"])
    shutil.copytree(root / "one", root / "copy")  # the same seed twice is no second seed
    ids = {entry["name"]: entry["id"] for entry in client.json("/api/runs")["runs"]}
    lines = client.json(f"/api/compare/{ids['one']},{ids['copy']}")[0]["lines"]
    assert [line["label"] for line in lines] == ["one", "copy"] and "thin" not in lines[0]


def test_unknown_and_too_many_compared_runs_are_refused(client: Client) -> None:
    assert client.send(f"/api/compare/{'0' * 16}")[0] == 404
    assert client.send("/api/compare/..")[0] in (400, 404)
    (entry,) = client.json("/api/runs")["runs"]
    assert client.json(f"/api/compare/{entry['id']},{entry['id']}")[0]["lines"][1:] == []
    many = ",".join(f"{number:016x}" for number in range(200))
    assert client.send(f"/api/compare/{many}")[0] == 404


def test_run_has_its_league_its_speed_and_its_films(client: Client, root: Path) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    run = client.json(f"/api/runs/{entry['id']}")
    state = json.loads(max((root / "one/checkpoints").iterdir()).joinpath("state.json").read_text())
    pool = state["league"]["pools"]["pursuer"]
    names = {row["name"] for row in run["league"]["roles"]["pursuer"]}
    assert names == {row["name"] for row in (*pool["rivals"], *pool["scripted"])} and names
    scores = [row["score"] for row in run["league"]["roles"]["pursuer"] if row["score"] is not None]
    assert scores == sorted(scores)
    speed = client.json(f"/api/runs/{entry['id']}/curves")["speed"]
    assert speed["step"] == [32, 64, 96] and min(speed["series"]["learner_steps_per_second"]) > 0
    assert list(run["films"]) == ["match.gif", "learning.png"] and run["has_past"] in (True, False)
    (root / "one/films").mkdir()
    shutil.copy(root / "one/match.gif", root / "one/films/rollout_7.gif")
    assert "episode.gif" in client.json(f"/api/runs/{entry['id']}")["films"]
    status, headers, _ = client.send(f"/api/runs/{entry['id']}/film/episode.gif?version=1")
    assert (status, headers["content-type"]) == (200, "image/gif")
    shutil.move(root / "one/checkpoints", root / "elsewhere")
    (root / "one/checkpoints").symlink_to(root / "elsewhere")
    assert client.json(f"/api/runs/{entry['id']}")["league"]["roles"] == {}, "links are not followed"
    (root / "one/checkpoints").unlink()
    for damaged in ("{", '{"league": {"pools": {"pursuer": {"rivals": 3, "scripted": []}}}}',
                    '{"league": {"pools": {"x": {"rivals": [{"games": "a"}], "scripted": []}}}}'):
        shutil.rmtree(root / "one/checkpoints", ignore_errors=True)
        checkpoint = root / "one/checkpoints/iter_00000009"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.json").write_text(damaged)
        assert client.json(f"/api/runs/{entry['id']}")["league"]["roles"] == {}


def test_events_name_the_run_that_changed(client: Client, root: Path) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
    connection.request("GET", "/api/events", headers={"Cookie": f"{server.cookie_name(client.port)}={TOKEN}"})
    response = connection.getresponse()
    assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")
    response.readline()
    time.sleep(server.POLL / 2)
    with (root / "one/metrics.jsonl").open("a") as log:
        log.write('{"iteration": 99, "step": 9999, "pursuer/entropy": 0.5}\n')
    lines = (response.readline() for _ in itertools.repeat(None))
    data = next(line for line in lines if line.startswith(b"data: "))
    assert json.loads(data[6:]) == {"changed": [entry["id"]]}
    connection.close()
    assert client.json(f"/api/runs/{entry['id']}/curves")["step"][-1] == 9999


def test_long_logs_become_few_points_with_the_newest(tmp_path: Path) -> None:
    rows = ({"iteration": i, "step": i * 10, "a/loss": i / 7} for i in range(1, 20_000))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = curves(tmp_path)
    assert len(columns["step"]) <= POINTS and columns["step"][-1] == 199_990
    assert columns["series"]["a/loss"][-1] == 19_999 / 7


def test_train_serves_its_run_and_ends_the_server(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quick", *flags(), "--name", "shown", "--serve"]) == 0
    first = capfd.readouterr().out.splitlines()[0]
    assert first.startswith("runs: http://127.0.0.1:") and "?token=" in first
    port = int(first.partition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(OSError):
        Client(port).send("/")


# --- what it refuses ---------------------------------------------------------------------------------------


def test_address_sets_the_token_as_a_cookie(client: Client) -> None:
    status, headers, _ = client.send(f"/?token={TOKEN}", token=None)
    assert status == 303 and headers["location"] == "/"
    cookie = headers["set-cookie"].lower()
    assert (
        f"{server.cookie_name(client.port)}={TOKEN}" in headers["set-cookie"]
        and "httponly" in cookie
        and "samesite=strict" in cookie
    )


def test_three_hundred_attacks_are_refused(client: Client) -> None:
    """Every path with every wrong token, host, method and origin; and paths that leave the folder."""
    (entry,) = client.json("/api/runs")["runs"]
    paths = [
        "/",
        "/api/runs",
        f"/api/runs/{entry['id']}",
        f"/api/runs/{entry['id']}/log",
        "/api/events",
        f"/api/runs/{entry['id']}/film/match.gif",
        f"/api/compare/{entry['id']}",
        f"/api/runs/{entry['id']}/payoff",
        "/api/jobs/0123456789abcdef/cancel",
        "/static/app.js",
        "/?token=wrong",
        "/nothing",
    ]
    own = f"127.0.0.1:{client.port}"
    attacks: list[dict[str, Any]] = [
        {"token": token} for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "\u00e9")
    ]
    hosts = ("evil.example", f"evil.example:{client.port}", "127.0.0.1", f"127.0.0.2:{client.port}", "",
             "localhost:1",
             f"{own}.evil.example", f"[::1]:{client.port}")  # fmt: skip
    attacks += [{"Host": host} for host in hosts]
    attacks += [{"method": method} for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X")]
    attacks += [{"Sec_Fetch_Site": site} for site in ("cross-site", "same-site")]
    attacks += [{"Origin": origin} for origin in ("http://evil.example", "null", f"https://{own}")]
    count = 0
    for path, attack in itertools.product(paths, attacks):
        if path[1:2] in ("", "?") and "Sec_Fetch_Site" in attack:
            continue  # following a link from another site to the page is no attack
        status, headers, body = client.send(path, **attack)
        allowed = (404,) if path == "/nothing" and attack == {"method": "POST"} else (400, 403, 405, 415, 421)
        assert status in allowed, (path, attack, status)
        assert "content-security-policy" in headers or status == 400
        assert b"verdict" not in body
        count += 1
    escapes = ["..", "../one", "%2e%2e", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "%2fetc%2fpasswd", "one",
               ".", "\\..\\",
               "0" * 16, "%00", "a" * 4000, "%ff%fe", "config.yaml", "~", "%2e%2e%5c"]  # fmt: skip
    places = ["/api/compare/{}", "/api/jobs/{}",
              "/static/{}", "/static/vendor/{}", "/api/runs/{}", "/api/runs/{}/log", "/api/runs/{}/curves",
              f"/api/runs/{entry['id']}/film/{{}}", "/{}", "/api/{}",
              f"/api/runs/{entry['id']}/{{}}"]  # fmt: skip
    for place, escape in itertools.product(places, escapes):
        status, _, body = client.send(place.format(escape))
        assert status in (400, 404), (place, escape, status)
        assert b"root:" not in body and b"total_steps" not in body
        count += 1
    assert count >= 300
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_answers_carry_the_security_headers(client: Client) -> None:
    for path in ("/", "/api/runs", "/static/app.js", "/nothing"):
        _, headers, _ = client.send(path)
        for name, value in server.HEADERS.items():
            assert headers[name.lower()] == value
    policy = server.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "http" not in policy and "default-src 'none'" in policy


def test_loopback_and_a_random_token_are_the_default(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    for _ in (0, 1):
        server.serve(root, port=0, log=lines.append)
    tokens = {line.partition("token=")[2] for line in lines}
    assert all("http://127.0.0.1:" in line for line in lines) and len(tokens) == 2
    assert all(len(token) >= 32 for token in tokens)


def test_training_goes_before_the_server(root: Path) -> None:
    command = [sys.executable, "-m", "rematch", "serve", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as child:
        assert child.stdout is not None and b"token=" in child.stdout.readline()
        niceness = os.getpriority(os.PRIO_PROCESS, child.pid)
        child.terminate()
    assert niceness >= 10


def test_port_in_use_and_wrong_folders_are_one_line(
    root: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    listening = server.bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with pytest.raises(ConfigError, match=f"--port = {port}: cannot listen"):
        server.serve(root, port=port)
    listening.close()
    for host in ("192.0.2.1", "nonsense.invalid"):
        with pytest.raises(ConfigError, match=f"--host = '{host}'"):
            server.bind(host, server.PORT)
    for words in (["serve", str(tmp_path / "nothing")], ["serve", str(root), "--port", "70000"],
                  ["serve", str(root), "--host", "0.0.0.0"],
                  ["serve", str(root), "--prot", "1"]):  # fmt: skip
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.startswith("rematch: ")


# --- hostile and broken folders -----------------------------------------------------------------------------


def test_names_and_lines_of_run_folders_stay_text(client: Client, root: Path) -> None:
    name = "<img src=x onerror=alert(1)>\x1b[2J"
    shutil.move(root / "one", root / name)
    with (root / name / "train.log").open("a") as log:
        log.write("<script>alert(1)</script>\x1b[31m\n")
    (entry,) = client.json("/api/runs")["runs"]
    assert entry["name"].startswith("<img src=x") and "\x1b" not in entry["name"]  # text: the page escapes it
    last = client.json(f"/api/runs/{entry['id']}/log")["lines"][-1]
    assert "<script>" in last and "\x1b" not in last
    source = "".join(path.read_text() for path in Path(server.__file__).parent.glob("static/*.js"))
    assert "innerHTML" not in source and "insertAdjacentHTML" not in source and "document.write" not in source


@pytest.mark.parametrize("file", ["history.json", "metrics.jsonl", "config.yaml", "train.log", "match.gif"])
@pytest.mark.parametrize("damage", ["missing", "empty", "binary", "half", "deep", "link"])
def test_damaged_files_are_reported_and_the_rest_is_shown(
    client: Client, root: Path, file: str, damage: str
) -> None:
    path = root / "one" / file
    data = path.read_bytes()
    path.unlink()
    if damage == "link":
        path.symlink_to("/etc/passwd")
    elif damage != "missing":
        content = {
            "empty": b"",
            "binary": os.urandom(500),
            "half": data[: len(data) // 2],
            "deep": b"[" * 50_000,
        }
        path.write_bytes(content[damage])
    for entry in client.json("/api/runs")["runs"]:
        for part in ("", "/curves", "/log"):
            status, _, body = client.send(f"/api/runs/{entry['id']}{part}")
            assert status == 200 and b"root:" not in body, (part, body[:300])
            json.loads(body)
        assert client.send(f"/api/runs/{entry['id']}/film/match.gif")[0] in (200, 404)


def test_slow_and_vanished_clients_hold_up_nobody(client: Client) -> None:
    cookie = f"Cookie: {server.cookie_name(client.port)}={TOKEN}\r\n"
    host = f"Host: 127.0.0.1:{client.port}\r\n"
    requests = [f"GET /api/events HTTP/1.1\r\n{host}{cookie}\r\n", f"GET /api/runs HTTP/1.1\r\n{host}",
                f"POST /api/jobs/x/cancel HTTP/1.1\r\n{host}{cookie}Content-Type: application/json\r\n"
                "Content-Length: 60000\r\n\r\n{"]  # fmt: skip
    waiting = []
    for number in range(90):
        connection = socket.create_connection(("127.0.0.1", client.port), timeout=10)
        connection.sendall(requests[number % 3].encode())
        if number < 45:  # vanishes: the connection is reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        else:
            waiting.append(connection)
    began = time.monotonic()
    assert client.json("/api/runs")["runs"] and time.monotonic() - began < 5
    for connection in waiting:
        connection.close()
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_run_deleted_while_shown_is_reported(client: Client, root: Path) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    client.json(f"/api/runs/{entry['id']}")
    shutil.rmtree(root / "one")
    status, _, body = client.send(f"/api/runs/{entry['id']}")
    assert status == 404 and body == b"there is no such run (any more)"
    assert client.json("/api/runs")["runs"] == []


def test_results_are_read_again_only_after_a_change(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, reads = RunData(root), []
    (run,) = data.scan()
    made = lambda *arguments: reads.append(arguments) or {"step": []}  # noqa: E731
    monkeypatch.setattr("rematch.web.run_data.curves", made)
    for _ in range(3):
        data.curves(run)
    assert len(reads) == 1
    with (root / "one/metrics.jsonl").open("a") as log:
        log.write("{}\n")
    data.curves(run)
    assert len(reads) == 2


def test_list_reads_only_changed_and_running_runs_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, read = RunData(root), list[str]()
    info = RunData._info

    def counted(self: RunData, folder: Path) -> Any:
        read.append(folder.name)
        return info(self, folder)

    monkeypatch.setattr(RunData, "_info", counted)
    first = data.list()["runs"]
    assert len(read) == len(first) >= 1
    read.clear()
    again = data.list()["runs"]
    assert read == [] and [run["id"] for run in again] == [run["id"] for run in first]
    assert all(one["age"] <= other["age"] for one, other in zip(first, again))
    with (root / "one/train.log").open("a") as log:
        log.write("a line\n")
    data.list()
    assert read == ["one"]
    monkeypatch.setattr(runs, "lock_holder", lambda folder: "process 1")
    with (root / "one/train.log").open("a") as log:
        log.write("a line\n")
    assert [run["state"] for run in data.list()["runs"] if run["name"] == "one"] == ["running"]
    monkeypatch.undo()
    assert [run["state"] for run in data.list()["runs"] if run["name"] == "one"] == ["finished"]
