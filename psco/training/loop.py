"""The training loop, on Lightning Fabric: steps, training curves and checkpoints."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from psco.errors import DivergedError, PscoError
from psco.methods import Batch, Method
from psco.ops.ranks import all_max, any_rank, averaged, broadcast, rank, synchronise, world_size
from psco.progress import Bar
from psco.recipes.recipe import Recipe
from psco.training.averaging import WeightAverage
from psco.training.checkpoint import RESUME, load_weights, restore_model, save_checkpoint
from psco.training.feed import Feed
from psco.training.frozen import CachedViews
from psco.training.logging import Logger, Meter, Row
from psco.training.optim import build_optimizer, schedule_for
from psco.training.phases import Phases
from psco.training.resume import check_part, check_state, load_optimizer
from psco.training.selection import BestModel, Validate
from psco.views import TwoViews, step_generator

BN_RECALIBRATION_BATCHES = 64  # or one epoch, if that is shorter


class Loop:
    """A run in progress.

    Everything random in step t depends on (seed, t) alone, so the state of a run consists of its
    weights, the optimiser's momenta, the queue and the number of steps taken.

    Parameters
    ----------
    method
        The method to train.
    views, feed
        The pair of views, and the batches of images. On several ranks the feed yields the rows of
        this rank.
    recipe
        The settings.
    folder
        The run folder, for checkpoints.
    fabric
        Devices and precision; None for one device.
    validate
        Returns the validation accuracy of a network, for recipes with ``train.select: validation``.
    """

    def __init__(
        self,
        method: Method,
        views: TwoViews | CachedViews,
        feed: Feed,
        recipe: Recipe,
        folder: Path,
        fabric: Fabric | None = None,
        validate: Validate | None = None,
    ) -> None:
        train = recipe.train
        self.views, self.feed, self.recipe, self.folder = views, feed, recipe, folder
        self.phases = Phases(views, train)
        self.schedule = schedule_for(train, feed.batches_per_epoch)
        self.fabric = fabric or Fabric(devices=1, precision=train.precision)
        if world_size() > 1:
            synchronise(method)
        # On CPU, channels_last halves the time of the convolutions.
        method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = build_optimizer(method, train, self.schedule.peak)
        self.method, self.optimizer = self.fabric.setup(method, optimizer)
        self.method.mark_forward_method("loss")
        self.average = WeightAverage(self.method.module) if train.average_last > 0 else None
        self.best = None if validate is None else BestModel(self.method.module, validate)
        self.step = 0
        self._saved_step: int | None = None
        self._earlier_seconds, self._started = 0.0, time.monotonic()
        # The first step with a loss that is not finite. It is read only when a row is logged or a
        # checkpoint written, so that no step waits for the device.
        self._first_bad = torch.full((), -1, device=self.fabric.device)

    @property
    def seconds(self) -> float:
        """Time spent on this run, including the time before it was resumed."""
        return self._earlier_seconds + time.monotonic() - self._started

    @property
    def done(self) -> float:
        """The fraction of the run that is done, in [0, 1]."""
        if self.schedule.steps is None:  # all ranks follow the clock of rank 0
            return self.schedule.done(self.step, broadcast(self.seconds))
        return self.schedule.done(self.step, self.seconds)

    def count_preparation(self, seconds: float) -> None:
        """Count the time of preparations as part of a run limited by time, at most four fifths."""
        if self.schedule.seconds is not None:
            seconds = min(self._earlier_seconds + seconds, 0.8 * self.schedule.seconds)
        self._earlier_seconds = seconds

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `save` wrote.

        Raises
        ------
        InputError, PscoError
            If it is not a state of this run; nothing has been used then.
        """
        source = self.folder / RESUME
        check_state(state, source)
        load_weights(self.method.module, state["method"], source)
        load_optimizer(self.optimizer, state["optimizer"], source)
        self.step = self._saved_step = state["step"]
        if self.average is not None:
            self.average.load_state_dict(check_part(state, "average", source), source)
        if self.best is not None:
            self.best.load_state_dict(check_part(state, "best", source), source)
        if rank() == 0:
            restore_model(self.folder, self._model, self.recipe, self.step)
        self._earlier_seconds = state["seconds"]
        if (average := self.average) is not None:
            before_mean = self.done <= 1 - self.recipe.train.average_last
            if before_mean or (average.recalibrated and self.done < 1):
                average.reset()  # the run was prolonged; the mean is of its new last part

    def save(self, extra: dict[str, Any]) -> None:
        """Write a checkpoint unless there is one of this step already.

        Parameters
        ----------
        extra
            Entries to add to the state.

        Raises
        ------
        PscoError
            If the loss is not finite; the previous checkpoint stays.
        """
        self._require_finite()
        self._recalibrate_average()
        if self._saved_step == self.step:
            return
        if rank() == 0:
            state = {"optimizer": self.optimizer.state_dict(), "seconds": self.seconds, **extra}
            if self.average is not None:
                state["average"] = self.average.state_dict()
            if self.best is not None:
                state["best"] = self.best.state_dict()
            method = self.method.module
            save_checkpoint(self.folder, method, self.recipe, self.step, state, self._model)
        self._saved_step = self.step

    def run(
        self,
        loggers: Sequence[Logger],
        bar: Bar,
        save: Callable[[], None],
        due: Callable[[int, float], bool],
        stop: Callable[[], bool],
        watch: Callable[[int, float, Method], Row] | None = None,
    ) -> None:
        """Train to the end of the schedule or until ``stop()``; the caller saves the last state.

        Parameters
        ----------
        loggers
            Called every ``log_steps`` steps with the averages over these steps.
        bar
            The progress bar.
        save
            Writes a checkpoint.
        due
            Whether a checkpoint is due, given the steps taken and the monotonic time.
        stop
            Whether to stop before the next step.
        watch
            Called before the first step and for each row with the steps taken, the seconds and the
            network; returns further columns of the row.
        """
        train = self.recipe.train
        watch = watch or (lambda *_: {})
        if self.step == 0:
            watch(self.step, self.seconds, self._model)
        meter, logged_at, logged_step = Meter(), time.monotonic(), self.step
        batches = self.feed.batches(self.step * train.accumulate)
        self.method.train()
        if self.best is not None and self.best.score is None:
            self.best.offer(self.method.module, self.step)
        while self.done < 1 and not any_rank(stop()):
            try:
                meter.add(self._take_step(batches))
            except DivergedError as error:
                raise PscoError(f"step {self.step}: {error}; {self._last_saved()}") from None
            logged_at += self._validate_if_due()
            if self.step % train.log_steps == 0 or self.done >= 1:
                self._require_finite()
                now = time.monotonic()
                images = (self.step - logged_step) * self.feed.batch_size * train.accumulate
                row = self._row(averaged(meter.read()), images / (now - logged_at))
                self._recalibrate_average()  # at the end, what is kept is what is measured
                row |= watch(self.step, self.seconds, self._model)
                logged_at, logged_step = time.monotonic(), self.step
                for log in loggers:
                    log(row)
                bar.update(self.done, _status(row))
            if any_rank(due(self.step, time.monotonic())):
                save()

    def _take_step(self, batches: Iterator[tuple[Tensor, Tensor | None]]) -> dict[str, Tensor]:
        train = self.recipe.train
        done = self.done  # the same for the whole step, also if it is a matter of time
        rate = self.schedule.learning_rate(self.step, done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.phases.freeze(self.method.module, done)
        row: dict[str, Tensor] = {}
        for part in range(train.accumulate):
            images, labels = self.fabric.to_device(next(batches))
            view_a, view_b = self._views(images, self.step * train.accumulate + part, done)
            with self._accumulating(part < train.accumulate - 1):
                batch = Batch(view_a, view_b, labels, done, starts_step=part == 0)
                # Fabric sets the number format by itself only where ranks train together.
                with self.fabric.autocast():
                    loss, logs = self.method.loss(batch)
                self.fabric.backward(loss / train.accumulate)
            row = {"total": loss.detach(), **logs}
            bad = (self._first_bad < 0) & ~row["total"].isfinite()
            self._first_bad = torch.where(bad, self.step, self._first_bad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.average is not None and self.done > 1 - train.average_last:
            self.average.add(self.method.module)
        return row

    def _validate_if_due(self) -> float:
        """Offer the weights to the best model at its steps; return the seconds that it took."""
        began = time.monotonic()
        due = self.step % self.recipe.train.select_steps == 0 or self.done >= 1
        if self.best is not None and due:
            self._require_finite()
            self.best.offer(self.method.module, self.step)
        return time.monotonic() - began

    def copy_model(self) -> Method:
        """Return a copy of the network that the run keeps, on the CPU in single precision."""
        return copy.deepcopy(self._model).float().cpu()

    @property
    def _model(self) -> Method:
        """The network that the run keeps: the best, averaged at the end of the run, or the last."""
        if self.best is not None and self.best.score is not None:
            return self.best.method
        if self.average is not None and self.average.recalibrated:
            return self.average.method
        method: Method = self.method.module
        return method

    def _recalibrate_average(self) -> None:
        """Measure the BatchNorm statistics of the averaged weights, once, at the end of the run."""
        average = self.average
        if average is None or average.recalibrated or not average.steps or self.done < 1:
            return
        number = min(BN_RECALIBRATION_BATCHES, self.feed.batches_per_epoch)
        batches = itertools.islice(self.feed.batches(0), number)
        average.recalibrate(
            self._views(self.fabric.to_device(images), place)[0]
            for place, (images, _) in enumerate(batches)
        )
        self._saved_step = None

    def _accumulating(self, more_follow: bool) -> AbstractContextManager[Any]:
        """Keep the gradients on this rank while they are being accumulated."""
        if not more_follow or world_size() == 1:
            return nullcontext()
        return self.fabric.no_backward_sync(self.method)

    def _views(self, images: Tensor, number: int, done: float = 1.0) -> tuple[Tensor, Tensor]:
        generator = step_generator(self.recipe.train.seed, number, self.feed.rows)
        draw = self.phases.views(done)
        if self.method.views == 2:
            views = draw(images, generator)
        else:
            view = draw.view_a(images, generator)
            views = view, view
        # Whatever else is random in this step: dropout, shots drawn in proportion to the plan.
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)) + rank())
        dtype = next(self.method.parameters()).dtype
        return views[0].to(dtype), views[1].to(dtype)

    def _row(self, averages: dict[str, float], images_per_s: float) -> dict[str, float]:
        accumulate = self.recipe.train.accumulate
        return {
            "step": self.step,
            "epoch": self.step * accumulate / self.feed.batches_per_epoch,
            "seconds": self.seconds,
            "images_per_s": images_per_s,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            **averages,
            **({} if self.best is None else {"validation": self.best.latest or 0.0}),
        }

    def _require_finite(self) -> None:
        bad = int(all_max(self._first_bad))
        if bad < 0:
            return
        rate = self.schedule.learning_rate(bad, self.done)
        raise PscoError(
            f"the loss is not finite at step {bad} with learning rate {rate:.3g}; "
            f"{self._last_saved()}; {self._remedy(bad)}"
        )

    def _remedy(self, step: int) -> str:
        # A batch and its views depend on (seed, step) alone, so they can be computed again.
        accumulate = self.recipe.train.accumulate
        first, done = step * accumulate, self.schedule.done(step, self.seconds)
        batches = itertools.islice(self.feed.batches(first), accumulate)
        if all(
            view.isfinite().all()
            for number, (images, _) in enumerate(batches, first)
            for view in self._views(self.fabric.to_device(images), number, done)
        ):
            return "try a lower train.learning_rate or more train.warmup_steps"
        return "its views contain values that are not finite: check the views, not the settings"

    def _last_saved(self) -> str:
        if self._saved_step is None:
            return "there is no earlier checkpoint"
        return f"the last good checkpoint is {self.folder / RESUME}, step {self._saved_step}"


def _status(row: Row) -> str:
    found = f"  retrieval {row['retrieval']:.0%}" if "retrieval" in row else ""
    return f"loss {row['total']:.3f}{found}  {row['images_per_s']:.0f} images/s"
