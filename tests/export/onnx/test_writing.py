"""Exported encoders and classifiers: the same numbers as torch, in one file."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from small_models import make_encoder, make_images

from psco.classifier import FewShotClassifier
from psco.classifier.images import embed_images
from psco.errors import InputError, PscoError
from psco.export.onnx.graph import ClassifierGraph
from psco.export.onnx.reading import OnnxClassifier, OnnxEncoder
from psco.export.onnx.views import fixed_views
from psco.export.onnx.writing import write_onnx
from psco.recipes.build import build_views
from psco.views import SameOnBatchGenerator, to_batch

COLOUR = "channels: 3, mean: [0.4, 0.5, 0.6], std: [0.2, 0.25, 0.3]"
NETWORKS = {
    "conv4": ["backbone={name: conv4, width: 16}"],
    "conv5": [f"image={{size: 40, source_size: 40, {COLOUR}}}", "backbone={name: conv5, width: 8}"],
    "resnet18": [f"image={{size: 24, source_size: 24, {COLOUR}}}", "backbone={name: resnet18}"],
    "efficientnet-lite0": [
        f"image={{size: 64, source_size: 72, test_crop: true, {COLOUR}}}",
        "backbone={name: efficientnet-lite0}",
    ],
}


def operators(path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("name", NETWORKS)
def test_embeddings_equal_those_of_torch_for_any_batch(name, tmp_path):
    encoder = make_encoder(*NETWORKS[name])
    write_onnx(encoder, tmp_path / "run.onnx")
    exported = OnnxEncoder(tmp_path / "run.onnx")
    for number in (1, 2, 256) if name == "conv4" else (1, 3):
        images = make_images(encoder, number)
        expected, found = encoder.embed(images), exported.embed(images)
        for part in ("features", "support", "query"):
            difference = (getattr(found, part) - getattr(expected, part)).abs().max()
            assert difference < 1e-4, (name, number, part)
    assert "BatchNormalization" not in operators(tmp_path / "run.onnx")
    assert exported.facts.backbone == name


def test_views_at_test_are_part_of_the_graph_and_the_encoder_is_left_alone(tmp_path):
    encoder = make_encoder("views.at_test=3")
    images = make_images(encoder, 7)
    images[3:] = 255 - images[3:]  # light ink on dark paper
    before, state = encoder.embed(images).query, torch.get_rng_state()
    write_onnx(encoder, tmp_path / "run.onnx")
    found = OnnxEncoder(tmp_path / "run.onnx").embed(images).query
    assert (found - before).abs().max() < 1e-4
    assert (found - make_encoder().embed(images).query).abs().max() > 1e-3
    assert torch.equal(encoder.embed(images).query, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "parts",
    [
        "{affine: {fill: edge}, stroke: {amount: [1.2, 1.8], ink: light}}",
        "{affine: {fill: auto}, elastic: {fill: auto}, flip: {probability: 0.5}}",
        "{crop: {scale: [0.3, 1.0]}, flip: {probability: 0.5, vertical: 0.5}}",
        "{stroke: {amount: [-0.9, 0.9], probability: 0.5}}",
        "{affine: {fill: [100]}, crop: {filter: bilinear}}",
    ],
)
@pytest.mark.parametrize("source", [16, 31])
def test_fixed_views_equal_those_of_the_recipe(parts, source):
    changes = [f"views.view_b={parts}", "views.at_test=4", f"image.source_size={source}"]
    encoder = make_encoder(*changes, "image.mean=[0]", "image.std=[1]")
    images = make_images(encoder, 5)
    images[1] = 255 - images[1]
    view, generator = build_views(encoder.recipe).view_b, SameOnBatchGenerator().manual_seed(0)
    for fixed in fixed_views(encoder.recipe):
        expected = view(to_batch(images), generator)
        assert (fixed(to_batch(images).float() / 255) - expected).abs().max() < 1e-5


def test_views_that_cannot_be_exported_name_the_part_and_the_remedy(tmp_path):
    encoder = make_encoder("views.at_test=1", "views.view_b={crop: {}, jitter: {}}")
    with pytest.raises(InputError, match=r"'jitter' cannot be exported; .*--views-at-test 0"):
        write_onnx(encoder, tmp_path / "run.onnx")
    assert not list(tmp_path.iterdir())


RULES = [
    ("prototype", {"reject_below": 0.4}),
    ("prototype", {"reject_below": "auto", "adapt_steps": 3}),
    ("ridge", {"reject_below": "auto"}),
    ("logistic", {}),
    ("class-mean", {}),
    ("euclidean", {"temperature": 2.0}),
    ("knn", {"reject_below": 0.9}),
]


@pytest.mark.parametrize(("rule", "options"), RULES)
def test_the_graph_answers_as_the_classifier_does(encoder, rule, options):
    supports, labels = make_images(encoder, 20), np.tile([3, 1, 2, 8, 5], 4)
    clf = FewShotClassifier(encoder, rule=rule, **options).fit(supports, labels)
    images = make_images(encoder, 30)
    graph = ClassifierGraph(encoder, clf.model)
    with torch.no_grad():
        scores, probabilities, similarity, unknown = graph(torch.from_numpy(images))
    embeddings = embed_images(encoder, images, "cpu")[0]
    expected = clf.model.predict(embeddings)
    assert np.abs(scores.numpy() - clf.model.scores(embeddings)).max() < 1e-4
    assert np.abs(probabilities.numpy() - expected.probabilities).max() < 1e-4
    assert np.abs(similarity.numpy() - clf.model.similarity(embeddings)).max() < 1e-4
    assert unknown.tolist() == expected.rejected.tolist()


@pytest.mark.parametrize(("rule", "options"), [RULES[1], RULES[6]])
def test_the_file_answers_as_the_classifier_does(encoder, rule, options, tmp_path):
    supports, labels = make_images(encoder, 20), np.tile([3, 1, 2, 8, 5], 4)
    clf = FewShotClassifier(encoder, rule=rule, **options).fit(supports, labels)
    facts = write_onnx(clf, tmp_path / "mine.onnx")
    exported, images = OnnxClassifier(tmp_path / "mine.onnx"), make_images(encoder, 30)
    expected = clf.model.predict(embed_images(encoder, images, "cpu")[0])
    found = exported.predict(images)
    assert np.abs(found.probabilities - expected.probabilities).max() < 1e-4
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.rejected.tolist() == expected.rejected.tolist()
    assert facts.classes == exported.classes == [1, 2, 3, 5, 8]
    assert facts.threshold == clf.threshold_


def test_a_rule_that_looks_at_other_queries_is_refused(encoder, tmp_path):
    clf = FewShotClassifier(encoder, rule="transductive")
    clf.fit(make_images(encoder, 4), ["a", "b", "a", "b"])
    with pytest.raises(InputError, match="rule 'transductive' cannot be exported; fit it with"):
        write_onnx(clf, tmp_path / "mine.onnx")


def test_a_classifier_of_features_is_refused(tmp_path):
    clf = FewShotClassifier().fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    with pytest.raises(InputError, match="fitted on features"):
        write_onnx(clf, tmp_path / "mine.onnx")


def test_the_file_names_nothing_of_the_machine_that_wrote_it(exported):
    content = exported.read_bytes()
    assert sys.prefix.encode() not in content
    assert b".py" not in content
    assert str(exported.parent).encode() not in content


def test_metadata_are_readable_with_onnxruntime_alone(exported, classifier):
    entries = onnxruntime.InferenceSession(exported).get_modelmeta().custom_metadata_map
    assert entries["classes"] == '["a", "b", "c"]'
    assert float(entries["temperature"]) == classifier.temperature_
    assert float(entries["threshold"]) == 0.4
    assert (entries["size"], entries["side"], entries["channels"]) == ("16", "24", "1")
    assert (entries["mean"], entries["std"]) == ("[0.5]", "[0.25]")


def test_eight_bit_weights_make_the_file_smaller_and_move_the_embeddings_little(tmp_path):
    encoder = make_encoder("heads={hidden: 512, out: 64}")
    facts = write_onnx(encoder, tmp_path / "run.onnx", int8=True)
    weights = sum(p.numel() for p in encoder.method.parameters())
    assert (tmp_path / "run.onnx").stat().st_size < 1.3 * weights
    images = make_images(encoder, 8)
    rounded = OnnxEncoder(tmp_path / "run.onnx").embed(images).query
    assert 0.999 < (rounded * encoder.embed(images).query).sum(1).min() < 0.9999999
    assert facts.weights == "int8"


TIMM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.patches = nn.Conv2d(channels, 12, 8, stride=8)
        self.norm, self.attention = nn.LayerNorm(12), nn.MultiheadAttention(12, 2, batch_first=True)

    def forward(self, x):
        x = self.norm(self.patches(x).flatten(2).transpose(1, 2))
        return nn.functional.gelu(self.attention(x, x, x)[0]).mean(1)

class Stateful(Net):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls

class Hopeless(Net):
    def forward(self, x):
        return super().forward(x) + torch.linalg.svdvals(x.mean(1))[:, :12]

def create_model(name, pretrained, num_classes, in_chans):
    return {"hopeless": Hopeless, "stateful": Stateful}.get(name, Net)(in_chans)
"""


