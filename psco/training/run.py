"""Pretraining, from images and a recipe to a run folder; stops and resumes at any moment."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from psco.data import ImageSet, load_dataset
from psco.data.reading.undecodable import MAX_BAD
from psco.errors import InputError, StoppedError
from psco.files.atomic import remove_leftovers
from psco.files.checksums import hash_file
from psco.files.disk import DiskGuard, OnFullDisk
from psco.methods import METHODS, Method
from psco.networks.weights import weights_file
from psco.ops.ranks import rank
from psco.progress import Bar
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import Override, Recipe, with_flags
from psco.training.checkpoint import (
    CONFIG,
    METRICS,
    load_resume,
    save_checkpoint,
    start_folder,
)
from psco.training.collapse import collapse_watch
from psco.training.distributed import (
    RANK_TIMEOUT,
    find_place,
    launch,
    local_rank_zero_first,
    training_together,
)
from psco.training.environment import environment, keep_freed_memory
from psco.training.feed import check_split, feed_for
from psco.training.logging import Logger, csv_logger, read_metrics, tensorboard_logger
from psco.training.loop import Loop
from psco.training.settings import settle_recipe
from psco.training.signals import SCHEDULER, stop_on_signals
from psco.views import TwoViews, check_views, to_batch
from psco.views.pair import AnyView


@dataclass(frozen=True)
class Run:
    """A run folder after a call of `pretrain`.

    Parameters
    ----------
    folder
        Where everything is; see ``psco.training.checkpoint``.
    recipe
        The resolved settings.
    steps
        Steps done.
    finished
        False if the run was interrupted.
    stopped_by
        Name of the signal that interrupted it, such as ``"SIGTERM"``.
    """

    folder: Path
    recipe: Recipe
    steps: int
    finished: bool
    stopped_by: str | None = None

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of the training curves."""
        return read_metrics(self.folder / METRICS)

    def require_finished(self, again: str) -> None:
        """Raise StoppedError if the run was interrupted; ``again`` is the command to go on."""
        if self.finished:
            return
        if self.stopped_by not in SCHEDULER:
            raise StoppedError(f"stopped at step {self.steps}; continue with: {again}", 1)
        job = os.environ.get("SLURM_JOB_ID")
        how = f"requeue with: scontrol requeue {job}, for a script that runs" if job else "requeue"
        raise StoppedError(f"{self.stopped_by}: saved at step {self.steps}; {how}: {again}", 0)


