"""psco serve as a program: what it answers, and hostile requests."""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_models import make_images

BOUNDARY = "----boundary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def form(*contents: bytes) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="{number}.png"'
        f"\r\nContent-Type: image/png\r\n\r\n".encode()
        + content
        + b"\r\n"
        for number, content in enumerate(contents)
    ]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def encoded(*contents: bytes) -> str:
    return json.dumps({"images": [base64.b64encode(content).decode() for content in contents]})


@pytest.fixture(scope="module")
def expected(served_classifier):
    return served_classifier.predict(make_images(served_classifier.network, 6)).tolist()


def test_a_form_json_and_raw_bodies_get_the_labels_of_the_classifier(ask, files, expected):
    status, answer = ask("POST", "/classify", form(*files), FORM)
    assert (status, [r["label"] for r in answer["results"]]) == (200, expected)
    assert [r["name"] for r in answer["results"]] == [f"{number}.png" for number in range(6)]
    for result in answer["results"]:
        assert result["unknown"] == (result["label"] == "unknown")
        assert sum(p["probability"] for p in result["probabilities"]) == pytest.approx(1)
    assert ask("POST", "/classify", encoded(*files), "application/json")[1]["results"] == [
        {**result, "name": str(number)} for number, result in enumerate(answer["results"])
    ]
    for kind in ("image/png", "application/octet-stream"):
        status, alone = ask("POST", "/classify", files[2], kind)
        assert (status, alone["results"][0]["label"]) == (200, expected[2])


def test_top_limits_the_number_of_classes(ask, files):
    _, answer = ask("POST", "/classify?top=1", files[0], "image/png")
    assert len(answer["results"][0]["probabilities"]) == 1
    status, answer = ask("POST", "/classify?top=many", files[0], "image/png")
    assert (status, answer) == (422, {"error": "top must be a whole number >= 1, not 'many'"})


def test_concurrent_requests_share_batches_and_keep_their_own_answers(ask, files, expected):
    before = ask("GET", "/health")[1]
    numbers = [number % 6 for number in range(60)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(lambda n: ask("POST", "/classify", files[n], "image/png")[1], numbers)
        )
    found = [answer["results"][0]["label"] for answer in answers]
    assert found == [expected[number] for number in numbers]
    after = ask("GET", "/health")[1]
    assert after["pictures"] - before["pictures"] == 60
    assert after["batches"] - before["batches"] < 60


def test_a_picture_that_cannot_be_decoded_does_not_cost_the_others_their_answers(
    ask, files, expected
):
    status, answer = ask("POST", "/classify", form(files[0], b"no picture", files[1]), FORM)
    first, broken, second = answer["results"]
    assert status == 200
    assert [first["label"], second["label"]] == expected[:2]
    assert set(broken) == {"name", "error"}
    assert broken["error"].startswith("it is not PNG")


