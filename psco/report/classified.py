"""The page of classified pictures: the most doubtful first, with filters by class and doubt."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import quote

from psco.classifier import FewShotClassifier
from psco.classifier.bulk import encoder_of
from psco.classifier.model import UNKNOWN
from psco.classifier.results import Row
from psco.data.reading.decode import decode_image
from psco.data.reading.listing import Listing
from psco.data.reading.pool import each_file
from psco.errors import InputError, counted
from psco.report.filters import SCRIPT, filter_panel
from psco.report.gallery import picture
from psco.report.page import Part, number_table, page

_PICTURED = 600  # files shown with a picture
_LISTED = 20_000  # files on the page
_FAILURES = 500  # files listed with their errors
_SIDE = 96  # pixels
_KINDS = ("differs", "unknown", "plain", "agrees")  # in the order of the page


class _Card(NamedTuple):
    place: int  # of the file in the listing
    row: Row
    truth: str | None  # the class that the folder or the listing names, if the classifier has it

    @property
    def kind(self) -> str:
        """Whether the label differs from or agrees with the folder, is unknown, or unverified."""
        if self.row.label == UNKNOWN and self.row.probability is None:
            return "unknown"
        if self.truth is None:
            return "plain"
        return "agrees" if self.truth == str(self.row.label) else "differs"

    @property
    def probability(self) -> float:
        """Of the label; of the likeliest class if the label is unknown."""
        row = self.row
        chance = row.runner_up_probability if self.kind == "unknown" else row.probability
        return chance or 0.0

    @property
    def order(self) -> tuple[int, float, int]:
        """Doubtful cards come first; of the labels that differ, the most probable."""
        first = {"differs": 0, "unknown": 1}.get(self.kind, 2)
        chance = -self.probability if self.kind == "differs" else self.probability
        return first, chance, self.place


class ContactSheet:
    """Collects rows as they pass and writes the page; memory is limited for any number of rows.

    Parameters
    ----------
    classifier
        The classifier of the rows.
    listing
        The files, one for each row in the same order. The true class of a file is the one in the
        listing, or else the name of its folder, if the classifier has such a class.
    """

    def __init__(self, classifier: FewShotClassifier, listing: Listing) -> None:
        self._classifier, self._listing = classifier, listing
        self._classes = set(map(str, classifier.classes_.tolist()))
        self._labels: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._cards: list[_Card] = []
        self._failures: list[Row] = []
        self._failed = 0

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Pass rows on."""
        for place, row in enumerate(rows):
            if row.error:
                self._failed += 1
                self._failures = [*self._failures, row][:_FAILURES]
            else:
                self._add(_Card(place, row, self._truth(place, row)))
            yield row

    def page(self, name: str, folder: Path | None = None) -> str:
        """Return the page about all rows that have passed.

        Parameters
        ----------
        name
            Name of the classifier.
        folder
            Where the page will be saved, for links to the files; None for a page without links.
        """
        cards = sorted(self._cards, key=lambda card: card.order)[:_LISTED]
        pictured, others = cards[:_PICTURED], cards[_PICTURED:]
        body = (
            f'<div class="browse"><div><div class="sheet">{self._sheet(pictured, folder)}</div>'
            f"{self._list(others, folder)}</div>{filter_panel(self._labels, self._kinds)}</div>"
        )
        parts = [Part("Pictures", self._summary(len(cards)), body), *self._failed_part()]
        lead = (
            f"{counted(self._labels.total() + self._failed, 'picture')}, classified by {name}. "
            "Below each picture: its label, the probability of the label, and the second choice. "
            "In the corner: the most similar support."
        )
        foot = "Written by psco classify."
        return page("Classified pictures", lead, parts, foot, script=SCRIPT, broad=True)

    def _add(self, card: _Card) -> None:
        self._labels[str(card.row.label)] += 1
        self._kinds[card.kind] += 1
        self._cards.append(card)
        if len(self._cards) >= 2 * _LISTED:
            self._cards = sorted(self._cards, key=lambda card: card.order)[:_LISTED]

    def _truth(self, place: int, row: Row) -> str | None:
        labels = self._listing.labels
        if labels is None:
            name = PurePath(row.path).parent.name
        else:
            name = self._listing.classes[labels[place]]
        return name if name in self._classes else None

    def _summary(self, shown: int) -> str:
        text = "The most doubtful first."
        if verified := self._kinds["agrees"] + self._kinds["differs"]:
            text += (
                f" The folders name the class of {counted(verified, 'picture')}; "
                f"{self._kinds['agrees']} labels agree ({self._kinds['agrees'] / verified:.1%})."
            )
        if missing := self._labels.total() - shown:
            text += f" {missing} of the most certain pictures are not on this page; see --csv."
        return text

    def _sheet(self, cards: list[_Card], folder: Path | None) -> str:
        image = encoder_of(self._classifier).recipe.image
        side = min(_SIDE, image.source_size)
        pictures = each_file(
            self._listing.source,
            [self._listing.files[card.place] for card in cards],
            lambda content, name: decode_image(content, side, image.channels, name=name),
            title="",
            progress=False,
        )
        return "".join(
            self._figure(card, "" if isinstance(pixels, InputError) else picture(pixels), folder)
            for card, pixels in zip(cards, pictures, strict=True)
        )

    def _figure(self, card: _Card, image: str, folder: Path | None) -> str:
        row, chance = card.row, card.probability
        if card.kind == "unknown":
            percent, second = "", f"{row.runner_up}? {chance:.0%}"
        else:
            percent, second = f" {chance:.0%}", ""
            if row.runner_up is not None:
                second = f"or {row.runner_up} {row.runner_up_probability or 0.0:.0%}"
        truth = f"folder: {card.truth}" if card.truth not in (None, str(row.label)) else ""
        name = _linked(PurePath(row.path).name, row.path, folder)
        return (
            f'<figure class="card {card.kind}" {_data(card)} title="{escape(row.path)}">'
            f'<div class="shot">{image}<span class="near">{self._support(row)}</span></div>'
            f"<b>{escape(str(row.label))}</b>{percent}"
            f'<div class="bar"><i style="width:{chance:.0%}"></i></div>'
            f'<small>{escape(second)}</small><small class="truth">{escape(truth)}</small>'
            f"<small>{name}</small></figure>"
        )

    def _list(self, cards: list[_Card], folder: Path | None) -> str:
        if not cards:
            return ""
        rows = "".join(
            f"<tr {_data(card)}><td>{_linked(card.row.path, card.row.path, folder)}</td>"
            f"<td>{escape(str(card.row.label))}</td><td>{card.probability:.0%}</td></tr>"
            for card in cards
        )
        return (
            f"<details><summary>{len(cards)} more files, without pictures</summary>"
            f'<table class="numbers texts"><thead><tr><th>file</th><th>label</th>'
            f"<th>probability</th></tr></thead><tbody>{rows}</tbody></table></details>"
        )

    def _support(self, row: Row) -> str:
        images, names = self._classifier.support_images_, self._classifier.support_names_
        if images is None or row.nearest_support is None:
            return ""
        return picture(images[names.index(row.nearest_support)])

    def _failed_part(self) -> list[Part]:
        if not self._failed:
            return []
        rows = [[row.path, row.error] for row in self._failures]
        text = f"{counted(self._failed, 'file')} could not be decoded."
        if self._failed > len(rows):
            text += f" The first {len(rows)} are listed."
        return [Part("Without a result", text, number_table(["file", "error"], rows, texts=True))]


def _data(card: _Card) -> str:
    label = escape(str(card.row.label))
    return f'data-label="{label}" data-kind="{card.kind}" data-chance="{card.probability:.4f}"'


def _linked(text: str, path: str, folder: Path | None) -> str:
    """Return a link to a file from a page in ``folder``; plain text if there is no such file."""
    if folder is None or not Path(path).is_file():
        return escape(text)
    relative = Path(os.path.relpath(path, folder)).as_posix()
    return f'<a href="{escape(quote(relative, errors="surrogateescape"))}">{escape(text)}</a>'
