"""WorldPage: the page of one world, a Python module in web/worlds/ and a JavaScript module in web/static/.

A page is registered in web/worlds/__init__.py. Its JavaScript module, `static/NAME.js`, exports

    export async function page(main, {run, world, item}) -> {changed(), close()} or nothing

`main` is the element to draw into; `run` is the identifier of a run, or null; `item` is the last part of an
address such as #/world/beasty/0123..., or null; `changed` is called when files
of that run have changed (without it the page is drawn again), `close` when the user leaves the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from rematch.web.answers import MOST_BODY, posting, reading
from rematch.web.run_data import RunData

MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True)
class Get:
    """A route below /api/worlds/NAME that reads."""

    path: str
    read: Callable[[RunData, Request], Any]  # -> a JSON value; runs in a thread

    def route(self, prefix: str, data: RunData) -> Route:
        return Route(prefix + self.path, reading(lambda request: self.read(data, request)))


@dataclass(frozen=True, kw_only=True)
class Post:
    """A route below /api/worlds/NAME that gets a small JSON object."""

    path: str
    act: Callable[[RunData, Request, dict[str, Any]], Any]  # -> a JSON value; runs in a thread
    most_bytes: int = MOST_BODY  # of the request

    def route(self, prefix: str, data: RunData) -> Route:
        endpoint = posting(lambda request, body: self.act(data, request, body), self.most_bytes)
        return Route(prefix + self.path, endpoint, methods=["POST"])


@dataclass(frozen=True, kw_only=True)
class PlayedWorld:
    """How a person plays a world on its page (played_games.py)."""

    board: Callable[[Any], dict[str, Any]]  # world -> what stays the same during a game
    frame: Callable[[Any], dict[str, Any]]  # world -> its present state
    scene: Callable[[Any], dict[str, Any]]  # replay -> what the page draws of it
    action: Callable[[Any, Any], Any] = lambda world, action: action  # the action that the world executes


@dataclass(frozen=True, kw_only=True)
class WorldPage:
    """What one world adds to the page."""

    world: str  # its name; also the name of the JavaScript module
    title: str  # the text of links to the page
    routes: Sequence[Get | Post]
    jobs: Mapping[str, Callable[[dict[str, Any], Callable[[str], None]], Any]] = field(default_factory=dict)
    # name -> (request, progress) -> a JSON value; runs in a child process (jobs.py)
    files: tuple[str, ...] = ()  # further files of web/static/: scripts and style sheets
    played: PlayedWorld | None = None
    without_run: bool = False  # whether the page is useful without a run: then the list of runs links to it

    @property
    def static(self) -> dict[str, str]:
        """File of web/static/ -> its media type."""
        names = dict.fromkeys((f"{self.world}.js", *self.files))
        return {name: MEDIA_TYPES[name.rpartition(".")[2]] for name in names}

    def starlette_routes(self, data: RunData) -> list[Route]:
        return [route.route(f"/api/worlds/{self.world}", data) for route in self.routes]

    def to_json(self) -> dict[str, Any]:
        styles = [name for name in self.files if name.endswith(".css")]
        return {"world": self.world, "title": self.title, "without_run": self.without_run, "styles": styles}
