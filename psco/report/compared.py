"""A comparison as Markdown and as a page with bars."""

from __future__ import annotations

from typing import Any

from psco.evaluation.compare import Comparison, Row
from psco.evaluation.published import Setting, is_transductive
from psco.report.page import Part, number_table, page
from psco.report.plots import comparison_plot

LEGEND = (
    "Percent with 95 % intervals. ▲ and ▼: better and worse than the first row by a paired "
    "interval on the same tasks that leaves out zero. In brackets: the paper's number after its "
    "full training."
)


def cell(comparison: Comparison, row: Row, setting: Setting) -> str:
    """Write an accuracy with its interval, its mark and the paper's number."""
    report = row.results.get(setting)
    if report is None:
        return "–"
    gap = comparison.difference(row, setting)
    mark = "" if gap is None or not gap.significant else (" ▲" if gap.mean > 0 else " ▼")
    paper = ""
    if setting in row.paper:
        other = is_transductive(row.method) and not report.transductive
        paper = f" [{row.paper[setting]:.2f}{', transductive' if other else ''}]"
    return f"{report.mean:.2f} ± {report.ci95:.2f}{mark}{paper}"


def difference_cell(comparison: Comparison, row: Row, setting: Setting) -> str:
    """Write the paired difference to the first row."""
    gap = comparison.difference(row, setting)
    return "–" if gap is None else f"{gap.mean:+.2f} ± {gap.ci95:.2f}"


def table(comparison: Comparison, write: Any = cell) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table as text.

    Parameters
    ----------
    comparison
        What to show.
    write
        `cell` or `difference_cell`.
    """
    head = ["method", "labels", "steps", "rule", "tasks"]
    head += [f"{ways}-way {shots}-shot" for ways, shots in comparison.settings]
    rows = []
    for row in comparison.rows:
        numbers = {report.tasks for report in row.results.values()}
        rows.append(
            [
                row.title if row.name == row.method else f"{row.title} ({row.name})",
                "yes" if row.kind == "supervised" else "no",
                str(row.steps),
                f"{row.rule}, transductive" if row.transductive else row.rule,
                ", ".join(map(str, sorted(numbers))) or "–",
                *(write(comparison, row, setting) for setting in comparison.settings),
            ]
        )
    return head, rows


def to_markdown(comparison: Comparison) -> str:
    """Write both tables, accuracies and differences, with a legend."""
    first = comparison.rows[0]
    return "\n".join(
        [
            f"{comparison.data} ({comparison.split}), {comparison.queries} queries of each class, "
            f"seed {comparison.seed}. {LEGEND}",
            "",
            *_lines(*table(comparison)),
            "",
            f"Paired differences to {first.title} under {first.rule}, in points:",
            "",
            *_lines(*table(comparison, difference_cell)),
            "",
        ]
    )


def _lines(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows]]


def comparison_page(comparison: Comparison) -> str:
    """Write the page: bars with intervals, then the two tables."""
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
                f"All under the rule {rule}",
                "The same, with the features of each backbone and one common rule.",
                comparison_plot([(row.title, row.results) for row in common], comparison.settings),
            )
        )
    parts += [
        Part("Accuracies", LEGEND, _wide_table(*table(comparison))),
        Part(
            f"Paired differences to {comparison.rows[0].title}",
            "In points, with 95 % intervals over the same tasks.",
            _wide_table(*table(comparison, difference_cell)),
        ),
    ]
    lead = (
        f"{len(own)} methods on the same tasks: {comparison.data} ({comparison.split}), "
        f"{comparison.queries} queries of each class, seed {comparison.seed}."
    )
    return page("Methods compared", lead, parts, "All settings are in the run folders.")


def _wide_table(head: list[str], rows: list[list[str]]) -> str:
    # What is in brackets gets a line of its own, so that the columns stay narrow.
    def lines(text: str) -> str:
        return text.replace(" [", "\n[").replace(" (", "\n(").replace(", transd", ",\ntransd")

    return number_table(head, [[*map(lines, row)] for row in rows], strong=0, wide=True)
