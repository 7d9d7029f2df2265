"""Plots as inline SVG, drawn without any global state of matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from psco.evaluation.result import Report

COLOURS = ("#2563a8", "#d97b0d", "#80868c", "#2e8b57", "#b0413e", "#7a5aa6")  # --c0 to --c5
_INK, _MUTED, _LINE = "#1f2328", "#59636e", "#d8dce1"
# The page's style sheet sets the colours, so that plots follow its light and dark modes.
_VARIABLES = {
    **{colour: f"var(--c{place})" for place, colour in enumerate(COLOURS)},
    **{_INK: "var(--ink)", _MUTED: "var(--muted)", _LINE: "var(--line)"},
}
_WIDTH = 4.8  # inches; narrow enough for text to stay legible on a phone
_LEAST_PREDICTIONS = 30  # behind a dot of a reliability diagram
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "psco",  # the same numbers give the same file
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _LINE,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "axes.edgecolor": _MUTED,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
}


def accuracy_plot(results: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Draw accuracies as bars with 95 % intervals, grouped by setting.

    Parameters
    ----------
    results
        Rows with ``method``, ``ways``, ``shots``, and ``mean`` and ``ci95`` in percent.
    names
        Titles of the methods.
    """
    settings = list(dict.fromkeys((r["ways"], r["shots"]) for r in results))
    methods = list(dict.fromkeys(r["method"] for r in results))
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / len(methods)
        for place, method in enumerate(methods):
            rows = {(r["ways"], r["shots"]): r for r in results if r["method"] == method}
            x = [i + (place - (len(methods) - 1) / 2) * width for i in range(len(settings))]
            bars = axes.bar(
                x,
                [rows[s]["mean"] for s in settings],
                0.92 * width,
                yerr=[rows[s]["ci95"] for s in settings],
                color=COLOURS[place % len(COLOURS)],
                label=names.get(method, method),
                error_kw={"elinewidth": 1, "capsize": 2, "ecolor": _INK},
            )
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
        axes.set_xticks(range(len(settings)), [f"{w}-way\n{k}-shot" for w, k in settings])
        axes.set(ylim=(0, 108), ylabel="accuracy, %")
        axes.grid(False, axis="x")
        axes.legend(ncols=len(methods), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
        return _svg(figure)


def comparison_plot(
    rows: Sequence[tuple[str, Mapping[tuple[int, int], Report]]],
    settings: Sequence[tuple[int, int]],
) -> str:
    """Draw a panel for each setting with a bar and its 95 % interval for each row.

    Parameters
    ----------
    rows
        Names, and results by setting; the place of a missing result stays empty.
    settings
        Ways and shots of the panels, two panels side by side.
    """
    with rc_context(_STYLE):
        lines = -(-len(settings) // 2)
        columns = min(2, len(settings))
        height = (0.7 + 0.27 * len(rows)) * lines
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for axes, setting in zip(panels, settings, strict=False):
            for place, (_, results) in enumerate(rows):
                result = results.get(setting)
                if result is None:
                    continue
                colour = COLOURS[0] if place == 0 else COLOURS[2]
                axes.barh(place, result.mean, 0.72, xerr=result.ci95, color=colour, ecolor=_INK)
                axes.text(2, place, f"{result.mean:.1f}", va="center", color="white", fontsize=8)
            axes.set(xlim=(0, 100), xticks=(0, 50, 100))
            axes.set_title(f"{setting[0]}-way {setting[1]}-shot")
            axes.grid(False, axis="y")
        for axes in panels[len(settings) :]:
            axes.set_axis_off()
        panels[0].set_yticks(range(len(rows)), [name for name, _ in rows])
        panels[0].invert_yaxis()
        return _svg(figure)


def shots_plot(results: Sequence[Mapping[str, Any]]) -> str:
    """Draw accuracy over the number of shots with 95 % intervals, a line for each number of ways.

    Parameters
    ----------
    results
        Rows with ``ways``, ``shots``, and ``mean`` and ``ci95`` in percent.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        axes = figure.subplots()
        for colour, ways in zip(COLOURS, sorted({r["ways"] for r in results}), strict=False):
            rows = sorted((r for r in results if r["ways"] == ways), key=lambda r: int(r["shots"]))
            axes.errorbar(
                [r["shots"] for r in rows],
                [r["mean"] for r in rows],
                [r["ci95"] for r in rows],
                color=colour,
                marker="o",
                capsize=3,
                label=f"{ways}-way",
            )
        shots = sorted({r["shots"] for r in results})
        axes.set_xscale("log")
        axes.set_xticks(shots, [str(shot) for shot in shots])
        axes.minorticks_off()
        if len(shots) == 1:
            axes.set_xlim(shots[0] / 2, shots[0] * 2)
        axes.set(xlabel="shots", ylabel="accuracy, %")
        axes.legend(frameon=False)
        return _svg(figure)


def reliability_plot(rows: Sequence[Sequence[float]], title: str) -> str:
    """Draw the accuracy of predictions over their probability, with the ideal diagonal.

    Parameters
    ----------
    rows
        For each interval of the probability: number of predictions, their mean probability, and
        their accuracy. The area of a dot grows with the number; intervals with too few predictions
        to be meaningful are left out.
    title
        Above the plot.
    """
    most = max(row[0] for row in rows)
    used = [row for row in rows if row[0] >= min(_LEAST_PREDICTIONS, most)]
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], color=_MUTED, lw=1, label="ideal")
        axes.plot(
            [100 * row[1] for row in used],
            [100 * row[2] for row in used],
            color=COLOURS[0],
            lw=1.2,
            label="measured",
        )
        axes.scatter(
            [100 * row[1] for row in used],
            [100 * row[2] for row in used],
            s=[12 + 110 * row[0] / most for row in used],
            color=COLOURS[0],
        )
        axes.set(xlim=(0, 103), ylim=(0, 105), title=title)
        axes.set(xlabel="probability of the prediction, %", ylabel="accuracy, %")
        axes.legend(frameon=False)
        return _svg(figure)


def lines_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    points: Mapping[str, Sequence[tuple[float, float]]],
    labels: tuple[str, str],
) -> str:
    """Draw lines, and the paper's values as rings in the colour of the line of the same name.

    Parameters
    ----------
    lines, points
        (x, y) by name; a name may have a line, points, or both.
    labels
        Of x and y.
    """
    names = list(dict.fromkeys([*lines, *points]))
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.4), layout="constrained")
        axes = figure.subplots()
        for place, name in enumerate(names):
            colour = COLOURS[place % len(COLOURS)]
            if line := lines.get(name):
                marker = "." if len(line) < 30 else ""
                axes.plot(*zip(*line, strict=True), color=colour, lw=1.6, marker=marker, label=name)
            if rings := points.get(name):
                x, y = zip(*rings, strict=True)
                label = f"{name}, paper"
                axes.scatter(x, y, s=46, facecolors="none", edgecolors=colour, label=label)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if names:
            axes.legend(
                frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2
            )
        return _svg(figure)


def training_plot(rows: Sequence[Mapping[str, float]]) -> str:
    """Draw the curves of training: losses, purity and overlap of the shots, quality.

    Parameters
    ----------
    rows
        The rows of ``metrics.csv``; curves that are not in them are left out.
    """
    panels = [
        ("loss", ("total", "psco", "moco", "byol"), 1),
        ("pseudo-label purity, %", ("purity",), 100),
        ("shot overlap, %", ("overlap",), 100),
        ("embedding std", ("embedding_std",), 1),
        ("views that find each other, %", ("retrieval",), 100),
    ]
    panels = [panel for panel in panels if any(name in rows[0] for name in panel[1])]
    with rc_context(_STYLE):
        lines = -(-len(panels) // 2)
        figure = Figure(figsize=(_WIDTH, 2.1 * lines), layout="constrained")
        grid = list(figure.subplots(lines, 2, squeeze=False).flat)
        for axes, (title, curves, factor) in zip(grid, panels, strict=False):
            _curves(axes, rows, [name for name in curves if name in rows[0]], factor)
            axes.set(title=title, xlabel="step")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        return _svg(figure)


def _curves(
    axes: Axes, rows: Sequence[Mapping[str, float]], names: Sequence[str], factor: float
) -> None:
    steps = [row["step"] for row in rows]
    for colour, name in zip(COLOURS, names, strict=False):
        axes.plot(steps, [factor * row[name] for row in rows], color=colour, label=name, lw=1.6)
    axes.set_ylim(bottom=0)
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=8)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()[text.getvalue().index("<svg") :]
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg
