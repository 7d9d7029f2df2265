"""Files of tensors whose bytes depend on their content alone.

The safetensors library writes the metadata of a file in an order that differs from process to
process. Sorted, equal runs give equal files.
"""

from __future__ import annotations

import json
from pathlib import Path

_LENGTH = 8  # bytes at the start of a file: the length of its header


def sort_metadata(content: bytes) -> bytes:
    """Return the content of a safetensors file with its metadata sorted; its length is the same."""
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    return content[:_LENGTH] + _sorted_header(content[_LENGTH:end]) + content[end:]


def sort_metadata_of(path: Path) -> None:
    """Sort the metadata of a safetensors file in place."""
    with path.open("rb+") as file:
        header = file.read(int.from_bytes(file.read(_LENGTH), "little"))
        file.seek(_LENGTH)
        file.write(_sorted_header(header))


def _sorted_header(header: bytes) -> bytes:
    fields = json.loads(header)
    if "__metadata__" in fields:
        fields["__metadata__"] = dict(sorted(fields["__metadata__"].items()))
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return text.encode().ljust(len(header))
