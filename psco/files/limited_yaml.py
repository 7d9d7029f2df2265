"""YAML from other people: limits on size, depth and digits are checked before values are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from psco.errors import InputError, first_line, quoted

MAX_BYTES = 1_000_000
MAX_DEPTH = 32  # lists and mappings inside one another
MAX_VALUES = 100_000  # with every alias replaced by what it stands for
MAX_DIGITS = 40  # of a number


def read_yaml(path: Path, source: str) -> Any:
    """Read a YAML file; see `parse_yaml`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise _too_long(source)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source} is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02x}"
        ) from None
    return parse_yaml(text, source)


def parse_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML text.

    Parameters
    ----------
    text
        The text. Tags such as ``!!binary`` are not allowed, and the keys of mappings are text.
    source
        Its name in errors.

    Raises
    ------
    InputError
        If the text is not YAML, or exceeds one of the limits of this module.
    """
    if len(text) > MAX_BYTES:
        raise _too_long(source)
    try:
        _check_events(text, source)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:  # such as the 31st of February
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source} is not YAML: {first_line(error)}") from None
    _check_keys(value, source)
    return value


def _too_long(source: str) -> InputError:
    return InputError(f"{source} must have at most {MAX_BYTES:,} bytes, got more")


def _check_events(text: str, source: str) -> None:
    """Raise InputError if a limit is exceeded; no value is built, and nothing recurses."""
    sizes: dict[str, int] = {}  # values below each anchor
    open_nodes: list[tuple[str | None, int]] = []  # anchor, and the values before it
    values = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise InputError(f"{source}: *{quoted(event.anchor)[1:-1]} contains itself")
            values += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            _check_node(event, source)
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((event.anchor, values))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = values - before + 1
        if len(open_nodes) > MAX_DEPTH:
            raise InputError(f"{source} must nest at most {MAX_DEPTH} levels deep, got more")
        if values > MAX_VALUES:
            raise InputError(f"{source} must hold at most {MAX_VALUES:,} values, got more")


def _check_node(event: yaml.NodeEvent, source: str) -> None:
    tag = getattr(event, "tag", None)
    if tag is not None and tag != "!":
        raise InputError(f"{source}: tags are not allowed, got {quoted(tag)}")
    if isinstance(event, yaml.ScalarEvent) and event.style is None:
        digits = sum(character.isdigit() for character in event.value)
        if digits > MAX_DIGITS and event.value[:1] in "+-.0123456789":
            raise InputError(
                f"{source}: a number must have at most {MAX_DIGITS} digits, got {digits:,}"
            )


def _check_keys(value: Any, source: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"{source}: a setting's name must be text, got {quoted(key)}")
            _check_keys(inner, source)
    elif isinstance(value, list):
        for inner in value:
            _check_keys(inner, source)
