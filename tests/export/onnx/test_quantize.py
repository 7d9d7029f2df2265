"""Weights in 8 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from psco.export.onnx.quantize import quantize


@pytest.mark.parametrize("axis", [0, 1])
@given(values=arrays(np.float32, (3, 5), elements=st.floats(-1e3, 1e3, width=32)))
def test_restored_weights_differ_by_at_most_half_a_level(axis, values):
    levels, scale = quantize(values, axis)
    assert levels.dtype == np.int8
    assert scale.shape == ((3, 1) if axis == 0 else (1, 5))
    assert (np.abs(levels * scale - values) <= 0.5001 * scale).all()


def test_each_output_channel_has_its_own_scale():
    values = np.array([[1e-3, -2e-3], [100.0, 50.0]], dtype=np.float32)
    levels, scale = quantize(values, 0)
    assert np.allclose(levels * scale, values, rtol=1e-2)
    assert np.abs(levels).max(axis=1).tolist() == [127, 127]
