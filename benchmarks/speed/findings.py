"""What a benchmark has found, as nested JSON and as the rows of a table."""

from __future__ import annotations

from typing import Any

from benchmarks.speed.stats import Figure


class Findings:
    """Figures by dotted name, such as ``step.images_per_s``, with units for people.

    Parameters
    ----------
    facts
        What was measured how: repeats, environment, ... Goes into the JSON as it is.
    """

    def __init__(self, **facts: Any) -> None:
        self._facts = facts
        self._figures: dict[str, tuple[Figure, str]] = {}

    def put(self, name: str, figure: Figure, unit: str = "") -> None:
        """Add a figure; the unit ``%`` shows a share of 1 in percent."""
        self._figures[name] = (figure, unit)

    def as_dict(self) -> dict[str, Any]:
        """Nest the figures by their names.

        Returns
        -------
        dict
            The facts; the values, None where one is refused; ``spreads`` and ``refused`` (with
            the reason) by dotted name.
        """
        tree: dict[str, Any] = dict(self._facts)
        for name, (figure, _) in self._figures.items():
            *parents, last = name.split(".")
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[last] = figure.value
        figures = {name: figure for name, (figure, _) in self._figures.items()}
        tree["spreads"] = {n: f.spread for n, f in figures.items() if f.spread is not None}
        tree["refused"] = {n: f.refusal for n, f in figures.items() if f.refusal}
        return tree

    def rows(self) -> list[tuple[str, str, str]]:
        """Give name, value with unit (or why there is none) and spread, for a table."""
        return [
            (
                name,
                figure.refusal if figure.value is None else _written(figure.value, unit),
                "" if figure.spread is None or figure.refusal else f"{100 * figure.spread:.0f} %",
            )
            for name, (figure, unit) in self._figures.items()
        ]


def _written(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".strip()
