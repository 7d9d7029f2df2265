"""What has been asked for in an output folder, so that its page shows everything so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from psco.files.checksums import read_json, write_json
from psco.files.lock import file_lock

REQUESTS = "requests.json"
_ADVICE = "remove it and run the commands again; finished runs are kept"


@dataclass(frozen=True)
class Request:
    """A table on a budget: its name or file, seeds, largest number of tasks and given runs."""

    table: str
    budget: str
    seeds: tuple[int, ...]
    tasks: int | None = None
    given: tuple[str, ...] = ()


def read_requests(out: Path) -> list[Request]:
    """Return all requests in a folder, in the order in which they were made first."""
    path = out / REQUESTS
    if not path.is_file():
        return []
    entries = read_json(path, _ADVICE)[0]["requests"]
    return [
        Request(**{**entry, "seeds": tuple(entry["seeds"]), "given": tuple(entry.get("given", ()))})
        for entry in entries
    ]


def add_requests(out: Path, new: Sequence[Request]) -> list[Request]:
    """Remember requests and return all.

    Seeds and given runs are added to those of an equal table and budget.
    """
    with file_lock(out / f"{REQUESTS}.lock"):
        known = {(r.table, r.budget): r for r in read_requests(out)}
        for request in new:
            key = (request.table, request.budget)
            earlier = known.get(key, request)
            seeds = tuple(sorted({*earlier.seeds, *request.seeds}))
            given = tuple(dict.fromkeys([*earlier.given, *request.given]))
            known[key] = Request(*key, seeds, request.tasks, given)
        write_json(out / REQUESTS, {"requests": [asdict(r) for r in known.values()]}, indent=1)
    return list(known.values())
