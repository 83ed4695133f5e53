"""The server of the page: Starlette on uvicorn, loopback by default. It writes saved games only.

Rules, each with a test: every request needs the token (a cookie that the printed address sets) and a Host
that the server was started for; POST only with JSON, from the page itself, on the few routes that take it; no
path comes from a client; a strict content security policy; nothing is loaded from another host.
"""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rematch.core.errors import ConfigError
from rematch.web.answers import Endpoint, posting, reading
from rematch.web.run_data import Json, RunData, UnknownRun
from rematch.web.run_jobs import cancel, job_state, start_payoff
from rematch.web.worlds import PAGES

POLL = 1.0  # seconds between two looks at the run folders
KEEP_ALIVE = 15.0  # seconds between two messages to a client that has nothing to show
PORT = 7374
STATIC = {
    "app.js": "text/javascript", "charts.js": "text/javascript", "elements.js": "text/javascript",
    "runs_page.js": "text/javascript", "run_page.js": "text/javascript", "jobs.js": "text/javascript",
    "league.js": "text/javascript", "style.css": "text/css",
    "uplot.js": "text/javascript", "uplot.css": "text/css", "icon.svg": "image/svg+xml",
}  # fmt: skip
for page in PAGES:
    STATIC |= page.static
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests with another method, another Host, or without the token; adds the security headers."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket, which no page uses: 403
            await send({"type": "websocket.close"})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        request = Request(scope, receive)
        refusal = self.refusal(request)
        await (refusal or self.app)(scope, receive, with_headers)

    def refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not allowed; None where it is."""
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("only GET, HEAD and POST", 405)
        if request.headers.get("host", "").lower() not in self.hosts:
            return PlainTextResponse("unknown host", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return PlainTextResponse("requests from other sites are refused", 403)
        site = request.headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and request.url.path != "/":
            return PlainTextResponse("requests from other sites are refused", 403)
        offered = request.query_params.get("token", "")
        if request.url.path == "/" and offered and self.matches(offered):
            answer = RedirectResponse("/", 303)
            name = cookie_name(port_of(request))
            answer.set_cookie(name, self.token, httponly=True, samesite="strict", path="/")
            return answer
        if not self.matches(request.cookies.get(cookie_name(port_of(request)), "")):
            return PlainTextResponse("the token is missing or wrong: open the address that `rematch serve` "
                                     "printed", 403)
        return None

    def matches(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())


def cookie_name(port: int | str) -> str:
    """Cookies do not depend on the port: with one name, a server would remove the tokens of others."""
    return f"rematch_token_{port}"


def port_of(request: Request) -> str:
    """The port that the client has named; its header Host has been checked."""
    return request.headers["host"].rpartition(":")[2]


def static_file(name: str) -> bytes:
    """A file of the page; vendored ones lie in a folder of their own."""
    folder = resources.files("rematch.web") / "static"
    return ((folder / "vendor" / name) if name.startswith("uplot.") else (folder / name)).read_bytes()


def make_app(root: Path, token: str, hosts: frozenset[str]) -> ASGIApp:
    """The application that serves the runs below `root`."""
    data = RunData(root)

    async def index(request: Request) -> Response:
        return Response(static_file("index.html"), media_type="text/html; charset=utf-8")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("no such file", 404)
        return Response(static_file(name), media_type=f"{STATIC[name]}; charset=utf-8")

    def curves(request: Request) -> bytes:
        return data.curves_text(request.path_params["run"])

    async def film(request: Request) -> Response:
        parameters = request.path_params
        try:
            content, kind = await run_in_threadpool(data.film, parameters["run"], parameters["name"])
        except UnknownRun:
            return PlainTextResponse("there is no such picture", 404)
        return Response(content, media_type=kind)

    async def play(request: Request) -> Response:
        names = [page.world for page in PAGES if page.without_run]
        if request.path_params["world"] not in names:
            return PlainTextResponse(f"no such page; expected one of {', '.join(names)}", 404)
        return RedirectResponse(f"/#/world/{request.path_params['world']}", 303)

    def acting(act: Callable[[RunData, Request, Json], Json]) -> Endpoint:
        return posting(lambda request, body: act(data, request, body))

    async def events(request: Request) -> Response:
        return StreamingResponse(changes(data, request), media_type="text/event-stream")

    return Guard(Starlette(routes=[
        Route("/", index),
        Route("/static/{name}", static),
        Route("/play/{world}", play),
        Route("/api/runs", reading(lambda request: data.list())),
        Route("/api/runs/{run}", reading(lambda request: data.run(request.path_params["run"]))),
        Route("/api/compare/{runs}", reading(lambda request: data.compare(request.path_params["runs"]))),
        Route("/api/runs/{run}/curves", reading(curves)),
        Route("/api/runs/{run}/log", reading(lambda request: data.log(request.path_params["run"]))),
        Route("/api/runs/{run}/film/{name}", film),
        Route("/api/runs/{run}/payoff", acting(start_payoff), methods=["POST"]),
        Route("/api/jobs/{job}", reading(lambda request: job_state(data, request))),
        Route("/api/jobs/{job}/cancel", acting(cancel), methods=["POST"]),
        Route("/api/events", events),
        Route("/api/worlds", reading(lambda request: [page.to_json() for page in PAGES])),
        *(route for page in PAGES for route in page.starlette_routes(data)),
    ]), token, hosts)  # fmt: skip


async def changes(data: RunData, request: Request) -> AsyncIterator[str]:
    """Server-sent events: the identifiers of the runs whose files have changed."""
    before = await run_in_threadpool(data.versions)
    quiet = 0.0
    yield "retry: 2000\n\n"
    while not await request.is_disconnected():
        await asyncio.sleep(POLL)
        now = await run_in_threadpool(data.versions)
        changed = [run for run in now.keys() | before.keys() if now.get(run) != before.get(run)]
        before, quiet = now, quiet + POLL
        if changed or quiet >= KEEP_ALIVE:
            quiet = 0.0
            yield f"data: {json.dumps({'changed': sorted(changed)})}\n\n"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; the next free port where the default one is in use; ConfigError otherwise."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [port] if port not in (0, PORT) else [port, *range(PORT + 1, PORT + 20)] if port else [0]:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
        except OSError as error:
            made.close()
            reason = error.strerror or str(error)
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):  # no port of this address would do
                raise ConfigError(f"--host = {host!r}: {reason}; expected an address of this machine"
                                  ) from None
            continue
        made.listen(128)
        return made
    raise ConfigError(f"--port = {port}: cannot listen on {host}: {reason}; choose another port")


def host_names(host: str, port: int) -> frozenset[str]:
    """The values of the header Host that are accepted."""
    names = {host, "localhost"} if host in ("127.0.0.1", "::1") else {host}
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


def serve(
    folder: Path | str = "runs", *, host: str = "127.0.0.1", port: int = PORT,
    log: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Serve the runs of a folder until Ctrl-C; `log` gets the line with the address."""
    import uvicorn

    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; expected a folder that holds runs")
    listening = bind(host, port)
    address, number = listening.getsockname()[:2]
    token = secrets.token_urlsafe(24)
    shown = f"[{address}]" if ":" in address else address
    app = make_app(root.resolve(), token, host_names(address, number))
    log(f"{root}: http://{shown}:{number}/?token={token}")
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off",
                            timeout_graceful_shutdown=1, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
