"""Calibration and rejection of classifiers on classes that a run has not seen.

    python benchmarks/open_set.py runs/demo --data glyphs --out results/classifier/glyphs.json

A run without ``calibration.json`` is calibrated first, on the training images of the data set.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

import psco
from psco.classifier.calibration import CALIBRATION, calibrate_run
from psco.files.atomic import atomic_path
from psco.training.checkpoint import METRICS
from psco.training.environment import environment
from psco.training.logging import read_metrics

SETTINGS = [(5, 1), (20, 1), (5, 5), (20, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()

    encoder = psco.load(options.run)
    image = encoder.recipe.image
    size = {"size": image.source_size, "channels": image.channels}
    if not (options.run / CALIBRATION).is_file():
        calibrate_run(options.run, psco.load_dataset(options.data, "train", **size))
    images = psco.load_dataset(options.data, options.split, **size)
    points = encoder.embed(images.images)
    found = []
    for ways, shots in SETTINGS:
        quality = psco.open_set_quality(
            encoder, images, ways, shots, tasks=options.tasks, seed=options.seed, points=points
        )
        found.append(quality.as_dict())
        print(
            f"{ways}-way {shots}-shot: accuracy {quality.accuracy:.4f}, calibration error "
            f"{quality.calibration_error:.4f}, AUROC {quality.auroc:.4f}, rejected "
            f"{quality.false_rejections:.4f} genuine and {quality.foreign_rejections:.4f} foreign"
        )
    if options.out is not None:
        facts = {
            "command": shlex.join(["python", *sys.argv]),
            "results": found,
            "steps": int(read_metrics(options.run / METRICS)[-1]["step"]),
            "recipe": encoder.recipe.model_dump(mode="json"),
            "environment": environment(),
        }
        with atomic_path(options.out) as aside:
            aside.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
