"""Which model to take for a folder of pictures."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from psco.networks.published import PUBLISHED
from psco.recipes.model_advice import advise_model


@pytest.fixture
def drawings(tmp_path):
    folder = tmp_path / "my drawings"
    folder.mkdir()
    for number in range(8):
        image = Image.new("L", (60, 60), 255)
        ImageDraw.Draw(image).line((5, 5 * number, 50, 40), fill=0, width=3)
        image.save(folder / f"{number}.png")
    return folder


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    for seed in range(8):
        small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((80, 60)).save(folder / f"{seed}.png")
    return folder


def test_drawings_get_the_encoder_of_handwriting_and_the_way_to_train(drawings):
    advice = advise_model(drawings)
    assert "drawings on plain paper" in advice
    assert f"psco label handwriting '{drawings}'" in advice
    assert f"psco pretrain '{drawings}' --out 'runs/my drawings'" in advice
    assert "recipe own-drawings" in advice


@pytest.mark.skipif(not PUBLISHED["imagenet"].is_installed, reason="needs the extra photos")
def test_photographs_get_the_network_of_imagenet(photographs):
    assert f"psco label imagenet {photographs}" in advise_model(photographs)


def test_without_its_weights_the_advice_says_how_to_install_them(photographs, monkeypatch):
    monkeypatch.setattr(
        "psco.networks.published.PublishedWeights.is_installed", property(lambda _: False)
    )
    advice = advise_model(photographs)
    assert PUBLISHED["imagenet"].missing in advice
    assert "psco label imagenet" not in advice


def test_the_command_gives_the_advice_if_there_is_no_model(psco, drawings):
    done = psco("label", drawings)
    assert (done.returncode, "psco label handwriting" in done.stdout) == (0, True)
    wrong = psco("label", drawings / "0.png")
    assert (wrong.returncode, "not a folder" in wrong.stderr) == (2, True)
