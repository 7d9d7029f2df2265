"""psco classify: label image files with a fitted classifier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psco.cli.common import Debug, Device, Images, Json, Raw, command, exit_if_failed, write_page
from psco.errors import InputError, counted, printable, quoted

if TYPE_CHECKING:
    from psco.classifier.results import Row


@command
def classify(
    classifier: Annotated[Path, typer.Argument(help="Classifier: written by psco fit, or .onnx.")],
    images: Images,
    out: Annotated[Path | None, typer.Option("--csv", help="Write a table.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the pictures.")] = None,
    raw: Raw = False,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Classify any number of images.

    Exits with 1 if some images cannot be decoded; they are listed with the error.
    """
    from psco.classifier import FewShotClassifier
    from psco.classifier.bulk import classify_files, list_image_files
    from psco.classifier.results import write_rows

    if html is not None and html == out:
        raise InputError(f"--csv and --html need two different files, got {str(out)!r} for both")
    is_onnx = classifier.suffix.lower() == ".onnx"
    if is_onnx and html is not None:
        raise InputError("--html shows supports, and an .onnx file has none; use --csv")
    loaded, listing = None, list_image_files(images)
    if is_onnx:
        from psco.export.onnx.files import classify_files_onnx
        from psco.export.onnx.reading import OnnxClassifier

        rows = classify_files_onnx(OnnxClassifier(classifier), listing, progress=True)
    else:
        loaded = FewShotClassifier.load(classifier)
        rows = classify_files(loaded, listing, device=device, progress=True)
    if out is not None:
        rows = write_rows(out, rows, raw=raw)
    sheet = None
    if html is not None and loaded is not None:
        from psco.report.classified import ContactSheet

        sheet = ContactSheet(loaded, listing)
        rows = sheet.watch(rows)
    counts: Counter[str] = Counter()
    failed = 0
    for number, row in enumerate(rows):
        if as_json:
            typer.echo(("," if number else "[") + json.dumps(row._asdict()))
        elif out is None and html is None:
            _print_row(row)
        failed += bool(row.error)
        counts.update([] if row.error else [str(row.label)])
    if html is not None and sheet is not None:
        write_page(html, sheet.page(str(classifier), html.parent))
    if as_json:
        typer.echo("]")
    elif out is not None or html is not None:
        most = ", ".join(f"{number} as {quoted(label)}" for label, number in counts.most_common(10))
        written = " and ".join(str(path) for path in (out, html) if path is not None)
        typer.echo(f"{written}: {counted(counts.total(), 'image')}: {most}")
    exit_if_failed(failed, failed + counts.total())


def _print_row(row: Row) -> None:
    probability = "" if row.probability is None else f"\t{row.probability:.3f}"
    label = printable(str(row.error or row.label))
    typer.echo(f"{printable(row.path)}\t{label}{probability}")
