"""A training run, from its settings and images to the files in its folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from psco.data import ImageSet, load_dataset
from psco.data.reading.undecodable import MAX_BAD
from psco.errors import InputError, counted
from psco.files.disk import DiskGuard, OnFullDisk
from psco.methods import Method
from psco.networks import FrozenBackbone
from psco.ops.ranks import rank
from psco.progress import Bar
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import Override, Recipe
from psco.training.checkpoint import (
    CONFIG,
    RESUME,
    load_resume,
    prolong_folder,
    read_recipe,
    save_checkpoint,
    start_folder,
)
from psco.training.checks import check_ranks, needs_no_images, run_facts, validation_for
from psco.training.distributed import (
    RANK_TIMEOUT,
    Place,
    find_place,
    launch,
    local_rank_zero_first,
    training_together,
)
from psco.training.environment import keep_freed_memory
from psco.training.feed import Feed
from psco.training.folder import hold_folder
from psco.training.frozen import CachedViews, FeatureFeed, check_freezable, compute_features
from psco.training.inputs import feed_for, fingerprint, labels_for, sample_images
from psco.training.interval import CheckpointInterval
from psco.training.logging import Logger
from psco.training.loop import Loop
from psco.training.monitoring import open_loggers, open_watch
from psco.training.phases import check_phases
from psco.training.run import Run
from psco.training.selection import Validate
from psco.training.settings import length_of, resolve_settings
from psco.training.signals import stop_on_signals
from psco.training.stages import StageRunner, check_same_artefacts
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
    on_finish
        Called with this object and the finished run while its folder is still locked, on rank 0.
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
    on_finish: Callable[[Trainer, Run], None] | None = None
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
            If another process works in the folder, the loss is not finite, or a file cannot be
            written; the last good checkpoint stays.
        """
        folder = Path(self.out)
        place = find_place(self.devices, self.nodes)
        with hold_folder(folder) if place.is_first else nullcontext():
            run = self._run(folder, place)
            if self.on_finish is not None and run.finished and rank() == 0:
                self.on_finish(self, run)
        return run

    def _run(self, folder: Path, place: Place) -> Run:
        interval = CheckpointInterval(self.checkpoint_minutes, self.checkpoint_steps)
        disk = DiskGuard(folder, self.on_full_disk)
        recipe = resolve_settings(folder, self.data, self.recipe, self.overrides, self.resume)
        check_ranks(recipe, place.ranks)
        fabric = launch(place, self.strategy, recipe.train.precision)

        images = None if needs_no_images(recipe, self.data) else self._load_images(recipe, fabric)
        keep_freed_memory()
        torch.manual_seed(recipe.train.seed)
        state = load_resume(folder) if self.resume else None
        method = build_method(recipe, init=state is None)
        self.pair = build_views(recipe, self.views)
        check_freezable(method, recipe, self.views is not None)
        check_phases(method, recipe, self.views is not None, place.ranks)
        if method.kind == "baseline":
            if state is None:
                self._save_untrained(folder, method, recipe, images)
            return Run(folder, recipe, 0, finished=True)

        assert images is not None  # only baselines need none
        self.images = labels_for(method, images, recipe)
        method.set_classes(len(self.images.classes))
        stages = StageRunner(method, self.images, recipe, folder, disk)
        if self.views is None and state is None:
            check_views(self.pair, to_batch(sample_images(self.images)), recipe.train.seed)
        validate = validation_for(recipe, method, self.validator)
        started = time.monotonic()
        if len(stages):
            self._start_folder(folder, recipe, place)
            if (interrupted := self._interrupted_stages(stages, interval)) is not None:
                return interrupted
        feed = self._build_feed(method, recipe, place)
        views: TwoViews | CachedViews = self.pair
        if isinstance(method.backbone, FrozenBackbone):
            feed, views = self._build_feature_feed(method.backbone, recipe), CachedViews()
        prepared = time.monotonic() - started
        self.loop = loop = Loop(method, views, feed, recipe, folder, fabric, validate)
        loop.count_preparation(prepared)
        if state is not None:
            self._restore(loop, state, folder)
            check_same_artefacts(state.get("stages", {}), stages.checksums, folder)
            self._prolong(loop)
        self._start_folder(folder, recipe, place)
        return self._train(loop, disk, interval, stages.checksums)

    def _start_folder(self, folder: Path, recipe: Recipe, place: Place) -> None:
        """Write the files that a run has from its start, unless it has them."""
        if rank() == 0 and not (folder / CONFIG).exists():
            facts = {**run_facts(self.images, recipe), "ranks": place.ranks}
            start_folder(folder, recipe, facts)

    def _interrupted_stages(self, stages: StageRunner, interval: CheckpointInterval) -> Run | None:
        """Run the stages; return None at their end, else the run that a signal has stopped."""
        with stop_on_signals() as stop:
            finished = stages.run(interval, lambda: stop() or self._should_stop(), self.progress)
        return None if finished else Run(stages.run_folder, stages.recipe, 0, False, stop.signal)

    def _load_images(self, recipe: Recipe, fabric: Fabric) -> ImageSet:
        with local_rank_zero_first(fabric):  # the others then find the files prepared
            return load_dataset(
                self.data,
                "train",
                self.root,
                size=recipe.image.source_size,
                channels=recipe.image.channels,
                aspect=recipe.image.aspect,
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

    def _build_feature_feed(self, backbone: FrozenBackbone, recipe: Recipe) -> FeatureFeed:
        """Return batches of cached features, and centre the backbone on their mean."""
        features = compute_features(self.images, backbone, self.pair, recipe, self.progress)
        backbone.centre.copy_(torch.from_numpy(features.mean()))
        train = recipe.train
        return FeatureFeed(self.images, features, backbone.centre, train.batch_size, train.seed)

    def _restore(self, loop: Loop, state: dict[str, Any], folder: Path) -> None:
        if state.get("data") != fingerprint(self.images):
            raise InputError(
                f"the images in {self.images.name!r} are not those of the run in {folder}"
            )
        steps, step = loop.schedule.steps, state.get("step")
        is_beyond = steps is not None and isinstance(step, int) and step > steps
        if is_beyond and read_recipe(folder) == loop.recipe:
            raise InputError(
                f"{folder / RESUME} is at step {step:,}, and the run ends at {steps:,}; copy it "
                f"again from an intact source"
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

    def _train(
        self, loop: Loop, disk: DiskGuard, interval: CheckpointInterval, artefacts: dict[str, str]
    ) -> Run:
        extra = {"data": fingerprint(self.images), "stages": artefacts}

        def save(last: bool = False) -> None:
            if rank() == 0:
                what = f"the checkpoint of step {loop.step}"
                disk.write(what, lambda: loop.save(extra), last)
            else:
                loop.save(extra)  # which writes nothing

        loggers: list[Logger] = []
        watch = None
        if rank() == 0:
            loggers = open_loggers(loop, disk, self.loggers, self.tensorboard)
            # A function of the user may have state, so another call could change the run.
            if self.measure_quality and self.views is None:
                watch = open_watch(loop, disk, self.images, self.pair)
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

    def _save_untrained(
        self, folder: Path, method: Method, recipe: Recipe, images: ImageSet | None
    ) -> None:
        if rank() == 0:
            data = str(self.data) if images is None else images
            start_folder(folder, recipe, run_facts(data, recipe))
            save_checkpoint(folder, method, recipe, 0, {})
