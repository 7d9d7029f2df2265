"""Commands that train: pretrain, report and demo."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from psco.cli.common import Debug, Json, Root, for_people, print_results, read_share, say
from psco.errors import InputError


@for_people
def pretrain(
    data: Annotated[str, typer.Argument(help="Data set name or folder of images.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder to write.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file.")] = None,
    method: Annotated[str | None, typer.Option(help="Training method.")] = None,
    aux: Annotated[str | None, typer.Option(help="Loss beside PsCo's: moco, byol or none.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Length in epochs.")] = None,
    steps: Annotated[int | None, typer.Option(help="Length in steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Length in minutes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    init: Annotated[
        str | None, typer.Option(help="Initial weights: a file or a run folder.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Number format: 32-true, bf16-mixed, 16-mixed, ..."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe."),
    ] = None,
    checkpoint_minutes: Annotated[
        float | None,
        typer.Option(help="Save every so many minutes.", show_default="5"),
    ] = None,
    checkpoint_steps: Annotated[
        int | None,
        typer.Option(help="Save every so many steps."),
    ] = None,
    on_full_disk: Annotated[
        str, typer.Option(help="Without room for a checkpoint: stop or continue.")
    ] = "stop",
    root: Root = None,
    max_bad: Annotated[
        str, typer.Option(help="Share of undecodable files to skip, such as 1%.")
    ] = "1%",
    workers: Annotated[
        int | None, typer.Option(help="Processes that decode ahead.", show_default="as needed")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(help="Devices to train on, on each machine.", show_default="1, or as started"),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Machines to train on.", show_default="1, or as started")
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="How devices share the work: auto or ddp.")
    ] = "auto",
    rank_timeout: Annotated[
        float, typer.Option(help="Seconds after which a device that is silent ends the run.")
    ] = 60,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")
    ] = False,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the resolved recipe and the source of each value, and stop.",
        ),
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
        max_bad=read_share(max_bad, "--max-bad"),
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
    last = run.metrics[-1] if run.metrics else {}
    result = {"run": str(out), "steps": run.steps, "finished": run.finished, "last": last}
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{out}: {run.steps} steps, loss {last.get('total', float('nan')):.3f}")
    run.require_finished(shlex.join(["psco", "pretrain", str(data), "--out", str(out), "--resume"]))


@for_people
def report(
    data: Annotated[str, typer.Argument(help="Name of a data set with a test split.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the runs and the report.", show_default="runs/RECIPE"
        ),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file.")] = None,
    seeds: Annotated[list[int], typer.Option(help="Seeds of training.")] = [0, 1, 2],  # noqa: B006
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(help="How to classify, separated by commas.", show_default="the method's"),
    ] = None,
    split: Annotated[str, typer.Option(help="test, or val to choose by.")] = "test",
    ways: Annotated[list[int], typer.Option(help="Classes in a task.")] = [5, 20],  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Supports of a class.")] = [1, 5],  # noqa: B006
    tasks: Annotated[int, typer.Option(help="Tasks per setting.")] = 2000,
    task_seed: Annotated[int, typer.Option(help="Decides the tasks.")] = 0,
    root: Root = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a recipe with some seeds, test it, write OUT/report.json.

    An interrupted report continues where it was; a finished one only tests again.
    """
    from psco.experiments.recipe_report import REPORT, report_recipe
    from psco.recipes.recipe import default_recipe

    out = out or Path("runs") / Path(recipe or default_recipe(data)).stem
    names = [name.strip() for name in (rules or "").split(",") if name.strip()]
    found = report_recipe(
        data,
        out=out,
        recipe=recipe,
        seeds=seeds,
        overrides=settings or [],
        rules=names,
        split=split,
        ways=ways,
        shots=shots,
        tasks=tasks,
        task_seed=task_seed,
        root=root,
    )
    if found is None:
        say(f"stopped in {out}; the same command continues")
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(found))
        return
    apart = [{"name": f"seed {row['training_seed']}", **row} for row in found["results"]]
    together = [{"name": "mean", **row} for row in found["mean"]]
    rows = [{**row, "method": f"{row['name']}, {row['rule']}"} for row in apart + together]
    print_results(rows, f"{data} ({split}): accuracy in %")
    say(f"report: {out / REPORT}")


@for_people
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder to write.")] = Path(
        "runs/demo"
    ),
    steps: Annotated[int | None, typer.Option(help="Train shorter or longer.")] = None,
    tasks: Annotated[int, typer.Option(help="Test tasks per setting.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of training and of the tasks.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train on the embedded glyphs, compare with two baselines, write a report.

    An interrupted demo continues where it was; a finished one only writes its report again.
    """
    from psco.experiments.demo import run_demo

    report = run_demo(out, steps=steps, tasks=tasks, seed=seed)
    if as_json:
        typer.echo(json.dumps(report))
        return
    print_results(report["results"], "Accuracy on unseen classes, in %")
    for quality in report["open_set"]:
        typer.echo(
            f"{quality['ways']}-way {quality['shots']}-shot: calibration error "
            f"{quality['calibration_error']:.3f}, AUROC of rejection {quality['auroc']:.3f}"
        )
    say(f"report: {out / 'report.html'}")
