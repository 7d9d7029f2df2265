"""Commands that use what was trained: fit, classify and embed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, for_people, read_options, say
from psco.errors import InputError, counted, quoted

Images = Annotated[
    list[Path], typer.Argument(help="Image files and folders; or one .zip or .csv file.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]


@for_people
def fit(
    run: Annotated[Path, typer.Argument(help="Run folder of the encoder.")],
    supports: Annotated[
        Path, typer.Argument(help="A few images in a folder per class, as folder, .zip or .csv.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Classifier to write.")],
    rule: Annotated[str, typer.Option(help="How images are classified.")] = "prototype",
    adapt: Annotated[int, typer.Option(help="Train the heads for so many steps.")] = 0,
    reject: Annotated[
        str | None,
        typer.Option(metavar="auto|P", help="Call images unknown: auto, or below probability P."),
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="A=B", help="An option of the rule.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses supports to judge by.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a classifier from a few labelled images."""
    choices, below = read_options(options or []), _read_rejection(reject)
    from psco.classifier.bulk import fit_files

    classifier = fit_files(
        run,
        supports,
        rule=rule,
        rule_options=choices,
        adapt_steps=adapt,
        reject_below=below,
        device=device,
        seed=seed,
    )
    classifier.save(out)
    counts = dict(
        zip(classifier.classes_.tolist(), classifier.support_counts_.tolist(), strict=True)
    )
    if as_json:
        facts = {
            "classifier": str(out),
            "supports": counts,
            "temperature": classifier.temperature_,
            "threshold": classifier.threshold_,
        }
        typer.echo(json.dumps(facts))
    else:
        typer.echo(
            f"{out}: {counted(len(counts), 'class')}, {counted(sum(counts.values()), 'support')}"
        )


@for_people
def classify(
    classifier: Annotated[Path, typer.Argument(help="File that psco fit has written.")],
    images: Images,
    out: Annotated[Path | None, typer.Option("--csv", help="Write a table.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the pictures.")] = None,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Classify images, any number of them.

    Exits with 1 if some cannot be decoded; they are listed with the error.
    """
    from psco.classifier import FewShotClassifier
    from psco.classifier.bulk import classify_files, list_image_files
    from psco.classifier.results import write_rows

    if html is not None and html == out:
        raise InputError(f"--csv and --html take two files, not {str(out)!r} for both")
    loaded, listing = FewShotClassifier.load(classifier), list_image_files(images)
    rows = classify_files(loaded, listing, device=device, progress=True)
    if out is not None:
        rows = write_rows(out, rows)
    sheet = None
    if html is not None:
        from psco.report.classified import ContactSheet

        sheet = ContactSheet(loaded, listing)
        rows = sheet.watch(rows)
    counts: Counter[str] = Counter()
    failed = 0
    for number, row in enumerate(rows):
        if as_json:
            typer.echo(("," if number else "[") + json.dumps(row._asdict()))
        elif out is None and html is None:
            share = "" if row.probability is None else f"\t{row.probability:.3f}"
            typer.echo(f"{row.path}\t{row.error or row.label}{share}")
        failed += bool(row.error)
        counts.update([] if row.error else [str(row.label)])
    if html is not None and sheet is not None:
        from psco.files.atomic import atomic_path

        with atomic_path(html) as aside:  # names of files need not be Unicode
            aside.write_text(sheet.page(str(classifier)), encoding="utf-8", errors="replace")
    if as_json:
        typer.echo("]")
    elif out is not None or html is not None:
        most = ", ".join(f"{number} as {quoted(label)}" for label, number in counts.most_common(10))
        written = " and ".join(str(path) for path in (out, html) if path is not None)
        typer.echo(f"{written}: {counted(counts.total(), 'image')}: {most}")
    _exit_if_failed(failed, failed + counts.total())


@for_people
def embed(
    run: Annotated[Path, typer.Argument(help="Run folder of the encoder.")],
    images: Images,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.npz).")],
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the features of images, for other tools.

    The file holds names, features, support, query and, of a folder with a folder per class,
    labels. Exits with 1 if some images cannot be decoded; these are left out.
    """
    if out.suffix != ".npz":
        raise InputError(f"--out takes a file that ends in .npz, not {str(out)!r}")
    from psco.classifier.bulk import embed_files, list_image_files
    from psco.classifier.results import write_features
    from psco.evaluation.embed import load

    listing = list_image_files(images)
    embedded = embed_files(load(run), listing, device=device, progress=True)
    write_features(out, embedded)
    for path, error in embedded.errors.items():
        say(f"left out: {path}: {error}")
    width = embedded.embeddings.features.shape[1]
    facts = {"features": str(out), "images": len(embedded.names), "width": width}
    if as_json:
        typer.echo(json.dumps({**facts, "failed": embedded.errors}))
    else:
        typer.echo(f"{out}: {counted(len(embedded.names), 'image')}, {counted(width, 'feature')}")
    _exit_if_failed(len(embedded.errors), len(listing))


def _read_rejection(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--reject takes auto or a probability such as 0.5, not {text!r}"
        ) from None


def _exit_if_failed(failed: int, total: int) -> None:
    if failed:
        say(f"{failed} of {counted(total, 'image')} cannot be decoded")
        raise typer.Exit(1)
