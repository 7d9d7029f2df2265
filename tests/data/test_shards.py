"""Tar shards in the layout of WebDataset: found, indexed, read at random or in order, resumed."""

from __future__ import annotations

import io
import itertools
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import psco
from psco.data.reading.decode import decode_image
from psco.data.reading.shardpaths import are_shards, find_shards
from psco.data.reading.shards import load_shards, open_shards
from psco.data.reading.tarindex import index_shard
from psco.errors import InputError, PscoError
from psco.training.feed import Feed
from psco.training.stream import StreamFeed, shuffle_buffer

PER_SHARD = [7, 1, 12, 9, 6, 11, 4]  # 50 images


def picture(number: int, side: int = 20) -> bytes:
    """Return a PNG file whose pixels all have the value ``number``."""
    content = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), number, np.uint8)).save(content, "PNG")
    return content.getvalue()


def write_shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return path


def number_of(images: np.ndarray | torch.Tensor) -> list[int]:
    """Return the numbers of images, which are the values of their pixels."""
    return [int(image.reshape(-1)[0]) for image in images]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the pattern of seven shards with 50 labelled images, numbered from 0."""
    folder = tmp_path_factory.mktemp("shards")
    numbers = itertools.count()
    for shard, count in enumerate(PER_SHARD):
        members = {}
        for number in itertools.islice(numbers, count):
            members[f"{number:04}.png"] = picture(number)
            members[f"{number:04}.cls"] = str(number % 12).encode()
        write_shard(folder / f"toy-{shard:06}.tar", members)
    return str(folder / "toy-{000000..000006}.tar")


@pytest.fixture
def toy(shards) -> psco.ImageSet:
    return psco.load_dataset(shards, size=8, progress=False)


# -------------------------------------------------------------------------------- finding shards


def test_a_pattern_a_glob_and_a_folder_name_the_same_shards(shards):
    folder = Path(shards).parent
    expected = [folder / f"toy-{shard:06}.tar" for shard in range(7)]
    for source in (shards, Path(shards), folder, str(folder / "*.tar"), folder / "toy-00000?.tar"):
        assert are_shards(source)
        assert find_shards(source) == expected
    assert find_shards(folder / "toy-{000004..000005}.tar") == expected[4:6]
    assert find_shards(folder / "{toy,toy}-00000{6,0}.tar") == [expected[6], expected[0]]
    assert find_shards(expected[2]) == [expected[2]]


def test_a_folder_with_images_or_sub_folders_is_not_a_folder_of_shards(tmp_path):
    write_shard(tmp_path / "all.tar", {"a.png": picture(1)})
    assert are_shards(tmp_path)
    (tmp_path / "readme.txt").write_text("about these")
    assert are_shards(tmp_path)
    (tmp_path / "b.png").write_bytes(picture(2))
    assert not are_shards(tmp_path)
    assert len(psco.load_dataset(tmp_path, size=8, progress=False)) == 1
    (tmp_path / "b.png").unlink()
    (tmp_path / "train").mkdir()
    assert not are_shards(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("none-*.tar", r"no shards match '.*none-\*.tar'; give .*'data-\{000000..000123\}.tar'"),
        ("gone.tar", "no shards match .*gone.tar"),
        (
            "toy-{000005..000009}.tar",
            r"3 of the 5 shards .* missing: '.*toy-000007.tar' and 2 more",
        ),
        ("toy-{9..1}.tar", r"\{9..1\}' in .* is descending"),
        ("toy-{0..9999999}.tar", "more than 1,000,000 shards"),
        ("toy-{0..1}.tar.gz", "is compressed; decompress it to a plain .tar file"),
    ],
)
def test_patterns_without_shards_are_errors_with_the_reason(shards, pattern, words):
    with pytest.raises(InputError, match=words):
        psco.load_dataset(str(Path(shards).parent / pattern), progress=False)


@pytest.mark.parametrize("place", ["pipe:touch ran; cat x.tar", "s3://bucket/x-{0..3}.tar"])
def test_commands_and_addresses_are_neither_run_nor_downloaded(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="shards are never downloaded or piped"):
        psco.load_dataset(place)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------- contents


def test_images_are_numbered_across_shards_and_decoded_at_each_access(toy):
    assert toy.images.shape == (50, 8, 8, 3)
    assert toy.decodes
    assert number_of(toy.images[:]) == list(range(50))
    assert toy.classes == tuple(map(str, range(12)))
    np.testing.assert_array_equal(toy.labels, np.arange(50) % 12)
    grey = psco.load_dataset(str(Path(toy.images.files.paths[0])), size=4, channels=1)
    assert grey.images.shape == (7, 4, 4, 1)


def test_labels_come_from_cls_or_json_and_only_if_every_image_has_one(tmp_path):
    members = {
        "train/a.jpg": picture(1),
        "train/a.json": json.dumps({"caption": "x", "label": "cat"}).encode(),
        "train/b.cls": b"dog\n",
        "train/b.JPEG": picture(2),
    }
    images = load_shards(write_shard(tmp_path / "all.tar", members), 8, 3, progress=False)
    assert images.classes == ("cat", "dog")
    np.testing.assert_array_equal(images.labels, [0, 1])
    for unlabelled in ({}, {"c.json": b"{"}, {"c.json": b'{"label": null}'}, {"c.cls": b"\xff"}):
        members |= {"c.png": picture(3), **unlabelled}
        images = load_shards(write_shard(tmp_path / "all.tar", members), 8, 3, progress=False)
        assert (len(images), images.labels, images.classes) == (3, None, ())


def test_members_that_are_not_images_are_ignored(tmp_path):
    members = {
        "a.png": picture(1),
        "a.mask.png": picture(2),  # belongs to a.png
        "shot at 10.15.png": picture(3),  # a separate image
        "a.pyd": b"cos\nsystem\n(S'touch ran'\ntR.",
        "._a.png": b"resource fork",
        "a.txt": b"a caption",
    }
    path = write_shard(tmp_path / "all.tar", members)
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("b.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    index = index_shard(path)
    assert index.names == ["a.png", "shot at 10.15.png"]
    assert not index.bad


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_is_read(tmp_path, form):
    names = ["a.png", f"{'folder/' * 12}{'b' * 60}.png", "ü/c.png"]
    with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
        for number, name in enumerate(names):
            about = tarfile.TarInfo(name)
            about.size = len(picture(number))
            archive.addfile(about, io.BytesIO(picture(number)))
    shards = open_shards(tmp_path / "x.tar", progress=False)
    assert index_shard(tmp_path / "x.tar").names == names
    assert [shards.content(n) for n in range(3)] == [picture(n) for n in range(3)]
    assert list(shards.read_through([2, 0, 1])) == [picture(n) for n in (2, 0, 1)]


def test_shards_written_by_webdataset_are_read(tmp_path):
    writer = pytest.importorskip("webdataset")
    pixels = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    pattern = str(tmp_path / "wds-%06d.tar")
    with writer.ShardWriter(pattern, maxcount=4, verbose=0) as sink:
        for number, image in enumerate(pixels):
            sample = {"png": image, "cls": number % 3, "json": {"number": number}, "pyd": object}
            sink.write({"__key__": f"s{number:03}", **sample})
    images = psco.load_dataset(str(tmp_path / "wds-{000000..000002}.tar"), size=16, progress=False)
    np.testing.assert_array_equal(images.images[:], pixels)
    np.testing.assert_array_equal(images.labels, np.arange(10) % 3)


def test_the_index_is_read_again_only_when_a_shard_has_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    path = write_shard(tmp_path / "x.tar", {"a.png": picture(1)})
    index_shard(path)
    (cached,) = (tmp_path / "cache" / "shards").iterdir()
    before = path.stat()
    path.write_bytes(b"\0" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert index_shard(path).names == ["a.png"]
    cached.write_text(cached.read_text()[:20])
    assert index_shard(path).names == []
    write_shard(path, {"b.png": picture(1), "c.png": picture(2)})
    assert index_shard(path).names == ["b.png", "c.png"]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "file"))
    with pytest.raises(PscoError, match=r"cannot write the index of .*x.tar.* set PSCO_CACHE"):
        index_shard(write_shard(tmp_path / "x.tar", {"a.png": picture(1)}))


# --------------------------------------------------------------------------------- damaged shards


def test_a_shard_cut_anywhere_is_refused_with_its_name_and_offset(tmp_path):
    whole = write_shard(tmp_path / "x.tar", {f"{n}.png": picture(n) for n in range(3)}).read_bytes()
    offsets = index_shard(tmp_path / "x.tar").offsets
    end = offsets[-1] + 512  # where the empty blocks begin
    for cut in (1, 300, 512, 600, offsets[1] - 512, offsets[1] + 1, offsets[2] - 10, end, end + 9):
        (tmp_path / "x.tar").write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"x\.tar' .*(offset .*again|not a tar)"):
            index_shard(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(whole[: offsets[1] + 1])
    with pytest.raises(
        InputError, match=rf"x.tar' is cut short: '1.png' begins at offset {offsets[1]}, and"
    ):
        psco.load_dataset(tmp_path, progress=False)


def test_a_damaged_header_is_not_mistaken_for_the_end_of_the_archive(tmp_path):
    path = write_shard(tmp_path / "x.tar", {f"{n}.png": picture(n) for n in range(3)})
    header = index_shard(path).offsets[1] - 512
    content = bytearray(path.read_bytes())
    content[header + 3] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"x.tar' is damaged at offset {header}; copy it again"):
        index_shard(path)


@pytest.mark.parametrize("content", [b"", b"no tar file" * 100, b"\x1f\x8b\x08" + bytes(2000)])
def test_a_file_that_is_not_tar_is_refused(tmp_path, content):
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(InputError, match=r"x.tar' is not a tar file.* must be uncompressed"):
        index_shard(tmp_path / "x.tar")


def test_shards_without_images_are_refused(tmp_path):
    path = write_shard(tmp_path / "x.tar", {"a.txt": b"text"})
    with pytest.raises(InputError, match=r"no images in .*x.tar'; looked for members with"):
        load_shards(path, 8, 3, progress=False)


def test_members_named_like_images_that_are_not_count_as_undecodable(tmp_path, capsys):
    members = {f"{n}.png": picture(n) for n in range(9)} | {"page.jpg": b"<html>", "no.gif": b""}
    path = write_shard(tmp_path / "x.tar", members)
    with pytest.raises(InputError, match=r"2 of 11 images .* 'page.jpg|x.tar: page.jpg': it does"):
        load_shards(path, 8, 3, progress=False)
    images = load_shards(path, 8, 3, max_bad=0.2, progress=False)
    assert number_of(images.images[:]) == list(range(9))
    assert "2 of 11 images cannot be decoded and are skipped" in capsys.readouterr().err


def test_a_damaged_image_is_replaced_by_the_next_good_one_of_its_class(tmp_path, capsys):
    members = {}
    for number in range(12):
        good = number not in (4, 6, 11)
        members[f"{number}.png"] = picture(number) if good else picture(number)[:60]
        members[f"{number}.cls"] = str(number % 2).encode()
    path = write_shard(tmp_path / "x.tar", members)
    images = load_shards(path, 8, 3, max_bad=0.25, progress=False)
    for _ in range(2):
        assert number_of(images.images[:]) == [0, 1, 2, 3, 8, 5, 8, 7, 8, 9, 10, 1]
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 3
    # They are decoded in threads, so any of the three may come first.
    assert sum("x.tar: 4.png at offset" in warning for warning in warnings) == 1
    with pytest.raises(InputError, match=r"2 of 12 images in 'x' \(16.67%\).* 10.00% are allowed"):
        load_shards(path, 8, 3, max_bad=0.1, progress=False).images[:]
    with pytest.raises(InputError, match=r"cannot decode the image '.*x.tar: 4.png at offset"):
        load_shards(path, 8, 3, max_bad=0, progress=False).images[4]


def test_a_class_without_a_decodable_image_is_an_error(tmp_path):
    members = {"0.png": picture(0), "0.cls": b"a", "1.png": picture(1)[:60], "1.cls": b"b"}
    images = load_shards(write_shard(tmp_path / "x.tar", members), 8, 3, max_bad=0.5)
    with pytest.raises(
        InputError, match=r"no image of class 'b' in 'x' can be decoded; .*1.png at offset"
    ):
        images.images[1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("buffer", [0, 4])
def test_a_shard_that_changes_during_training_is_a_one_line_error(tmp_path, workers, buffer):
    path = write_shard(tmp_path / "x.tar", {f"{n}.png": picture(n) for n in range(9)})
    images = load_shards(path, 8, 3, progress=False)
    feed = (
        StreamFeed(images, 3, 0, workers, buffer=buffer) if buffer else Feed(images, 3, 0, workers)
    )
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"^'.*x.tar' has become shorter: \d+ bytes .* in use$"):
        list(itertools.islice(feed.batches(0), 3))


# ------------------------------------------------------------------------------ reading in order


@given(st.integers(1, 60), st.data())
def test_the_shuffle_buffer_equals_a_simple_loop(length, data):
    size = data.draw(st.integers(1, length))
    order = shuffle_buffer(length, size, np.random.default_rng(length))
    assert sorted(order.tolist()) == list(range(length))
    assert all(order[t] < t + size for t in range(length))
    if size == 1:
        assert order.tolist() == list(range(length))

    random = np.random.default_rng(length)
    draws = random.integers(0, size, length - size)
    stream, buffer, out = iter(range(length)), [], []
    for item in stream:
        if len(buffer) < size:
            buffer.append(item)
            continue
        place = draws[len(out)]
        out.append(buffer[place])
        buffer[place] = item
    assert order.tolist() == out + random.permutation(buffer).tolist()


@pytest.mark.parametrize("buffer", [1, 5, 20, 1000])
@pytest.mark.parametrize(("ranks", "batch"), [(1, 8), (2, 8), (3, 6), (10, 20)])
def test_ranks_share_an_epoch_without_overlap(toy, ranks, batch, buffer):
    feeds = [
        StreamFeed(toy, batch, seed=3, buffer=buffer, rank=rank, ranks=ranks)
        for rank in range(ranks)  # with 10 ranks there are more of them than shards
    ]
    assert {feed.batches_per_epoch for feed in feeds} == {50 // batch}
    orders = set()
    for epoch in range(3):
        numbers = range(epoch * (50 // batch), (epoch + 1) * (50 // batch))
        seen = [feed.indices(n).tolist() for feed in feeds for n in numbers]
        assert {len(part) for part in seen} == {batch // ranks}
        assert {feed.batch_size for feed in feeds} == {batch}
        assert len(set(itertools.chain(*seen))) == 50 // batch * batch
        orders.add(str(seen))
        for feed in feeds:  # unbroken runs of whole shards, but for the first and the last
            stream = feed.epoch_order(epoch)[0]
            inner = np.diff(stream) != 1
            first = set(toy.images.files.first.tolist())
            assert set(stream[1:][inner].tolist()) <= first
    assert len(orders) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffer", [1, 7, 1000])
def test_batches_read_in_order_are_those_found_by_number_from_any_start(toy, buffer, workers):
    feed = StreamFeed(toy, 8, seed=1, workers=workers, buffer=buffer, rank=1, ranks=2)
    starts = [0, 3, 5, 6, 13] if workers == 0 else [4]
    for start in starts:
        for number, (images, labels) in enumerate(
            itertools.islice(feed.batches(start), 14), start=start
        ):
            expected, known = feed[number]
            assert torch.equal(images, expected)
            assert torch.equal(labels, known)
            assert number_of(images) == feed.indices(number).tolist()


def test_shards_are_read_forward_and_each_image_once(toy, monkeypatch):
    feed = StreamFeed(toy, 10, seed=0, buffer=15)
    read = []

    def spy(numbers):
        for number in numbers:
            read.append(number)
            yield b""

    monkeypatch.setattr(type(toy.images.files), "read_through", lambda _, numbers: spy(numbers))
    batches = feed._encoded(0)
    for number in range(10):
        next(batches)
        assert len(read) == 10 * (number + 1) + 15 - 1  # never more than a batch and the buffer
    assert read[:50] == feed.epoch_order(0)[0].tolist()
    assert sorted(read[:50]) == list(range(50))

    read.clear()
    resumed = feed._encoded(2)
    next(resumed)
    emitted = {n for batch in range(2) for n in feed.indices(batch).tolist()}
    assert read == [n for n in feed.epoch_order(0)[0].tolist() if n not in emitted][:24]


def test_what_cannot_be_streamed_is_refused(toy, pictures):
    with pytest.raises(InputError, match=r"is not in shards; --set train.shuffle_buffer=0"):
        StreamFeed(psco.ImageSet(pictures), 8, 0, buffer=4)
    for rank, ranks in [(2, 2), (-1, 2), (0, 3)]:
        with pytest.raises(InputError, match=rf"batch of 8 .* for rank {rank} of {ranks}"):
            StreamFeed(toy, 8, 0, buffer=4, rank=rank, ranks=ranks)
    with pytest.raises(InputError, match="buffer must be at least 1, got 0"):
        StreamFeed(toy, 8, 0, buffer=0)


# --------------------------------------------------------------------------------------- training


def weights(run: psco.Run) -> dict[str, torch.Tensor]:
    state = torch.load(run.folder / "resume.pt", weights_only=True)
    return state["method"]


@pytest.mark.parametrize("buffer", [0, 20])
def test_a_run_on_shards_resumes_to_the_same_weights(shards, tmp_path, tiny, buffer):
    def train(out: str, **options):
        changes = [*tiny, f"train.shuffle_buffer={buffer}"]
        return psco.pretrain(
            shards, out=tmp_path / out, overrides=changes, workers=1, progress=False, **options
        )

    def fail(row):
        if row["step"] == 8:
            raise KeyboardInterrupt

    whole = train("whole")
    with pytest.raises(KeyboardInterrupt):
        train("halves", checkpoint_steps=5, loggers=[fail])  # the last save was in another epoch
    resumed = train("halves", resume=True)
    assert (whole.steps, resumed.steps, resumed.finished) == (12, 12, True)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name


def test_methods_that_draw_tasks_are_not_streamed(shards, tmp_path, tiny):
    with pytest.raises(InputError, match="trains on tasks cannot read shards in order"):
        psco.pretrain(
            shards,
            out=tmp_path / "run",
            overrides=[*tiny, "method={name: protonets}", "train.shuffle_buffer=10"],
            progress=False,
        )
    assert not (tmp_path / "run").exists()


def test_the_command_line_takes_a_pattern(shards, tmp_path, tiny, psco):
    settings = [word for setting in tiny for word in ("--set", setting)]
    more = ["--steps", 2, "--set", "train.shuffle_buffer=20", "--workers", 0]
    done = psco("pretrain", shards, "--out", tmp_path / "run", *settings, *more)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_an_image_is_decoded_as_from_a_file(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG")
    path = write_shard(tmp_path / "x.tar", {"a.jpg": content.getvalue()})
    expected = decode_image(content.getvalue(), 16, 3, name="a")
    np.testing.assert_array_equal(load_shards(path, 16, 3, progress=False).images[0], expected)
