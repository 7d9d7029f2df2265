"""The card of a run: README.md in the format of the Hugging Face Hub, with how it was made."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from psco.data.sets.catalogue import BENCHMARKS
from psco.errors import InputError, PscoError, counted, first_line, printable, quoted
from psco.evaluation.embed import Encoder, load
from psco.files.atomic import atomic_path
from psco.files.checksums import hash_file
from psco.training.checkpoint import MODEL, model_weights, read_environment

CARD = "README.md"
UNKNOWN_LICENCE = "unknown"
_MOST_BYTES = 50_000_000  # of a file of results


class Accuracy(NamedTuple):
    """A row of results of ``psco evaluate --json``."""

    data: str
    split: str
    rule: str
    ways: int
    shots: int
    queries: int
    tasks: int
    seed: int
    mean: float
    ci95: float

    @property
    def setting(self) -> str:
        """The setting as text, such as ``5-way 1-shot``."""
        return f"{self.ways}-way {self.shots}-shot"


def write_card(
    run: str | Path,
    evaluations: list[Path] | None = None,
    *,
    licence: str = UNKNOWN_LICENCE,
    name: str | None = None,
    force: bool = False,
) -> Path:
    """Write ``README.md`` into a run folder, which is then ready to be shared.

    Parameters
    ----------
    run
        The run folder.
    evaluations
        Files with the output of ``psco evaluate RUN --json``.
    licence
        Of the weights, by its short name on the hub, such as ``mit``.
    name
        Title; by default the name of the folder.
    force
        Replace a card that is there.

    Raises
    ------
    InputError
        If the folder is not a run, there is a card already, or a file holds no results.
    """
    encoder = load(run)
    if encoder.folder is None:
        raise InputError(f"a card is written into a run folder, and {quoted(run)} is built in")
    path = encoder.folder / CARD
    if path.exists() and not force:
        raise InputError(f"{quoted(path)} exists; --force replaces it")
    rows = [row for file in evaluations or [] for row in read_accuracies(file)]
    text = card_text(encoder, rows, licence, name or encoder.folder.resolve().name)
    with atomic_path(path) as aside:
        aside.write_text(text, encoding="utf-8")
    return path


def card_text(encoder: Encoder, rows: list[Accuracy], licence: str, name: str) -> str:
    """Return the card of an encoder with a run folder."""
    title, kind = encoder.method.title, encoder.method.kind
    labels = "with labels" if kind == "supervised" else "without labels"
    data = encoder.trained_on or "images"
    facts = _facts(encoder, licence)
    table = "\n".join(f"| {label} | {_cell(value)} |" for label, value in facts.items())
    return f"""---
{_front_matter(encoder, rows, licence, name)}---

# {printable(name)}

An encoder for few-shot classification, trained by {title} on {_cell(data)} {labels}.
A few examples of each class make it a classifier:

```
psco fit FOLDER my-samples -o mine.psco
psco classify mine.psco new-pictures
```

FOLDER is this folder, or `hf://` with its user and name on the hub. In Python,
`psco.load("FOLDER").embed_query(images)` returns embeddings.

| | |
|---|---|
{table}

## Accuracy

