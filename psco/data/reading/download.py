"""Fetch large files: resumed after a break, from several mirrors, verified before they are used."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from psco.errors import InputError, PscoError
from psco.progress import Bar
from psco.version import __version__

_CHUNK = 1 << 20  # bytes
_SECONDS = 30.0  # without a byte, after which a server counts as dead
_ATTEMPTS = 5  # at one mirror in a row, if each of them brings something
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


class _AttemptError(Exception):
    """One attempt failed; ``again`` says whether the same mirror is worth another one."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def download(
    urls: str | Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    progress: bool = True,
) -> Path:
    """Fetch a file, unless it is there already.

    What has arrived is kept in ``<target>.partial``, so that a later call goes on from there.

    Parameters
    ----------
    urls
        One address, or several of the same file, tried in this order; http or https.
    target
        Where the file goes; it appears there complete and verified, or not at all.
    sha256, md5
        Checksums in hexadecimal digits, each verified if given.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    InputError
        If an address is not one, or a file with another content is at the target.
    PscoError
        If no mirror gives the file, or it cannot be written.
    """
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    for url in mirrors:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"{url!r} is no address to download from; it starts with https://")
    sums = {name: text for name, text in {"sha256": sha256, "md5": md5}.items() if text}
    if target.exists():
        if wrong := _mismatch(target, sums):
            raise InputError(f"{str(target)!r} is another file or damaged ({wrong}); remove it")
        return target

    partial = target.with_name(f"{target.name}.partial")
    problems = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with Bar(f"download {target.name}", progress) as bar:
            for url in mirrors:
                problem = _try_mirror(url, partial, sums, bar)
                if problem is None:
                    _put_in_place(partial, target)
                    return target
                problems.append(f"{url}: {problem}")
    except OSError as error:
        raise PscoError(f"cannot write {str(partial)!r}: {error.strerror or error}") from None
    expected = "".join(f", {name} {text}" for name, text in sums.items())
    raise PscoError(
        f"cannot download {target.name!r} ({'; '.join(problems)}); fetch it by hand, from another "
        f"machine if need be, and put it at {str(target)!r}{expected}"
    )


def _try_mirror(url: str, partial: Path, sums: dict[str, str], bar: Bar) -> str | None:
    """Complete the partial file; gives None if it is complete and right, else the reason."""
    while True:
        from_the_start = not partial.exists()
        try:
            _fetch(url, partial, bar)
        except _AttemptError as error:
            return str(error)
        wrong = _mismatch(partial, sums)
        if wrong is None:
            return None
        partial.unlink()
        if from_the_start:  # else the beginning may come from elsewhere: once more without it
            return wrong


def _fetch(url: str, partial: Path, bar: Bar) -> None:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _fetch_rest(url, partial, bar)
        except _AttemptError as error:
            if not error.again:
                raise
    return _fetch_rest(url, partial, bar)


def _fetch_rest(url: str, partial: Path, bar: Bar) -> None:
    start = partial.stat().st_size if partial.exists() else 0
    response = _request(url, start)
    if response is None:
        partial.unlink()
        raise _AttemptError("the server does not give the rest of the file", again=True)
    with response:
        if response.status != http.client.PARTIAL_CONTENT:  # the server starts at the beginning
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        done = start
        with partial.open("r+b" if start else "wb") as out:
            out.seek(start)
            while chunk := _receive(response, again=done > start):
                out.write(chunk)
                done += len(chunk)
                if total:
                    bar.update(min(1.0, done / total), f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")
    if total is not None and done < total:
        raise _AttemptError(f"the connection broke after {done} of {total} bytes", done > start)


def _request(url: str, start: int) -> http.client.HTTPResponse | None:
    """Ask for the bytes from ``start`` on; None if the server has none or gives others."""
    headers = {"User-Agent": f"psco/{__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise _AttemptError(f"the server answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _AttemptError(f"no connection ({error.reason})") from None
    except (*_NETWORK_ERRORS, ValueError) as error:
        raise _AttemptError(f"no connection ({error})") from None
    if response.status == http.client.PARTIAL_CONTENT:
        given = response.headers.get("Content-Range", "")
        if not given.startswith(f"bytes {start}-"):
            response.close()
            return None
    return response


def _receive(response: http.client.HTTPResponse, again: bool) -> bytes:
    try:
        return response.read1(_CHUNK)
    except _NETWORK_ERRORS as error:
        raise _AttemptError(f"the connection broke ({error})", again) from None


def _mismatch(file: Path, sums: dict[str, str]) -> str | None:
    """Say in which checksum a file differs; None if in none."""
    for name, expected in sums.items():
        digest = hashlib.new(name, usedforsecurity=False)
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected.lower():
            return f"its {name} is {digest.hexdigest()}, expected {expected.lower()}"
    return None


def _put_in_place(partial: Path, target: Path) -> None:
    with partial.open("r+b") as complete:
        os.fsync(complete.fileno())
    partial.replace(target)
