"""A user's own images in any form become an image set, or an error that says what to do."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from psco.data import ImageSet, load_dataset
from psco.data.reading.folders import list_csv, list_folder, list_images, list_paths
from psco.data.reading.objects import from_array, from_hf_dataset, from_torch_dataset
from psco.errors import InputError
from psco.training.trainer import Trainer
from psco.views import to_batch


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))


def save(path: Path, value: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (12, 10), value).save(path)
    return path


@pytest.fixture
def nested(tmp_path) -> Path:
    for index, name in enumerate(["dog/1.png", "cat/1.jpg", "cat/deep/er/2.png"]):
        save(tmp_path / "pets" / name, 50 * index)
    return tmp_path / "pets"


def zipped(path: Path, members: list[str]) -> Path:
    content = io.BytesIO()
    Image.new("L", (12, 10), 90).save(content, "PNG")
    with zipfile.ZipFile(path, "w") as out:
        for member in members:
            out.writestr(member, content.getvalue())
    return path


# Folders and archives


def test_top_sub_folders_are_classes(nested):
    listing = list_folder(nested)
    assert listing.files == ("cat/1.jpg", "cat/deep/er/2.png", "dog/1.png")
    assert listing.classes == ("cat", "dog")
    assert listing.labels.tolist() == [0, 0, 1]
    assert listing.name == "pets"


def test_a_flat_folder_has_no_labels(tmp_path):
    for name in ("b.png", "a.PNG", ".hidden.png", "notes.txt"):
        save(tmp_path / "flat" / "x.png").rename(tmp_path / "flat" / name)
    listing = list_folder(tmp_path / "flat")
    assert listing.files == ("a.PNG", "b.png")
    assert listing.labels is None
    assert listing.classes == ()


def test_images_next_to_sub_folders_mean_no_labels(nested):
    save(nested / "stray.png")
    assert list_folder(nested).labels is None
    assert len(list_folder(nested)) == 4


def test_archives_are_listed_like_folders(tmp_path):
    listing = list_folder(zipped(tmp_path / "x.zip", ["b/1.png", "a/1.png", "a/2.txt"]))
    assert listing.files == ("a/1.png", "b/1.png")
    assert listing.classes == ("a", "b")
    assert list_folder(zipped(tmp_path / "y.zip", ["1.png", "2.png"])).labels is None


def test_a_folder_around_the_whole_archive_is_not_a_class(tmp_path):
    listing = list_folder(zipped(tmp_path / "x.zip", ["pets/cat/1.png", "pets/dog/1.png"]))
    assert listing.classes == ("cat", "dog")
    assert list_folder(zipped(tmp_path / "y.zip", ["pets/1.png", "pets/2.png"])).labels is None


def test_a_folder_without_images_is_an_error_with_the_extensions(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("not an image")
    with pytest.raises(InputError, match=r"no images in '.*empty'; looked for \.png"):
        list_folder(tmp_path / "empty")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"is a file; give a folder of images, a \.zip"):
        list_images(save(tmp_path / "one.png"))
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4 and then nothing")
    with pytest.raises(InputError, match="is not a zip archive, or is cut short"):
        list_images(tmp_path / "broken.zip")


# Paths


def test_paths_keep_their_order(tmp_path, monkeypatch):
    b, a = save(tmp_path / "b.png", 20), save(tmp_path / "sub" / "a.png", 10)
    assert list_paths([b, str(a)]).files == (str(b), str(a))
    images = load_dataset([b, str(a)], size=8, channels=1)
    assert images.images[:, 0, 0, 0].tolist() == [20, 10]
    monkeypatch.chdir(tmp_path)
    images = load_dataset(("sub/a.png", "b.png"), size=8, channels=1)
    assert images.images[:, 0, 0, 0].tolist() == [10, 20]
    assert images.labels is None


def test_missing_paths_are_named(tmp_path):
    with pytest.raises(InputError, match=r"names '.*no\.png' and 1 more: no such file"):
        list_paths([save(tmp_path / "a.png"), tmp_path / "no.png", tmp_path / "nor.png"])
    with pytest.raises(InputError, match="empty"):
        load_dataset([])


# CSV


@pytest.fixture
def table(tmp_path):
    for index, name in enumerate(["a.png", "sub/b.png", "c d.png"]):
        save(tmp_path / name, 10 * index)

    def write(text: str) -> Path:
        (tmp_path / "images.csv").write_text(text, encoding="utf-8")
        return tmp_path / "images.csv"

    return write


@pytest.mark.parametrize(
    "text",
    [
        "path,label\nsub/b.png,dog\na.png,cat\nc d.png,dog\n",
        "\ufefffilename;class\r\nsub/b.png;dog\r\na.png;cat\r\n\r\nc d.png;dog\r\n",
        'id\tLabel\t File \n1\tdog\tsub/b.png\n2\tcat\ta.png\n3\tdog\t"c d.png"',
    ],
)
def test_a_table_names_images_and_labels(table, text):
    listing = list_csv(table(text))
    assert listing.files == ("sub/b.png", "a.png", "c d.png")
    assert listing.classes == ("cat", "dog")
    assert listing.labels.tolist() == [1, 0, 1]
    assert listing.name == "images"


def test_paths_with_backslashes_are_read_on_any_system(table):
    listing = list_csv(table("path,label\nsub\\b.png,dog\n.\\a.png,cat\n"))
    assert listing.files == ("sub/b.png", "./a.png")
    assert load_dataset(table("path\nsub\\b.png\n"), size=8, channels=1).images[0, 0, 0, 0] == 10


@pytest.mark.skipif(os.name != "posix", reason="a backslash in a name")
def test_a_backslash_that_is_part_of_a_name_is_kept(table, tmp_path):
    save(tmp_path / "x\\y.png")
    assert list_csv(table("path\nx\\y.png\n")).files == ("x\\y.png",)


def test_heic_files_are_listed_and_reported(nested):
    (nested / "cat" / "photo.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
    assert "cat/photo.HEIC" in list_folder(nested).files
    with pytest.raises(InputError, match=r"1 of 4 images .*photo.HEIC': "):
        load_dataset(nested, size=8, progress=False)


def test_a_table_needs_no_labels_and_is_relative_to_its_folder(table):
    images = load_dataset(table("file\nsub/b.png\na.png\n"), size=8, channels=1)
    assert images.labels is None
    assert images.images[:, 0, 0, 0].tolist() == [10, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "picture,label\na.png,x\n",
            r"has the columns 'picture', 'label'; it needs one of path, f",
        ),
        ("path,label\na.png,x\nno.png,x\n", r"names 'no\.png': no such file"),
        ("path,label\na.png,x\n,y\n", "line 3 of .* has no path"),
        ("path,label\na.png,x\nsub/b.png\n", "line 3 of .* has no label; add it"),
        ("path\n", "names no images"),
        ("", "is empty"),
        ('path\n"a.png', "is not a CSV file"),
    ],
)
def test_unusable_tables_are_errors_with_the_reason(table, text, message):
    with pytest.raises(InputError, match=message):
        list_csv(table(text))


def test_unreadable_tables_are_errors_with_the_reason(tmp_path):
    with pytest.raises(InputError, match=r"cannot read '.*no\.csv': No such file"):
        load_dataset(tmp_path / "no.csv")
    (tmp_path / "latin.csv").write_bytes("path\nä.png\n".encode("latin-1"))
    with pytest.raises(InputError, match="is not a CSV file in UTF-8"):
        load_dataset(tmp_path / "latin.csv")


# Arrays


def test_arrays_are_used_without_a_copy(pictures):
    assert load_dataset(pictures, channels=1).images is pictures
    assert load_dataset(pictures[..., 0], channels=3).images.shape == (60, 20, 20, 3)
    labelled = from_array(pictures[:3], np.array(["b", "a", "b"]))
    assert labelled.labels.tolist() == [1, 0, 1]
    assert labelled.classes == ("a", "b")
    with pytest.raises(InputError, match="uint8"):
        load_dataset(pictures.astype(np.float32))


# torch data sets


class Items(Dataset):
    def __init__(self, *items: object) -> None:
        self.items = items

    def __getitem__(self, index: int) -> object:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


IMAGES = [
    Image.new("RGB", (12, 10), (100, 100, 100)),
    Image.new("RGBA", (12, 10), (100, 100, 100, 255)),
    np.full((10, 12), 100, np.uint8),
    np.full((10, 12, 1), 100, np.int64),
    np.full((10, 12, 3), 100 / 255, np.float64),
    torch.full((10, 12), 100, dtype=torch.uint8),
    torch.full((1, 10, 12), 100 / 255),
    torch.full((3, 10, 12), 100 / 255),
    torch.full((3, 10, 12), 100 / 255, dtype=torch.float16),
    torch.full((3, 10, 12), 100 / 255, requires_grad=True),
]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_items_of_any_kind_become_images(image, channels):
    images = load_dataset(Items(image, image), size=8, channels=channels)
    assert images.images.shape == (2, 8, 8, channels)
    assert (images.images == 100).all()
    assert images.labels is None


def test_channels_of_tensors_come_first():
    tensor = torch.zeros(3, 8, 8)
    tensor[0] = 1.0
    assert (load_dataset(Items(tensor), size=8).images == (255, 0, 0)).all()


@pytest.mark.parametrize("labels", [(5, 3, 5), (np.int64(5), torch.tensor(3), 5), ("b", "a", "b")])
def test_labels_of_items_are_kept(labels):
    images = load_dataset(Items(*((IMAGES[0], label) for label in labels)), size=8)
    assert images.labels.tolist() == [1, 0, 1]
    assert len(images.classes) == 2


def test_names_of_classes_are_kept():
    items = Items((IMAGES[0], 2), (IMAGES[0], 0))
    items.classes = ["cat", "dog", "owl"]
    images = from_torch_dataset(items, 8, 3)
    assert images.classes == ("cat", "dog", "owl")
    assert images.labels.tolist() == [2, 0]


@pytest.mark.parametrize("label", [None, {"boxes": []}, -1, 0.5])
def test_targets_that_are_not_classes_are_ignored(label):
    assert load_dataset(Items((IMAGES[0], 1), (IMAGES[0], label)), size=8).labels is None


def test_tensor_data_sets_work():
    images = load_dataset(TensorDataset(torch.rand(4, 3, 9, 9), torch.arange(4)), size=8)
    assert images.labels.tolist() == [0, 1, 2, 3]


def test_slight_overshoot_of_resizing_is_clipped():
    image = torch.full((1, 8, 8), 1.05)
    assert (load_dataset(Items(image), size=8).images == 255).all()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (torch.randn(3, 8, 8) * 3, "item 0 of Items has values from .* not normalised"),
        (torch.full((1, 8, 8), torch.nan), "has values from nan"),
        (np.full((8, 8), 1000, np.int32), "from 1000 to 1000"),
        (np.zeros((8, 8), complex), "of type complex"),
        (np.zeros((8, 8, 5), np.uint8), r"shape \(8, 8, 5\); it must be a grey or RGB image"),
        (torch.zeros(2, 3, 8, 8), r"shape \(2, 3, 8, 8\)"),
        ("a.png", "is of type str; it must be a Pillow image"),
    ],
)
def test_items_that_are_not_images_are_named(item, message):
    with pytest.raises(InputError, match=message):
        load_dataset(Items(item))


def test_data_sets_without_length_or_items_are_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(InputError, match="Stream has no length"):
        load_dataset(Stream())
    with pytest.raises(InputError, match="Items is empty"):
        load_dataset(Items())


# Hugging Face data sets


class Rows:
    """The used part of a Hugging Face data set: features, a length, rows."""

    def __init__(self, features: dict[str, object], rows: list[dict[str, object]]) -> None:
        self.features, self.rows = features, rows

    def __getitem__(self, index: int) -> dict[str, object]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


class ClassLabel:
    names = ("cat", "dog", "owl")


def test_hugging_face_rows_are_read():
    rows = [{"image": IMAGES[0], "label": 2}, {"image": IMAGES[1], "label": 0}]
    images = load_dataset(Rows({"image": object(), "label": ClassLabel()}, rows), size=8)
    assert (images.images == 100).all()
    assert images.labels.tolist() == [2, 0]
    assert images.classes == ("cat", "dog", "owl")


def test_hugging_face_rows_may_hold_files_and_no_labels():
    content = io.BytesIO()
    IMAGES[0].save(content, "PNG")
    rows = [{"img": {"bytes": content.getvalue(), "path": None}}]
    images = from_hf_dataset(Rows({"img": object()}, rows), 8, 1)
    assert (images.images == 100).all()
    assert images.labels is None
    rows = [{"img": {"bytes": b"not an image", "path": None}}]
    with pytest.raises(InputError, match="item 0 of dataset"):
        from_hf_dataset(Rows({"img": object()}, rows), 8, 1)


def test_hugging_face_without_images_names_the_columns():
    with pytest.raises(InputError, match="has the columns 'text', 'label'; it needs one of image"):
        load_dataset(Rows({"text": object(), "label": ClassLabel()}, [{}]))


# Anything


def test_image_sets_folders_and_archives_load(nested, tmp_path, pictures):
    images = ImageSet(pictures)
    assert load_dataset(images, channels=1) is images
    assert load_dataset(nested, size=8).images.shape == (3, 8, 8, 3)
    assert load_dataset(str(nested), size=8).classes == ("cat", "dog")
    archive = zipped(tmp_path / "x.zip", ["a/1.png", "b/1.png"])
    assert load_dataset(archive, size=8, channels=1).images.shape == (2, 8, 8, 1)


def test_undecodable_files_are_allowed_up_to_the_fraction(nested):
    (nested / "dog" / "bad.png").write_text("not an image")
    with pytest.raises(InputError, match="raise --max-bad"):
        load_dataset(nested, size=8)
    assert len(load_dataset(nested, size=8, max_bad=0.5)) == 3


@pytest.mark.parametrize("source", [7, None, {"a": 1}, object(), [1, 2], {"a.png"}])
def test_anything_else_is_refused_by_its_type(source):
    with pytest.raises(InputError, match=f"of type {type(source).__name__}; give the name"):
        load_dataset(source)


def test_unknown_names_and_missing_paths_are_distinguished(tmp_path):
    with pytest.raises(
        InputError, match="unknown data set or folder 'glyfs'; did you mean 'glyphs"
    ):
        load_dataset("glyfs")
    for missing in ("./photos", tmp_path / "photos", "photos.zip", Path("photos")):
        with pytest.raises(InputError, match=r"there is no folder or zip archive '.*photos"):
            load_dataset(missing)


def test_sources_of_the_proportions_of_a_camera_show_the_whole_picture(tmp_path):
    for number in range(3):
        picture = Image.new("RGB", (160, 120), "white")
        picture.paste("black", (0, 0, 8, 120))  # a mark that the centre square does not show
        picture.save(tmp_path / f"{number}.png")
    whole = load_dataset(tmp_path, size=60, aspect=4 / 3, progress=False)
    assert whole.images.shape == (3, 60, 80, 3)
    assert (whole.images[:, :, :3] == 0).all()
    assert (load_dataset(tmp_path, size=60, progress=False).images[:] == 255).all()
    assert load_dataset(tmp_path, size=60, aspect=0.75, progress=False).images.shape[1:3] == (
        80,
        60,
    )


def test_training_crops_from_the_whole_of_wide_sources(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(8):
        picture = Image.effect_noise((160, 120), 90).convert("RGB")
        picture.paste("red", (0, 0, 12, 120))
        picture.save(tmp_path / "in" / f"{number}.png")
    small = ["backbone.width=4", "heads={hidden: 8, out: 8}", "train.batch_size=4"]
    shape = ["image.size=32", "image.source_size=60", "image.aspect=1.333"]
    crop = ["views.view_a={crop: {scale: [0.9, 1.0]}}", "views.view_b={crop: {}}"]
    run = Trainer(
        tmp_path / "in", tmp_path / "run", "own-images", [*small, *shape, *crop, "train.steps=1"]
    )
    run.progress = False
    run.run()
    assert run.images.images.shape == (8, 60, 80, 3)
    view = run.pair.view_a(to_batch(run.images.images[:]), torch.Generator().manual_seed(0))
    red, _, blue = view[:, :, :, 0].mean(dim=2).T  # of the left edge of each view
    assert (red - blue > 1).float().mean() > 0.5


@pytest.mark.parametrize("data", ["glyphs", np.zeros((4, 8, 8), np.uint8)])
def test_images_with_a_shape_of_their_own_refuse_another(data):
    with pytest.raises(InputError, match="requires image files of your own or imagenet"):
        load_dataset(data, aspect=1.5)
