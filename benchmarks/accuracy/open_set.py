"""Measure calibration and rejection of classifiers on classes that a run has not seen.

    python -m benchmarks.accuracy.open_set runs/demo --data glyphs --out FILE

A run without ``calibration.json`` is calibrated first, on the training images of the data set.
"""

from __future__ import annotations

import argparse
import json
import shlex
from functools import partial
from pathlib import Path

import psco
from benchmarks.timing.turns import describe_environment
from psco.classifier.calibration import calibrate_run
from psco.files.atomic import atomic_path
from psco.training.checkpoint import CALIBRATION, METRICS
from psco.training.logging import read_metrics

SETTINGS = [(5, 1), (20, 1), (5, 5), (20, 5)]  # ways and shots


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="5 tasks, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.tasks = 5

    encoder = psco.load(options.run)
    image = encoder.recipe.image
    load = partial(psco.load_dataset, size=image.source_size, channels=image.channels)
    if not (options.run / CALIBRATION).is_file():
        calibrate_run(options.run, load(options.data, "train"))
    images = load(options.data, options.split)
    embeddings = encoder.embed(images.images)
    results = []
    for ways, shots in SETTINGS:
        quality = psco.open_set_quality(
            encoder,
            images,
            ways,
            shots,
            tasks=options.tasks,
            seed=options.seed,
            embeddings=embeddings,
        )
        results.append(quality.as_dict())
        print(
            f"{ways}-way {shots}-shot: accuracy {quality.accuracy:.4f}, calibration error "
            f"{quality.calibration_error:.4f}, AUROC {quality.auroc:.4f}, rejected "
            f"{quality.false_rejections:.4f} genuine and {quality.foreign_rejections:.4f} foreign"
        )
    if options.out is not None:
        environment = describe_environment("benchmarks.accuracy.open_set")
        facts = {
            "command": shlex.join(environment["command"]),
            "results": results,
            "steps": int(read_metrics(options.run / METRICS)[-1]["step"]),
            "recipe": encoder.recipe.model_dump(mode="json"),
            "environment": environment,
        }
        with atomic_path(options.out) as aside:
            aside.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
