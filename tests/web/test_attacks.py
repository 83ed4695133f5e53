"""Attacks on every route of the server, found from its list of routes: none succeeds, and it stays up."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from support.patience import PATIENCE
from support.served_pages import TOKEN, Client, serving
from support.tiny_run import SMALL

import rematch
from rematch.web import server
from rematch.web.run_data import identifier
from rematch.web.worlds import PAGES

pytestmark = pytest.mark.usefixtures("blank_pictures")
HOSTILE = ("..", "../one", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "one", "%00", "a" * 4000,
           "%ff%fe", "config.yaml", "~", "-1", "0" * 16, "0" * 32, "%3Cscript%3E", "con", "nan", "1e999",
           "%0d%0aSet-Cookie:x=1",
           "${HOME}", "DAWN_1.state", "%252e%252e")  # fmt: skip
SECRETS = (b"root:", b"total_steps:", b"Set-Cookie", TOKEN.encode())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "one"
    rematch.train("quick", SMALL, folder=folder)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """A run of every world that has a page; only its settings say so."""
    folder = tmp_path_factory.mktemp("served")
    for page in PAGES:
        shutil.copytree(trained, folder / page.world)
        config = folder / page.world / "config.yaml"
        config.write_text(config.read_text().replace("game: pursuit", f"game: {page.world}"))
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[Client]:
    with serving(root) as port:
        yield Client(port)


def routes(root: Path) -> list[tuple[str, str]]:
    """(method, path with its parameters in braces) of every route."""
    guard: Any = server.make_app(root, TOKEN, frozenset())
    assert isinstance(guard.app, Starlette)
    out = []
    for route in guard.app.routes:
        method = "POST" if "POST" in (route.methods or ()) else "GET"
        out.append((method, str(route.path)))
    return out


def filled(root: Path, path: str) -> str:
    """The path with parameters that exist, or could."""
    world = path.split("/")[3] if path.startswith("/api/worlds/") else "pursuit"
    run = identifier(root, root / world)
    values = {"run": run, "runs": run, "name": "app.js" if path.startswith("/static") else "match.gif",
              "world": "beasty", "replay": "00000001-1", "job": "0" * 16, "game": "0" * 32,
              "session": "0" * 32}  # fmt: skip
    return path.format(**values)


def test_every_route_refuses_wrong_token_host_origin_and_method(client: Client, root: Path) -> None:
    own = f"127.0.0.1:{client.port}"
    attacks: list[dict[str, Any]] = [{"token": one} for one in (None, "", "wrong", TOKEN[:-1], TOKEN + "x")]
    attacks += [{"Host": host} for host in (
        "evil.example", f"evil.example:{client.port}", "127.0.0.1", f"127.0.0.2:{client.port}", "",
        f"{own}.evil.example", f"[::1]:{client.port}", f"{own}@evil.example",
        f"0.0.0.0:{client.port}")]  # fmt: skip
    origins = ("http://evil.example", "null", f"https://{own}", f"http://{own}0")
    attacks += [{"Origin": origin} for origin in origins]
    attacks += [{"Sec_Fetch_Site": site} for site in ("cross-site", "same-site")]
    methods = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X")
    attacks += [{"method": method} for method in methods]
    count = 0
    for (method, path), attack in itertools.product(routes(root), attacks):
        if path == "/" and "Sec_Fetch_Site" in attack:
            continue  # following a link from another site to the page is no attack
        sent = {"method": method, "Content_Type": "application/json", "body": b"{}"} | attack
        status, headers, body = client.send(filled(root, path), **sent)
        assert status in (400, 403, 405, 421), (path, attack, status)
        assert status == 400 or "content-security-policy" in headers, (path, attack, status)
        assert not any(secret in body for secret in SECRETS), (path, attack)
        count += 1
    assert count >= 300
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_hostile_parameters_of_every_route_are_refused(client: Client, root: Path) -> None:
    count = 0
    for (method, path), hostile in itertools.product(routes(root), HOSTILE):
        if "{" not in path:
            continue
        parts = path.split("/")
        for index in [i for i, part in enumerate(parts) if part.startswith("{")]:
            attacked = filled(root, "/".join([*parts[:index], "ATTACK", *parts[index + 1 :]]))
            status, headers, body = client.send(
                attacked.replace("ATTACK", hostile), method, Content_Type="application/json",
                body=b"{}" if method == "POST" else b"")  # fmt: skip
            assert status in (400, 404), (attacked, hostile, status)
            assert not any(secret in body for secret in SECRETS) and "x" not in headers.get("set-cookie", "")
            count += 1
    assert count >= 300
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_post_routes_refuse_other_media_types_and_large_or_broken_bodies(client: Client, root: Path) -> None:
    posts = [filled(root, path) for method, path in routes(root) if method == "POST"]
    assert len(posts) >= 10
    broken = (b"", b"[", b"[" * 60_000, b"null", b"[]", b"1", b'"x"', b"\xff\xfe", b'{"a": NaN, "a": 1e999}',
              b"{}{}")  # fmt: skip
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
    for path in posts:
        for kind in kinds:
            assert client.send(path, "POST", body=b"{}", Content_Type=kind)[0] == 415, (path, kind)
        for body in broken:
            status = client.send(path, "POST", body=body, Content_Type="application/json")[0]
            assert status == 400, (path, body[:20], status)
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", "Cookie": f"{server.cookie_name(client.port)}={TOKEN}"}
    connection.request("POST", posts[0], body=b"[" + b" " * (1 << 17) + b"]", headers=headers)
    assert connection.getresponse().status == 413
    connection.close()


def raw(port: int, request: bytes) -> bytes:
    """The first bytes of the answer to bytes that no HTTP library would send."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        with contextlib.suppress(OSError):  # the server has answered and closed the connection
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while len(answer) < 4096 and (part := connection.recv(4096)):
            answer += part
    return answer


