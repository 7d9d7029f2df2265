"""The data sets that can be downloaded: their mirrors and checksums."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from psco.data.reading.archive import extract
from psco.data.reading.download import download
from psco.data.sets.catalogue import describe
from psco.errors import InputError, quoted

# More than any of these data sets has, packed or unpacked.
_MAX_BYTES, _MAX_FILES = 1 << 30, 100_000


class Remote(NamedTuple):
    """A file of a data set: its name, its mirrors and its checksum."""

    name: str
    urls: tuple[str, ...]
    md5: str


_OMNIGLOT = (
    "https://raw.githubusercontent.com/brendenlake/omniglot/master/python",
    "https://github.com/brendenlake/omniglot/raw/master/python",
)
# Only data sets whose licence allows redistribution, from hosts that offer them for download.
REMOTES = {
    "omniglot": (
        Remote(
            "images_background.zip",
            tuple(f"{place}/images_background.zip" for place in _OMNIGLOT),
            "68d2efa1b9178cc56df9314c21c6e718",
        ),
        Remote(
            "images_evaluation.zip",
            tuple(f"{place}/images_evaluation.zip" for place in _OMNIGLOT),
            "6b91aef0f799c5bb55b94e3f2daec811",
        ),
    ),
    "eurosat": (
        Remote(
            "eurosat.zip",
            (
                "https://madm.dfki.de/files/sentinel/EuroSAT.zip",
                "https://huggingface.co/datasets/torchgeo/eurosat/resolve/"
                "c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
            ),
            "c8fa014336c82ac7804f0398fcb19387",
        ),
    ),
}


def download_benchmark(
    name: str, root: Path, *, unpack: bool = False, progress: bool = True
) -> list[Path]:
    """Download a data set into its folder below ``root``; existing files are kept.

    Parameters
    ----------
    name, root
        The data set, and the folder that holds data sets.
    unpack
        Also unpack the archives, next to them; the loaders do not need that.
    progress
        Show progress bars on stderr.

    Returns
    -------
    list of Path
        The archives, or the folders they were unpacked to.

    Raises
    ------
    InputError
        If the name is unknown, or the data set cannot be downloaded automatically.
    PscoError
        If no mirror responds; the message says which file to put where.
    """
    about = describe(name)
    folder = root / (about.folder or name)
    if name not in REMOTES:
        raise InputError(
            f"{name} cannot be downloaded automatically (only {', '.join(REMOTES)} can); get it "
            f"from {about.source}, and put into {quoted(folder)}: {about.files}"
        )
    archives = [
        download(
            remote.urls,
            folder / remote.name,
            md5=remote.md5,
            max_bytes=_MAX_BYTES,
            progress=progress,
        )
        for remote in REMOTES[name]
    ]
    if not unpack:
        return archives
    return [
        extract(archive, archive.with_suffix(""), max_bytes=_MAX_BYTES, max_files=_MAX_FILES)
        for archive in archives
    ]
