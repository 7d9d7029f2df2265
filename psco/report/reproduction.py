"""Reproduced tables and figures as Markdown and as one page: ours, the paper's, the difference."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from psco.errors import counted
from psco.report.page import Part, page
from psco.report.plots import lines_plot

Result = Mapping[str, Any]

LEGEND = (
    "Accuracy in percent with 95 % intervals over the tasks. In each cell: ours, the paper's, and "
    "the difference in points. Where the paper has no numbers, the difference is that from the "
    "first row on the same tasks, with its interval and, in brackets, for each seed. Letters mark "
    "numbers that are not directly comparable, and cells that are empty."
)
_COLUMNS = 8  # in one table of the page
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Footnotes:
    """The notes below a table: each different text has a letter."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Return the letter of a text."""
        number = self._marks.setdefault(text, "")
        if not number:
            place = list(self._marks).index(text)
            turn, letter = divmod(place, len(_LETTERS))
            self._marks[text] = _LETTERS[letter] * (turn + 1)
        return self._marks[text]

    def marks(self, texts: Sequence[str]) -> str:
        """Return the letters of several texts, such as ``a, c``."""
        return ", ".join(self.mark(text) for text in texts)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((mark, text) for text, mark in self._marks.items())


def number(value: Result | None) -> str:
    """Return ``96.37 ± 0.20``, without the interval if there is none, or a dash."""
    if value is None:
        return "–"
    return f"{value['mean']:.2f}" + (f" ± {value['ci95']:.2f}" if value["ci95"] else "")


def signed(value: float | None) -> str:
    """Return a difference with its sign, or nothing."""
    return "" if value is None else f"{value:+.2f}".replace("-", "−")


def from_first(value: Result) -> str:
    """Return a paired difference from the first row: ``+0.50 ± 0.12``, then that of each seed."""
    text = f"{signed(value['mean'])} ± {value['ci95']:.2f}"
    each = ", ".join(signed(gap) for gap in value["each"])
    return f"{text} ({each})" if len(value["each"]) > 1 else text


def describe_row(row: Result) -> list[str]:
    """Return how a row was obtained: rule, fraction of the paper's training, seeds, time."""
    parts = []
    for cell in row["cells"]:
        if cell["ours"] is not None:
            kind = "transductive" if cell["ours"]["transductive"] else "inductive"
            text = f"{cell['ours']['rule']} ({kind})"
            parts += [text] if text not in parts else []
    if row["images"] is not None:
        parts.append(counted(row["images"], "image"))
    if row["fraction"] is not None:
        parts.append(f"{100 * row['fraction']:.3g} % of the paper's training")
    if row["seeds"]:
        parts.append(f"seed{'s' * (len(row['seeds']) > 1)} {', '.join(map(str, row['seeds']))}")
    if row["minutes"]:
        parts.append(f"{row['minutes']:g} min")
    return parts


def column_title(column: Result) -> str:
    """Return ``omniglot (5, 1)``."""
    return f"{column['data']} ({column['ways']}, {column['shots']})"


def describe_table(result: Result) -> str:
    """Return on what a table was trained and tested."""
    lengths = {"e": "epochs", "m": "minutes"}
    budget = result["budget"]
    length = "the paper's length" if budget == "paper" else f"{budget[:-1]} {lengths[budget[-1]]}"
    images = "" if result["images"] is None else f" {counted(result['images'], 'image')} of"
    trained = f"Trained on{images} {result['data']} by the recipe {result['recipe']} for {length}"
    tested = "" if result["curve"] is not None else f"; tested on the split {result['split']}"
    return f"{trained}{tested}. Command: {command(result)}"


def command(result: Result) -> str:
    """Return the command that starts or continues a table."""
    words = ["psco", "reproduce", result["file"]]
    words += [] if result["budget"] == "paper" else ["--budget", result["budget"]]
    seeds = [str(seed) for seed in result["seeds"]]
    words += [] if seeds == ["0"] else ["--seeds", *seeds]
    return shlex.join(words)


def heading(result: Result) -> str:
    """Return the title with the place in the paper and the budget."""
    where = f"{result['where']}: " if result["where"] else ""
    budget = "" if result["budget"] == "paper" else f" ({result['budget']})"
    return f"{where}{result['title']}{budget}"


# -------------------------------------------------------------------------------------- Markdown


def to_markdown(results: Sequence[Result]) -> str:
    """Return all tables and curves as Markdown."""
    parts = ["# The paper, reproduced", "", LEGEND, ""]
    for result in results:
        parts += [f"## {heading(result)}", "", describe_table(result), ""]
        parts += _markdown_table(result)
        parts.append("")
    return "\n".join(parts)


def _markdown_table(result: Result) -> list[str]:
    notes = Footnotes()
    head = ["row", *map(column_title, result["columns"]), "how"]
    lines = []
    for row in result["rows"]:
        cells = [_markdown_cell(cell, notes) for cell in row["cells"]]
        about = describe_row(row) + ([row["why"]] if row["why"] else [])
        name = row["name"] + _superscript(notes.marks(row["notes"]))
        lines.append([name, *cells, "; ".join(about) or "–"])
    table = [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines]]
    texts = [f"{mark}: {text}" for mark, text in notes]
    return [*table, "", *(f"- {text}" for text in [*result["notes"], *texts])]


