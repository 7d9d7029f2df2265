"""The pictures in a request: a form, JSON, or the bytes of one picture. Sizes are limited."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from psco.errors import PscoError, counted, first_line, quoted

KINDS = "multipart/form-data, application/json, or image/png and other picture types"
_NAME = 200  # characters of a file name that are repeated in the answer


@dataclass(frozen=True)
class ServeLimits:
    """What a request may contain.

    Parameters
    ----------
    body_bytes
        Largest body.
    pictures
        Most pictures in a request.
    pixels
        Most pixels of a picture before it is shrunk.
    seconds
        Longest time to receive a body.
    waiting_bytes
        Most bytes of all bodies that are in memory at once.
    """

    body_bytes: int = 20_000_000
    pictures: int = 64
    pixels: int = 50_000_000
    seconds: float = 30.0
    waiting_bytes: int = 400_000_000


class RequestError(PscoError):
    """A request that is refused, with the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Picture(NamedTuple):
    """A picture of a request: its name, or its number, and the content of the file."""

    name: str
    content: bytes


@dataclass
class _Body:
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0


class BodyReader:
    """Receives bodies within the limits.

    Parameters
    ----------
    limits
        See `ServeLimits`.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._held = 0  # bytes of bodies in memory

    @asynccontextmanager
    async def pictures(self, request: Request) -> AsyncIterator[list[Picture]]:
        """Receive the pictures of a request, at least one, and hold them during the block.

        Raises
        ------
        RequestError
            If the body is too large, too slow, of an unknown type or not what its type says.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_raw = kind.startswith("image/") or kind == "application/octet-stream"
        if not is_raw and kind not in ("multipart/form-data", "application/json"):
            what = quoted(kind) if kind else "a body without content-type"
            raise RequestError(415, f"cannot read {what}; send {KINDS}")
        body = _Body()
        try:
            await self._receive(request, body)
            yield await self._parse(request, kind, b"".join(body.chunks))
        finally:
            self._held -= body.size

    async def _parse(self, request: Request, kind: str, body: bytes) -> list[Picture]:
        if kind == "application/json":
            pictures = await asyncio.to_thread(_from_json, body)
        elif kind == "multipart/form-data":
            pictures = await self._from_form(request, body)
        else:
            pictures = [Picture("0", body)]
        if not pictures or not all(picture.content for picture in pictures):
            raise RequestError(422, "the request has no picture, or an empty one")
        if len(pictures) > self._limits.pictures:
            raise RequestError(
                413,
                f"{counted(len(pictures), 'picture')} exceed the limit of {self._limits.pictures} "
                f"in a request; send several requests",
            )
        return pictures

    async def _receive(self, request: Request, body: _Body) -> None:
        limits = self._limits
        too_large = RequestError(
            413, f"the body exceeds the limit of {limits.body_bytes / 1e6:g} MB"
        )
        stated = request.headers.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:18]) > limits.body_bytes:
            raise too_large

        async def receive() -> None:
            async for chunk in request.stream():
                body.chunks.append(chunk)
                body.size += len(chunk)
                self._held += len(chunk)
                if body.size > limits.body_bytes:
                    raise too_large
                if self._held > limits.waiting_bytes:
                    raise RequestError(503, "too many pictures are waiting; try again later")

        try:
            await asyncio.wait_for(receive(), limits.seconds)
        except (asyncio.TimeoutError, TimeoutError):
            raise RequestError(
                408, f"the body took longer than {limits.seconds:g} seconds"
            ) from None
        except ClientDisconnect:
            raise RequestError(400, "the client closed the connection") from None

    async def _from_form(self, request: Request, body: bytes) -> list[Picture]:
        async def stream() -> AsyncGenerator[bytes, None]:
            yield body

        most = self._limits.pictures
        parser = MultiPartParser(request.headers, stream(), max_files=most, max_fields=most)
        parser.spool_max_size = self._limits.body_bytes  # stays in memory
        try:
            form = await parser.parse()
        except (MultiPartException, KeyError, ValueError) as error:
            if "Too many" in str(error):
                message = f"the form exceeds the limit of {counted(most, 'picture')}"
                raise RequestError(413, f"{message}; send several requests") from None
            raise RequestError(422, f"the form cannot be read: {first_line(error)}") from None
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        names = [(file.filename or str(number))[:_NAME] for number, file in enumerate(files)]
        return [Picture(n, await file.read()) for n, file in zip(names, files, strict=True)]


def _from_json(body: bytes) -> list[Picture]:
    expected = 'expected {"images": ["BASE64", ...]}'
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(422, f"the body is not JSON; {expected}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise RequestError(422, f"the JSON has another form; {expected}")
    try:
        return [
            Picture(str(number), base64.b64decode(image, validate=True))
            for number, image in enumerate(images)
        ]
    except (binascii.Error, ValueError):
        raise RequestError(422, f"a picture is not base64; {expected}") from None
