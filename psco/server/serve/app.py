"""The HTTP service: pictures in, labels and probabilities out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from psco.classifier.model import Prediction
from psco.data.reading.decode import DecodeError, decode_image, probe_image
from psco.errors import InputError, PscoError, printable, quoted
from psco.server.serve.batching import Batcher
from psco.server.serve.bodies import BodyReader, Picture, RequestError, ServeLimits
from psco.server.serve.model import ServedModel
from psco.server.serve.openapi import describe
from psco.version import __version__

TOP = 5  # classes whose probabilities are returned unless the request says otherwise
_FILES = Path(__file__).parent / "page"
# The page is one file with everything in it, and needs nothing from anywhere.
_INLINE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class Service:
    """A classifier behind HTTP.

    Parameters
    ----------
    model
        The classifier.
    limits
        What a request may contain.
    name
        Title of the page and of the description.
    drawing_page
        The page of `psco.export.page`, to serve at ``/draw``; None for none.
    """

    def __init__(
        self,
        model: ServedModel,
        limits: ServeLimits | None = None,
        name: str = "psco",
        drawing_page: str | None = None,
    ) -> None:
        self._model, self._name = model, name
        self._drawing_page = drawing_page
        self._limits = limits or ServeLimits()
        cores = os.cpu_count() or 1
        self._slots = asyncio.Semaphore(2 * cores)  # requests that are decoded or classified
        self._decoders = ThreadPoolExecutor(cores, thread_name_prefix="psco-decode")
        self._bodies = BodyReader(self._limits)
        self._batcher = Batcher(model)
        self._requests = 0

    def app(self) -> Starlette:
        """Return the ASGI application, without any check of who asks; see `Guard`."""
        drawing = [] if self._drawing_page is None else [Route("/draw", self._draw)]
        files = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
        return Starlette(
            routes=[
                Route("/classify", self._classify, methods=["POST"]),
                Route("/health", self._health),
                Route("/openapi.json", self._description),
                *drawing,
                *(Route(path, _file(name)) for path, name in files.items()),
            ],
            exception_handlers={
                RequestError: _refuse,
                HTTPException: _http_error,
                Exception: _internal_error,
            },
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._batcher.start()
        try:
            yield
        finally:
            await self._batcher.stop()
            self._decoders.shutdown(wait=True)

    async def _classify(self, request: Request) -> Response:
        top = _read_top(request.query_params.get("top"))
        async with self._bodies.pictures(request) as pictures, self._slots:
            self._requests += 1
            names = [picture.name for picture in pictures]
            decoded = await asyncio.gather(*(self._decode(picture) for picture in pictures))
            images = [pixels for pixels in decoded if isinstance(pixels, np.ndarray)]
            if not images:
                raise RequestError(422, f"picture {quoted(names[0])}: {decoded[0]}")
            prediction = await self._batcher.predict(np.stack(images))
        answers = iter(self._answers(prediction, top))
        results = [
            {"name": name, **({"error": each} if isinstance(each, str) else next(answers))}
            for name, each in zip(names, decoded, strict=True)
        ]
        return JSONResponse({"results": results})

    async def _decode(self, picture: Picture) -> np.ndarray | str:
        """Return the pixels of a picture, or why there are none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoders, self._decode_now, picture)

    def _decode_now(self, picture: Picture) -> np.ndarray | str:
        image, limit = self._model.image, self._limits.pixels
        try:
            header = probe_image(picture.content)
            if header.width * header.height > limit:
                return f"its {header.width} x {header.height} pixels exceed {limit / 1e6:g} million"
            return decode_image(
                picture.content, image.source_size, image.channels, name=picture.name
            )
        except DecodeError as error:
            return error.reason
        except InputError as error:
            return str(error)

    def _answers(self, prediction: Prediction, top: int) -> list[dict[str, Any]]:
        classes = self._model.classes
        order = np.argsort(-prediction.probabilities, axis=1, kind="stable")[:, :top]
        return [
            {
                "label": _plain(label),
                "unknown": bool(rejected),
                "probabilities": [
                    {"label": classes[place], "probability": float(row[place])} for place in places
                ],
            }
            for label, rejected, row, places in zip(
                prediction.labels, prediction.rejected, prediction.probabilities, order, strict=True
            )
        ]

    async def _health(self, _: Request) -> Response:
        return JSONResponse(
            {
                "status": "ok",
                "psco": __version__,
                "name": self._name,
                "classes": len(self._model.classes),
                "draw": self._drawing_page is not None,
                "requests": self._requests,
                "pictures": self._batcher.pictures,
                "batches": self._batcher.batches,
            }
        )

    async def _draw(self, _: Request) -> Response:
        return HTMLResponse(self._drawing_page, headers={"content-security-policy": _INLINE})

    async def _description(self, _: Request) -> Response:
        return JSONResponse(describe(self._name, self._limits))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _read_top(text: str | None) -> int:
    if text is None:
        return TOP
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 1_000_000):
        raise RequestError(422, f"top must be a whole number >= 1, not {printable(text, 50)!r}")
    return int(text[:9])


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(_: Request) -> Response:
        return FileResponse(_FILES / name)

    return send


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"error": str(error)}, error.status)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _internal_error(_: Request, error: Exception) -> Response:
    message = str(error) if isinstance(error, PscoError) else "internal error; see the server's log"
    return JSONResponse({"error": message}, 500)
