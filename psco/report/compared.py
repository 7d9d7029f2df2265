"""A comparison as Markdown and as a page with plots."""

from __future__ import annotations

from typing import Any

from psco.evaluation.compare import Comparison, Row
from psco.evaluation.published import Setting, is_transductive
from psco.report.page import Part, number_table, page
from psco.report.plots import comparison_plot

LEGEND = (
    "Percent with 95 % intervals. ▲ and ▼: significantly better or worse than the first row (the "
    "95 % interval of the paired difference on the same tasks excludes zero). In brackets: the "
    "paper's number, if training and test are those of the paper."
)


def cell(comparison: Comparison, row: Row, setting: Setting) -> str:
    """Return an accuracy with its interval, its mark and the paper's number."""
    result = row.results.get(setting)
    if result is None:
        return "–"
    gap = comparison.difference(row, setting)
    mark = "" if gap is None or not gap.significant else (" ▲" if gap.mean > 0 else " ▼")
    paper = ""
    if setting in row.paper:
        other = is_transductive(row.method) and not result.transductive
        paper = f" [{row.paper[setting]:.2f}{', transductive' if other else ''}]"
    return f"{result.mean:.2f} ± {result.ci95:.2f}{mark}{paper}"


def difference_cell(comparison: Comparison, row: Row, setting: Setting) -> str:
    """Return the paired difference from the first row."""
    gap = comparison.difference(row, setting)
    return "–" if gap is None else f"{gap.mean:+.2f} ± {gap.ci95:.2f}"


def table(comparison: Comparison, write: Any = cell) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table as text.

    Parameters
    ----------
    comparison
        The runs and their results.
    write
        `cell` or `difference_cell`.
    """
    head = ["method", "labels", "steps", "rule", "tasks"]
    head += [f"{ways}-way {shots}-shot" for ways, shots in comparison.settings]
    rows = []
    for row in comparison.rows:
        numbers = {result.tasks for result in row.results.values()}
        rows.append(
            [
                row.title if row.name == row.method else f"{row.title} ({row.name})",
                "yes" if row.kind == "supervised" else f"of {row.weights}" if row.weights else "no",
                str(row.steps),
                f"{row.rule}, transductive" if row.transductive else row.rule,
                ", ".join(map(str, sorted(numbers))) or "–",
                *(write(comparison, row, setting) for setting in comparison.settings),
            ]
        )
    return head, rows


def to_markdown(comparison: Comparison) -> str:
    """Return both tables, accuracies and differences, with a legend."""
    first = comparison.rows[0]
    return "\n".join(
        [
            f"{comparison.data} ({comparison.split}), {comparison.queries} queries per class, "
            f"seed {comparison.seed}. {LEGEND}",
            "",
            *_lines(*table(comparison)),
            "",
            f"Paired differences from {first.title} under {first.rule}, in percentage points:",
            "",
            *_lines(*table(comparison, difference_cell)),
            "",
        ]
    )


def _lines(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows]]


def comparison_page(comparison: Comparison) -> str:
    """Return the page: bars with intervals, then the two tables."""
    own = [row for row in comparison.rows if row.own_rule]
    common = [row for row in comparison.rows if not row.own_rule]
    parts = [
        Part(
            "Each method under its published rule",
            "Accuracy in percent; the thin lines are 95 % intervals.",
            comparison_plot([(row.title, row.results) for row in own], comparison.settings),
        )
    ]
    if common:
        rule = common[0].rule
        parts.append(
            Part(
                f"All methods under the rule {rule}",
                "The same tasks, with the features of each backbone and one rule for all.",
                comparison_plot([(row.title, row.results) for row in common], comparison.settings),
            )
        )
    parts += [
        Part("Accuracies", LEGEND, number_table(*table(comparison), strong=0)),
        Part(
            f"Paired differences from {comparison.rows[0].title}",
            "In percentage points, with 95 % intervals over the same tasks.",
            number_table(*table(comparison, difference_cell)),
        ),
    ]
    lead = (
        f"{len(own)} methods on the same tasks: {comparison.data} ({comparison.split}), "
        f"{comparison.queries} queries per class, seed {comparison.seed}."
    )
    return page(
        "Comparison of methods",
        lead,
        parts,
        "The settings are in config.yaml of each run folder.",
        broad=True,
    )
