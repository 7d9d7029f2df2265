"""YAML from other people: one line for whatever is deep, huge, circular or not YAML at all."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from psco.errors import InputError
from psco.files.limited_yaml import MAX_BYTES, parse_yaml, read_yaml
from psco.recipes.recipe import load_recipe


def bomb(levels: int) -> str:
    """Return a few lines that stand for 9 ** levels values."""
    lines = ["l0: &l0 [" + ", ".join(["x"] * 9) + "]"]
    for level in range(1, levels):
        lines.append(f"l{level}: &l{level} [" + ", ".join([f"*l{level - 1}"] * 9) + "]")
    return "\n".join([*lines, f"train: {{steps: *l{levels - 1}}}"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (bomb(12), "must hold at most 100,000 values, got more"),
        ("train: " + "[" * 5000, "must nest at most 32 levels deep, got more"),
        ("train: " + "[" * 33 + "]" * 33, "must nest at most 32 levels deep, got more"),
        ("steps: " + "9" * 41, "a number must have at most 40 digits, got 41"),
        ("steps: 0x" + "9" * 5000, "a number must have at most 40 digits, got 5,001"),
        ("train: &a {steps: *a}", r"\*a contains itself"),
        ("a: &a [1, &b [*a]]", r"\*a contains itself"),
        ("# " + "x" * MAX_BYTES, "must have at most 1,000,000 bytes, got more"),
        ("a: !!binary aGk=", "tags are not allowed, got 'tag:yaml.org,2002:binary'"),
        ("a: !!python/name:os.system x", "tags are not allowed"),
        ("a: 2020-02-31", "is not YAML: day is out of range for month"),
        ("{1: 2}", "a setting's name must be text, got 1"),
        ("a: [{[1]: 2}]", "is not YAML: .*unhashable key"),
        ("a: [", "is not YAML: .*line 1"),
        ("a: \x00", "is not YAML"),
    ],
)
def test_hostile_texts_are_refused_in_one_line(text, complaint):
    with pytest.raises(InputError, match=f"^the recipe:? {complaint}") as caught:
        parse_yaml(text, "the recipe")
    assert len(str(caught.value)) < 500


def test_an_alias_counts_as_often_as_it_is_used():
    aliased = "a: &a [1, 2]\nb: [*a, *a, *a]"
    assert parse_yaml(aliased, "x") == {"a": [1, 2], "b": [[1, 2]] * 3}
    many = "a: &a [" + "1, " * 900 + "1]\nb: [" + "*a, " * 120 + "*a]"
    with pytest.raises(InputError, match="at most 100,000 values"):
        parse_yaml(many, "x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_plain_values_are_read_as_yaml_reads_them(value):
    assert parse_yaml(yaml.safe_dump(value), "x") == value


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read_or_refused(text):
    with suppress(InputError):
        parse_yaml(text, "x")


def test_a_file_must_be_small_utf8_text(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_bytes(b"a: 1 # \xe9")
    with pytest.raises(InputError, match="x is not UTF-8 text: byte 7 is 0xe9"):
        read_yaml(file, "x")
    with file.open("wb") as sparse:
        sparse.truncate(10 << 30)
    with pytest.raises(InputError, match="at most 1,000,000 bytes"):
        read_yaml(file, "x")
    with pytest.raises(InputError, match="x cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml", "x")


def test_a_hostile_recipe_or_override_gets_one_line(tmp_path):
    (tmp_path / "bomb.yaml").write_text(bomb(12))
    with pytest.raises(InputError, match=r"bomb.yaml' must hold at most 100,000 values"):
        load_recipe(tmp_path / "bomb.yaml")
    with pytest.raises(InputError, match="must nest at most 32") as caught:
        load_recipe("glyphs", ["train.steps=" + "[" * 10_000])
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("train.learning_rate=.inf", "train.learning_rate: input should be a finite number"),
        ("image.mean=[.nan]", "image.mean.0: input should be a finite number"),
        ("method.temperature=.nan", "temperature: input should be a finite number"),
        ("image.size=100000", "image.size: input should be less than or equal to 1024"),
        ("train.seed=9223372036854775808", "train.seed: input should be less than"),
        ("method.queue_size=9999999999", "queue_size must be at most 2,147,483,647"),
        ("method.sinkhorn_iterations=99999", "sinkhorn_iterations must be at most 10,000"),
        ("views.at_test=100000", "views.at_test: input should be less than or equal to 1000"),
    ],
)
def test_numbers_that_would_take_days_or_overflow_are_refused(change, complaint):
    with pytest.raises(InputError, match=complaint):
        load_recipe("glyphs", [change])
