"""Training on the features of a frozen backbone, which are computed once and cached.

``<cache>/features/<key>.npy`` holds the features of the views of up to 256 images. The key is a
hash of these images, of the backbone's weights and of everything that the views depend on. A run
that was killed continues with the next file, and changed images lead to other keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from psco.data import ImageSet
from psco.errors import InputError, PscoError, quoted
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir
from psco.methods import Method
from psco.networks import FrozenBackbone
from psco.ops.parallel import on_one_core_each
from psco.progress import Bar
from psco.recipes.recipe import Recipe
from psco.training.feed import Feed, ImagesAndLabels
from psco.views import TwoViews, step_generator, to_batch

FORMAT = 1  # part of every key; increase it with any change to how features are computed
CHUNK = 256  # images in a file
_PIECE = 16  # images that a core handles at a time


def check_freezable(method: Method, recipe: Recipe, has_own_views: bool) -> None:
    """Raise InputError if a recipe freezes its backbone and its other settings forbid that."""
    if recipe.train.freeze is None:
        return
    name, problem = recipe.method.name, None
    if method.kind == "baseline":
        problem = f"method {name!r} trains nothing"
    elif method.episode is not None:
        problem = f"method {name!r} trains on tasks"
    elif has_own_views:
        problem = "features of views that are functions cannot be cached"
    elif recipe.train.shuffle_buffer:
        problem = "features need random access to the images, and train.shuffle_buffer is not 0"
    if problem is not None:
        raise InputError(
            f"train.freeze={recipe.train.freeze} is not possible: {problem}; "
            f"--set train.freeze=null"
        )


class CachedFeatures:
    """Features of V views of n images, in files that are mapped into memory.

    Parameters
    ----------
    files
        One for each 256 images: (c, V, width) float16.
    """

    def __init__(self, files: list[Path]) -> None:
        self._parts = [np.load(file, mmap_mode="r") for file in files]

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Return the features (B, V, width) float16 of images (B,)."""
        return np.stack([self._parts[i // CHUNK][i % CHUNK] for i in indices.tolist()])

    def mean(self) -> np.ndarray:
        """Return the mean (width,) float32 over all images and views."""
        total = sum(part.sum(axis=(0, 1), dtype=np.float64) for part in self._parts)
        number = sum(part.shape[0] * part.shape[1] for part in self._parts)
        mean: np.ndarray = (total / number).astype(np.float32)
        return mean


class FeatureFeed(Feed):
    """Endless shuffled mini-batches of features (B, V, width) float32 instead of images.

    Parameters
    ----------
    images
        The data set, for its length and labels.
    features
        The features of its images.
    centre
        (width,) subtracted from the features.
    batch_size, seed
        See `Feed`; the order of the images is the same.
    """

    def __init__(
        self,
        images: ImageSet,
        features: CachedFeatures,
        centre: Tensor,
        batch_size: int,
        seed: int,
    ) -> None:
        super().__init__(images, batch_size, seed, workers=0)
        self._features, self._centre = features, centre.cpu()

    def __getitem__(self, number: int) -> ImagesAndLabels:
        indices = self.indices(number)
        labels = None if self._set.labels is None else torch.from_numpy(self._set.labels[indices])
        return torch.from_numpy(self._features[indices]).float() - self._centre, labels


class CachedViews:
    """Draws two of the cached views of every image: an even one as view_a, an odd one as view_b."""

    def __call__(self, features: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return two views (B, width) of features (B, V, width)."""
        return self.view_a(features, generator), self.view_b(features, generator)

    def view_a(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random even view (B, width)."""
        return _draw(features[:, 0::2], generator)

    def view_b(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random odd view (B, width)."""
        return _draw(features[:, 1::2], generator)


def _draw(features: Tensor, generator: torch.Generator) -> Tensor:  # (B, V, width) -> (B, width)
    chosen = torch.randint(features.shape[1], (len(features),), generator=generator)
    return features[torch.arange(len(features)), chosen.to(features.device)]


def compute_features(
    images: ImageSet,
    backbone: FrozenBackbone,
    pair: TwoViews,
    recipe: Recipe,
    progress: bool = True,
) -> CachedFeatures:
    """Compute the features of several views of all images, or take them from the cache.

    Parameters
    ----------
    images
        The training images.
    backbone
        Its network, without the centring, computes the features.
    pair
        The views of the recipe; view_a and view_b are drawn in turn.
    recipe
        The settings; the number of views is ``train.frozen_views``.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    PscoError
        If the cache cannot be written.
    """
    number, settings = len(images), _settings(backbone.network, recipe)
    files: list[Path] = []
    title = f"features of {number:,} images x {recipe.train.frozen_views} views"
    with Bar(title, progress) as bar:
        for chunk, batch in enumerate(_read_ahead(images)):
            file = _file(settings, chunk, batch)
            if _read(file) is None:
                features = _chunk_features(batch, chunk, backbone.network, pair, recipe)
                _write(file, features)
            files.append(file)
            done = min(number, (chunk + 1) * CHUNK)
            bar.update(done / number, f"{done:,} images")
    return CachedFeatures(files)


def _chunk_features(
    batch: np.ndarray, chunk: int, network: nn.Module, pair: TwoViews, recipe: Recipe
) -> np.ndarray:  # (c, H, W, C) uint8 -> (c, V, width) float16
    train = recipe.train
    views = [pair.view_b if place % 2 else pair.view_a for place in range(train.frozen_views)]

    @torch.no_grad()  # threads do not inherit it
    def features_of(piece: int) -> Tensor:
        images = to_batch(batch[piece * _PIECE : (piece + 1) * _PIECE])
        # A generator for each piece: the views do not depend on the number of cores.
        generator = step_generator(train.seed, chunk * (CHUNK // _PIECE) + piece)
        return torch.stack([network(view(images, generator)) for view in views], dim=1)

    pieces = on_one_core_each(features_of, range(-(-len(batch) // _PIECE)))
    result: np.ndarray = torch.cat(pieces).half().numpy()
    return result


def _settings(network: nn.Module, recipe: Recipe) -> str:
    """Return everything that features depend on besides the images, as text."""
    weights = hashlib.sha256()
    for name, value in network.state_dict().items():
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().numpy().tobytes())
    views = recipe.views.model_dump(include={"view_a", "view_b"})
    image, backbone = recipe.image.model_dump(), recipe.backbone.model_dump()
    train = [recipe.train.seed, recipe.train.frozen_views]
    return json.dumps([FORMAT, weights.hexdigest(), backbone, image, views, train])


def _file(settings: str, chunk: int, batch: np.ndarray) -> Path:
    key = hashlib.sha256(f"{settings} {chunk} {batch.shape}".encode())
    key.update(batch.tobytes())
    return cache_dir() / "features" / f"{key.hexdigest()[:32]}.npy"


def _read(file: Path) -> np.ndarray | None:
    """Open cached features; None if they are absent or damaged."""
    try:
        features: np.ndarray = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return features


def _write(file: Path, features: np.ndarray) -> None:
    try:
        with atomic_path(file) as temporary, temporary.open("wb") as out:
            np.save(out, features)
    except OSError as error:
        raise PscoError(
            f"cannot write features to {quoted(file.parent)}: {error.strerror or error}; "
            f"free some space there, or set PSCO_CACHE to a folder on another disk"
        ) from None


def _read_ahead(images: ImageSet) -> Iterator[np.ndarray]:
    """Yield the images in chunks; the next one is read or decoded in the meantime."""

    def read(start: int) -> np.ndarray:
        return images.images[start : start + CHUNK]

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(read, 0)
        for start in range(CHUNK, len(images) + CHUNK, CHUNK):
            batch = following.result()
            following = pool.submit(read, start)  # empty after the last one
            yield batch
