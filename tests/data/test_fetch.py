"""Downloads of data sets by name."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from psco.data.sets.catalogue import BENCHMARKS
from psco.data.sets.fetch import REMOTES, Remote, download_benchmark
from psco.errors import InputError, PscoError

NOWHERE = "http://127.0.0.1:9/eurosat.zip"


@pytest.fixture
def arrived(tmp_path, monkeypatch):
    """Return a folder that contains an archive of EuroSAT with the expected checksum."""
    archive = tmp_path / "eurosat" / "eurosat.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("2750/Forest/Forest_1.jpg", b"picture")
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(REMOTES, "eurosat", (Remote("eurosat.zip", (NOWHERE,), md5),))
    return tmp_path


def test_existing_files_are_kept(arrived):
    found = download_benchmark("eurosat", arrived, progress=False)
    assert found == [arrived / "eurosat" / "eurosat.zip"]


def test_archives_are_unpacked_next_to_them_on_request(arrived):
    (folder,) = download_benchmark("eurosat", arrived, unpack=True, progress=False)
    assert (folder / "2750" / "Forest" / "Forest_1.jpg").read_bytes() == b"picture"


def test_without_a_network_the_error_says_which_file_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setitem(REMOTES, "eurosat", (Remote("eurosat.zip", (NOWHERE,), "0" * 32),))
    with pytest.raises(PscoError, match=r"eurosat/eurosat\.zip', md5 0000"):
        download_benchmark("eurosat", tmp_path, progress=False)


def test_only_data_sets_whose_licence_allows_it_are_downloaded(tmp_path):
    assert set(REMOTES) == {"omniglot", "eurosat"}
    for name in set(BENCHMARKS) - set(REMOTES):
        with pytest.raises(InputError, match=f"{name} cannot be downloaded automatically"):
            download_benchmark(name, tmp_path)
