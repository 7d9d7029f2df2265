"""The page of classified pictures: a contact sheet of what is worth a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import PurePath
from typing import NamedTuple

from psco.classifier import FewShotClassifier
from psco.classifier.bulk import encoder_of
from psco.classifier.model import UNKNOWN
from psco.classifier.results import Row
from psco.data.reading.decode import decode_image
from psco.data.reading.listing import Listing
from psco.data.reading.pool import each_file
from psco.errors import InputError
from psco.report.gallery import picture
from psco.report.page import Part, number_table, page

_SHOWN = 150  # pictures of a kind
_LABELS_LISTED = 30
_SIDE = 96  # pixels


class _Card(NamedTuple):
    place: int  # of the file in the listing
    row: Row
    truth: str | None  # the class that is told by the folder, if any


class ContactSheet:
    """Looks at rows as they pass and keeps the most doubtful: a few hundred, however many pass.

    Parameters
    ----------
    classifier
        That the rows come from.
    listing
        The files, as many as there will be rows and in the same order. The true class of a file is
        the one in the listing, else the name of its folder, where this is a class of the
        classifier.
    """

    def __init__(self, classifier: FewShotClassifier, listing: Listing) -> None:
        self._classifier, self._listing = classifier, listing
        self._classes = set(map(str, classifier.classes_.tolist()))
        self._labels: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()  # of all cards of a kind
        self._cards: dict[str, list[_Card]] = {}  # of those that are kept
        self._told = self._right = 0

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Pass rows on."""
        for place, row in enumerate(rows):
            self._add(_Card(place, row, self._truth(place, row)))
            yield row

    def page(self, name: str) -> str:
        """Write the page on all rows that have passed; ``name`` is that of the classifier."""
        parts = [
            Part("Labels", self._summary(), self._table()),
            *self._sheet("wrong", "Wrong", "The folder tells another class. Surest first."),
            *self._sheet("unknown", "Unknown", "Like no class enough. Least likely first."),
            *self._sheet("plain", "Classified", "Least sure first."),
            *self._failures(),
        ]
        lead = (
            f"{self._numbers.total()} pictures, classified by {name}. Below each are its label, "
            "how probable that is and what else it could be; in its corner is the support most "
            "like it."
        )
        return page("Classified pictures", lead, parts, "Made by psco classify.")

    def _add(self, card: _Card) -> None:
        row, kind = card.row, _kind(card)
        self._numbers[kind] += 1
        if not row.error:
            self._labels[str(row.label)] += 1
            self._told += card.truth is not None
            self._right += str(row.label) == card.truth
        cards = self._cards.setdefault(kind, [])
        cards.append(card)
        if len(cards) >= 2 * _SHOWN:
            self._cards[kind] = _first(cards)

    def _truth(self, place: int, row: Row) -> str | None:
        labels = self._listing.labels
        if labels is None:
            name = PurePath(row.path).parent.name
        else:
            name = self._listing.classes[labels[place]]
        return name if name in self._classes else None

    def _summary(self) -> str:
        if not self._told:
            return "Counts."
        share = self._right / self._told
        return (
            f"Counts. Folders tell the class of {self._told} pictures; {self._right} of them "
            f"({share:.1%}) are classified so."
        )

    def _table(self) -> str:
        common = self._labels.most_common(_LABELS_LISTED)
        rows = [[label, str(number)] for label, number in common]
        if others := self._labels.total() - sum(number for _, number in common):
            rows.append([f"{len(self._labels) - len(common)} others", str(others)])
        return number_table(["label", "pictures"], rows)

    def _sheet(self, kind: str, heading: str, text: str) -> list[Part]:
        cards = _first(self._cards.get(kind, []))
        if not cards:
            return []
        image = encoder_of(self._classifier).recipe.image
        side = min(_SIDE, image.source_size)
        pictures = each_file(
            self._listing.source,
            [self._listing.files[card.place] for card in cards],
            lambda content, name: decode_image(content, side, image.channels, name=name),
            title="",
            progress=False,
        )
        body = "".join(
            self._card(card, kind, "" if isinstance(pixels, InputError) else picture(pixels))
            for card, pixels in zip(cards, pictures, strict=True)
        )
        about = f"{text} {self._extent(kind, cards)}"
        return [Part(heading, about, f'<div class="sheet">{body}</div>')]

    def _card(self, card: _Card, kind: str, image: str) -> str:
        row = card.row
        chance = row.runner_up_probability if kind == "unknown" else row.probability
        chance = chance or 0.0
        if kind == "unknown":
            second = f"{row.runner_up}? {chance:.0%}"
        elif row.runner_up is None:
            second = ""
        else:
            second = f"or {row.runner_up} {row.runner_up_probability:.0%}"
        truth = "" if card.truth in (None, str(row.label)) else f"is {card.truth}"
        share = "" if kind == "unknown" else f" {chance:.0%}"
        return (
            f'<figure class="{kind}" title="{escape(row.path)}">'
            f'<div class="shot">{image}<span class="near">{self._support(row)}</span></div>'
            f"<b>{escape(str(row.label))}</b>{share}"
            f'<div class="bar"><i style="width:{chance:.0%}"></i></div>'
            f'<small>{escape(second)}</small><small class="truth">{escape(truth)}</small>'
            f'<small class="file">{escape(PurePath(row.path).name)}</small></figure>'
        )

    def _support(self, row: Row) -> str:
        images, names = self._classifier.support_images_, self._classifier.support_names_
        if images is None or row.nearest_support is None:
            return ""
        return picture(images[names.index(row.nearest_support)])

    def _failures(self) -> list[Part]:
        cards = _first(self._cards.get("failed", []))
        if not cards:
            return []
        rows = [[card.row.path, card.row.error] for card in cards]
        about = f"These could not be decoded. {self._extent('failed', cards)}"
        return [Part("Without a result", about, number_table(["file", "error"], rows))]

    def _extent(self, kind: str, cards: list[_Card]) -> str:
        number = self._numbers[kind]
        if len(cards) == number:
            return f"All {number} are shown."
        return f"{len(cards)} of {number} are shown, {number - len(cards)} are not."


def _kind(card: _Card) -> str:
    row = card.row
    if row.error:
        return "failed"
    if row.label == UNKNOWN and row.probability is None:
        return "unknown"
    return "plain" if card.truth in (None, str(row.label)) else "wrong"


def _first(cards: list[_Card]) -> list[_Card]:
    """Return the cards of one kind that come first on the page."""

    def order(card: _Card) -> tuple[float, int]:
        row = card.row
        chance = row.runner_up_probability if row.probability is None else row.probability
        sign = -1 if _kind(card) == "wrong" else 1
        return sign * (chance or 0.0), card.place

    return sorted(cards, key=order)[:_SHOWN]
