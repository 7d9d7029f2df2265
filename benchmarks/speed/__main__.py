"""``python -m benchmarks.speed`` measures the speed of psco on this machine."""

import sys

import typer

from benchmarks.speed.command import bench
from psco.cli.common import spread_lists

app = typer.Typer(add_completion=False)
app.command()(bench)
app(spread_lists(sys.argv[1:]), prog_name="bench")
