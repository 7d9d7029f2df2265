"""Which model to take for a folder of pictures, by what the pictures look like."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from psco.recipes.builtin import BUILT_IN
from psco.recipes.choice import Kind, choose_recipe, look_at

_SEEN: dict[Kind | None, str] = {
    "photographs": "these look like colour photographs",
    "drawings": "these look like drawings on plain paper",
    "grey": "these look like grey photographs",
    None: "no picture of it can be decoded",
}
_FITTING = {"photographs": "imagenet", "drawings": "handwriting"}


def advise_model(pictures: str | os.PathLike[str], command: str = "psco label") -> str:
    """Return sentences on which model to pass to a command with a folder of pictures, and why.

    A built-in encoder is named if one fits and is installed. Otherwise, and as the better choice
    for unusual pictures, the sentences say how to train an encoder on the folder itself.
    """
    folder = shlex.quote(os.fspath(pictures))
    kind = look_at(pictures)
    name = _FITTING.get(kind or "", "")
    run = f"runs/{Path(pictures).resolve().name}"
    train = (
        f"  psco pretrain {folder} --out {shlex.quote(run)}\n"
        f"  {command} {shlex.quote(run)} {folder}"
    )
    seen = f"{os.fspath(pictures)}: {_SEEN[kind]}."
    recipe = choose_recipe(pictures).recipe
    fitting = BUILT_IN.get(name)
    if fitting is not None and fitting.missing is None:
        return (
            f"{seen}\nTake the built-in encoder {name} ({fitting.summary}):\n"
            f"  {command} {name} {folder}\n"
            f"If they are unlike what it knows, train on them first (recipe {recipe}):\n{train}"
        )
    missing = "" if fitting is None else f" {fitting.missing}."
    return (
        f"{seen}{missing}\nTrain an encoder on them first (recipe {recipe}), then label:\n{train}"
    )
