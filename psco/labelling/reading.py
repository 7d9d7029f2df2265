"""A session that is only looked at: nothing is written beside the pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from psco.evaluation.embed import Encoder
from psco.labelling.session import SESSION, Labelling


@contextmanager
def look_at(
    model: str | os.PathLike[str] | Encoder,
    folder: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> Iterator[Labelling]:
    """Yield a session whose changes are forgotten at the end of the block.

    Parameters
    ----------
    model, folder, device
        As for `Labelling`.
    labels
        A CSV file or the folder of a session, see `read_labels`; by default the session in the
        folder of the pictures, if there is one. It may be open elsewhere.
    """
    own = Path(folder) / SESSION
    source = own if labels is None and own.is_dir() else labels
    with (
        TemporaryDirectory(prefix="psco-") as aside,
        Labelling(model, folder, aside, source, device) as session,
    ):
        yield session
