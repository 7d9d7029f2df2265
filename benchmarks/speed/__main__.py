"""``python -m benchmarks.speed`` measures the speed of psco on this machine."""

import typer

from benchmarks.speed.command import bench

typer.run(bench)
