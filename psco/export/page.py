"""One HTML file that classifies pictures and learns from them, without a server or a network.

The page is assembled from ``assets``: a frame, a style sheet and scripts, one concern a file. It
holds its model as a ``.psco`` file with weights in 16 bits, and writes such files itself.
"""

from __future__ import annotations

import base64
import json
import sys
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from psco.classifier import FewShotClassifier
from psco.classifier.bulk import encoder_of
from psco.classifier.calibration import open_encoder
from psco.classifier.images import THUMBNAIL
from psco.classifier.model import Model, Supports
from psco.classifier.storage import Saved, classifier_bytes
from psco.errors import InputError, counted
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings
from psco.evaluation.rules.prototype import Prototype
from psco.export.page_views import page_views
from psco.files.atomic import atomic_path
from psco.methods.psco import PsCo
from psco.networks import ConvNet

ASSETS = Path(__file__).parent / "assets"
# In the order in which they use one another; the first six need no browser.
SCRIPTS = (
    *("bytes.js", "pixels.js", "views.js", "network.js", "confidence.js", "classes.js"),
    *("storage.js", "drawing.js", "pictures.js", "show.js", "app.js"),
)
# Of the classifiers that the page writes; the threshold is a similarity.
_PARAMETERS = {
    "rule": "prototype",
    "adapt_steps": 0,
    "reject_below": "auto",
    "random_state": None,
    "rule_options": None,
}


class PageFacts(NamedTuple):
    """What a page was made from.

    Parameters
    ----------
    backbone, size, channels
        The network and its pictures.
    classes, examples
        Numbers of classes and examples that the page starts with.
    """

    backbone: str
    size: int
    channels: int
    classes: int
    examples: int

    def summary(self) -> str:
        """Return the facts in a few words."""
        known = f"{counted(self.classes, 'class')}, {counted(self.examples, 'example')}"
        return f"{self.backbone} at {self.size} px, {known}"


def write_page(source: Encoder | FewShotClassifier, path: Path, title: str = "") -> PageFacts:
    """Write a page for an encoder or a classifier, whole or not at all.

    Parameters
    ----------
    source
        The page starts with the supports of a classifier, or without any class.
    path
        The file.
    title
        Title of the page; by default the name of the encoder.

    Raises
    ------
    InputError
        If the page cannot run the backbone or the views, or the classifier has no encoder.
    """
    html, facts = page_html(source, title)
    with atomic_path(path) as aside:
        aside.write_text(html, encoding="utf-8")
    return facts


def page_html(source: Encoder | FewShotClassifier, title: str = "") -> tuple[str, PageFacts]:
    """Return the page and what it was made from; see `write_page`."""
    saved, facts = page_content(source)
    supports = saved.model.supports
    parts = {
        "title": escape(title or _encoder(source).name),
        "style": (ASSETS / "page.css").read_text(encoding="utf-8"),
        "facts": json.dumps(facts).replace("<", "\\u003c"),
        "model": base64.b64encode(classifier_bytes(saved, half=True)).decode(),
        "script": page_script(),
    }
    html = (ASSETS / "page.html").read_text(encoding="utf-8")
    for place, content in parts.items():
        html = html.replace(f"{{{{{place}}}}}", content)
    recipe, classes = _encoder(source).recipe, len(np.unique(supports.labels))
    image = recipe.image
    return html, PageFacts(
        recipe.backbone.name, image.size, image.channels, classes, len(supports.labels)
    )


def page_script(names: tuple[str, ...] = SCRIPTS) -> str:
    """Return the scripts of the page as one."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def page_content(source: Encoder | FewShotClassifier) -> tuple[Saved, dict[str, Any]]:
    """Return what a page holds: a classifier to store, and facts that its file does not have."""
    encoder = _encoder(source)
    facts = {"shape": _shape(encoder), "views": page_views(encoder.recipe)}
    if isinstance(source, Encoder):
        supports, names = _no_supports(encoder), []
        _, calibration = open_encoder(encoder)
        temperature: float | str = "auto"
    else:
        supports, names = source.model.supports, list(source.support_names_)
        supports = Supports(supports.embeddings, supports.labels.astype(str), supports.thumbnails)
        calibration, temperature = source.calibration, source.temperature
        if source.rule_ != "prototype":
            print(
                f"note: the page classifies by prototypes, and this classifier has the rule "
                f"{source.rule_!r}",
                file=sys.stderr,
            )
    parameters = {**_PARAMETERS, "temperature": temperature}
    return Saved(parameters, encoder, calibration, Model(supports, Prototype()), names), facts


def _encoder(source: Encoder | FewShotClassifier) -> Encoder:
    return source if isinstance(source, Encoder) else encoder_of(source)


def _no_supports(encoder: Encoder) -> Supports:
    image, method = encoder.recipe.image, encoder.method
    blank = torch.zeros(1, image.channels, image.size, image.size)
    with torch.no_grad():
        features = method.backbone(blank)
        support, query = method.support_head(features), method.query_head(features)
    thumbnails = np.zeros((0, THUMBNAIL, THUMBNAIL, image.channels), dtype=np.uint8)
    empty = Embeddings(features[:0], support[:0], query[:0])
    return Supports(empty, np.array([], dtype="<U1"), thumbnails)


def _shape(encoder: Encoder) -> dict[str, Any]:
    """Return the shape of the network for ``assets/network.js``; InputError for all others."""
    method, name = encoder.method, encoder.recipe.backbone.name
    if not isinstance(method.backbone, ConvNet):
        raise InputError(
            f"a page runs the backbones conv4 and conv5, not {name!r}; psco export SOURCE "
            f"model.onnx writes any backbone"
        )
    if not method.has_features:
        raise InputError(
            f"a network of {encoder.recipe.method.name!r} has no features before it adapts to a "
            f"task, so a page cannot run it"
        )
    layers: Any = list(method.backbone)
    has_heads = isinstance(method, PsCo)
    return {
        "depth": len(layers) // 4,
        "ceil_pooling": layers[3].ceil_mode,
        "has_heads": has_heads,
        "has_predictor": has_heads and method.has_predictor,
    }
