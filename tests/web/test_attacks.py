"""Attacks on every route of the server, found from its list of routes: none succeeds, and it stays up."""

from __future__ import annotations

import http.client
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
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
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
    headers = {"Content-Type": "application/json", "Cookie": f"{server.COOKIE}={TOKEN}"}
    connection.request("POST", posts[0], body=b"[" + b" " * (1 << 17) + b"]", headers=headers)
    assert connection.getresponse().status == 413
    connection.close()
