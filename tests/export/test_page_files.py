"""Files of the page: .psco and JSON that it writes and reads, in node and in Python."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from node import needs_node, run_node
from safetensors.torch import load as parse

import psco
from psco.classifier.storage import classifier_bytes
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.export.page import page_content, page_html, write_page
from psco.recipes.recipe import load_recipe

DOCUMENTED = Path(__file__).parents[2] / "docs" / "draw.html"
MODEL = r'(?<=id="model">)(.*?)(?=</script>)'
OPEN = "const { model, classes } = openModel(fromBase64(given.file), given.facts);\n"
PROBLEM = """
const problem = (read) => { try { read(); return null; } catch (error) {
  if (!(error instanceof Problem)) throw error;
  return error.message;
} };
"""


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def given(source, **more):
    saved, facts = page_content(source)
    return {"file": text(classifier_bytes(saved, half=True)), "facts": facts, **more}


@pytest.fixture(scope="module")
def drawings():
    return np.random.default_rng(0).integers(0, 256, (10, 53, 53, 1), dtype=np.uint8)


@pytest.fixture(scope="module")
def classifier(drawings):
    """Three classes with names that files find hard, one of them with a single example."""
    labels = ["ü", "ü", '日本 "語"', '日本 "語"', "x</script>"]
    return psco.FewShotClassifier("handwriting", reject_below="auto").fit(drawings[:5], labels)


@needs_node
def test_a_psco_file_of_the_page_opens_in_python_with_the_same_answers(
    tmp_path, classifier, drawings
):
    body = (
        OPEN
        + """
    const more = makeExample(model, fromBase64(given.picture), "drawing");
    const all = addExample(addExample(classes, "new", more), "ü", more);
    const fitted = fitClasses(model, all);
    return {
      file: toBase64(writePsco(model, all, fitted, fitted.threshold)),
      names: all.map(({ name }) => name),
      answers: given.queries.map((query) => fitted.classify(embed(model, fromBase64(query)))),
    };
    """
    )
    queries = [text(each.tobytes()) for each in drawings[6:]]
    picture = text(drawings[5].tobytes())
    found = run_node(tmp_path, body, given(classifier, picture=picture, queries=queries))
    (tmp_path / "page.psco").write_bytes(base64.b64decode(found["file"]))
    opened = psco.FewShotClassifier.load(tmp_path / "page.psco")
    assert opened.classes_.tolist() == sorted(found["names"])
    assert opened.support_counts_.sum() == 7
    order = [found["names"].index(name) for name in opened.classes_]
    expected = np.array([answer["probabilities"] for answer in found["answers"]])[:, order]
    assert np.allclose(opened.predict_proba(drawings[6:]), expected, atol=1e-4)
    assert opened.predict(drawings[6:]).tolist() == [each["label"] for each in found["answers"]]
    # What Python fits to these examples is what the page had fitted.
    again = psco.FewShotClassifier("handwriting", reject_below="auto").fit(
        drawings[[0, 1, 2, 3, 4, 5, 5]], [*classifier.model.supports.labels, "new", "ü"]
    )
    assert opened.temperature_ == pytest.approx(again.temperature_, rel=1e-3)
    assert opened.threshold_ == pytest.approx(again.threshold_, abs=1e-4)
    assert "later" in opened.partial_fit(drawings[:1], ["later"]).classes_  # it learns on there


@needs_node
def test_a_file_of_python_opens_in_the_page_and_json_keeps_everything(tmp_path, classifier):
    classifier.save(tmp_path / "python.psco")
    body = (
        OPEN
        + """
    const read = readPsco(model, fromBase64(given.python), "python.psco");
    const again = readJson(model, writeJson(model, read.classes, 0.25), "classes.json");
    const plain = (classes) => classes.map(({ name, examples }) => [
      name, examples.map(({ thumbnail, query }) => [Array.from(thumbnail), Array.from(query)])]);
    return [plain(classes), plain(read.classes), plain(again.classes), read.threshold,
            again.threshold];
    """
    )
    python = text((tmp_path / "python.psco").read_bytes())
    page, read, again, limit, kept = run_node(tmp_path, body, given(classifier, python=python))
    assert page == read == again
    assert [name for name, _ in page] == ["ü", '日本 "語"', "x</script>"]
    assert (limit, kept) == (pytest.approx(classifier.threshold_), 0.25)


@needs_node
def test_damaged_and_foreign_files_are_problems_with_a_sentence(tmp_path, classifier):
    classifier.save(tmp_path / "good.psco")
    good = (tmp_path / "good.psco").read_bytes()
    features = psco.FewShotClassifier().fit([[0.0], [1.0]], ["a", "b"])
    features.save(tmp_path / "features.psco")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    files = {
        "empty": b"",
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "cut": good[: len(good) // 2],
        "flipped": bytes(flipped),
        "version": good.replace(b'"version":"1"', b'"version":"9"'),
        "features": (tmp_path / "features.psco").read_bytes(),
    }
    body = (
        OPEN
        + PROBLEM
        + """
    return given.files.map((file) => problem(() => readPsco(model, fromBase64(file), "x.psco")));
    """
    )
    contents = [text(content) for content in files.values()]
    found = run_node(tmp_path, body, given(classifier, files=contents))
    sentences = dict(zip(files, found, strict=True))
    assert all(sentence.startswith("x.psco ") for sentence in sentences.values())
    assert "cut short" in sentences["empty"]
    assert "cut short" in sentences["cut"]
    assert "checksum differs" in sentences["flipped"]
    assert "checksum differs" in sentences["version"]
    assert "another encoder" in sentences["features"]


@needs_node
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("null", "holds no classes"),
        ('{"a": 1}', "holds no classes"),
        ({"encoder": "0"}, "another encoder"),
        ({"classes": None}, "is damaged"),
        ({"classes": [{"name": "a", "examples": [{"picture": "??"}]}]}, "is damaged"),
        ({"classes": [{"name": "Unknown", "examples": []}]}, "marks what belongs to no class"),
        ({"classes": [{"name": " ", "examples": []}]}, "needs a name"),
    ],
)
def test_json_that_is_not_ours_is_a_problem_with_a_sentence(
    tmp_path, classifier, content, sentence
):
    body = (
        OPEN
        + PROBLEM
        + """
    const whole = JSON.parse(writeJson(model, classes, 0.5));
    const { content } = given;
    const file = typeof content === "string" ? content : JSON.stringify({ ...whole, ...content });
    return problem(() => readJson(model, file, "x.json"));
    """
    )
    assert sentence in run_node(tmp_path, body, given(classifier, content=content))


def test_a_backbone_or_view_that_the_page_cannot_run_is_an_error_with_the_way_out(tmp_path):
    small = ["heads={hidden: 16, out: 8}", "image={size: 32, source_size: 32}"]
    other = Encoder.untrained(load_recipe("glyphs", [*small, "backbone={name: resnet18}"]))
    with pytest.raises(InputError, match=r"conv4 and conv5, not 'resnet18'.*model\.onnx"):
        write_page(other, tmp_path / "page.html")
    views = ["views.view_b={crop: {}}", "views.at_test=1", "backbone={name: conv4, width: 4}"]
    with pytest.raises(InputError, match=r"\(crop\).*model\.onnx"):
        write_page(Encoder.untrained(load_recipe("glyphs", [*small, *views])), tmp_path / "p.html")
    features = psco.FewShotClassifier().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(InputError, match="fitted on features"):
        write_page(features, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_a_classifier_has_its_classes_and_no_markup_of_theirs(classifier):
    html, facts = page_html(classifier, "<b>mine</b>")
    assert (facts.classes, facts.examples) == (3, 5)
    assert facts.summary() == "conv4 at 28 px, 3 classes, 5 examples"
    assert "&lt;b&gt;mine" in html
    assert "<b>mine" not in html
    assert html.count("</script>") == 3


def test_another_rule_is_reported(classifier, drawings, capsys):
    other = psco.FewShotClassifier("handwriting", rule="ridge").fit(drawings[:4], list("abab"))
    page_html(other)
    assert "by prototypes, and this classifier has the rule 'ridge'" in capsys.readouterr().err


def test_psco_export_writes_a_page_by_its_suffix(tmp_path, classifier, psco):
    classifier.save(tmp_path / "mine.psco")
    done = psco("export", tmp_path / "mine.psco", tmp_path / "page.html")
    assert "page.html: conv4 at 28 px, 3 classes, 5 examples, 4.0 MB" in done.stdout, done.stderr
    assert "<title>mine · psco</title>" in (tmp_path / "page.html").read_text()
    wrong = psco("export", "handwriting", tmp_path / "x.html", "--int8")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "x.html").exists()


def test_psco_draw_writes_the_page_of_the_documentation_below_4_mb(tmp_path, psco):
    done = psco("draw", "--no-open", "--out", tmp_path / "draw.html", "--json")
    facts = json.loads(done.stdout)
    assert facts["bytes"] == (tmp_path / "draw.html").stat().st_size < 4e6
    assert facts["backbone"] == "conv4"
    new, documented = (file.read_text() for file in (tmp_path / "draw.html", DOCUMENTED))
    # The header of the model names the version of psco; the weights are compared as numbers.
    assert re.sub(MODEL, "", new) == re.sub(MODEL, "", documented), (
        "run psco draw --no-open --out docs/draw.html"
    )
    old, now = (parse(base64.b64decode(re.search(MODEL, page)[1])) for page in (documented, new))
    assert old.keys() == now.keys()
    assert all(old[name].equal(now[name]) for name in now)
