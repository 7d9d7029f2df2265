"""psco pretrain: train an encoder on unlabelled images."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from psco.cli.common import (
    OUTPUT,
    Debug,
    Json,
    RecipeName,
    Root,
    Settings,
    command,
    print_note,
    read_fraction,
)
from psco.errors import InputError

_LENGTH = "Length"
_IMAGES = "Images"
_CHECKPOINTS = "Checkpoints"
_DEVICES = "Devices"


@command
def pretrain(
    data: Annotated[str, typer.Argument(help="Data set name or folder of images.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder to write.")] = None,
    recipe: RecipeName = None,
    method: Annotated[
        str | None,
        typer.Option(help="Training method (see psco methods).", show_default="the recipe's"),
    ] = None,
    aux: Annotated[
        str | None,
        typer.Option(
            help="Auxiliary loss of PsCo: moco, byol or none.", show_default="the recipe's"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of everything random.", show_default="the recipe's")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(help="Initial weights: a file, a run folder or a built-in encoder."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="32-true, bf16-mixed, 16-mixed, ...", show_default="32-true")
    ] = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the resolved recipe and the source of each value, and stop.",
        ),
    ] = False,
    epochs: Annotated[
        float | None, typer.Option(help="Epochs, instead of the recipe's.", rich_help_panel=_LENGTH)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps, instead of the recipe's.", rich_help_panel=_LENGTH)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes, instead of the recipe's.", rich_help_panel=_LENGTH),
    ] = None,
    root: Root = None,
    max_bad: Annotated[
        str,
        typer.Option(help="Fraction of files that may be undecodable.", rich_help_panel=_IMAGES),
    ] = "1%",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that decode images ahead.",
            show_default="as needed",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    checkpoint_minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes between checkpoints.", show_default="5", rich_help_panel=_CHECKPOINTS
        ),
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Steps between checkpoints.", rich_help_panel=_CHECKPOINTS)
    ] = None,
    on_full_disk: Annotated[
        str,
        typer.Option(
            help="If the disk is too full for a checkpoint: stop or continue.",
            rich_help_panel=_CHECKPOINTS,
        ),
    ] = "stop",
    devices: Annotated[
        int | None,
        typer.Option(
            help="Devices per machine.",
            show_default="1, or the launcher's",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Machines.", show_default="1, or the launcher's", rich_help_panel=_DEVICES
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="Distribution over devices: auto or ddp.", rich_help_panel=_DEVICES)
    ] = "auto",
    rank_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds without an answer after which a device counts as lost.",
            rich_help_panel=_DEVICES,
        ),
    ] = 60,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Also log for TensorBoard.", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train an encoder on unlabelled images."""
    from psco.recipes.recipe import Override, default_recipe, resolve_recipe, with_flags

    changes: list[str | Override] = [*(settings or [])]
    if precision is not None:
        changes.append(Override("train.precision", precision, "--precision"))
    if aux is not None:
        changes.append(Override("method.auxiliary", aux, "--aux"))
    if print_config:
        changes = with_flags(changes, method, epochs, steps, minutes, seed, init)
        resolved = resolve_recipe(recipe or default_recipe(data), changes)
        typer.echo(resolved.to_yaml(), nl=False)
        return
    if out is None:
        raise InputError("--out is missing: the run folder to write, such as --out runs/first")

    from psco.classifier.pretraining import pretrain as train
    from psco.ops.ranks import rank
    from psco.training.quality import quality_warning
    from psco.training.run import describe

    run = train(
        data,
        out=out,
        recipe=recipe,
        method=method,
        epochs=epochs,
        steps=steps,
        minutes=minutes,
        seed=seed,
        init=init,
        overrides=changes,
        root=root,
        max_bad=read_fraction(max_bad, "--max-bad"),
        workers=workers,
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        rank_timeout=rank_timeout,
        resume=resume,
        checkpoint_minutes=checkpoint_minutes,
        checkpoint_steps=checkpoint_steps,
        on_full_disk=cast(Any, on_full_disk),
        tensorboard=tensorboard,
    )
    if rank() > 0:
        return
    if as_json:
        result = {
            "run": str(out),
            "steps": run.steps,
            "finished": run.finished,
            "last": run.metrics[-1] if run.metrics else {},
            "quality": run.quality,
        }
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{out}: {describe(run)}")
    if run.finished and (warning := quality_warning(run.quality)):
        print_note(f"warning: {warning}")
    run.require_finished(shlex.join(["psco", "pretrain", str(data), "--out", str(out), "--resume"]))