def bomb(side: int) -> bytes:
    """Return a PNG of a few bytes that promises side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b"", "image/png", 422, "no picture"),
        (b"no picture", "image/png", 422, "not PNG"),
        (bomb(9000), "image/png", 422, "9000 x 9000 pixels exceed 50 million"),
        (bomb(60000), "image/png", 422, "pixels"),
        (b"{", "application/json", 422, "not JSON"),
        (b"[" * 500_000, "application/json", 422, "not JSON"),
        (b'{"images":' * 100_000, "application/json", 422, "not JSON"),
        (b'{"images": "abc"}', "application/json", 422, "another form"),
        (b'{"images": [1, 2]}', "application/json", 422, "another form"),
        (b'["abc"]', "application/json", 422, "another form"),
        (b'{"images": ["%%%"]}', "application/json", 422, "not base64"),
        (b'{"images": []}', "application/json", 422, "no picture"),
        (b"\xff\xfe\x00", "application/json", 422, "not JSON"),
        (form(), FORM, 422, "no picture"),
        (b"nothing of the kind", FORM, 422, ""),
        (form(b"x"), "multipart/form-data", 422, "cannot be read"),
        (form(b"x")[:60], FORM, 422, ""),
        (form(*[b"x"] * 9), FORM, 413, "limit of 8 pictures"),
        (encoded(*[b"x"] * 9), "application/json", 413, "limit of 8"),
        (bytes(2_100_000), "image/png", 413, "limit of 2 MB"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "cannot read"),
        (b"abc", None, 415, "without content-type"),
        (b"abc", "text/html; <script>", 415, "cannot read 'text/html'"),
    ],
)
def test_a_bad_body_is_refused_in_one_line(ask, body, kind, status, message):
    found, answer = ask("POST", "/classify", body, kind)
    assert found == status
    assert set(answer) == {"error"}
    assert message in answer["error"]
    assert "\n" not in answer["error"]
    assert "Traceback" not in answer["error"]
    assert len(answer["error"]) < 400


def test_truncated_pictures_are_refused_at_any_length(ask, files):
    for length in range(1, len(files[0]) - 12, 97):
        status, answer = ask("POST", "/classify", files[0][:length], "image/png")
        assert status == 422, answer


def test_a_body_without_a_stated_length_is_limited_too(server):
    with socket.create_connection(server.split(":"), timeout=30) as connection:
        head = f"POST /classify HTTP/1.1\r\nHost: {server}\r\nContent-Type: image/png\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        try:
            for _ in range(60):
                connection.sendall(chunk)
        except OSError:  # the server has answered and closed
            pass
        answer = connection.recv(4096)
    assert b"413" in answer.split(b"\r\n")[0]


def test_a_client_that_leaves_does_not_disturb_others(server, ask, files, expected):
    for _ in range(5):
        with socket.create_connection(server.split(":"), timeout=30) as connection:
            head = f"POST /classify HTTP/1.1\r\nHost: {server}\r\nContent-Type: image/png\r\n"
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode())
    status, answer = ask("POST", "/classify", files[0], "image/png")
    assert (status, answer["results"][0]["label"]) == (200, expected[0])


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/x", 404), ("GET", "/classify", 405)]
)
def test_other_paths_and_methods_are_errors_of_one_line(ask, method, path, status):
    found, answer = ask(method, path)
    assert (found, set(answer)) == (status, {"error"})


def test_a_request_under_another_host_name_is_refused(server):
    with socket.create_connection(server.split(":"), timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert b" 421 " in connection.recv(4096).split(b"\r\n")[0]


# ------------------------------------------------------------------------------------- description


def conforms(value, schema, schemas) -> bool:
    """Whether a value has the form that a schema of the description states."""
    if "$ref" in schema:
        return conforms(value, schemas[schema["$ref"].rsplit("/", 1)[1]], schemas)
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "number": float}
    kinds["integer"] = int
    stated = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not isinstance(value, tuple(kinds[kind] for kind in stated)):
        return False
    if isinstance(value, dict):
        known = schema["properties"]
        return set(schema.get("required", [])) <= set(value) <= set(known) and all(
            conforms(v, known[name], schemas) for name, v in value.items()
        )
    return not isinstance(value, list) or all(conforms(v, schema["items"], schemas) for v in value)


def test_answers_have_the_form_that_the_description_states(ask, files):
    status, text = ask("GET", "/openapi.json")
    assert (status, text["openapi"]) == (200, "3.1.0")
    assert set(text["paths"]) == {"/classify", "/health"}
    schemas = text["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(text))) == set(schemas)
    requests = [
        ("GET", "/health", None, None),
        ("POST", "/classify", form(files[0], b"no picture"), FORM),
        ("POST", "/classify", files[0], "image/png"),
        ("POST", "/classify", b"{", "application/json"),
        ("POST", "/classify", b"x", "text/plain"),
        ("POST", "/classify", bytes(2_100_000), "image/png"),
    ]
    for method, path, body, kind in requests:
        status, answer = ask(method, path, body, kind)
        stated = text["paths"][path][method.lower()]["responses"][str(status)]
        schema = stated["content"]["application/json"]["schema"]
        assert conforms(answer, schema, schemas), (path, status, answer)
    kinds = text["paths"]["/classify"]["post"]["requestBody"]["content"]
    assert set(kinds) > {"multipart/form-data", "application/json", "application/octet-stream"}