@pytest.fixture
def timm(tmp_path, monkeypatch):
    """Put a small module with the face of timm where it would be imported from."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path / "stub")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield
    sys.modules.pop("timm", None)


def test_a_backbone_of_another_package_is_exported(timm, tmp_path):
    encoder = make_encoder("backbone={name: 'timm:vit'}")
    write_onnx(encoder, tmp_path / "run.onnx")
    images = make_images(encoder, 5)
    found = OnnxEncoder(tmp_path / "run.onnx").embed(images).query
    assert (found - encoder.embed(images).query).abs().max() < 1e-4


def test_a_backbone_without_a_form_in_onnx_is_an_error_of_one_line(timm, tmp_path):
    encoder = make_encoder("backbone={name: 'timm:hopeless'}")
    with pytest.raises(PscoError, match="backbone 'timm:hopeless' cannot be exported to ONNX: "):
        write_onnx(encoder, tmp_path / "run.onnx")
    assert not list(tmp_path.glob("*.onnx*"))


def test_a_graph_that_does_not_compute_what_torch_does_is_not_written(timm, tmp_path):
    encoder = make_encoder("backbone={name: 'timm:stateful'}")
    with pytest.raises(PscoError, match=r"graph differs from torch by .* in features"):
        write_onnx(encoder, tmp_path / "run.onnx")
    assert not list(tmp_path.glob("*.onnx*"))
