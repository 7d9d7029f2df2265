"""The part of a page that says how far probabilities and rejections can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from psco.classifier import OpenSetQuality
from psco.report.page import Part, number_table
from psco.report.plots import reliability_plot

_HEAD = ["", "accuracy", "calibration error", "AUROC", "genuine rejected", "foreign rejected"]


def trust_part(qualities: Sequence[OpenSetQuality]) -> Part:
    """Write the part: a table with a row for each setting, and the first one's reliability."""
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
        f"Classifiers as people make them, {first.tasks} of each kind, and as many pictures of "
        "foreign classes as of their own. Calibration error: how far the probability of a "
        "prediction is from how often it is right. AUROC: how well similarity separates own from "
        "foreign classes (0.5 is chance, 1 perfect). The last two columns are for an automatic "
        "threshold, which aims at 5 % of the genuine pictures.",
        reliability_plot(first.reliability, f"{first.ways}-way {first.shots}-shot")
        + number_table(_HEAD, rows),
    )
