"""One file that holds a whole classifier, with a checksum over all of it.

The file is in the safetensors format: tensors and a JSON header; reading it runs no code.

``network.*``    weights of f, g and h
``adapted.*``    g and h as trained on the supports, if they were
``shots.*``      the supports: features, support and query representations, thumbnails

The metadata in the header are ``kind``, ``version``, ``about`` (everything else, as JSON) and
``sha256``, the hash of the whole file with zeros in place of these 64 digits. All versions compute
it so. ``psco.files.checksums`` looks for digits near the ends of a file only, and here a long list
of labels may precede them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from psco.classifier.calibration import Calibration
from psco.classifier.fitting import AUTO, resolve_rule
from psco.classifier.header import About, check_tensors, read_about
from psco.classifier.model import Model, Supports, build_model
from psco.errors import InputError, PscoError, first_line, quoted
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings, Heads
from psco.files.atomic import atomic_path
from psco.files.tensors import sort_metadata
from psco.recipes.build import build_method
from psco.recipes.recipe import check_recipe
from psco.training.checkpoint import (
    half_precision,
    load_model_weights,
    load_weights,
    model_weights,
)
from psco.version import __version__

KIND = "psco-classifier"
VERSION = 1
# Quotes inside a JSON string are escaped, so this occurs nowhere else in the file.
_HASH = '"sha256":"{}"'
_BLANK = _HASH.format("0" * 64).encode()
_LABEL_TYPES = (str, bool, int, float)


class Saved(NamedTuple):
    """The content of the file.

    Parameters
    ----------
    parameters
        Of the estimator's constructor, except for encoder and device.
    encoder
        The network; None for features.
    calibration
        Of the encoder's run, if it has one.
    model
        The fitted model.
    names
        (S,) names of the supports.
    """

    parameters: dict[str, Any]
    encoder: Encoder | None
    calibration: Calibration | None
    model: Model
    names: list[str]


def write_classifier(path: Path, saved: Saved) -> None:
    """Write a classifier, whole or not at all; for errors see `classifier_bytes`."""
    content = classifier_bytes(saved)
    with atomic_path(path) as aside:
        aside.write_bytes(content)


def classifier_bytes(saved: Saved, half: bool = False) -> bytes:
    """Return the content of the file; ``half`` stores the network as `half_precision` does.

    Raises
    ------
    InputError
        If a label is neither text, a number nor a boolean.
    """
    labels, encoder = saved.model.supports.labels, saved.encoder
    about = {
        "psco": __version__,
        "parameters": saved.parameters,
        "recipe": None if encoder is None else encoder.recipe.model_dump(mode="json"),
        "labels": _plain_labels(labels),
        "label_type": labels.dtype.str,
        "names": saved.names,
        "temperature": saved.model.temperature,
        "threshold": saved.model.threshold,
        "calibration": None if saved.calibration is None else saved.calibration.as_dict(),
    }
    metadata = {
        "kind": KIND,
        "version": str(VERSION),
        "about": json.dumps(about),
        "sha256": "0" * 64,
    }
    content = sort_metadata(serialise(_tensors(saved, half), metadata))
    digits = hashlib.sha256(content).hexdigest()
    return content.replace(_BLANK, _HASH.format(digits).encode())


def read_classifier(path: Path) -> Saved:
    """Read a classifier.

    Raises
    ------
    InputError
        If there is no such file, or it is not a classifier.
    PscoError
        If it was cut or changed since it was written, or was written by another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the classifier {quoted(path)}: {error.strerror}; psco fit writes one"
        ) from None
    metadata = _metadata(content, path)
    _verify(content, metadata.get("sha256", ""), path)
    if metadata.get("version") != str(VERSION):
        raise PscoError(
            f"the classifier {quoted(path)} has format {metadata.get('version')} and this psco "
            f"reads {VERSION}; install the psco that wrote it, or fit it again"
        )
    try:
        about = read_about(metadata.get("about", ""))
        tensors = parse(content)
        check_tensors(about, tensors)
        labels = about.label_array()
        stored = about.calibration
        calibration = None if stored is None else Calibration.from_dict(stored, str(path))
        encoder = _encoder(about, tensors, path)
        model = _model(about, labels, tensors, encoder, path)
    except SafetensorError as error:
        raise _damaged(path, first_line(error)) from None
    except InputError as error:
        raise InputError(f"{quoted(path)} is not a classifier: {error}") from None
    return Saved(about.parameters.model_dump(), encoder, calibration, model, about.names)