def pretrain(
    data: object,
    *,
    out: str | Path,
    root: str | Path | None = None,
    max_bad: float = MAX_BAD,
    recipe: str | Path | Recipe | None = None,
    method: str | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    init: str | Path | None = None,
    overrides: Sequence[str | Override] = (),
    views: tuple[AnyView, AnyView] | None = None,
    resume: bool = False,
    workers: int | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    strategy: str = "auto",
    rank_timeout: float = RANK_TIMEOUT,
    checkpoint_minutes: float | None = None,
    checkpoint_steps: int | None = None,
    on_full_disk: OnFullDisk = "stop",
    loggers: Sequence[Logger] = (),
    tensorboard: bool = False,
    title: str = "pretrain",
    progress: bool = True,
    on_finish: Callable[[Path, ImageSet, object], None] | None = None,
) -> Run:
    """Train a method on unlabelled images.

    Parameters
    ----------
    data
        Anything that `load_dataset` takes: the name of a data set, a folder, an array, ... Labels,
        where there are any, reach supervised methods and, if the recipe asks for it, the purity
        diagnostic, and nothing else.
    out
        Run folder to make; see ``psco.training.checkpoint`` for what it holds.
    root
        Folder of a named data set; by default ``PSCO_DATA``.
    max_bad
        Share of undecodable pictures, in [0, 1], that are skipped; more of them stop the run.
    recipe
        A recipe, its name or file; by default that of the data set, else ``own-images``.
    method, epochs, steps, minutes, seed
        Settings that win over the recipe: the method's name (the recipe's options are for its own
        method and variants of it, others have their defaults), the length of the run (one of the
        three), the seed.
    init
        Initial weights of the backbone: a .safetensors, .pth or .pt file (torchvision, timm, ...)
        or a run folder. A resumed run does not need it again.
    overrides
        Any other settings that win over the recipe, as ``"method.shots=5"``.
    views
        A pair of callables to use instead of the recipe's views; see `TwoViews`.
    resume
        Continue the run in ``out``: its own recipe counts, and settings given here must agree with
        it. A run in steps or epochs ends with the weights it would have had without the stop.
    workers
        Processes that decode images ahead; None chooses, see `Feed`. Results do not depend on it.
    devices, nodes, strategy
        Devices to train on, on each of so many machines; every one has a process of its own, a
        rank, and its share of each batch. None takes what torchrun or Slurm has started, else 1.
        The strategy is ``ddp``, which ``auto`` chooses. All ranks return, and only rank 0 writes.
    rank_timeout
        Seconds after which a rank that does not answer the others ends the run.
    checkpoint_minutes, checkpoint_steps
        How often to save besides at the end; every 5 minutes if neither is given.
    on_full_disk
        Whether to ``stop`` or to ``continue`` when there is no room for a checkpoint; then the next
        one is tried when it is due. The last one must be written.
    loggers
        Called with every row of the training curves.
    tensorboard
        Also write TensorBoard events into the run folder (extra ``tensorboard``).
    title, progress
        Name of the progress bar on stderr, and whether to show one.
    on_finish
        Called on rank 0 when training has ended: with the folder, the images and view a.

    Raises
    ------
    InputError
        For anything about the arguments; then nothing has been written.
    PscoError
        If the loss stops being finite, or a file cannot be written; the last good checkpoint stays.
    """
    folder = Path(out)
    changes = with_flags(overrides, method, epochs, steps, minutes, seed, init)
    due = _clock(checkpoint_minutes, checkpoint_steps)
    disk = DiskGuard(folder, on_full_disk)
    settled = settle_recipe(folder, data, recipe, changes, resume)
    image, train = settled.image, settled.train
    place = find_place(devices, nodes)
    _check_shares(settled, place.ranks)
    fabric = launch(place, strategy, train.precision)
    main = rank() == 0
    progress = progress and main
    with local_rank_zero_first(fabric):
        images = load_dataset(
            data,
            "train",
            root,
            size=image.source_size,
            channels=image.channels,
            max_bad=max_bad,
            progress=progress,
        )
    keep_freed_memory()
    torch.manual_seed(train.seed)
    state = load_resume(folder) if resume else None
    learner = build_method(settled, init=state is None)
    images = labels_for(learner, images, settled)
    about = {**environment(), "data": {"name": images.name, "images": len(images)}}
    if learner.kind == "baseline":  # nothing to learn: the run is over before it has begun
        if main:
            start_folder(folder, settled, about)
            save_checkpoint(folder, learner, settled, 0, {})
        return Run(folder, settled, 0, finished=True)

    learner.set_classes(len(images.classes))
    if workers is None and images.decodes:
        workers = max(1, (os.cpu_count() or 1) // place.devices)
    feed = feed_for(learner, images, train.batch_size, train.seed, workers, train.shuffle_buffer)
    if place.ranks > 1:
        feed.split(rank(), place.ranks)
    pair = build_views(settled) if views is None else TwoViews(*views)
    if views is None and state is None:
        check_views(pair, to_batch(_sample(images)), train.seed)
    loop = Loop(learner, pair, feed, settled, folder, fabric)
    facts = {"data": fingerprint(images)}
    if state is not None:
        if state["data"] != facts["data"]:
            raise InputError(f"the images in {images.name!r} are not those of the run in {folder}")
        loop.restore(state)
    elif main and not (folder / CONFIG).exists():
        start_folder(folder, settled, {**about, "ranks": place.ranks, **_about_weights(settled)})

    def save(last: bool = False) -> None:
        disk.write(f"the checkpoint of step {loop.step}", lambda: loop.save(facts), last)

    sinks: list[Logger] = []
    if main:
        remove_leftovers(folder)
        csv = csv_logger(folder / METRICS, loop.step)
        sinks = [lambda row: disk.write(METRICS, lambda: csv(row)), collapse_watch(), *loggers]
    if main and tensorboard:
        sinks.append(tensorboard_logger(folder / "tensorboard"))
    together = training_together(fabric, rank_timeout)
    with Bar(title, progress) as bar, stop_on_signals(tell=main) as stop, together:
        loop.run(sinks, bar, save, due, stop)
        save(last=True)
    finished = loop.done >= 1
    if finished and main and on_finish is not None:
        on_finish(folder, images, pair.view_a)
    return Run(folder, settled, loop.step, finished, None if finished else stop.by)


def _check_shares(recipe: Recipe, ranks: int) -> None:
    """Raise InputError, before any rank is started, if the method cannot be split over them."""
    name = recipe.method.name
    if ranks > 1 and not METHODS[name].distributes:
        raise InputError(f"method {name!r} runs on one device, and {ranks} ranks were asked for")
    check_split(recipe.train.batch_size, ranks)


def labels_for(method: Method, images: ImageSet, recipe: Recipe) -> ImageSet:
    """Leave the labels to those who may see them: supervised methods and the purity diagnostic.

    Raises
    ------
    InputError
        If one of them needs labels and there are none.
    """
    name = recipe.method.name
    if method.kind == "supervised" and images.labels is None:
        raise InputError(
            f"method {name!r} learns from labels, and {images.name!r} has none; "
            f"`psco methods` lists those that need none"
        )
    if recipe.train.purity and images.labels is None:
        raise InputError(
            f"train.purity needs labels, and {images.name!r} has none; --set train.purity=false"
        )
    return images if method.kind == "supervised" or recipe.train.purity else images.unlabelled()


def fingerprint(images: ImageSet) -> str:
    """Identify a data set by its shape and 64 of its images."""
    text = f"{images.images.shape}".encode() + _sample(images).tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def _sample(images: ImageSet) -> np.ndarray:  # -> (64, H, W, C) uint8, from all over the set
    return images.images[np.linspace(0, len(images) - 1, 64).astype(int)]


def _about_weights(recipe: Recipe) -> dict[str, str]:
    """Identify the initial weights, as their file may change or go."""
    return {} if recipe.init is None else {"init_sha256": hash_file(weights_file(recipe.init))}


def _clock(minutes: float | None, steps: int | None) -> Callable[[int, float], bool]:
    for name, value in {"checkpoint_minutes": minutes, "checkpoint_steps": steps}.items():
        if value is not None and value <= 0:
            raise InputError(f"{name} must be > 0, not {value}")
    if minutes is None and steps is None:
        minutes = 5.0
    last = time.monotonic()

    def due(step: int, now: float) -> bool:
        nonlocal last
        by_time = minutes is not None and now - last >= 60 * minutes
        by_step = steps is not None and step % steps == 0
        if by_time or by_step:
            last = now
        return by_time or by_step

    return due
