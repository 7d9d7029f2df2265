"""Running ONNX files that psco wrote. A file is data: it is checked before anything runs it.

A graph can ask a runtime for more than arithmetic: tensors in other files, operators of other
libraries, loops. A file of psco needs none of these, so a file that has them is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from psco.classifier.model import Prediction
from psco.data.imageset import ImageArray
from psco.errors import InputError, PscoError, first_line, import_optional, quoted
from psco.evaluation.rules import Embeddings
from psco.export.onnx.graph import ANSWERS, EMBEDDINGS
from psco.export.onnx.metadata import INPUT, Metadata, read_metadata
from psco.export.onnx.session import start_session
from psco.files.checksums import damaged, verify_checksum
from psco.recipes.recipe import ImageSettings

_ADVICE = "export it again"
_MOST_BYTES = 2**31 - 1  # what the format allows for one file
_DOMAINS = ("", "ai.onnx")
_ARTICLES = {"encoder": "an encoder", "classifier": "a classifier"}


class OnnxModel:
    """An ONNX file, ready to run on the CPU.

    Parameters
    ----------
    path
        A file that `write_onnx` wrote.
    threads
        0 for one per core.

    Raises
    ------
    InputError
        If there is no such file, psco did not write it, or onnxruntime is not installed.
    PscoError
        If it is damaged, or contains what psco does not write.
    """

    kind: str
    outputs: tuple[str, ...]

    def __init__(self, path: str | os.PathLike[str], threads: int = 0) -> None:
        content, self.facts = _read(Path(path), self.kind, self.outputs)
        try:
            self._session = start_session(content, threads)
        except InputError:  # onnxruntime is missing
            raise
        except Exception as error:  # onnxruntime has a class of its own for every reason
            raise damaged(Path(path), first_line(error), _ADVICE) from None
        self._path = Path(path)

    @property
    def image(self) -> ImageSettings:
        """The settings that pictures are decoded with."""
        return self.facts.image()

    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Return the outputs for images (n, side, side, channels) uint8.

        Raises
        ------
        InputError
            If the images have another shape.
        PscoError
            If the graph fails, or does not return one finite row for each image.
        """
        side, channels = self.facts.side, self.facts.channels
        if images.dtype != np.uint8 or images.shape[1:] != (side, side, channels):
            raise InputError(
                f"images must be uint8 of shape (n, {side}, {side}, {channels}), not "
                f"{images.dtype} of shape {images.shape}"
            )
        try:
            results = self._session.run(list(self.outputs), {INPUT: np.ascontiguousarray(images)})
        except Exception as error:
            raise damaged(self._path, first_line(error), _ADVICE) from None
        for name, values in zip(self.outputs, results, strict=True):
            if len(values) != len(images) or not np.isfinite(values).all():
                raise damaged(self._path, f"{name} is not finite, or not one per image", _ADVICE)
        return dict(zip(self.outputs, results, strict=True))


class OnnxEncoder(OnnxModel):
    """An exported encoder; `psco.evaluate` takes it in place of a run."""

    kind = "encoder"
    outputs = EMBEDDINGS
    heads = None

    def embed(self, images: ImageArray) -> Embeddings:
        """Return the embeddings (n,) of images (n, side, side, channels) uint8."""
        parts = [self.run(images[i : i + 256]) for i in range(0, len(images), 256)]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in self.outputs}
        return Embeddings(*(torch.from_numpy(whole[name]) for name in self.outputs))


class OnnxClassifier(OnnxModel):
    """An exported classifier."""

    kind = "classifier"
    outputs = ANSWERS

    @property
    def classes(self) -> list[Any]:
        """The N labels, in the order of the probabilities."""
        return list(self.facts.classes)

    def predict(self, images: np.ndarray) -> Prediction:
        """Classify images (n, side, side, channels) uint8."""
        answers = self.run(images)
        chances, rejected = answers["probabilities"].astype(np.float64), answers["unknown"]
        if chances.shape != (len(images), len(self.classes)) or rejected.shape != (len(images),):
            raise damaged(self._path, "its graph does not fit its classes", _ADVICE)
        best = answers["scores"].argmax(axis=1)
        labels = np.array([*self.classes, self.facts.unknown], dtype=object)
        return Prediction(labels[np.where(rejected, -1, best)], chances, rejected.astype(bool))


def _read(path: Path, kind: str, outputs: tuple[str, ...]) -> tuple[bytes, Metadata]:
    """Return the content of a file after all checks, and its metadata."""
    onnx = import_optional("onnx", "onnx")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{quoted(path)} is larger than {_MOST_BYTES / 1e9:.1f} GB")
        content = path.read_bytes()
        proto = onnx.load_model_from_string(content)
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot read the model {quoted(path)}: {error.strerror}; psco export writes one"
        ) from None
    except Exception:  # protobuf has several implementations, each with its own errors
        raise InputError(f"{quoted(path)} is not an ONNX file, or it is cut short") from None
    facts = read_metadata({e.key: e.value for e in proto.metadata_props}, str(path))
    if not verify_checksum(path, _ADVICE):
        raise damaged(path, "its sha256 is missing", _ADVICE)
    if facts.kind != kind:
        raise InputError(f"{quoted(path)} holds {_ARTICLES[facts.kind]}, not {_ARTICLES[kind]}")
    if problem := _problem(proto, facts, outputs):
        raise PscoError(f"{path} is refused: {problem}; {_ADVICE}")
    return content, facts


def _problem(proto: Any, facts: Metadata, outputs: tuple[str, ...]) -> str | None:
    """Return what a graph contains that psco does not write, or None."""
    graph = proto.graph
    if proto.functions or proto.training_info or graph.sparse_initializer:
        return "it has functions, training steps or sparse tensors"
    for node in graph.node:
        if node.domain not in _DOMAINS:
            return f"it uses operators of {quoted(node.domain)}"
        if any(a.HasField("g") or a.graphs or a.HasField("sparse_tensor") for a in node.attribute):
            return f"the operator {quoted(node.op_type)} contains a graph"
    if any(tensor.data_location != 0 or tensor.external_data for tensor in _tensors(graph)):
        return "it keeps tensors in other files"
    given = [(i.name, i.type.tensor_type.elem_type, _shape(i)[1:]) for i in graph.input]
    if given != [(INPUT, 2, [facts.side, facts.side, facts.channels])]:  # 2 is uint8
        return f"its inputs {quoted(given)} do not fit its metadata"
    if tuple(o.name for o in graph.output) != outputs:
        return f"its outputs are not {', '.join(outputs)}"
    return None


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def _shape(value: Any) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]
