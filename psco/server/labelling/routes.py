"""The addresses of the page: its own files, pictures by number, the state, and changes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from psco.data.reading.decode import decode_whole
from psco.errors import InputError, PscoError
from psco.server.guard import App
from psco.server.labelling.desk import Desk, StaleError
from psco.server.labelling.exports import Exports
from psco.server.labelling.thumbnails import SMALL, Encoded, Thumbnails

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MOST_JSON = 8 << 20  # bytes of a change: 500,000 numbers
_MOST_IMAGE = 64 << 20  # bytes of a dropped picture
_MOST_COUNT = 10_000  # pictures in one answer


def label_app(desk: Desk, exports: Exports, thumbnails: Thumbnails) -> App:
    """Return the application; put a `Guard` around it."""
    files = _page_files()

    async def page_file(request: Request) -> Response:
        # A look into a dictionary: no path is ever made from the address.
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return JSONResponse({"error": f"there is no file {name!r}"}, 404)
        content, media_type = files[name]
        return Response(content, media_type=media_type)

    async def state(request: Request) -> Response:
        frame = await run_in_threadpool(desk.frame, _number(request, "since", -1))
        return Response(status_code=204) if frame is None else _binary(frame)

    async def act(request: Request) -> Response:
        return _binary(await run_in_threadpool(desk.act, await _body(request)))

    async def similar_to_dropped(request: Request) -> Response:
        content = await _read(request, _MOST_IMAGE)
        count = _count(request)

        def search() -> list[Any]:
            picture = decode_whole(content, 4 * SMALL, name="the dropped file")
            return _rows(desk.session.similar(picture, count))

        return JSONResponse(await run_in_threadpool(search))

    async def export(request: Request) -> Response:
        body = await _body(request)
        what, how = str(body.get("what")), str(body.get("how", "copy"))
        predicted = body.get("predicted") is True
        done = await run_in_threadpool(exports.write, what, predicted=predicted, how=how)
        return JSONResponse(done)

    async def download(request: Request) -> Response:
        what, predicted = request.path_params["what"], "predicted" in request.query_params
        name, content = await run_in_threadpool(exports.read, what, predicted=predicted)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def map_(request: Request) -> Response:
        kind = "tsne" if request.query_params.get("kind") == "tsne" else "pca"
        points = await run_in_threadpool(desk.session.map, kind, kind == "pca")
        return Response(status_code=204) if points is None else _binary(_floats(points))

    def answer(function: Callable[[Request], Any]) -> Handler:
        async def handler(request: Request) -> Response:
            return JSONResponse(await run_in_threadpool(function, request))

        return handler

    def image(function: Callable[[int], Encoded]) -> Handler:
        async def handler(request: Request) -> Response:
            found = await run_in_threadpool(function, request.path_params["number"])
            headers = {"cache-control": "private, max-age=86400"}
            return Response(found.content, media_type=found.media_type, headers=headers)

        return handler

    session = desk.session
    answers: dict[str, Callable[[Request], Any]] = {
        "progress": lambda _: desk.progress(),
        "pictures": lambda _: desk.pictures(),
        "suggest": lambda request: _rows(session.suggest(_count(request))),
        "group": lambda request: desk.group(_number(request, "number"), _count(request)),
        "clusters": lambda _: session.clusters().tolist(),
        "similar": lambda request: _rows(
            session.similar(_number(request, "number"), _count(request))
        ),
        "duplicates": lambda _: _rows(session.duplicates()),
        "outliers": lambda _: _rows(session.outliers()),
        "mistakes": lambda _: _rows(session.mistakes()),
        "accuracy": lambda _: desk.accuracy(),
        "export": lambda _: {"folder": str(exports.folder)},
    }
    routes = [
        Route("/", page_file),
        Route("/page/{name}", page_file),
        Route("/thumbnails/{number:int}", image(thumbnails.small)),
        Route("/pictures/{number:int}", image(thumbnails.large)),
        Route("/api/state", state),
        Route("/api/act", act, methods=["POST"]),
        Route("/api/similar", similar_to_dropped, methods=["POST"]),
        Route("/api/export", export, methods=["POST"]),
        Route("/api/download/{what}", download),
        Route("/api/map", map_),
        *(Route(f"/api/{name}", answer(function)) for name, function in answers.items()),
    ]
    return Starlette(
        routes=routes,
        exception_handlers={
            StaleError: lambda _, error: _refusal(409, error),
            InputError: lambda _, error: _refusal(400, error),
            PscoError: lambda _, error: _refusal(500, error),
        },
    )


def _page_files() -> dict[str, tuple[bytes, str]]:
    folder = resources.files("psco.server.labelling") / "page"
    return {
        file.name: (file.read_bytes(), _TYPES[f".{file.name.rpartition('.')[2]}"])
        for file in folder.iterdir()
    }


def _refusal(status: int, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status)


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def _floats(points: np.ndarray) -> bytes:
    return points.astype("<f4").tobytes()


def _rows(found: list[Any]) -> list[list[Any]]:
    return [list(each) for each in found[:_MOST_COUNT]]


def _number(request: Request, name: str, default: int | None = None) -> int:
    text = request.query_params.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name} must be a whole number, got {text!r}") from None


def _count(request: Request) -> int:
    return max(1, min(_number(request, "count", 24), _MOST_COUNT))


async def _body(request: Request) -> dict[str, Any]:
    content = await _read(request, _MOST_JSON)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("the request must be a JSON object")
    return value


async def _read(request: Request, most: int) -> bytes:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            raise InputError(f"a request of more than {most >> 20} MB is refused")
    return bytes(content)
