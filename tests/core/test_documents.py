"""JSON and TOML that somebody may have written to do harm."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubio.core.documents import MAX_BYTES, MAX_DEPTH, is_text, parse_json, parse_toml, read_document
from dubio.core.errors import BadFile, CorruptFile

DIGITS = "9" * 400
HOSTILE = {
    "": "is not JSON",
    "{": "is not JSON",
    "[" * 5_000 + "]" * 5_000: "nested deeper than 100 levels",
    "[" * 100_000: "nested deeper than 100 levels",
    '{"a":' * 100_000: "nested deeper than 100 levels",
    "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1): "nested deeper than 100 levels",
    DIGITS: "needs more than 64 bits",
    f"-{DIGITS * 20}": "needs more than 64 bits",
    str(2**63): "needs more than 64 bits",
    "1e999": "1e999 is not finite",
    "-1e400": "-1e400 is not finite",
    "NaN": "NaN is not a JSON number",
    "[Infinity]": "Infinity is not a JSON number",
    '{"b": 1, "a": 1, "a": 2}': "the key 'a' is there twice",
    r'"\ud800"': "half of a surrogate pair",
    r'{"\uDFFF": 1}': "half of a surrogate pair",
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("error", [BadFile, CorruptFile])
def test_hostile_json_is_refused_with_the_document_and_the_reason(text: str, error: type[Exception]) -> None:
    for form in (text, text.encode()):
        with pytest.raises(error, match=f"^file.json.*{re.escape(HOSTILE[text])}") as refusal:
            parse_json(form, "file.json", error)  # type: ignore[arg-type]
        assert len(str(refusal.value)) < 200


def test_bytes_that_are_no_text_are_refused() -> None:
    for content in (b'"\xff"', b'"\xed\xa0\x80"', "[1]".encode("utf-16")):
        with pytest.raises(BadFile, match="is not JSON"):
            parse_json(content, "file.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(JSON)
def test_other_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parse_json(text, "file.json") == value == parse_json(text.encode(), "file.json")


def test_the_deepest_document_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(text, "file.json") == json.loads(text)
    assert parse_json(r'["\ud83d\ude00"]' + " " * 3, "file.json") == ["\N{GRINNING FACE}"]
    assert parse_json("[" + ",".join(["[]"] * 500) + "]", "file.json") == [[]] * 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = ", "is not TOML"),
        ("a = " + "[" * 100_000, "nested deeper than 100 levels"),
        ("a = " + "[" * 200 + "]" * 200, "nested deeper than 100 levels"),
        ("a = " + "{b=" * 5_000, "nested deeper than 100 levels"),
        (".".join("a" * 3_000) + " = 1", "nested deeper than 100 levels"),
        (f"a = {DIGITS}", "needs more than 64 bits"),
        (f"a = {DIGITS * 20}", "4300"),
        ("a = 1e999", "1e999 is not finite"),
        ("a = [nan]", "nan is not finite"),
        ("a = 1979-05-27", "is a date or time"),
        ("a = 07:32:00", "is a date or time"),
    ],
)
def test_hostile_toml_is_refused_with_the_document_and_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadFile, match=f"^file.toml.*{re.escape(reason)}"):
        parse_toml(text, "file.toml")


def test_toml_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadFile, match="is not TOML"):
        parse_toml(b'a = "\xff"', "file.toml")


@pytest.mark.parametrize("name", ["missing", "folder", "pipe", "/dev/zero", "loop", "a" * 300, "nul\0", "half\ud800"])
def test_only_regular_files_of_bounded_size_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadFile, match=re.escape(repr(str(tmp_path / name))) + " cannot be read: "):
        read_document(tmp_path / name)


def test_a_document_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.touch()
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(BadFile, match=f"{MAX_BYTES + 1} bytes; at most {MAX_BYTES}"):
        read_document(path)


@given(st.text())
def test_a_text_is_what_utf8_can_hold(text: str) -> None:
    assert is_text(text) == (text.encode("utf-8", "replace").decode() == text)


SOURCES = Path(__file__).parents[2] / "src" / "dubio"
OWN_TEXT = {
    "runner/executors.py", "runner/ray_executor.py", "runner/worker.py", "runner/ray_node.py", "runner/ray_cluster.py",
    "methods/fitting.py", "methods/encoding_cache.py", "torch_module/checkpoint.py", "testing/methods.py",
    "reporting/stored_run.py",
    "encoders/wordpieces.py",  # whose settings state 10^30 for no limit; any fault in them is caught
}  # fmt: skip
"""Modules that parse JSON which this very process, or its parent, has written."""


def test_nothing_else_parses_json_or_toml() -> None:
    parses = re.compile(r"\bjson\.loads?\(|\btomllib\.loads?\(")
    named = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if parses.search(path.read_text("utf-8"))}
    assert named - OWN_TEXT <= {"core/documents.py", "store/checkpoints.py"}
