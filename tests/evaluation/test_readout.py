"""The rule readout, and the features of two blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from rule_tasks import draw, equal_shots, score

import psco
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.evaluate import evaluate
from psco.evaluation.rules import RULES, Heads
from psco.evaluation.rules.readout import ReadOut
from psco.networks import conv5
from psco.views import plain_view, to_batch


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    changes = ["backbone={name: conv4, width: 8}", "heads={hidden: 16, out: 8}"]
    return Encoder.untrained(psco.load_recipe("glyphs", changes))


@pytest.mark.parametrize("regression", ["logistic", "ridge"])
@pytest.mark.parametrize(("shots", "regresses"), [(1, False), (4, False), (5, True), (7, True)])
def test_prototypes_answer_below_five_shots_and_a_regression_from_there_on(
    regression, shots, regresses
):
    torch.manual_seed(0)
    heads = Heads(psco.projector(6, hidden=8, out=4).eval(), psco.predictor(4, hidden=8).eval())
    task = draw(equal_shots(3, 4, shots), equal_shots(3, 4, 2), 4, heads)
    rule = RULES[regression if regresses else "prototype"]()
    assert torch.equal(score(ReadOut(regression), *task), score(rule, *task))


def test_the_features_are_those_of_the_last_block_and_the_one_before(encoder, few_glyphs):
    images = few_glyphs.images[:7]
    both = encoder.embed(images, previous=True)
    image = encoder.recipe.image
    x = plain_view(to_batch(images), image.size, image.mean, image.std)
    outputs = []
    with torch.no_grad():
        for layer in encoder.method.backbone:
            x = layer(x)
            outputs.append(x)
    last, previous = outputs[-1], outputs[-6].flatten(1)
    expected = torch.cat([F.normalize(last, dim=1), F.normalize(previous, dim=1)], dim=1)
    torch.testing.assert_close(both.features, expected)
    alone = encoder.embed(images)
    assert torch.equal(alone.support, both.support)
    assert torch.equal(alone.query, both.query)


def test_block_four_of_conv5_has_the_1600_features_of_conv4_at_84_px():
    network = conv5(3, 84).eval()
    previous, last = network.last_two(torch.randn(2, 3, 84, 84))
    assert previous.shape == (2, 1600)
    assert last.shape == (2, 256)


def test_more_features_are_evaluated_like_any_rule(encoder, few_glyphs):
    options = {"ways": 5, "shots": 5, "queries": 5, "tasks": 20, "rule": "readout"}
    two = evaluate(encoder, few_glyphs, **options)
    one = evaluate(encoder, few_glyphs, **options, options={"features": "last"})
    assert two.options == {"regression": "logistic", "features": "last+previous", "from_shots": 5}
    assert not two.transductive
    assert two.per_task != one.per_task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regression": "lasso"}, "regression must be logistic or ridge, got 'lasso'"),
        ({"features": "first"}, r"features must be last or last\+previous, got 'first'"),
        ({"from_shots": 0}, "from_shots must be at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ReadOut(**options)


def test_networks_without_blocks_and_classifiers_say_what_to_use(encoder, few_glyphs, raw_pixels):
    for model in (raw_pixels, Embeds(encoder)):
        with pytest.raises(InputError, match="use features=last"):
            evaluate(model, few_glyphs, tasks=2, rule="readout")
    fit = psco.FewShotClassifier(encoder, rule="readout").fit
    with pytest.raises(InputError, match="works with psco evaluate only"):
        fit(few_glyphs.images[:40], few_glyphs.labels[:40])


class Embeds:
    """A model that is no Encoder."""

    heads = None

    def __init__(self, encoder: Encoder) -> None:
        self.embed = encoder.embed
