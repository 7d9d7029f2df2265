"""The files of an output folder: results.json, results.md and reproduction.html."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from psco.evaluation.tables.reader import read_table, table_names
from psco.experiments.reproduce.budget import PAPER
from psco.experiments.reproduce.costs import Costs
from psco.experiments.reproduce.requests import Request, read_requests
from psco.experiments.reproduce.results import table_result
from psco.experiments.reproduce.sets import DataSets
from psco.files.atomic import atomic_path
from psco.report.reproduction import reproduction_page, to_markdown
from psco.training.environment import environment

JSON, MARKDOWN, PAGE = "results.json", "results.md", "reproduction.html"


def collect(out: Path, sets: DataSets) -> list[dict[str, Any]]:
    """Return all tables of the paper, in its order, and others that were asked for in ``out``.

    A table that was never asked for is shown with the paper's numbers and what it would take.
    """
    requests = read_requests(out)
    asked = {request.table for request in requests}
    costs = Costs(out, sets, measure=False)
    requests += [Request(name, PAPER, (0,)) for name in table_names() if name not in asked]
    order = {name: place for place, name in enumerate(table_names())}
    requests.sort(key=lambda request: order.get(request.table, len(order)))
    return [
        table_result(read_table(r.table), r, out, sets, costs)
        for r in requests
        if r.table in order or Path(r.table).is_file()
    ]


def write_outputs(out: Path, sets: DataSets) -> list[dict[str, Any]]:
    """Write the three files and return what they show."""
    results = collect(out, sets)
    facts = environment()
    foot = (
        f"psco {facts['psco']}, torch {facts['torch']}, {facts['cpus']} cores. All settings and "
        f"results are in {JSON}; the runs are in runs/."
    )
    content = {"tables": results, "environment": facts}
    for name, text in {
        JSON: json.dumps(content, indent=1) + "\n",
        MARKDOWN: to_markdown(results),
        PAGE: reproduction_page(results, foot),
    }.items():
        with atomic_path(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return results
