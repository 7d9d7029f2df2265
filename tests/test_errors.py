"""Messages are one printable line of limited length, whatever the values in them contain."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from psco.errors import (
    InputError,
    PscoError,
    StoppedError,
    and_more,
    counted,
    import_optional,
    printable,
    quoted,
    unknown_name,
)
from psco.progress import Bar, warn

HOSTILE = "a\x1b]0;title\x07\x1b[2J\r\n\x9b31m\u202egnp.exe\udcff"


@pytest.mark.parametrize("kind", [PscoError, InputError, lambda text: StoppedError(text, 1)])
def test_control_characters_never_reach_the_message_of_an_error(kind):
    message = str(kind(f"cannot read {HOSTILE}"))
    assert message.isprintable()
    assert message.startswith(r"cannot read a\x1b]0;title\x07\x1b[2J\r\n\x9b31m\u202egnp.exe\udcff")


def test_errors_survive_pickling_as_they_are_raised_in_worker_processes():
    error = pickle.loads(pickle.dumps(InputError(f"bad {HOSTILE}")))
    assert isinstance(error, InputError)
    assert str(error) == str(InputError(f"bad {HOSTILE}"))


def test_plain_text_in_any_script_is_left_as_it_is():
    assert printable("größer als 5 °C, 猫, C:\\dir") == "größer als 5 °C, 猫, C:\\dir"


def test_long_messages_and_values_lose_their_middle():
    assert len(str(InputError("x" * 10**6))) <= 2000
    shown = quoted(Path("/data") / ("d" * 5000) / "last.png")
    assert len(shown) <= 204
    assert shown.startswith("'/data/ddd")
    assert shown.endswith("ddd/last.png'")
    assert len(quoted(list(range(10**6)))) <= 200
    assert len(str(unknown_name("recipe", "r" * 10**5, ["omniglot"]))) < 400


def test_numbers_agree_with_their_nouns():
    assert counted(1, "image") == "1 image"
    assert counted(0, "image") == "0 images"
    assert counted(2, "class") == "2 classes"
    assert counted(60_000, "image") == "60,000 images"


def test_lists_of_names_are_cut():
    assert and_more(["a"]) == "'a'"
    assert and_more(["a", "b", "c"]) == "'a' and 2 more"
    assert and_more("abc", shown=2) == "'a', 'b' and 1 more"


def test_a_missing_package_is_reported_with_a_command_that_works_in_a_checkout():
    with pytest.raises(InputError, match=r"no_such_module cannot be imported .*-e '\.\[vision\]'"):
        import_optional("no_such_module", "vision")


def test_warnings_and_progress_titles_are_printable(capsys):
    warn(f"skipped {HOSTILE}")
    with Bar(f"read [bold]{HOSTILE}", show=True) as bar:
        bar.update(1.0, HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in lines)
    assert "[bold]" in "".join(lines)
