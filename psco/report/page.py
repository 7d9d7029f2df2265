"""A report as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 900px;
       margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.note, footer { color: #666; } footer { font-size: .85rem; margin-top: 3rem; }
svg { width: 100%; height: auto; }
table.numbers { border-collapse: collapse; font-variant-numeric: tabular-nums; }
table.numbers th, table.numbers td { padding: .3rem .9rem; text-align: right;
       border-bottom: 1px solid #ddd; }
table.numbers th:first-child, table.numbers td:first-child { text-align: left; padding-left: 0; }
table.numbers tr.strong td { font-weight: 600; }
table.wide { font-size: .78rem; line-height: 1.3; }
table.wide th, table.wide td { padding: .3rem .4rem; white-space: pre; vertical-align: top; }
div.wide { overflow-x: auto; }
table.task { border-collapse: collapse; margin: .4rem 0 1.6rem; }
table.task td { padding: .1rem 0; } table.task td.support { padding-right: 1.1rem; }
table.task img { width: 44px; height: 44px; display: block; image-rendering: auto; }
.support { white-space: nowrap; }
table.task .support img { display: inline-block; border: 2px solid #2563a8; border-radius: 4px;
       margin-right: 2px; vertical-align: top; }
table.task .support img:not(:only-child) { width: 30px; height: 30px; }
.right, .wrong { display: inline-block; position: relative; border-radius: 4px;
       border: 2px solid #9ccfb4; vertical-align: top; overflow: hidden; }
.map { position: relative; width: 100%; border: 1px solid #ddd; border-radius: 4px; }
.map img { position: absolute; width: 30px; height: 30px; margin: -15px; border-radius: 3px;
       border: 2px solid; }
.wrong { border-color: #d0342c; } .right.unknown, .wrong.unknown { border-style: dashed; }
.right.unknown { border-color: #e08a1e; }
p.warning { border-left: 4px solid #d0342c; background: #fdf0ef; padding: .5rem .9rem; }
.query { display: inline-block; margin-right: 5px; text-align: center; vertical-align: top; }
.query small { display: block; font-size: .68rem; line-height: 1.2; color: #666; }
.as { position: absolute; right: 0; bottom: 0; border: 1px solid #d0342c; }
table.task .as img { width: 20px; height: 20px; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(116px, 1fr)); gap: 14px; }
.sheet figure { margin: 0; border: 0; font-size: .82rem; line-height: 1.3;
       overflow: hidden; }
.shot { position: relative; width: 100%; aspect-ratio: 1; background: #f3f3f3; overflow: hidden;
       border: 3px solid #9ccfb4; border-radius: 4px; box-sizing: border-box;
       margin-bottom: 4px; }
.shot img { width: 100%; height: 100%; display: block; }
.wrong .shot { border-color: #d0342c; } .unknown .shot { border: 3px dashed #e08a1e; }
.near { position: absolute; right: 0; bottom: 0; width: 30%; height: 30%;
       border: 1px solid #2563a8; background: #fff; }
.bar { height: 5px; background: #e6e6e6; border-radius: 2px; margin: 2px 0; }
.bar i { display: block; height: 100%; background: #2563a8; border-radius: 2px; }
.unknown .bar i { background: #e08a1e; }
.sheet small { display: block; color: #666; white-space: nowrap; overflow: hidden;
       text-overflow: ellipsis; }
.sheet .truth { color: #d0342c; }
table.wide tr.group td { font-style: italic; color: #444; background: #f6f8fb; }
table.wide small, ol.footnotes { color: #666; }
table.wide .about { white-space: normal; min-width: 11rem; max-width: 16rem; }
table.wide .about, table.wide th:first-child { position: sticky; left: 0; background: #fff; }
table.wide .about small { display: block; }
ol.footnotes { font-size: .82rem; list-style: none; padding-left: 0; }
code { background: #f3f3f3; padding: .1em .3em; border-radius: 3px; }
"""


class Part(NamedTuple):
    """A part of the page: a heading, a sentence or two, and HTML below them."""

    heading: str
    text: str
    body: str


def page(
    title: str, lead: str, parts: Sequence[Part], foot: str, warning: str | None = None
) -> str:
    """Put a page together; all but the bodies of the parts is plain text."""
    alarm = "" if warning is None else f'<p class="warning">Warning: {escape(warning)}.</p>\n'
    sections = "\n".join(
        f'<h2>{escape(part.heading)}</h2>\n<p class="note">{escape(part.text)}</p>\n{part.body}'
        for part in parts
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(lead)}</p>
{alarm}{sections}
<footer>{escape(foot)}</footer>
</body>
</html>
"""


def number_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    strong: int | None = None,
    wide: bool = False,
) -> str:
    """Write a table of numbers, the row ``strong`` set off.

    A ``wide`` one has many columns: smaller letters, and lines that break where the text does.
    """
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = []
    for place, row in enumerate(rows):
        mark = ' class="strong"' if place == strong else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    body = f"<tr>{cells}</tr>{''.join(lines)}"
    if wide:
        return f'<div class="wide"><table class="numbers wide">{body}</table></div>'
    return f'<table class="numbers">{body}</table>'