def test_malformed_and_ambiguous_requests_get_nothing(client: Client) -> None:
    host = f"Host: 127.0.0.1:{client.port}".encode()
    cookie = f"Cookie: {server.cookie_name(client.port)}={TOKEN}".encode()
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" \
              b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="  # fmt: skip
    json_type = b"Content-Type: application/json"
    start = b"GET /api/runs HTTP/1.1"
    attacks = [
        [start, host], [start, cookie], [start, b"Host: evil.example", host, cookie],
        [start, host, b"Host: evil.example", cookie], [start, host + b"\x00", cookie],
        [start, b"Host: evil.example", b"X-Forwarded-Host: " + host[6:], cookie],
        [b"GET http://evil.example/api/runs HTTP/1.1", b"Host: evil.example", cookie],
        [b"GET /api/runs HTTP/1.0", cookie], [b"GET /api/runs HTTP/0.9"], [b"GET /api/runs", host, cookie],
        [start, host, upgrade], [start, host, upgrade, b"Origin: http://evil.example", cookie],
        [b"GET /api/events HTTP/1.1", b"Host: evil.example", upgrade, cookie],
        [start, host, cookie + b"x"], [start, host, b"Cookie: rematch_token_1=" + TOKEN.encode()],
        [start, host, b"Cookie: " + b"a=b; " * 20_000 + cookie[8:]],
        [b"POST /api/jobs/x/cancel HTTP/1.1", host, cookie, json_type, b"Content-Length: 2",
         b"Transfer-Encoding: chunked", b"Origin: http://evil.example"],
        [b"POST /api/jobs/x/cancel HTTP/1.1", host, cookie, json_type, b"Content-Length: -1"],
        [b"POST /api/jobs/x/cancel HTTP/1.1", host, cookie, json_type, b"Content-Length: 9" * 2],
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], [b"\x00" * 5000], [b"A" * 200_000],
    ]  # fmt: skip
    refusals = (b"400", b"403", b"404", b"405", b"421", b"431")
    for lines in attacks:
        try:
            answer = raw(client.port, b"\r\n".join(lines) + b"\r\n\r\n")
        except (ConnectionResetError, BrokenPipeError):
            continue  # refused without an answer
        status = answer.split(b" ")[1:2]
        assert status in [[], *([code] for code in refusals)], (lines[:3], answer[:80])
        assert b"verdict" not in answer and TOKEN.encode() not in answer
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_two_servers_of_a_machine_have_their_own_tokens(root: Path) -> None:
    """Cookies do not depend on the port: the token of one server must not remove that of another."""
    with serving(root) as one, serving(root) as other:
        names = []
        for port in (one, other):
            _, headers, _ = Client(port).send(f"/?token={TOKEN}", token=None)
            names.append(headers["set-cookie"].partition("=")[0])
        assert len(set(names)) == 2
        jar = "; ".join(f"{name}={TOKEN}" for name in names)
        assert all(Client(port).send("/api/runs", token=None, Cookie=jar)[0] == 200 for port in (one, other))


def test_huge_json_and_endless_lines_are_one_line_each(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "pursuit", tmp_path / "one")
    (tmp_path / "one/history.json").write_bytes(b"[" + b"{}," * 4_000_001 + b"{}]")
    (tmp_path / "one/metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": ' + b"9" * (3 << 20))
    with serving(tmp_path) as port:
        client = Client(port)
        (entry,) = client.json("/api/runs")["runs"]
        shown = client.json(f"/api/runs/{entry['id']}")
        curves = client.json(f"/api/runs/{entry['id']}/curves")
    assert any("history.json has more than 4,000,000 values" in text for text in shown["problems"])
    assert curves["problem"] == "metrics.jsonl has a line of more than 1 MiB" and curves["step"] == []
