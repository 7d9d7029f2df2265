"""A training run, from its settings and images to the files in its folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from psco.data import ImageSet, has_splits, load_dataset
from psco.data.reading.undecodable import MAX_BAD
from psco.errors import InputError, counted
from psco.files.atomic import remove_leftovers
from psco.files.checksums import hash_file
from psco.files.disk import DiskGuard, OnFullDisk
from psco.methods import METHODS, Method
from psco.networks import FrozenBackbone
from psco.networks.weights import weights_file
from psco.ops.ranks import rank
from psco.progress import Bar
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import Override, Recipe
from psco.training.checkpoint import (
    CONFIG,
    METRICS,
    load_resume,
    prolong_folder,
    read_recipe,
    save_checkpoint,
    start_folder,
)
from psco.training.collapse import collapse_watch
from psco.training.distributed import (
    RANK_TIMEOUT,
    Place,
    find_place,
    launch,
    local_rank_zero_first,
    training_together,
)
from psco.training.environment import environment, keep_freed_memory
from psco.training.feed import Feed, check_split
from psco.training.frozen import CachedViews, FeatureFeed, check_freezable, compute_features
from psco.training.inputs import feed_for, fingerprint, labels_for, sample_images
from psco.training.interval import CheckpointInterval
from psco.training.logging import Logger, csv_logger, tensorboard_logger
from psco.training.loop import Loop
from psco.training.quality import QualityGauge, QualityWatch
from psco.training.run import Run
from psco.training.selection import Validate
from psco.training.settings import length_of, resolve_settings
from psco.training.signals import stop_on_signals
from psco.views import TwoViews, check_views, to_batch
from psco.views.pair import AnyView


@dataclass(eq=False, repr=False)
class Trainer:
    """Trains a method on images and writes the run folder; call `run` once.

    Parameters
    ----------
    data
        Anything that `load_dataset` takes: the name of a data set, a folder, an array, ... Labels
        are used by supervised methods and, if the recipe asks for it, by the purity diagnostic, and
        by nothing else.
    out
        Run folder; see ``psco.training.checkpoint`` for its files.
    recipe
        A recipe, its name or its file; by default see `choose_recipe`.
    overrides
        Settings that win over the recipe, as ``"method.shots=5"``.
    resume
        Continue the run in ``out``, if there is one, with its settings; those given here must
        agree with them. A run limited by steps or epochs ends with the weights that it would have
        had without the interruption. Only the length may differ, and prolongs the run: from then on
        each step has the learning rate that it has in a run of the new length.
    root
        Folder of a named data set; by default ``PSCO_DATA``.
    max_bad
        Fraction of undecodable images, in [0, 1], that are skipped; more of them stop the run.
    views
        A pair of callables to use instead of the recipe's views; see `TwoViews`.
    workers
        Processes that decode images ahead; None chooses, see `Feed`. Results do not depend on it.
    devices, nodes, strategy
        Devices per machine and machines to train on. Each device has its own process, a rank, and
        an equal part of each batch. None takes what torchrun or Slurm has started, else 1. The
        strategy is ``ddp``, which is what ``auto`` chooses. `run` returns on all ranks; only rank 0
        writes files.
    rank_timeout
        Seconds after which a rank that does not respond ends the run.
    checkpoint_minutes, checkpoint_steps
        How often to write a checkpoint, besides at the end; every 5 minutes if neither is given.
    on_full_disk
        ``stop`` or ``continue`` when there is no room for a checkpoint. With ``continue``, the next
        one is written when it is due; the last one must succeed.
    validator
        Called with the recipe if it has ``train.select: validation``; returns the function that
        measures the validation accuracy of a network. `psco.pretrain` provides it.
    loggers
        Called with each row of the training curves.
    tensorboard
        Also write TensorBoard events into the run folder (extra ``tensorboard``).
    stop
        Called before each step; if it returns True, the run is saved and stops, as on a signal.
    measure_quality
        Measure the network without labels at the start, a few times on the way and at the end; see
        ``psco.training.quality``. The run ends with the same bits without it. Not for ``views``
        that are given here.
    title, progress
        Title of the progress bar on stderr, and whether to show one.

    Attributes
    ----------
    images, pair, loop
        The training images, the two views and the training loop, after `run`. For a method that is
        not trained there are no images and no loop, and a named data set is not read.
    """

    data: object
    out: str | Path
    recipe: str | Path | Recipe | None = None
    overrides: Sequence[str | Override] = ()
    resume: bool = False
    _: KW_ONLY
    root: str | Path | None = None
    max_bad: float = MAX_BAD
    views: tuple[AnyView, AnyView] | None = None
    workers: int | None = None
    devices: int | None = None
    nodes: int | None = None
    strategy: str = "auto"
    rank_timeout: float = RANK_TIMEOUT
    checkpoint_minutes: float | None = None
    checkpoint_steps: int | None = None
    on_full_disk: OnFullDisk = "stop"
    validator: Callable[[Recipe], Validate] | None = None
    loggers: Sequence[Logger] = ()
    tensorboard: bool = False
    stop: Callable[[], bool] | None = None
    measure_quality: bool = True
    title: str = "pretrain"
    progress: bool = True
    images: ImageSet = field(init=False)
    pair: TwoViews = field(init=False)
    loop: Loop | None = field(init=False, default=None)

    def run(self) -> Run:
        """Train to the end of the schedule or until a signal, and return the run.

        Raises
        ------
        InputError
            If an argument is wrong; then nothing has been written.
        PscoError
            If the loss is not finite or a file cannot be written; the last good checkpoint stays.
        """
        folder = Path(self.out)
        interval = CheckpointInterval(self.checkpoint_minutes, self.checkpoint_steps)
        disk = DiskGuard(folder, self.on_full_disk)
        recipe = resolve_settings(folder, self.data, self.recipe, self.overrides, self.resume)

        place = find_place(self.devices, self.nodes)
        _check_ranks(recipe, place.ranks)
        fabric = launch(place, self.strategy, recipe.train.precision)

        images = None if _needs_no_images(recipe, self.data) else self._load_images(recipe, fabric)
        keep_freed_memory()
        torch.manual_seed(recipe.train.seed)
        state = load_resume(folder) if self.resume else None
        method = build_method(recipe, init=state is None)
        self.pair = TwoViews(*self.views) if self.views else build_views(recipe)
        check_freezable(method, recipe, self.views is not None)
        if method.kind == "baseline":
            if state is None:
                self._save_untrained(folder, method, recipe, images)
            return Run(folder, recipe, 0, finished=True)

        assert images is not None  # only baselines need none
        self.images = labels_for(method, images, recipe)
        method.set_classes(len(self.images.classes))
        feed = self._build_feed(method, recipe, place)
        if self.views is None and state is None:
            check_views(self.pair, to_batch(sample_images(self.images)), recipe.train.seed)
        validate = self._validate(recipe, method)
        started = time.monotonic()
        views: TwoViews | CachedViews = self.pair
        if isinstance(method.backbone, FrozenBackbone):
            feed, views = self._build_feature_feed(method.backbone, recipe), CachedViews()
        prepared = time.monotonic() - started
        self.loop = loop = Loop(method, views, feed, recipe, folder, fabric, validate)
        loop.count_preparation(prepared)
        if state is not None:
            self._restore(loop, state, folder)
            self._prolong(loop)
        elif rank() == 0 and not (folder / CONFIG).exists():
            about = {**_environment(self.images), "ranks": place.ranks, **_initial_weights(recipe)}
            start_folder(folder, recipe, about)
        return self._train(loop, disk, interval)

    def _load_images(self, recipe: Recipe, fabric: Fabric) -> ImageSet:
        with local_rank_zero_first(fabric):  # the others then find the files prepared
            return load_dataset(
                self.data,
                "train",
                self.root,
                size=recipe.image.source_size,
                channels=recipe.image.channels,
                max_bad=self.max_bad,
                progress=self.progress and rank() == 0,
            )

    def _build_feed(self, method: Method, recipe: Recipe, place: Place) -> Feed:
        workers, train = self.workers, recipe.train
        if workers is None and self.images.decodes:
            workers = max(1, (os.cpu_count() or 1) // place.devices)
        feed = feed_for(
            method, self.images, train.batch_size, train.seed, workers, train.shuffle_buffer
        )
        if place.ranks > 1:
            feed.split(rank(), place.ranks)
        return feed

    def _validate(self, recipe: Recipe, method: Method) -> Validate | None:
        if recipe.train.select == "last":
            return None
        if (ways := recipe.train.select_ways) > method.most_ways:
            raise InputError(
                f"train.select_ways must be at most method.ways, {method.most_ways}, got {ways}"
            )
        if self.validator is None:
            raise InputError("train.select=validation needs a validator, got a Trainer without one")
        return self.validator(recipe)

    def _build_feature_feed(self, backbone: FrozenBackbone, recipe: Recipe) -> FeatureFeed:
        """Return batches of cached features, and centre the backbone on their mean."""
        features = compute_features(self.images, backbone, self.pair, recipe, self.progress)
        backbone.centre.copy_(torch.from_numpy(features.mean()))
        train = recipe.train
        return FeatureFeed(self.images, features, backbone.centre, train.batch_size, train.seed)

    def _restore(self, loop: Loop, state: dict[str, Any], folder: Path) -> None:
        if state["data"] != fingerprint(self.images):
            raise InputError(
                f"the images in {self.images.name!r} are not those of the run in {folder}"
            )
        loop.restore(state)

    def _prolong(self, loop: Loop) -> None:
        """Write the new length of a run that is resumed with another one."""
        stored = read_recipe(loop.folder)
        if stored == loop.recipe:
            return
        if loop.done >= 1:
            raise InputError(
                f"{length_of(loop.recipe)} do not prolong the run in {str(loop.folder)!r}, which "
                f"has taken {counted(loop.step, 'step')} in {loop.seconds / 60:.1f} minutes; give "
                f"the length of the whole run"
            )
        if rank() == 0:
            change = {"step": loop.step, "from": length_of(stored), "to": length_of(loop.recipe)}
            prolong_folder(loop.folder, loop.recipe, change)

    def _train(self, loop: Loop, disk: DiskGuard, interval: CheckpointInterval) -> Run:
        extra = {"data": fingerprint(self.images)}

        def save(last: bool = False) -> None:
            disk.write(f"the checkpoint of step {loop.step}", lambda: loop.save(extra), last)

        loggers = self._open_loggers(loop, disk) if rank() == 0 else []
        watch = self._open_watch(loop, disk) if rank() == 0 else None
        with (
            Bar(self.title, self.progress and rank() == 0) as bar,
            stop_on_signals(announce=rank() == 0) as stop,
            training_together(loop.fabric, self.rank_timeout),
        ):
            loop.run(loggers, bar, save, interval, lambda: stop() or self._should_stop(), watch)
            save(last=True)
        finished = loop.done >= 1
        stopped_by = None if finished else stop.signal
        return Run(loop.folder, loop.recipe, loop.step, finished, stopped_by)

    def _should_stop(self) -> bool:
        return self.stop is not None and self.stop()

    def _open_loggers(self, loop: Loop, disk: DiskGuard) -> list[Logger]:
        folder = loop.folder
        remove_leftovers(folder)
        write_row = csv_logger(folder / METRICS, loop.step)
        loggers: list[Logger] = [
            lambda row: disk.write(METRICS, lambda: write_row(row)),
            collapse_watch(),
            *self.loggers,
        ]
        if self.tensorboard:
            loggers.append(tensorboard_logger(folder / "tensorboard"))
        return loggers

    def _open_watch(self, loop: Loop, disk: DiskGuard) -> QualityWatch | None:
        # A function of the user may have state, so another call could change the run. The features
        # of a frozen backbone do not change.
        is_frozen = isinstance(loop.views, CachedViews)
        if not self.measure_quality or self.views is not None or is_frozen:
            return None
        if not loop.method.has_features:
            return None
        gauge = QualityGauge(self.images, self.pair, loop.recipe.train.seed)
        return QualityWatch(gauge, loop.folder, disk, loop.schedule, loop.step)

    def _save_untrained(
        self, folder: Path, method: Method, recipe: Recipe, images: ImageSet | None
    ) -> None:
        if rank() == 0:
            data = str(self.data) if images is None else images
            about = {**_environment(data), **_initial_weights(recipe)}
            start_folder(folder, recipe, about)
            save_checkpoint(folder, method, recipe, 0, {})


def _environment(images: ImageSet | str) -> dict[str, Any]:
    """Describe machine, software and training images; of images not read only the name."""
    if isinstance(images, str):
        return {**environment(), "data": {"name": images, "images": 0}}
    return {**environment(), "data": {"name": images.name, "images": len(images)}}


def _needs_no_images(recipe: Recipe, data: object) -> bool:
    """Whether the run trains nothing, and the data only names the recipe."""
    return METHODS[recipe.method.name].kind == "baseline" and has_splits(data)


def _check_ranks(recipe: Recipe, ranks: int) -> None:
    """Raise InputError, before any rank is started, if the run cannot be split over them."""
    name = recipe.method.name
    if ranks > 1 and not METHODS[name].distributes:
        raise InputError(f"method {name!r} trains on one device only, not on {ranks} ranks")
    if ranks > 1 and recipe.train.select == "validation":
        raise InputError(f"train.select=validation trains on one device only, got {ranks} ranks")
    if ranks > 1 and recipe.train.freeze is not None:
        raise InputError(
            f"train.freeze={recipe.train.freeze} trains on one device only, not on {ranks} ranks"
        )
    check_split(recipe.train.batch_size, ranks)


def _initial_weights(recipe: Recipe) -> dict[str, str]:
    """Return the hash of the initial weights, whose file may change later."""
    return {} if recipe.init is None else {"init_sha256": hash_file(weights_file(recipe.init))}
