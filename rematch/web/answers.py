"""Endpoints of the server: files are read in threads, answers are JSON, bodies of requests are small JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rematch.core.errors import ConfigError, RunError
from rematch.reporting import untrusted_folder
from rematch.web.jobs import Refused as Refused
from rematch.web.run_data import UnknownRun

Endpoint = Callable[[Request], Awaitable[Response]]
MOST_BODY = 1 << 16  # bytes of a request


def answer(value: Any) -> Response:
    """A JSON value as a response; bytes are JSON already."""
    text = value if isinstance(value, bytes) else json.dumps(value, allow_nan=False)
    return Response(text, media_type="application/json")


def reading(read: Callable[[Request], Any]) -> Endpoint:
    """An endpoint for GET: `read` runs in a thread and returns a JSON value."""

    async def endpoint(request: Request) -> Response:
        return await _answered(lambda: read(request))

    return endpoint


def posting(act: Callable[[Request, dict[str, Any]], Any], most_bytes: int = MOST_BODY) -> Endpoint:
    """An endpoint for POST: `act` gets the request and its JSON object, runs in a thread, and returns JSON.

    A form of another site cannot send the media type application/json.
    """

    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("expected application/json", 415)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > most_bytes:
                return PlainTextResponse(f"the request is larger than {most_bytes} bytes", 413)
        try:
            value = untrusted_folder.loads(body)
        except ValueError:
            return PlainTextResponse("expected JSON", 400)
        if not isinstance(value, dict):
            return PlainTextResponse("expected a JSON object", 400)
        return await _answered(lambda: act(request, value))

    return endpoint


async def _answered(make: Callable[[], Any]) -> Response:
    try:
        return answer(await run_in_threadpool(make))
    except UnknownRun:
        return PlainTextResponse("there is no such run (any more)", 404)
    except (Refused, ConfigError, RunError) as error:
        return PlainTextResponse(str(error)[:1000], 400)
