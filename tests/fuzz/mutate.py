"""Random damage to a file, reproducible from a seed."""

from __future__ import annotations

import random
import re

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORDS = (
    *(b"-1", b"0", b"1e999", b".nan", b"NaN", b"9" * 30, b"9223372036854775808", b"null", b"true"),
    *(b"[]", b"{}", b'""', b"\x00", b"\xff\xfe", b"[" * 2000, b"&a [*a]", b"../../x", b"\x1b]0;x"),
)


def mutated(content: bytes, seed: int) -> bytes:
    """Return a copy with one to four random changes."""
    rng = random.Random(seed)
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _CHANGES[rng.randrange(len(_CHANGES))](changed, rng)
    return bytes(changed)


def _flip(content: bytearray, rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content) + 1) :]


def _remove(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content) + 1)
    del content[start : start + rng.choice((1, 8, 100))]


def _repeat(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content) + 1)
    part = content[start : start + rng.choice((1, 16, 300))]
    content[start:start] = part * rng.choice((1, 3, 50))


def _insert(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content) + 1)
    content[start:start] = rng.choice(_WORDS)


def _replace_number(content: bytearray, rng: random.Random) -> None:
    found = list(_NUMBER.finditer(content[:20_000]))
    if found:
        place = rng.choice(found)
        content[place.start() : place.end()] = rng.choice(_WORDS)


def _extreme(content: bytearray, rng: random.Random) -> None:
    width = rng.choice((1, 2, 4, 8))
    if len(content) > width:
        start = rng.randrange(len(content) - width)
        content[start : start + width] = rng.choice((b"\xff", b"\x00", b"\x7f")) * width


_CHANGES = (_flip, _cut, _remove, _repeat, _insert, _replace_number, _replace_number, _extreme)
