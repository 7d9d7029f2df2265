"""What is fuzzed: a new format is one entry in `TARGETS`.

A target has a good file and a reader. The file is damaged at random, and where it contains a
checksum, the checksum is made right again in half of the cases: then the reader itself is tested.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from psco.classifier.calibration import read_calibration
from psco.classifier.estimator import FewShotClassifier
from psco.data.reading.decode import decode_image
from psco.data.reading.folders import list_images
from psco.data.reading.source import ZipSource
from psco.data.reading.tarindex import index_shard
from psco.evaluation.embed import load
from psco.evaluation.tables.reader import read_table
from psco.files.checksums import read_json
from psco.files.lock import holder_of
from psco.labelling.journal import Journal, read_entries
from psco.networks.weights import load_backbone
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import load_resume, read_environment
from psco.training.logging import read_metrics

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN = FIXTURES / "run-format-1"


@dataclass(frozen=True)
class Target:
    """A file that psco reads.

    Parameters
    ----------
    name
        Of the file, in a folder of its own.
    content
        Returns a good file.
    read
        Reads the file in a folder, which also holds the files ``beside`` it.
    beside
        Returns the other files by their names.
    """

    name: str
    content: Callable[[], bytes]
    read: Callable[[Path], Any]
    beside: Callable[[], dict[str, bytes]] = dict


def _image(kind: str) -> Callable[[], bytes]:
    def make() -> bytes:
        content = io.BytesIO()
        pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(content, kind)
        return content.getvalue()

    return make


def _tar() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, member in {"a.png": _image("PNG")(), "a.json": b'{"label": 1}'}.items():
            about = tarfile.TarInfo(name)
            about.size = len(member)
            archive.addfile(about, io.BytesIO(member))
    return content.getvalue()


def _zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/a.png", _image("PNG")())
        archive.writestr("dog/b.png", _image("PNG")())
    return content.getvalue()


def _of_run(*names: str) -> Callable[[], dict[str, bytes]]:
    return lambda: {name: (RUN / name).read_bytes() for name in names}


def _read_zip(folder: Path) -> None:
    source = ZipSource(folder / "x.zip")
    for name in source.names():
        decode_image(source.read(name), 8, 1, name=name)


def _read_weights(folder: Path) -> None:
    backbone = build_method(load_recipe(RUN / "config.yaml")).backbone
    load_backbone(backbone, folder / "resume.pt")


def _file(path: Path) -> Callable[[], bytes]:
    return path.read_bytes


def _decode(name: str) -> Callable[[Path], Any]:
    return lambda folder: decode_image((folder / name).read_bytes(), 8, 1, name=name)


def _lock() -> bytes:
    return json.dumps({"pid": 17, "host": "node", "started": 3}).encode()


def _journal() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "session")
        for number in range(3):
            journal.append({"image": f"{number}.png", "label": "cat"})
        journal.close()
        return journal.path.read_bytes()


def _table() -> bytes:
    return (Path(load_recipe.__code__.co_filename).parents[1]
            / "evaluation" / "tables" / "shots.yaml").read_bytes()  # fmt: skip


TARGETS = {
    "recipe": Target(
        "x.yaml", _file(RUN / "config.yaml"), lambda f: build_method(load_recipe(f / "x.yaml"))
    ),
    "config": Target("config.yaml", _file(RUN / "config.yaml"), load, _of_run("model.safetensors")),
    "model": Target("model.safetensors", _file(RUN / "model.safetensors"), load,
                    _of_run("config.yaml")),
    "resume": Target("resume.pt", _file(RUN / "resume.pt"), load_resume),
    "weights": Target("resume.pt", _file(RUN / "resume.pt"), _read_weights),
    "environment": Target("env.json", _file(RUN / "env.json"), read_environment),
    "calibration": Target("calibration.json", _file(RUN / "calibration.json"), read_calibration),
    "metrics": Target("metrics.csv", _file(RUN / "metrics.csv"),
                      lambda f: read_metrics(f / "metrics.csv")),
    "results": Target("x.json", lambda: b'{"sha256": "' + b"0" * 64 + b'", "rows": [1, {}]}',
                      lambda f: read_json(f / "x.json", "again")),
    "table": Target("x.yaml", _table, lambda f: read_table(f / "x.yaml")),
    "lock": Target("x.lock", _lock, lambda f: holder_of(f / "x.lock")),
    "journal": Target("labels.journal", _journal, lambda f: read_entries(f / "labels.journal")),
    "zip": Target("x.zip", _zip, _read_zip),
    "shard": Target("x.tar", _tar, lambda f: index_shard(f / "x.tar")),
    "list": Target("x.csv", lambda: b"path,label\na.png,cat\nb.png,dog\n",
                   lambda f: list_images(f / "x.csv"),
                   lambda: {"a.png": _image("PNG")(), "b.png": _image("PNG")()}),
    **{
        f"classifier-{kind}": Target(
            "x.psco",
            _file(FIXTURES / "classifiers-format-1" / f"{kind}.psco"),
            lambda f: FewShotClassifier.load(f / "x.psco"),
        )
        for kind in ("prototype", "features", "logistic")
    },
    **{
        f"image-{kind.lower()}": Target("x.img", _image(kind), _decode("x.img"))
        for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
    },
}  # fmt: skip

_CHECKSUM = re.compile(rb'sha256[": ]{1,4}([0-9a-f]{64})')


def with_right_checksum(content: bytes) -> bytes:
    """Return a file with the checksum that its other bytes have; unchanged if it has none."""
    found = _CHECKSUM.search(content)
    if found is None:
        return content
    blank = content[: found.start(1)] + b"0" * 64 + content[found.end(1) :]
    digits = hashlib.sha256(blank).hexdigest().encode()
    return content[: found.start(1)] + digits + content[found.end(1) :]
