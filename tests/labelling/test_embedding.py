"""Embedding a folder: each content once, whatever happens in between."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import psco.labelling.embedding
from psco.data.reading.listing import image_files
from psco.data.reading.source import FolderSource
from psco.errors import InputError, PscoError
from psco.labelling.cache import network_folder
from psco.labelling.embedding import embed_pictures


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def computed(monkeypatch):
    """Count the pictures that the network embeds."""
    counts = []
    embed = psco.labelling.embedding._embed

    def counting(encoder, device, new):
        counts.append(len(new))
        return embed(encoder, device, new)

    monkeypatch.setattr("psco.labelling.embedding._embed", counting)
    return counts


def embed(encoder, folder, **options):
    return embed_pictures(encoder, folder, image_files(FolderSource(folder)), **options)


def test_embeddings_are_those_of_the_encoder(raw_pixels, folder, few_glyphs):
    from psco.classifier.bulk import embed_files, list_image_files

    pictures = embed(raw_pixels, folder)
    expected = embed_files(raw_pixels, list_image_files([folder])).embeddings
    torch.testing.assert_close(pictures.support, expected.support)
    torch.testing.assert_close(pictures.query, expected.query)
    whole, thumbnails = pictures.complete([5, 0, 59])
    torch.testing.assert_close(whole.features, expected.features[[5, 0, 59]])
    assert thumbnails.shape == (3, 32, 32, 1)


def test_what_is_in_the_cache_is_not_computed_again(raw_pixels, folder, computed):
    first = embed(raw_pixels, folder)
    assert sum(computed) == 60
    (folder / "0000_new.png").write_bytes(next(iter(sorted(folder.iterdir()))).read_bytes())
    moved = folder.with_name("elsewhere")
    shutil.move(folder, moved)
    again = embed(raw_pixels, moved)
    assert sum(computed) == 60
    torch.testing.assert_close(again.support[1:], first.support)
    torch.testing.assert_close(again.support[0], again.support[1])


def test_an_interrupted_embedding_goes_on(raw_pixels, folder, computed, monkeypatch):
    monkeypatch.setattr("psco.labelling.embedding.BATCH", 16)

    def interrupt(done, total):
        if done == 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(raw_pixels, folder, progress=interrupt)
    seen = []
    embed(raw_pixels, folder, progress=lambda done, total: seen.append((done, total)))
    assert sum(computed) == 60
    assert seen[0] == (32, 60)
    assert seen[-1] == (60, 60)


def test_a_changed_file_is_embedded_anew(raw_pixels, folder, computed):
    embed(raw_pixels, folder)
    name = sorted(folder.iterdir())[3]
    Image.fromarray(np.arange(784, dtype=np.uint8).reshape(28, 28)).save(name)
    embed(raw_pixels, folder)
    assert computed == [60, 1]


def test_broken_pictures_are_noticed_and_skipped(raw_pixels, folder):
    (folder / "0007_broken.png").write_bytes(b"\x89PNG nothing")
    pictures = embed(raw_pixels, folder)
    number = image_files(FolderSource(folder)).index("0007_broken.png")
    assert list(pictures.broken) == [number]
    assert not pictures.support[number].any()
    assert len(pictures.intact) == 60
    assert number not in pictures.intact


def test_a_folder_of_broken_pictures_has_no_embeddings(raw_pixels, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"nothing")
    pictures = embed(raw_pixels, tmp_path / "pictures")
    assert list(pictures.broken) == [0]
    assert len(pictures.intact) == 0


@pytest.mark.parametrize("how", ["cut", "changed", "not an archive"])
def test_a_damaged_file_of_the_cache_is_made_again(raw_pixels, folder, computed, how):
    first = embed(raw_pixels, folder)
    (path,) = network_folder(raw_pixels).glob("*.npz")
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "changed":
        content[len(content) // 2] ^= 1
    else:
        content = bytearray(b"nothing")
    path.write_bytes(content)
    again = embed(raw_pixels, folder)
    torch.testing.assert_close(again.support, first.support)
    assert computed == [60, 60]


def test_a_cache_that_vanishes_is_reported(raw_pixels, folder):
    pictures = embed(raw_pixels, folder)
    shutil.rmtree(network_folder(raw_pixels))
    with pytest.raises(PscoError, match="open the session again"):
        pictures.complete([0])


def test_networks_have_caches_of_their_own(raw_pixels, few_glyphs):
    from psco import Encoder, load_recipe

    changes = ["method.name=pixels", "image.size=20", "image.source_size=16"]
    other = Encoder.untrained(load_recipe("glyphs", changes))
    random = [Encoder.untrained(load_recipe("glyphs", ["method.name=random"]), s) for s in (0, 1)]
    folders = [network_folder(each) for each in (raw_pixels, other, *random)]
    assert len(set(folders)) == 4


def test_a_method_without_features_is_refused(folder):
    from psco import Encoder, load_recipe

    changes = ["method={name: maml}", "backbone.width=8"]
    encoder = Encoder.untrained(load_recipe("glyphs", changes))
    with pytest.raises(InputError, match="no features"):
        embed(encoder, folder)
