"""Weights in 8 bits: a quarter of the size, the same operations.

Each weight becomes a whole number from -127 to 127 times one float32 scale per output channel. Two
nodes restore it, a cast and a product, which runtimes evaluate once, when they load the file. So a
picture takes as long as with float32 weights, and activations are not rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from psco.errors import import_optional

_SMALLEST = 1024  # numbers; rounding smaller tensors saves nothing
_LEVELS = 127


def quantize_weights(model: Any) -> None:
    """Replace the large weights of a ModelProto by 8-bit ones, in place."""
    onnx = import_optional("onnx", "onnx")
    graph = model.graph
    axes = _output_axes(graph)
    restore, kept = [], []
    for tensor in graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if tensor.name not in axes or values.dtype != np.float32 or values.size < _SMALLEST:
            kept.append(tensor)
            continue
        levels, scale = quantize(values, axes[tensor.name])
        names = [f"{tensor.name}.{part}" for part in ("int8", "scale", "levels")]
        kept.append(onnx.numpy_helper.from_array(levels, names[0]))
        kept.append(onnx.numpy_helper.from_array(scale, names[1]))
        to_float = onnx.TensorProto.FLOAT
        restore.append(onnx.helper.make_node("Cast", [names[0]], [names[2]], to=to_float))
        restore.append(onnx.helper.make_node("Mul", [names[2], names[1]], [tensor.name]))
    nodes = [*restore, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)


def quantize(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return levels int8 of the shape of ``values``, and scales that broadcast against them.

    Parameters
    ----------
    values
        float32.
    axis
        The axis of the output channels, each of which has its own scale.
    """
    others = tuple(i for i in range(values.ndim) if i != axis)
    largest = np.abs(values).max(axis=others, keepdims=True)
    scale = np.maximum(largest / _LEVELS, np.finfo(np.float32).tiny).astype(np.float32)
    levels = np.rint(values / scale).clip(-_LEVELS, _LEVELS).astype(np.int8)
    return levels, scale


def _output_axes(graph: Any) -> dict[str, int]:
    """Return the names of the weights, and which axis of each is that of the output channels."""
    axes = {}
    for node in graph.node:
        if node.op_type == "Conv":
            axes[node.input[1]] = 0
        elif node.op_type == "MatMul":
            axes[node.input[1]] = 1
        elif node.op_type == "Gemm":
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            axes[node.input[1]] = 0 if transposed else 1
    return axes