{_accuracies(rows)}
"""


def read_accuracies(path: Path) -> list[Accuracy]:
    """Read the results in a file with the output of ``psco evaluate --json``.

    Raises
    ------
    InputError
        If the file is missing or holds something else.
    """
    wrong = InputError(f"{quoted(path)} is not the output of psco evaluate RUN --json")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise wrong
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        rows = [Accuracy(*(row[field] for field in Accuracy._fields)) for row in results]
    except OSError as error:
        raise InputError(f"cannot read {quoted(path)}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise wrong from None
    if not rows or not all(map(_is_valid, rows)):
        raise wrong
    return rows


def _is_valid(row: Accuracy) -> bool:
    texts, numbers = row[:3], row[3:8]
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) for number in numbers)
        and all(isinstance(value, (int, float)) for value in (row.mean, row.ci95))
        and 0 <= row.mean <= 100
        and not math.isinf(row.ci95)
    )


def _front_matter(encoder: Encoder, rows: list[Accuracy], licence: str, name: str) -> str:
    about: dict[str, Any] = {
        "library_name": "psco",
        "license": printable(licence),
        "pipeline_tag": "image-feature-extraction",
        "tags": ["few-shot-learning", encoder.method.kind, encoder.recipe.method.name],
    }
    if encoder.trained_on in BENCHMARKS:
        about["datasets"] = [encoder.trained_on]
    if rows:
        about["metrics"] = ["accuracy"]
        about["model-index"] = [
            {"name": printable(name), "results": [_result(row) for row in rows]}
        ]
    text: str = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return text


def _result(row: Accuracy) -> dict[str, Any]:
    data = printable(row.data)  # a line of its own with --- would end the front matter
    return {
        "task": {"type": "image-classification", "name": f"{row.setting} classification"},
        "dataset": {"type": data, "name": data, "split": printable(row.split)},
        "metrics": [{"type": "accuracy", "name": row.setting, "value": round(row.mean, 2)}],
    }


def _facts(encoder: Encoder, licence: str) -> dict[str, str]:
    assert encoder.folder is not None
    recipe, image = encoder.recipe, encoder.recipe.image
    try:
        record = read_environment(encoder.folder)
    except PscoError as error:
        record = {"missing": first_line(error)}
    weights = sum(tensor.numel() for tensor in model_weights(encoder.method).values())
    colour = "grey" if image.channels == 1 else "colour"
    views = recipe.views.at_test
    benchmark = BENCHMARKS.get(encoder.trained_on or "")
    data = f"{encoder.trained_on or 'not recorded'}, {counted(encoder.images_trained_on, 'image')}"
    versions = [f"{name} {record[name]}" for name in ("psco", "torch", "python") if name in record]
    return {
        "network": f"{recipe.backbone.name}, {image.size} px, {colour}, {weights:,} weights",
        "method": recipe.method.name,
        "views at test": f"{views}, averaged with the image" if views else "none",
        "training data": data if benchmark is None else f"{data}; {benchmark.source}",
        "command": f"`{_command(record)}`",
        "seed": str(recipe.train.seed),
        "steps": f"{encoder.steps:,}",
        "software": ", ".join(versions) or "not recorded",
        "recipe": f"`config.yaml`, {recipe.hash()}",
        f"sha256 of `{MODEL}`": f"`{hash_file(encoder.folder / MODEL)}`",
        "licence": licence,
    }


def _command(record: dict[str, Any]) -> str:
    """Return the command that trained the run; of absolute paths, the last part alone."""
    words = record.get("command")
    if not isinstance(words, list):
        return "not recorded"
    texts = [str(word) for word in words]
    return shlex.join(Path(text).name if Path(text).is_absolute() else text for text in texts)


def _accuracies(rows: list[Accuracy]) -> str:
    if not rows:
        return (
            "Not measured. `psco evaluate FOLDER --data DATA --json > results.json`, then "
            "`psco card FOLDER --evaluation results.json` adds it here."
        )
    lines = ["| data | setting | rule | accuracy, % | tasks |", "|---|---|---|--:|---|"]
    for row in rows:
        interval = "" if math.isnan(row.ci95) else f" ± {row.ci95:.2f}"
        lines.append(
            f"| {_cell(row.data)} ({_cell(row.split)}) | {row.setting} | {_cell(row.rule)} "
            f"| {row.mean:.2f}{interval} "
            f"| {row.tasks:,}, {row.queries} queries per class, seed {row.seed} |"
        )
    return "In percent, with the half-width of the 95 % interval.\n\n" + "\n".join(lines)


def _cell(text: str) -> str:
    return printable(text, 500).replace("|", "\\|")
