"""Run folders on the Hugging Face Hub, by names such as ``hf://user/name`` (extra ``hub``)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from psco.errors import InputError, PscoError, first_line, import_optional, quoted
from psco.training.checkpoint import CALIBRATION, CONFIG, ENVIRONMENT, MODEL

# Nothing else of a repository is fetched: these are data, and reading them runs no code.
FILES = (CONFIG, MODEL, CALIBRATION, ENVIRONMENT, "README.md")
# As a pathlib.Path, hf://user/name has lost a slash.
_HUB = re.compile(r"hf:/{1,2}(.*)", re.DOTALL)
_NAME = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?", re.ASCII)


def local_run(run: str | os.PathLike[str]) -> str | Path:
    """Return a run as it is, or the local copy of one on the hub.

    Parameters
    ----------
    run
        A folder, a name, or ``hf://user/name``, with ``@revision`` for a branch, tag or commit.

    Raises
    ------
    InputError
        If the name is not of this form, there is no such repository, or huggingface_hub is missing.
    PscoError
        If the hub cannot be reached.
    """
    place = _HUB.fullmatch(str(run))
    if place is None:
        return run if isinstance(run, str) else Path(run)
    name = _NAME.fullmatch(place[1])
    if name is None or ".." in place[1]:
        raise InputError(f"a run on the hub is hf://user/name[@revision], not {quoted(str(run))}")
    hub = import_optional("huggingface_hub", "hub")
    try:
        folder = hub.snapshot_download(name[1], revision=name[2], allow_patterns=list(FILES))
    except (OSError, ValueError) as error:  # the errors of the hub and of the network
        is_wrong = "not found" in str(error).lower() or "404" in str(error)
        kind = InputError if is_wrong else PscoError
        raise kind(f"cannot fetch {quoted(str(run))}: {first_line(error)}") from None
    return Path(folder)
