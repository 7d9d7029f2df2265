"""Measure what exporting costs in accuracy: float32 and 8-bit weights beside torch.

    python -m benchmarks.accuracy.exported runs/omniglot-best --data omniglot [--out FILE]

All three classify the same tasks by the nearest prototype, so the differences are paired.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import psco
from benchmarks.timing.turns import describe_environment
from psco.data import ImageSet
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.export.onnx.reading import OnnxEncoder
from psco.export.onnx.writing import write_onnx
from psco.files.atomic import atomic_path

SETTINGS = [(5, 1), (5, 5), (20, 1), (20, 5)]  # ways and shots
RULE = "prototype"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", help="run folder or built-in encoder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--per-class", type=int, default=0, help="images of a class; 0 for all")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="5 tasks, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.per_class = 5, 20
    encoder = psco.load(options.run)
    image = encoder.recipe.image
    images = psco.load_dataset(
        options.data, options.split, size=image.source_size, channels=image.channels
    )
    images = _first(images, options.per_class)
    settings = [(w, k) for w, k in SETTINGS if w <= len(images.classes)]
    drawn = draw_tasks(images, settings, 15, options.tasks, 0)
    expected = evaluate_tasks(encoder, images, drawn, RULE)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for weights in ("float32", "int8"):
            path = Path(folder) / f"{weights}.onnx"
            write_onnx(encoder, path, int8=weights == "int8")
            size = path.stat().st_size
            found = evaluate_tasks(OnnxEncoder(path), images, drawn, RULE)
            for mine, theirs in zip(found, expected, strict=True):
                loss = theirs.compare(mine)
                print(
                    f"{weights}, {size / 1e6:.1f} MB, {mine.ways}-way {mine.shots}-shot: "
                    f"{mine.mean:.2f} ± {mine.ci95:.2f}, torch {theirs.mean:.2f}, "
                    f"loss {loss.mean:.3f} ± {loss.ci95:.3f} points",
                    flush=True,
                )
                row = {"weights": weights, "bytes": size, "loss": loss._asdict()}
                results.append({**row, **mine.as_dict(), "torch": theirs.mean})
    if options.out is not None:
        environment = describe_environment("benchmarks.accuracy.exported")
        with atomic_path(options.out) as aside:
            facts = {"results": results, "environment": environment}
            aside.write_text(json.dumps(facts, indent=1) + "\n")


def _first(images: ImageSet, number: int) -> ImageSet:
    """Return the first images of every class, or all of them for 0."""
    if not number or images.labels is None:
        return images
    places = [np.flatnonzero(images.labels == c)[:number] for c in np.unique(images.labels)]
    chosen = np.concatenate(places)
    labels = images.labels[chosen]
    return ImageSet(images.images[chosen], labels, images.classes, images.name, images.split)


if __name__ == "__main__":
    main()
