"""The page's forward pass, preprocessing and calibration in node, against torch and Pillow."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from node import needs_node, run_node
from PIL import Image
from scipy.stats import t

import psco
from psco.classifier.calibration import Calibration
from psco.classifier.fitting import fit_model
from psco.classifier.model import Supports
from psco.classifier.storage import classifier_bytes
from psco.data.reading.decode import decode_image
from psco.data.sets.glyphs import load_glyphs
from psco.data.tasks import sample_tasks
from psco.evaluation.embed import Encoder
from psco.evaluation.evaluate import evaluate_tasks
from psco.evaluation.rules import Embeddings
from psco.export.page import ASSETS, page_content
from psco.ops.resample import resize
from psco.recipes.recipe import load_recipe

pytestmark = needs_node

EMBED = """
const { model } = openModel(fromBase64(given.file), given.facts);
return given.pictures.map((picture) => {
  const { features, support, query } = embed(model, fromBase64(picture));
  return [features, support, query].map((vector) => Array.from(vector));
});
"""


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def embedded(folder, encoder, images):
    """Embed images (n, s, s, C) of the source size as the page does."""
    saved, facts = page_content(encoder)
    file = text(classifier_bytes(saved, half=True))
    pictures = [text(image.tobytes()) for image in images]
    rows = run_node(folder, EMBED, {"file": file, "facts": facts, "pictures": pictures})
    return Embeddings(*(torch.tensor([row[part] for row in rows]) for part in range(3)))


def largest_difference(found, expected):
    parts = zip(vars(found).values(), vars(expected).values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in parts)


@pytest.fixture(scope="module")
def drawings():
    """Ten drawings of each of 20 characters, as the encoder handwriting takes them."""
    glyphs = load_glyphs("test")
    chosen = np.concatenate([np.flatnonzero(glyphs.labels == label)[:10] for label in range(20)])
    small = torch.from_numpy(glyphs.images[chosen]).permute(0, 3, 1, 2)
    large = (255 * resize(small, 53)).round().to(torch.uint8).permute(0, 2, 3, 1)
    labels = glyphs.labels[chosen]
    return replace(glyphs, images=large.contiguous().numpy(), labels=labels)


@pytest.fixture(scope="module")
def by_page(tmp_path_factory, drawings):
    folder = tmp_path_factory.mktemp("page")
    return embedded(folder, psco.load("handwriting"), drawings.images)


def test_embeddings_of_200_pictures_are_those_of_torch(by_page, drawings):
    expected = psco.load("handwriting").embed(drawings.images)
    assert len(expected) == 200
    assert largest_difference(by_page, expected) < 1e-5  # both have the weights of the package


def test_accuracy_in_20_way_1_shot_tasks_is_that_of_evaluate(by_page, drawings):
    class Page:
        heads = None

        def embed(self, images):
            return by_page

    tasks = sample_tasks(drawings.labels, ways=20, shots=1, queries=5, tasks=100, seed=0)
    encoder = psco.load("handwriting")
    page, own = (
        evaluate_tasks(each, drawings, [tasks], "prototype")[0] for each in (Page(), encoder)
    )
    assert abs(page.mean - own.mean) < 0.1
    assert own.mean > 70


@pytest.mark.parametrize(
    "overrides",
    [
        ["backbone={name: conv5, width: 8}", "image.size=33", "image.source_size=40"],
        [
            "backbone={name: conv4, width: 6}",
            "image.size=20",
            "image.source_size=31",
            "image.test_crop=true",
        ],
        ["backbone={name: conv4, width: 8}", "method.name=protonets"],
        ["backbone={name: conv4, width: 8}", "heads.predictor=false", "image.source_size=90"],
    ],
    ids=["conv5", "cropped", "without heads", "without predictor"],
)
def test_any_conv_net_runs(tmp_path, overrides):
    base = load_recipe(
        "own-drawings",
        [
            "heads={hidden: 32, out: 16}",
            "image={size: 28, channels: 3, mean: [0.5, 0.4, 0.6], std: [0.2, 0.3, 0.25]}",
            "views.at_test=2",
        ],
    )
    encoder = Encoder.untrained(load_recipe(base, overrides))
    image = encoder.recipe.image
    random = np.random.default_rng(0)
    for module in encoder.method.modules():  # statistics as after training
        if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2)
    shape = (4, image.source_size, image.source_size, 3)
    pictures = random.integers(0, 256, shape, dtype=np.uint8)
    found = embedded(tmp_path, encoder, pictures)
    assert largest_difference(found, encoder.embed(pictures)) < 5e-3  # weights in 16 bits


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(105, 105), (53, 53), (300, 141), (40, 97), (17, 17)])
def test_pictures_are_cropped_and_resized_to_the_bytes_of_pillow(tmp_path, mode, size):
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (12, 12, 4), dtype=np.uint8)
    noise[..., 3] = random.choice([0, 90, 255], (12, 12))
    picture = Image.fromarray(noise).convert(mode).resize(size, Image.Resampling.BILINEAR)
    file = io.BytesIO()
    picture.save(file, "PNG")
    given = {"width": size[0], "height": size[1], "data": text(picture.convert("RGBA").tobytes())}
    for channels in (1, 3):
        body = f"""
        given.data = fromBase64(given.data);
        return Array.from(fitSquare(given, 53, {channels}));
        """
        found = np.array(run_node(tmp_path, body, given)).reshape(53, 53, channels)
        expected = decode_image(file.getvalue(), 53, channels, name="x").astype(int)
        # Pillow 13 resizes the columns of some tall pictures first, and rounds in between.
        allowed = 0 if size[0] >= size[1] else 6 if mode == "RGBA" else 1
        assert np.abs(found - expected).max() <= allowed


def test_temperature_and_threshold_are_those_of_python(tmp_path):
    random = np.random.default_rng(0)
    similarity = tuple(tuple(np.linspace(low, 0.9, 39).tolist()) for low in (0.3, 0.2, 0.1))
    calibration = Calibration((2, 5, 20), (0.05, 0.06, 0.08), similarity)
    cases, expected = [], []
    for counts in ([1], [1, 1], [2, 1, 1], [3, 4], [5, 5, 5], [9, 9, 9, 1]):
        for known in (calibration, None):
            labels = np.repeat(np.arange(len(counts)), counts)
            centres = random.normal(size=(len(counts), 16))
            z, q = (
                torch.nn.functional.normalize(
                    torch.tensor(centres[labels] + 0.7 * random.normal(size=(len(labels), 16))),
                    dim=1,
                )
                for _ in range(2)
            )
            rejects = "auto" if known or max(counts) > 1 else None
            model = fit_model(
                Supports(Embeddings(z, z, q), labels),
                calibration=known,
                random=np.random.RandomState(0),
                reject_below=rejects,
            )
            expected.append((model.temperature, model.threshold))
            pairs = list(zip(labels.tolist(), z.tolist(), q.tolist(), strict=True))
            classes = [
                [{"support": s, "query": r} for label, s, r in pairs if label == each]
                for each in range(len(counts))
            ]
            cases.append({"classes": classes, "calibration": known and known.as_dict()})
    body = "return given.map(({ classes, calibration }) => calibrated(classes, calibration));"
    for found, (temperature, threshold) in zip(
        run_node(tmp_path, body, cases), expected, strict=True
    ):
        assert found["temperature"] == pytest.approx(temperature, rel=1e-6)
        assert found["threshold"] == (threshold and pytest.approx(threshold, rel=1e-5))


def test_the_table_of_students_quantiles_is_right():
    source = re.search(r"STUDENT = \[(.*?)\]", (ASSETS / "confidence.js").read_text(), re.DOTALL)
    values = [float(word) for word in source[1].replace("\n", " ").split(",") if word.strip()]
    assert values == pytest.approx([t.ppf(0.95, n) for n in range(1, len(values) + 1)], rel=1e-6)
    assert len(values) >= 18  # up to 19 examples that can be left out


def test_sha256_and_16_bit_numbers_are_right(tmp_path):
    random = np.random.default_rng(0)
    contents = [random.bytes(length) for length in (0, 1, 55, 56, 63, 64, 65, 1000)]
    body = "return given.map((each) => sha256(fromBase64(each)));"
    found = run_node(tmp_path, body, [text(content) for content in contents])
    assert found == [hashlib.sha256(content).hexdigest() for content in contents]
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16)
    numbers = run_node(
        tmp_path,
        'return Array.from(toFloats({ dtype: "F16", data: fromBase64(given) }));',
        text(np.concatenate([halves, -halves]).tobytes()),
    )
    assert np.array_equal(np.array(numbers), np.concatenate([halves, -halves]).astype(float))
