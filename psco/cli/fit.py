"""psco fit: a classifier from a few labelled images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Device, Json, RuleOptions, command, print_note, read_options
from psco.errors import InputError, counted


@command
def fit(
    run: Annotated[Path, typer.Argument(help="Run folder or built-in encoder, see `psco models`.")],
    supports: Annotated[
        Path,
        typer.Argument(
            help="A few labelled images: one folder per class, as a folder or .zip, or a .csv file."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Classifier file to write.")],
    rule: Annotated[
        str, typer.Option(help="Classification rule; auto chooses by left-out supports.")
    ] = "auto",
    adapt: Annotated[int, typer.Option(help="Steps of adapting the heads to the supports.")] = 0,
    reject: Annotated[
        str | None,
        typer.Option(
            metavar="auto|P",
            help="Label images of no class 'unknown': automatically, or below probability P.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Leave supports out by groups, such as videos or patients: a column of the .csv "
            "file, or a regular expression for file names.",
        ),
    ] = None,
    options: RuleOptions = None,
    seed: Annotated[int, typer.Option(help="Seed for choosing supports to calibrate with.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a classifier to a few labelled images."""
    rule_options, reject_below = read_options(options or []), _read_rejection(reject)
    from psco.classifier.assessment import assess_files
    from psco.classifier.bulk import fit_files

    classifier = fit_files(
        run,
        supports,
        rule=rule,
        rule_options=rule_options,
        adapt_steps=adapt,
        reject_below=reject_below,
        device=device,
        seed=seed,
    )
    assessment = assess_files(classifier, supports, groups=groups, seed=seed)
    classifier.save(out)
    counts = dict(
        zip(classifier.classes_.tolist(), classifier.support_counts_.tolist(), strict=True)
    )
    if as_json:
        result = {
            "classifier": str(out),
            "supports": counts,
            "rule": classifier.rule_,
            "left_out": assessment.as_dict(),
            "near_duplicates": assessment.copies,
            "rejection": None if assessment.rejection is None else assessment.rejection.as_dict(),
            "temperature": classifier.temperature_,
            "threshold": classifier.threshold_,
        }
        typer.echo(json.dumps(result))
    else:
        total = sum(counts.values())
        shown = f"{counted(len(counts), 'class')}, {counted(total, 'support')}"
        typer.echo(f"{out}: {shown}, rule {classifier.rule_}")
        for line in assessment.lines():
            typer.echo(line)
    for warning in assessment.warnings:
        print_note(f"warning: {warning}")


def _read_rejection(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--reject takes auto or a probability such as 0.5, not {text!r}"
        ) from None
