"""The filters of the page of classified pictures: by class and by doubt, with counts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_DOUBTS = {
    "all": "all pictures",
    "0.9": "less than 90 % probable",
    "0.6": "less than 60 % probable",
    "unknown": "unknown",
    "differs": "differs from its folder",
}

# Shows the cards and rows that pass both filters; without a script the page shows all.
SCRIPT = """
const items = document.querySelectorAll('[data-label]');
const chosen = name => document.querySelector(`input[name=${name}]:checked`).value;
function passes(item, doubt) {
  if (doubt === 'all') return true;
  if (doubt === 'unknown' || doubt === 'differs') return item.dataset.kind === doubt;
  return item.dataset.kind === 'unknown' || Number(item.dataset.chance) < Number(doubt);
}
function filter() {
  const label = chosen('label'), doubt = chosen('doubt');
  let number = 0;
  for (const item of items) {
    item.hidden = !((label === '' || item.dataset.label === label) && passes(item, doubt));
    number += !item.hidden;
  }
  document.getElementById('number').textContent = `${number} of ${items.length} shown`;
}
const panel = document.querySelector('aside details');
if (matchMedia('(max-width: 40rem)').matches) panel.open = false;  // pictures come first on a phone
document.querySelectorAll('aside input').forEach(input => input.addEventListener('change', filter));
"""


def filter_panel(labels: Mapping[str, int], kinds: Mapping[str, int]) -> str:
    """Return the filters as HTML.

    Parameters
    ----------
    labels
        Number of pictures of each label.
    kinds
        Number of pictures whose label is ``unknown`` or ``differs`` from the folder, among others.
    """
    total = sum(labels.values())
    doubts = "".join(
        _choice("doubt", value, text, kinds.get(value), checked=value == "all")
        for value, text in _DOUBTS.items()
        if value not in ("unknown", "differs") or kinds.get(value)
    )
    common = sorted(labels.items(), key=lambda item: (-item[1], item[0]))
    classes = _choice("label", "", "all classes", total, checked=True) + "".join(
        _choice("label", label, label, number) for label, number in common
    )
    return (
        '<aside><details open><summary>Filter</summary><p id="number"></p>'
        f'<h3>Doubt</h3><div class="choices">{doubts}</div>'
        f'<h3>Class</h3><div class="choices">{classes}</div>'
        f'<ul class="legend"><li><i style="border-color:var(--line)"></i>not verified</li>'
        f'<li><i style="border-color:var(--green)"></i>agrees with its folder</li>'
        f'<li><i style="border-color:var(--red)"></i>differs from its folder</li>'
        f'<li><i style="border-color:var(--orange);border-style:dashed"></i>unknown</li></ul>'
        f"</details></aside>"
    )


def _choice(name: str, value: str, text: str, number: int | None, checked: bool = False) -> str:
    mark = " checked" if checked else ""
    count = "" if number is None else f"<b>{number}</b>"
    return (
        f'<label><input type="radio" name="{name}" value="{escape(value)}"{mark}>'
        f"<span>{escape(text)}</span>{count}</label>"
    )
