"""The part of a page about the reliability of probabilities and rejections."""

from __future__ import annotations

from collections.abc import Sequence

from psco.classifier import OpenSetQuality
from psco.report.page import Part, number_table
from psco.report.plots import reliability_plot

_HEAD = ["setting", "accuracy", "calibration error", "AUROC", "own rejected", "foreign rejected"]


def trust_part(qualities: Sequence[OpenSetQuality]) -> Part:
    """Return the part: a reliability plot of the first setting and a row for each setting."""
    first = qualities[0]
    rows = [
        [
            f"{q.ways}-way {q.shots}-shot",
            f"{q.accuracy:.1%}",
            f"{q.calibration_error:.3f}",
            f"{q.auroc:.3f}",
            f"{q.false_rejections:.1%}",
            f"{q.foreign_rejections:.1%}",
        ]
        for q in qualities
    ]
    return Part(
        "Confidence and unknown classes",
        f"{first.tasks} classifiers per setting, each tested on as many images of foreign classes "
        "as of its own. Calibration error: the mean difference between the probability of a "
        "prediction and its accuracy. AUROC: how well similarity separates own from foreign "
        "classes (0.5 is chance, 1 is perfect). The last two columns are for the automatic "
        "threshold, which aims to reject 5 % of the images of own classes.",
        reliability_plot(first.reliability, f"{first.ways}-way {first.shots}-shot")
        + number_table(_HEAD, rows),
    )