def _markdown_cell(cell: Result, notes: Footnotes) -> str:
    marks = _superscript(notes.marks(cell["notes"]))
    if cell["ours"] is None:
        return f"– [{number(cell['paper'])}]" if cell["paper"] else "–"
    if cell["from_first"] is not None:
        return f"{number(cell['ours'])}; {from_first(cell['from_first'])}"
    if cell["paper"] is None:
        return number(cell["ours"])
    paper, difference = number(cell["paper"]), signed(cell["difference"])
    return f"{number(cell['ours'])} [{paper}{marks}] {difference}"


def _superscript(marks: str) -> str:
    return f"<sup>{marks}</sup>" if marks else ""


# ------------------------------------------------------------------------------------------ page


def reproduction_page(results: Sequence[Result], foot: str) -> str:
    """Return the page: each table with its notes, each figure as a plot above its numbers."""
    parts = [
        Part(heading(result), describe_table(result), "".join(_body(result))) for result in results
    ]
    return page("The paper, reproduced", LEGEND, parts, foot)


def _body(result: Result) -> Iterator[str]:
    notes = Footnotes()
    if result["curve"] is not None:
        yield _curves_plot(result)
    elif result["plot"] is not None:
        yield _rows_plot(result)
    columns = list(range(len(result["columns"])))
    for begin in range(0, max(1, len(columns)), _COLUMNS):
        yield _html_table(result, columns[begin : begin + _COLUMNS], notes)
    texts = [escape(text) for text in result["notes"]]
    texts += [f"<sup>{mark}</sup> {escape(text)}" for mark, text in notes]
    if texts:
        yield f'<ol class="footnotes">{"".join(f"<li>{text}</li>" for text in texts)}</ol>'


def _html_table(result: Result, columns: Sequence[int], notes: Footnotes) -> str:
    titles = [result["columns"][place] for place in columns]
    head = "".join(f"<th>{escape(t['data'])}<br>({t['ways']}, {t['shots']})</th>" for t in titles)
    lines = [f"<tr><th></th>{head}</tr>"]
    for group, rows in groupby(result["rows"], key=lambda row: row["group"]):
        if group:
            lines.append(
                f'<tr class="group"><td colspan="{len(columns) + 1}">{escape(group)}</td></tr>'
            )
        lines += [_html_row(row, columns, notes) for row in rows]
    return f'<div class="wide"><table class="numbers wide">{"".join(lines)}</table></div>'


def _html_row(row: Result, columns: Sequence[int], notes: Footnotes) -> str:
    name = f"<b>{escape(row['name'])}</b>{_superscript(notes.marks(row['notes']))}"
    about = describe_row(row) + ([row["why"]] if len(row["why"]) < 60 and row["why"] else [])
    small = "".join(f"<small>{escape(text)}</small>" for text in about)
    cells = "".join(_html_cell(row["cells"][place], row, notes) for place in columns)
    return f'<tr><td class="about">{name}{small}</td>{cells}</tr>'


def _html_cell(cell: Result, row: Result, notes: Footnotes) -> str:
    # What the name of the row already says needs no letter.
    reasons = [cell["why"]] if cell["why"] and (cell["why"] != row["why"] or _is_long(row)) else []
    marks = _superscript(notes.marks([*cell["notes"], *reasons]))
    lines = ["–" if cell["ours"] is None else f"<b>{number(cell['ours'])}</b>"]
    if cell["paper"] is not None:
        lines.append(f"<small>{number(cell['paper'])}</small>")
    lines[-1] += marks
    if cell["difference"] is not None:
        lines.append(signed(cell["difference"]))
    if cell["from_first"] is not None:
        lines.append(f"<small>{from_first(cell['from_first'])}</small>")
    return f"<td>{'<br>'.join(lines)}</td>"


def _is_long(row: Result) -> bool:
    return len(row["why"]) >= 60


def _curves_plot(result: Result) -> str:
    lines = {
        f"{row['name']}, seed {curve['seed']}": [(x, 100 * y) for x, y in curve["points"]]
        for row in result["rows"]
        for curve in row["curves"]
    }
    return lines_plot(lines, {}, ("epoch", f"{result['curve']}, %")) if lines else ""


def _rows_plot(result: Result) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    points: dict[str, list[tuple[float, float]]] = {}
    for place, column in enumerate(result["columns"]):
        name = column_title(column)
        for row in result["rows"]:
            cell, x = row["cells"][place], float(row["name"])
            if cell["ours"] is not None:
                lines.setdefault(name, []).append((x, cell["ours"]["mean"]))
            if cell["paper"] is not None:
                points.setdefault(name, []).append((x, cell["paper"]["mean"]))
    return lines_plot(lines, points, (str(result["plot"]), "accuracy, %"))
