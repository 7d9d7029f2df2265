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
    """A table on a budget: its name or file, the seeds and the largest number of tasks."""

    table: str
    budget: str
    seeds: tuple[int, ...]
    tasks: int | None = None


def read_requests(out: Path) -> list[Request]:
    """Return all requests in a folder, in the order in which they were made first."""
    path = out / REQUESTS
    if not path.is_file():
        return []
    entries = read_json(path, _ADVICE)[0]["requests"]
    return [Request(**{**entry, "seeds": tuple(entry["seeds"])}) for entry in entries]


def add_requests(out: Path, new: Sequence[Request]) -> list[Request]:
    """Remember requests and return all. Seeds are added to those of an equal table and budget."""
    with file_lock(out / f"{REQUESTS}.lock"):
        known = {(r.table, r.budget): r for r in read_requests(out)}
        for request in new:
            key = (request.table, request.budget)
            earlier = known[key].seeds if key in known else ()
            seeds = tuple(sorted({*earlier, *request.seeds}))
            known[key] = Request(*key, seeds, request.tasks)
        write_json(out / REQUESTS, {"requests": [asdict(r) for r in known.values()]}, indent=1)
    return list(known.values())
