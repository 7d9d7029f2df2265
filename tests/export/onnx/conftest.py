"""A classifier, and the file it is exported to."""

from __future__ import annotations

import pytest
from small_models import make_encoder, make_images

from psco.classifier import FewShotClassifier
from psco.evaluation.embed import Encoder
from psco.export.onnx.writing import write_onnx


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    return make_encoder()


@pytest.fixture(scope="session")
def classifier(encoder) -> FewShotClassifier:
    clf = FewShotClassifier(encoder, reject_below=0.4)
    return clf.fit(make_images(encoder, 6), ["a", "b", "c", "a", "b", "c"])


@pytest.fixture(scope="session")
def exported(classifier, tmp_path_factory):
    """The classifier as a file."""
    path = tmp_path_factory.mktemp("exported") / "mine.onnx"
    write_onnx(classifier, path)
    return path
