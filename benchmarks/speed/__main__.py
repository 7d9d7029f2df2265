"""Measure the speed of psco on this machine: python -m benchmarks.speed, or make bench."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.speed.findings import Findings
from benchmarks.speed.measure import run_bench
from benchmarks.speed.settings import PARTS, Settings, choose_settings
from psco.errors import PscoError


def main() -> None:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument(
        "--parts", nargs="+", default=[], metavar="PART", help=f"of {', '.join(PARTS)}; all"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        help=f"turns, each of which measures every side once ({defaults.turns}; at least 6 for "
        "ratios)",
    )
    parser.add_argument(
        "--steps", type=int, help=f"training steps of each side in a turn ({defaults.steps})"
    )
    parser.add_argument(
        "--quick", action="store_true", help="toy sizes, to see that it runs; ignore the numbers"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    try:
        settings = choose_settings(options.parts, options.repeats, options.steps, options.quick)
        findings = run_bench(settings)
    except PscoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if options.json:
        print(json.dumps(findings.as_dict()))
    else:
        print_table(findings)


def print_table(findings: Findings) -> None:
    """Print the results for people."""
    table = Table("measured", "median", "95 % interval", "spread", title="Speed of psco")
    for row in findings.rows():
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
