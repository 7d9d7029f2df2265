"""The frame of all pages: one self-contained HTML file without external requests."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from psco.report.style import STYLE


class Part(NamedTuple):
    """A section of a page: a heading, a sentence or two, and HTML below them."""

    heading: str
    text: str
    body: str


def page(
    title: str,
    lead: str,
    parts: Sequence[Part],
    foot: str,
    warning: str | None = None,
    script: str = "",
    broad: bool = False,
) -> str:
    """Return a page; everything except the bodies of the parts and the script is plain text.

    A ``broad`` page uses more of a wide screen.
    """
    alert = "" if warning is None else f'<p class="warning">Warning: {escape(warning)}.</p>\n'
    sections = "\n".join(
        f'<h2>{escape(part.heading)}</h2>\n<p class="note">{escape(part.text)}</p>\n{part.body}'
        for part in parts
    )
    code = f"<script>{script}</script>\n" if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body{' class="broad"' if broad else ""}>
<h1>{escape(title)}</h1>
<p>{escape(lead)}</p>
{alert}{sections}
<footer>{escape(foot)}</footer>
{code}</body>
</html>
"""


def number_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    strong: int | None = None,
    texts: bool = False,
) -> str:
    """Return a table of numbers, or of ``texts``, with the row ``strong`` set in bold.

    On narrow screens each row becomes a list of its cells with their column names.
    """
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = []
    for place, row in enumerate(rows):
        mark = ' class="strong"' if place == strong else ""
        columns = "".join(
            f'<td data-name="{escape(name)}">{escape(cell)}</td>'
            for name, cell in zip(head, row, strict=True)
        )
        lines.append(f"<tr{mark}>{columns}</tr>")
    kind = "numbers stack texts" if texts else "numbers stack"
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
