"""Pixel dropout: how many pixels it changes, into what, and which options it takes."""

from __future__ import annotations

import pytest
import torch

from psco.errors import InputError
from psco.views.dropout import Dropout


def drop(images: torch.Tensor, **options: object) -> torch.Tensor:
    return Dropout(**options)(images, 0, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("fraction", [0.0, 0.2, 1.0])
def test_the_fraction_of_pixels_takes_the_colour_of_the_fill(fraction):
    images = torch.full((8, 3, 32, 32), 0.25)
    changed = drop(images, fraction=fraction, fill="white") == 1
    assert changed.float().mean() == pytest.approx(fraction, abs=0.02)
    assert (changed.all(dim=1) == changed.any(dim=1)).all(), "channels change together"


def test_other_pixels_stay_and_images_differ_in_which():
    images = torch.rand(4, 1, 16, 16)
    dropped = drop(images, fill="black")
    kept = dropped != 0
    assert torch.equal(dropped[kept], images[kept])
    assert not torch.equal(kept[0], kept[1])


def test_the_paper_of_a_drawing_stays_paper():
    images = torch.ones(4, 1, 16, 16)
    images[:, :, 4:12, 4:12] = 0
    dropped = drop(images)
    assert (dropped >= images).all()
    assert 0.3 < dropped[:, :, 4:12, 4:12].mean() < 0.7


@pytest.mark.parametrize("options", [{"fraction": 1.5}, {"fill": "noise"}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InputError, match="dropout: "):
        Dropout(**options)
