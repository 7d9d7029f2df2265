"""Which tar files a pattern, a glob or a folder stands for."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from psco.data.reading.decode import EXTENSIONS
from psco.errors import InputError, and_more, counted, quoted

_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MAX_SHARDS = 1_000_000


def are_shards(source: str | os.PathLike[str]) -> bool:
    """Whether this names tar files: by its extension, or as a folder of nothing but tar files."""
    if not Path(source).is_dir():
        return os.fspath(source).lower().endswith((".tar", *_COMPRESSED))
    found = False
    with os.scandir(source) as entries:
        for entry in entries:
            name = entry.name.lower()
            if not name.startswith(".") and (entry.is_dir() or name.endswith(EXTENSIONS)):
                return False
            found = found or _is_tar(entry.name)
    return found


def find_shards(source: str | os.PathLike[str]) -> list[Path]:
    """List tar files.

    Parameters
    ----------
    source
        A tar file; a folder of them; a glob; or a pattern with braces, ``{000000..000146}`` or
        ``{train,val}``, all of whose files must exist.

    Raises
    ------
    InputError
        If there are none, some of a pattern are missing, or they are compressed or not files.
    """
    text = os.fspath(source)
    if re.match(r"\w\w+:", text):
        raise InputError(
            f"{quoted(text)} is not a file; shards are never downloaded or piped: copy them to a "
            f"local folder, or mount the remote one"
        )
    if text.lower().endswith(_COMPRESSED):
        raise InputError(f"{quoted(text)} is compressed; decompress it to a plain .tar file")
    if Path(text).is_file():
        return [Path(text)]
    if Path(text).is_dir():
        tars = (path for path in Path(text).iterdir() if _is_tar(path.name))
        return sorted(path for path in tars if path.is_file())
    patterns = _expand(text)
    found: list[Path] = []
    missing = []
    for pattern in patterns:
        if any(letter in pattern for letter in "*?["):
            matches = (Path(match) for match in sorted(glob.glob(pattern)))  # noqa: PTH207
            found += [path for path in matches if path.is_file()]
        elif Path(pattern).is_file():
            found.append(Path(pattern))
        else:
            missing.append(pattern)
    if missing and len(patterns) > 1:
        raise InputError(
            f"{len(missing):,} of the {counted(len(patterns), 'shard')} of {quoted(text)} are "
            f"missing: {and_more(missing)}"
        )
    if not found:
        raise InputError(
            f"no shards match {quoted(text)}; give a .tar file, a folder of them, or a pattern "
            f"such as 'data-{{000000..000123}}.tar' in quotes"
        )
    return list(dict.fromkeys(found))


def _is_tar(name: str) -> bool:
    return name.endswith(".tar") and not name.startswith(".")


def _expand(pattern: str) -> list[str]:
    """Expand braces as a shell does: numeric ranges with leading zeros, and alternatives."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], _expand(pattern[match.end() :])
    bounds = _RANGE.fullmatch(match[1])
    if bounds is None:
        words = match[1].split(",")
    else:
        low, high, width = int(bounds[1]), int(bounds[2]), len(bounds[1])
        if low > high:
            raise InputError(f"the range {quoted(match[0])} in {quoted(pattern)} is descending")
        if (high - low + 1) * len(after) > _MAX_SHARDS:
            raise InputError(f"{quoted(pattern)} stands for more than {_MAX_SHARDS:,} shards")
        words = [f"{number:0{width}}" for number in range(low, high + 1)]
    return [f"{before}{word}{rest}" for word in words for rest in after]