def _metadata(content: bytes, path: Path) -> dict[str, str]:
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        metadata: dict[str, str] = json.loads(content[8:end])["__metadata__"]
        if metadata["kind"] == KIND and all(isinstance(v, str) for v in metadata.values()):
            return metadata
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if KIND.encode() in content:
        raise _damaged(path, "its header cannot be read")
    raise InputError(
        f"{quoted(path)} is not a classifier, or its first bytes were changed; psco fit writes one"
    )


def _verify(content: bytes, digits: str, path: Path) -> None:
    is_hash = re.fullmatch("[0-9a-f]{64}", digits) is not None
    blank = content.replace(_HASH.format(digits).encode(), _BLANK) if is_hash else b""
    if hashlib.sha256(blank).hexdigest() != digits:
        raise _damaged(path, "its sha256 differs")


def _damaged(path: Path, how: str) -> PscoError:
    return PscoError(
        f"the classifier {quoted(path)} was cut or changed since it was written: {how}; copy it "
        f"or fit it again"
    )


def _plain_labels(labels: np.ndarray) -> list[Any]:
    plain: list[Any] = labels.tolist()
    for label in plain:
        if not isinstance(label, _LABEL_TYPES) or labels.dtype.kind not in "UbiufO":
            raise InputError(
                f"labels must be text, numbers or booleans to be saved, not {quoted(label)} of "
                f"type {type(label).__name__}"
            )
    return plain


def _tensors(saved: Saved, half: bool) -> dict[str, Tensor]:
    supports, adapted = saved.model.supports, saved.model.adapted
    embeddings = supports.embeddings
    tensors = {"shots.features": embeddings.features}
    if supports.thumbnails is not None:
        tensors["shots.pictures"] = torch.from_numpy(supports.thumbnails)
    if saved.encoder is not None:
        tensors |= {"shots.support": embeddings.support, "shots.query": embeddings.query}
        weights = model_weights(saved.encoder.method)
        weights = half_precision(weights) if half else weights
        tensors |= {f"network.{n}": v for n, v in weights.items()}
    if adapted is not None:
        tensors |= {f"adapted.{n}": v for n, v in _modules(adapted).state_dict().items()}
    # Copies, since no two tensors of a file may share memory.
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _model(
    about: About,
    labels: np.ndarray,
    tensors: dict[str, Tensor],
    encoder: Encoder | None,
    path: Path,
) -> Model:
    thumbnails = tensors.get("shots.pictures")
    features = tensors["shots.features"]
    support, query = (tensors.get(f"shots.{part}", features) for part in ("support", "query"))
    supports = Supports(
        Embeddings(features, support, query),
        labels,
        None if thumbnails is None else thumbnails.numpy(),
        from_encoder=encoder is not None,
    )
    heads = None if encoder is None else encoder.heads
    chosen = about.parameters
    name, options = resolve_rule(chosen.rule, chosen.rule_options, chosen.adapt_steps, heads)
    model = build_model(supports, name, options, heads)
    model.adapted = _adapted(heads, tensors, path)
    model.temperature = about.temperature
    model.threshold = about.threshold
    model.rejects_by_similarity = chosen.reject_below == AUTO
    return model


def _encoder(about: About, tensors: dict[str, Tensor], path: Path) -> Encoder | None:
    if about.recipe is None:
        return None
    recipe = check_recipe(about.recipe, str(path))
    with torch.random.fork_rng():  # building the network draws weights, which are then replaced
        method = build_method(recipe)
    load_model_weights(method, _below("network.", tensors), path)
    return Encoder(method, recipe)


def _adapted(heads: Heads | None, tensors: dict[str, Tensor], path: Path) -> Heads | None:
    weights = _below("adapted.", tensors)
    if not weights or heads is None:
        return None
    g, h = (copy.deepcopy(head) for head in (heads.projector, heads.predictor))
    adapted = Heads(g, h, heads.temperature)
    load_weights(_modules(adapted), weights, path)
    return adapted


def _modules(heads: Heads) -> nn.ModuleDict:
    return nn.ModuleDict({"projector": heads.projector, "predictor": heads.predictor})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
