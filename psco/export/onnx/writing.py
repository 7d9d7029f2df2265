"""Writing an encoder or a classifier as one ONNX file."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from psco.classifier import FewShotClassifier
from psco.classifier.bulk import encoder_of
from psco.classifier.model import Model
from psco.errors import InputError, PscoError, first_line, import_optional
from psco.evaluation.embed import Encoder
from psco.export.onnx.graph import ANSWERS, EMBEDDINGS, ClassifierGraph, EncoderGraph
from psco.export.onnx.metadata import CHECKSUM, INPUT, Metadata
from psco.export.onnx.quantize import quantize_weights
from psco.export.onnx.session import start_session
from psco.files.atomic import atomic_path
from psco.files.checksums import PLACEHOLDER, write_checksum
from psco.recipes.recipe import load_recipe
from psco.version import __version__

_TOLERANCE = 1e-3
OPSET = 20  # the first with GridSample for any number of axes
RULES = ("prototype", "adapt", "class-mean", "euclidean", "knn", "ridge", "logistic")


def write_onnx(
    source: Encoder | FewShotClassifier,
    path: str | os.PathLike[str],
    *,
    int8: bool = False,
    views_at_test: int | None = None,
) -> Metadata:
    """Write an encoder or a classifier as one ONNX file, from decoded pixels to the answer.

    The input ``images`` is (n, side, side, channels) uint8, for any n. The outputs of an encoder
    are features, support and query; those of a classifier scores, probabilities, similarity and
    unknown.

    Parameters
    ----------
    source
        A network, or a classifier that was fitted with one.
    path
        The file.
    int8
        Store the weights in 8 bits.
    views_at_test
        Replaces the number in the recipe, see `Encoder.embed_batch`. A classifier was calibrated
        with the recipe's number.

    Returns
    -------
    Metadata
        As written into the file.

    Raises
    ------
    InputError
        If the rule of the classifier or a view at test cannot be exported, or onnx is missing.
    PscoError
        If the backbone cannot be exported, or its graph does not compute what torch does.
    """
    import_optional("onnxscript", "onnx")
    model = source.model if isinstance(source, FewShotClassifier) else None
    encoder = encoder_of(source) if isinstance(source, FewShotClassifier) else source
    if views_at_test is not None:
        recipe = load_recipe(encoder.recipe, [f"views.at_test={views_at_test}"])
        encoder = Encoder(encoder.method, recipe, encoder.folder, encoder.steps, encoder.built_in)
    if not encoder.method.has_features:
        raise InputError(
            f"a network of {encoder.recipe.method.name!r} has no features before it adapts to a "
            f"task, so it cannot be exported"
        )
    if model is None:
        facts = _describe(encoder, None, int8)
        proto = _trace(EncoderGraph(encoder), EMBEDDINGS, facts)
    else:
        _check_rule(model)
        facts = _describe(encoder, model, int8)
        proto = _trace(ClassifierGraph(encoder, model), ANSWERS, facts)
    if int8:
        quantize_weights(proto)
    _write(proto, facts, Path(path))
    return facts


def _check_rule(model: Model) -> None:
    if model.rule_name not in RULES:
        raise InputError(
            f"a classifier with the rule {model.rule_name!r} cannot be exported; fit it with "
            f"{', '.join(RULES[:-1])} or {RULES[-1]}"
        )


def _describe(encoder: Encoder, model: Model | None, int8: bool) -> Metadata:
    image = encoder.recipe.image
    rejects_by: Literal["similarity", "probability"] | None = None
    if model is not None and model.threshold is not None:
        rejects_by = "similarity" if model.rejects_by_similarity else "probability"
    return Metadata(
        kind="encoder" if model is None else "classifier",
        psco_version=__version__,
        backbone=encoder.recipe.backbone.name,
        weights="int8" if int8 else "float32",
        side=image.source_size,
        size=image.size,
        channels=image.channels,
        mean=image.mean,
        std=image.std,
        test_crop=image.test_crop,
        views_at_test=encoder.recipe.views.at_test,
        rule=None if model is None else model.rule_name,
        classes=[] if model is None else model.classes.tolist(),
        temperature=None if model is None else float(model.temperature),
        threshold=None if model is None or model.threshold is None else float(model.threshold),
        rejects_by=rejects_by,
    )


def _trace(graph: nn.Module, outputs: tuple[str, ...], facts: Metadata) -> Any:
    """Return the graph as a ModelProto, for any number of pictures."""
    example = torch.zeros(2, facts.side, facts.side, facts.channels, dtype=torch.uint8)
    try:
        # With gradients enabled, networks take the path without threads. What the exporter prints
        # and logs is about torch, not about the model.
        with torch.enable_grad(), _quiet():
            program = torch.onnx.export(
                graph.eval().requires_grad_(False),
                (example,),
                dynamo=True,
                input_names=[INPUT],
                output_names=outputs,
                dynamic_shapes={INPUT: {0: torch.export.Dim("n")}},
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # a backbone of another package may contain anything
        reason = first_line(error.__cause__ or error)  # torch wraps it in advice on several lines
        raise PscoError(
            f"the backbone {facts.backbone!r} cannot be exported to ONNX: {reason}"
        ) from None
    assert program is not None
    proto = program.model_proto
    _strip(proto)
    _verify(proto, graph, outputs, facts)
    return proto


@torch.no_grad()
def _verify(proto: Any, graph: nn.Module, outputs: tuple[str, ...], facts: Metadata) -> None:
    """Compare the graph with torch on a few random pictures; not as many as it was traced with."""
    session = start_session(proto.SerializeToString())
    random = np.random.default_rng(0)
    for number in (1, 3):
        shape = (number, facts.side, facts.side, facts.channels)
        images = random.integers(0, 256, shape, dtype=np.uint8)
        expected = [values.numpy() for values in graph(torch.from_numpy(images))]
        found = session.run(list(outputs), {INPUT: images})
        for name, mine, theirs in zip(outputs, found, expected, strict=True):
            if theirs.dtype == np.bool_:  # at the threshold, the last digit decides
                continue
            scale = max(1.0, float(np.abs(theirs).max()))
            difference = float(np.abs(mine - theirs).max()) / scale
            if not difference < _TOLERANCE:
                raise PscoError(
                    f"the backbone {facts.backbone!r} cannot be exported to ONNX: the exported "
                    f"graph differs from torch by {difference:.1g} in {name}"
                )


def _strip(proto: Any) -> None:
    """Remove what the exporter adds about the source code, such as paths of this machine."""
    graph = proto.graph
    places = [proto, graph, *graph.node, *graph.initializer, *graph.value_info]
    for place in (*places, *graph.input, *graph.output):
        del place.metadata_props[:]
        place.ClearField("doc_string")
    del graph.value_info[:]


def _write(proto: Any, facts: Metadata, path: Path) -> None:
    proto.producer_name, proto.producer_version = "psco", __version__
    proto.graph.name = facts.kind
    checksum = json.dumps({"sha256": PLACEHOLDER})
    for name, value in {**facts.entries(), CHECKSUM: checksum}.items():
        proto.metadata_props.add(key=name, value=value)
    with atomic_path(path) as aside:
        aside.write_bytes(proto.SerializeToString(deterministic=True))
        write_checksum(aside)


@contextlib.contextmanager
def _quiet() -> Any:
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
