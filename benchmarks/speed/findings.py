"""The results of a benchmark, as nested JSON and as rows of a table."""

from __future__ import annotations

from typing import Any

from benchmarks.timing.stats import Figure


class Findings:
    """Figures by dotted name, such as ``step.images_per_s``, with their units.

    Parameters
    ----------
    facts
        How it was measured: repeats, environment, ... Copied to the JSON.
    """

    def __init__(self, **facts: Any) -> None:
        self._facts = facts
        self._figures: dict[str, tuple[Figure, str]] = {}

    def put(self, name: str, figure: Figure, unit: str = "") -> None:
        """Add a figure; the unit ``%`` shows a fraction in percent."""
        self._figures[name] = (figure, unit)

    def as_dict(self) -> dict[str, Any]:
        """Nest the figures by their names.

        Returns
        -------
        dict
            The facts; the values, None where there is none; by dotted name ``intervals``
            ([low, high]), ``spreads`` and ``refused`` (the reason).
        """
        tree: dict[str, Any] = dict(self._facts)
        for name, (figure, _) in self._figures.items():
            *parents, last = name.split(".")
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[last] = figure.value
        figures = {name: figure for name, (figure, _) in self._figures.items()}
        tree["intervals"] = {n: list(f.interval) for n, f in figures.items() if f.interval}
        tree["spreads"] = {n: f.spread for n, f in figures.items() if f.spread is not None}
        tree["refused"] = {n: f.refusal for n, f in figures.items() if f.refusal}
        return tree

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, value (or why there is none), interval and spread, for a table."""
        return [
            (
                name,
                figure.refusal if figure.value is None else _written(figure.value, unit),
                " to ".join(_written(end, unit) for end in figure.interval or ()),
                "" if figure.spread is None else f"{100 * figure.spread:.0f} %",
            )
            for name, (figure, unit) in self._figures.items()
        ]


def _written(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".strip()
