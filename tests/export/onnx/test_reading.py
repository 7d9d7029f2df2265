"""ONNX files are data: crafted, damaged and foreign ones are refused before anything runs them."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import make_images

from psco.errors import InputError, PscoError
from psco.export.onnx.metadata import read_metadata
from psco.export.onnx.reading import OnnxClassifier, OnnxEncoder
from psco.files.checksums import PLACEHOLDER, write_checksum
from psco.server.serve.model import open_model


@pytest.fixture
def crafted(exported, tmp_path):
    """Return a function that writes a changed copy of a good file, with a correct checksum."""

    def write(change):
        proto = onnx.load(exported)
        change(proto)
        for entry in proto.metadata_props:
            if entry.key == "checksum":
                entry.value = json.dumps({"sha256": PLACEHOLDER})
        path = tmp_path / "crafted.onnx"
        path.write_bytes(proto.SerializeToString())
        write_checksum(path)
        return path

    return write


def set_entry(name, text):
    def change(proto):
        for entry in proto.metadata_props:
            if entry.key == name:
                entry.value = text

    return change


def test_a_file_without_changes_is_read(crafted, encoder):
    path = crafted(lambda proto: None)
    assert OnnxClassifier(path).predict(make_images(encoder, 2)).probabilities.shape == (2, 3)


def test_tensors_in_other_files_are_refused(crafted, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(10_000))

    def change(proto):
        tensor = max(proto.graph.initializer, key=lambda t: len(t.raw_data))
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=str(secret))

    with pytest.raises(PscoError, match="refused: it keeps tensors in other files"):
        OnnxClassifier(crafted(change))


def test_operators_of_other_libraries_are_refused(crafted):
    def change(proto):
        proto.graph.node[3].domain = "org"

    with pytest.raises(PscoError, match="refused: it uses operators of 'org'"):
        OnnxClassifier(crafted(change))


def test_loops_are_refused(crafted):
    def change(proto):
        body = onnx.helper.make_graph([], "body", [], [])
        proto.graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["x"], body=body))

    with pytest.raises(PscoError, match="the operator 'Loop' contains a graph"):
        OnnxClassifier(crafted(change))


def test_functions_are_refused(crafted):
    def change(proto):
        proto.functions.add(name="f", domain="")

    with pytest.raises(PscoError, match="it has functions"):
        OnnxClassifier(crafted(change))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("side", "1000000", "side"),
        ("side", "48", "do not fit its metadata"),
        ("channels", "4", "channels"),
        ("temperature", "0", "temperature"),
        ("temperature", "NaN", "temperature"),
        ("threshold", "Infinity", "threshold"),
        ("threshold", "null", "threshold"),
        ("classes", "[]", "0 classes"),
        ("classes", '["a"]', "does not fit its classes"),
        ("classes", "[[1], [2], [3]]", "classes"),
        ("classes", json.dumps(["x" * 5000, "b", "c"]), "longer than 1000"),
        ("classes", "[" * 100_000, "not JSON"),
        ("mean", "[0.5, 0.5]", "mean"),
        ("std", "[0]", "std"),
        ("kind", '"virus"', "kind"),
        ("views_at_test", "-1", "views_at_test"),
        ("psco", "2", "format"),
    ],
)
def test_metadata_out_of_bounds_are_one_line(crafted, encoder, name, text, reason):
    with pytest.raises(PscoError, match=reason) as caught:
        OnnxClassifier(crafted(set_entry(name, text))).predict(make_images(encoder, 1))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_changed_byte_is_noticed(exported, tmp_path):
    content = bytearray(exported.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(PscoError, match="damaged"):
        OnnxClassifier(tmp_path / "x.onnx")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), keep=st.floats(0, 0.999))
def test_any_content_is_an_error_of_psco(exported, tmp_path, content, keep):
    whole = exported.read_bytes()
    for bytes_ in (content, whole[: int(keep * len(whole))], content + whole[len(content) :]):
        (tmp_path / "x.onnx").write_bytes(bytes_)
        if bytes_ != whole:
            with pytest.raises(PscoError):
                OnnxClassifier(tmp_path / "x.onnx")


def test_a_model_of_another_program_is_not_ours(tmp_path):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [1]) for n in "xy")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y])), tmp_path / "m")
    with pytest.raises(InputError, match="is not a model of psco; psco export writes one"):
        OnnxClassifier(tmp_path / "m")


def test_a_missing_file_and_the_wrong_kind_say_what_to_do(exported, tmp_path):
    with pytest.raises(InputError, match="No such file or directory; psco export writes one"):
        OnnxClassifier(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="holds a classifier, not an encoder"):
        OnnxEncoder(exported)


def test_a_graph_that_computes_nonsense_is_noticed(crafted, encoder):
    def change(proto):
        for tensor in proto.graph.initializer:
            if tensor.name.endswith("centres"):
                array = np.full_like(onnx.numpy_helper.to_array(tensor), np.nan)
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))

    with pytest.raises(PscoError, match="scores is not finite"):
        OnnxClassifier(crafted(change)).predict(make_images(encoder, 1))


@pytest.mark.parametrize("shape", [(24, 24, 1), (1, 23, 24, 1), (1, 24, 24, 3)])
def test_images_of_another_shape_are_refused(exported, shape):
    with pytest.raises(InputError, match=r"must be uint8 of shape \(n, 24, 24, 1\)"):
        OnnxClassifier(exported).run(np.zeros(shape, dtype=np.uint8))


def test_metadata_survive_a_round_trip(exported):
    facts = OnnxClassifier(exported).facts
    assert read_metadata(facts.entries(), "x") == facts


def test_a_classifier_and_its_file_are_served_alike(classifier, exported, encoder, tmp_path):
    classifier.save(tmp_path / "mine.psco")
    mine, theirs = open_model(tmp_path / "mine.psco"), open_model(exported)
    assert mine.classes == theirs.classes == ["a", "b", "c"]
    assert mine.image.source_size == theirs.image.source_size
    images = make_images(encoder, 9)
    found, expected = mine.predict(images), theirs.predict(images)
    assert found.labels.tolist() == expected.labels.tolist()
    assert np.abs(found.probabilities - expected.probabilities).max() < 1e-4
