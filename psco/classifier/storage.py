"""One file that holds a whole classifier, and that tells when it is not what was written.

The file is in the safetensors format: tensors, and a header in JSON; reading it runs no code.

``network.*``    weights of f, g and h
``adapted.*``    g and h as trained on the supports, if they were
``shots.*``      the supports: features, support and query representations, small pictures

The header's metadata say ``kind``, ``version``, ``about`` (everything else, as JSON) and
``sha256``: the hash of the whole file with zeros in the place of these 64 digits. It is computed
so in every version.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from psco.classifier.calibration import Calibration
from psco.classifier.supports import Shots
from psco.errors import InputError, PscoError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings, Heads
from psco.files.atomic import atomic_path
from psco.recipes.build import build_method
from psco.recipes.recipe import check_recipe
from psco.training.checkpoint import load_model_weights, load_weights, model_weights
from psco.version import __version__

KIND = "psco-classifier"
VERSION = 1
# Inside of a text in JSON the quotes would be escaped, so this is found in no other place.
_HASH = '"sha256":"{}"'
_BLANK = _HASH.format("0" * 64).encode()
_LABELS = (str, bool, int, float)


@dataclass(frozen=True)
class Stored:
    """A classifier as the file holds it.

    Parameters
    ----------
    parameters
        Of the estimator's constructor, but for the encoder and the device.
    encoder
        The network; None for bare features.
    shots, names
        The supports, as the network made them, and what they are called.
    adapted
        Heads that were trained on the supports, if any.
    temperature, threshold
        In use.
    calibration
        Of the run that the network comes from, if there was one.
    """

    parameters: dict[str, Any]
    encoder: Encoder | None
    shots: Shots
    names: list[str]
    adapted: Heads | None
    temperature: float
    threshold: float | None
    calibration: Calibration | None


def write_classifier(path: Path, stored: Stored) -> None:
    """Write a classifier, whole or not at all.

    Raises
    ------
    InputError
        If a label is neither text, whole number, fraction nor truth value.
    """
    labels, encoder = stored.shots.labels, stored.encoder
    about = {
        "psco": __version__,
        "parameters": stored.parameters,
        "recipe": None if encoder is None else encoder.recipe.model_dump(mode="json"),
        "labels": _plain_labels(labels),
        "label_type": labels.dtype.str,
        "names": stored.names,
        "temperature": stored.temperature,
        "threshold": stored.threshold,
        "calibration": None if stored.calibration is None else stored.calibration.as_dict(),
    }
    metadata = {
        "kind": KIND,
        "version": str(VERSION),
        "about": json.dumps(about),
        "sha256": "0" * 64,
    }
    content = serialise(_tensors(stored), metadata)
    digits = hashlib.sha256(content).hexdigest()
    with atomic_path(path) as aside:
        aside.write_bytes(content.replace(_BLANK, _HASH.format(digits).encode()))


def read_classifier(path: Path) -> Stored:
    """Read a classifier.

    Raises
    ------
    InputError
        If there is no such file, or it is no classifier.
    PscoError
        If it was cut or changed since it was written, or another version wrote it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the classifier {str(path)!r}: {error.strerror}; psco fit makes one"
        ) from None
    metadata = _metadata(content, path)
    digits = metadata.get("sha256", "")
    known = re.fullmatch("[0-9a-f]{64}", digits) is not None
    blank = content.replace(_HASH.format(digits).encode(), _BLANK) if known else b""
    if hashlib.sha256(blank).hexdigest() != digits:
        raise _changed(path, "its sha256 differs")
    if metadata.get("version") != str(VERSION):
        raise PscoError(
            f"the classifier {str(path)!r} has format {metadata.get('version')} and this psco "
            f"reads {VERSION}; install the psco that wrote it, or fit it again"
        )
    about = json.loads(metadata["about"])
    tensors = parse(content)
    encoder = _encoder(about, tensors, path)
    labels = np.array(about["labels"], dtype=np.dtype(about["label_type"]))
    pictures = tensors.get("shots.pictures")
    features = tensors["shots.features"]
    support, query = (tensors.get(f"shots.{part}", features) for part in ("support", "query"))
    return Stored(
        about["parameters"],
        encoder,
        Shots(
            Embeddings(features, support, query),
            labels,
            None if pictures is None else pictures.numpy(),
            bare=encoder is None,
        ),
        about["names"],
        _adapted(encoder, tensors, path),
        about["temperature"],
        about["threshold"],
        about["calibration"] and Calibration.from_dict(about["calibration"], str(path)),
    )


def _metadata(content: bytes, path: Path) -> dict[str, str]:
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        metadata: dict[str, str] = json.loads(content[8:end])["__metadata__"]
        if metadata["kind"] == KIND:
            return metadata
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if KIND.encode() in content:
        raise _changed(path, "its header cannot be read")
    raise InputError(
        f"{str(path)!r} is no classifier, or the beginning of one that was changed; psco fit makes "
        f"one"
    )


def _changed(path: Path, how: str) -> PscoError:
    return PscoError(
        f"the classifier {str(path)!r} was cut or changed since it was written: {how}; copy or fit "
        f"it again"
    )


def _plain_labels(labels: np.ndarray) -> list[Any]:
    plain: list[Any] = labels.tolist()
    for label in plain:
        if not isinstance(label, _LABELS) or labels.dtype.kind not in "UbiufO":
            raise InputError(
                f"a file keeps labels that are text, numbers or truth values, not {label!r} of "
                f"type {type(label).__name__}"
            )
    return plain


def _tensors(stored: Stored) -> dict[str, Tensor]:
    points = stored.shots.points
    tensors = {"shots.features": points.features}
    if stored.shots.pictures is not None:
        tensors["shots.pictures"] = torch.from_numpy(stored.shots.pictures)
    if stored.encoder is not None:
        tensors |= {"shots.support": points.support, "shots.query": points.query}
        tensors |= {f"network.{n}": v for n, v in model_weights(stored.encoder.method).items()}
    if stored.adapted is not None:
        tensors |= {f"adapted.{n}": v for n, v in _both(stored.adapted).state_dict().items()}
    # Copies, as no two tensors of a file may share memory.
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _both(heads: Heads) -> nn.ModuleDict:
    return nn.ModuleDict({"projector": heads.projector, "predictor": heads.predictor})


def _encoder(about: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Encoder | None:
    if about["recipe"] is None:
        return None
    recipe = check_recipe(about["recipe"], str(path))
    with torch.random.fork_rng():  # fresh weights, which are about to be replaced, use it
        method = build_method(recipe)
    load_model_weights(method, _below("network.", tensors), path)
    return Encoder(method, recipe)


def _adapted(encoder: Encoder | None, tensors: dict[str, Tensor], path: Path) -> Heads | None:
    weights = _below("adapted.", tensors)
    if not weights or encoder is None or encoder.heads is None:
        return None
    g, h = (copy.deepcopy(head) for head in (encoder.heads.projector, encoder.heads.predictor))
    heads = Heads(g, h, encoder.heads.temperature)
    load_weights(_both(heads), weights, path)
    return heads


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
