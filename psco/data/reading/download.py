"""Downloads of large files: resumed, from several mirrors, limited in size, verified before use."""

from __future__ import annotations

import hashlib
import http.client
import os
import stat
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

from psco.errors import InputError, PscoError, first_line, quoted
from psco.progress import Bar
from psco.version import __version__

MAX_BYTES = 10_000_000_000
_CHUNK = 1 << 20  # bytes
_SECONDS = 30.0  # without a byte, after which a server counts as dead
_ATTEMPTS = 5  # at one mirror in a row, if each of them makes progress
_NETWORK_ERRORS = (OSError, http.client.HTTPException)
_SCHEMES = ("http://", "https://")


class _AttemptError(Exception):
    """A failed attempt; ``retry`` tells whether the same mirror may work next time."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class _HttpOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only; urllib would follow them to ftp as well."""

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address; _AttemptError if it is of another kind."""
        if not newurl.lower().startswith(_SCHEMES):
            raise _AttemptError(f"the server redirects to {quoted(newurl)}, which is not http")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    urls: str | Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    max_bytes: int = MAX_BYTES,
    progress: bool = True,
) -> Path:
    """Download a file, unless it exists already.

    Received data are kept in ``<target>.partial``, so that a later call continues from there.

    Parameters
    ----------
    urls
        One address, or several of the same file, tried in this order; http or https.
    target
        Where the file goes; it appears there complete and verified, or not at all.
    sha256, md5
        Checksums in hexadecimal digits, each verified if given.
    max_bytes
        A file that is larger is refused while it is received, before its checksum is computed.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    InputError
        If an address is not valid, or a file with another content is at the target, or the partial
        file is not ours.
    PscoError
        If no mirror provides the file, or it cannot be written.
    """
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    for url in mirrors:
        if not url.startswith(_SCHEMES):
            raise InputError(f"{quoted(url)} is not an http:// or https:// address")
    sums = {name: text for name, text in {"sha256": sha256, "md5": md5}.items() if text}
    if target.exists():
        if wrong := _mismatch(target, sums):
            raise InputError(f"{quoted(target)} is another file or damaged ({wrong}); remove it")
        return target

    partial = target.with_name(f"{target.name}.partial")
    problems = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_own(partial)
        with Bar(f"download {target.name}", progress) as bar:
            for url in mirrors:
                problem = _try_mirror(url, partial, sums, max_bytes, bar)
                if problem is None:
                    _put_in_place(partial, target)
                    return target
                problems.append(f"{url}: {problem}")
    except OSError as error:
        raise PscoError(f"cannot write {quoted(partial)}: {error.strerror or error}") from None
    expected = "".join(f", {name} {text}" for name, text in sums.items())
    raise PscoError(
        f"cannot download {quoted(target.name)} ({'; '.join(problems)}); download it by other "
        f"means and put it at {quoted(target)}{expected}"
    )


def _check_own(partial: Path) -> None:
    """Raise InputError if a partial file is a link, or another user's: never write to those."""
    try:
        about = partial.lstat()
    except FileNotFoundError:
        return
    foreign = os.name == "posix" and (about.st_uid != os.geteuid() or about.st_nlink > 1)
    if foreign or not stat.S_ISREG(about.st_mode):
        raise InputError(
            f"{quoted(partial)} is a link or belongs to another user; remove it, or download to "
            f"another folder"
        )


def _try_mirror(
    url: str, partial: Path, sums: dict[str, str], max_bytes: int, bar: Bar
) -> str | None:
    """Complete the partial file; return None if its checksums are right, else the problem."""
    while True:
        from_the_start = not partial.exists()
        try:
            _fetch(url, partial, max_bytes, bar)
        except _AttemptError as error:
            return str(error)
        wrong = _mismatch(partial, sums)
        if wrong is None:
            return None
        partial.unlink()
        if from_the_start:  # else the beginning may be wrong: try once more without it
            return wrong


def _fetch(url: str, partial: Path, max_bytes: int, bar: Bar) -> None:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _fetch_rest(url, partial, max_bytes, bar)
        except _AttemptError as error:
            if not error.retry:
                raise
    return _fetch_rest(url, partial, max_bytes, bar)


def _fetch_rest(url: str, partial: Path, max_bytes: int, bar: Bar) -> None:
    start = partial.stat().st_size if partial.exists() else 0
    response = _request(url, start)
    if response is None:
        partial.unlink()
        raise _AttemptError("the server does not send the rest of the file", retry=True)
    with response:
        if response.status != http.client.PARTIAL_CONTENT:  # the server starts at the beginning
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        done = start
        _check_size(total, max_bytes, partial)
        with _open_partial(partial, start) as out:
            while chunk := _receive(response, retry=done > start):
                _check_size(done + len(chunk), max_bytes, partial)
                out.write(chunk)
                done += len(chunk)
                if total:
                    bar.update(min(1.0, done / total), f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")
    if total is not None and done < total:
        raise _AttemptError(f"the connection broke after {done} of {total} bytes", done > start)


def _open_partial(partial: Path, start: int) -> BinaryIO:
    """Open the partial file at ``start``, and cut off what follows; never through a link."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(partial, flags, 0o666), "r+b")
    file.truncate(start)
    file.seek(start)
    return file


def _check_size(size: int | None, max_bytes: int, partial: Path) -> None:
    if size is not None and size > max_bytes:
        partial.unlink(missing_ok=True)
        raise _AttemptError(f"the file is larger than {max_bytes:,} bytes")


def _request(url: str, start: int) -> http.client.HTTPResponse | None:
    """Request the bytes from ``start`` on; None if the server has none or sends others."""
    headers = {"User-Agent": f"psco/{__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: http.client.HTTPResponse = urllib.request.build_opener(_HttpOnly).open(
            request, timeout=_SECONDS
        )
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise _AttemptError(f"the server responds {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _AttemptError(f"no connection ({error.reason})") from None
    except (*_NETWORK_ERRORS, ValueError) as error:
        raise _AttemptError(f"no connection ({first_line(error)})") from None
    if response.status == http.client.PARTIAL_CONTENT:
        given = response.headers.get("Content-Range", "")
        if not given.startswith(f"bytes {start}-"):
            response.close()
            return None
    return response


def _receive(response: http.client.HTTPResponse, retry: bool) -> bytes:
    try:
        return response.read1(_CHUNK)
    except _NETWORK_ERRORS as error:
        raise _AttemptError(f"the connection broke ({first_line(error)})", retry) from None


def _mismatch(file: Path, sums: dict[str, str]) -> str | None:
    """Return which checksum of a file differs, and how; None if all are right."""
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
