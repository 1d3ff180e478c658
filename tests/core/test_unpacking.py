from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.unpacking import (
    DEFAULT,
    VARIABLE,
    check_unpacked,
    limit_unpacking,
    open_gzip,
    parse_size,
    size_text,
    unpacking_limit,
)


@pytest.fixture(autouse=True)
def _default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8 * 10**9), ("500 mb", 500 * 10**6), ("1.5GiB", 3 << 29), ("4000000", 4_000_000), (" 2kB ", 2000)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text, "--max-unpacked") == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "8 gigs", "1e9", "GB", "inf", "0.2", "9" * 400, "٣GB"])
def test_what_is_not_a_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="--max-unpacked must be a size such as 8GB"):
        limit_unpacking(text)
    assert unpacking_limit() == DEFAULT


def test_the_option_reaches_processes_that_are_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")  # so that the test's end restores it
    limit_unpacking("5MB")
    program = "from dubio.core.unpacking import unpacking_limit; print(unpacking_limit())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(shown.stdout) == unpacking_limit() == 5_000_000


def test_a_declared_size_above_the_limit_is_refused_with_the_option_that_raises_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = Path("some.npz")
    check_unpacked(path, DEFAULT)
    with pytest.raises(BadFile) as refusal:
        check_unpacked(path, 5_400_000_000)
    for part in ("some.npz", "5.4 GB", "4 GB", "--max-unpacked", VARIABLE):
        assert part in str(refusal.value)
    monkeypatch.setenv(VARIABLE, "6GB")
    check_unpacked(path, 5_400_000_000)


def test_gzip_is_unpacked_up_to_the_limit_and_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(3_000_000)))
    monkeypatch.setenv(VARIABLE, "3MB")
    with open_gzip(path) as stream:
        assert stream.read() == bytes(3_000_000)
    monkeypatch.setenv(VARIABLE, "2MB")
    with open_gzip(path) as stream, pytest.raises(BadFile, match=r"more than the 2 MB.*--max-unpacked"):
        stream.read()


@pytest.mark.parametrize("cut", [4, 12, -6])
def test_damaged_gzip_is_a_bad_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"some text" * 100)[:cut])
    with open_gzip(path) as stream, pytest.raises(BadFile, match=r"cut\.gz"):
        stream.read()
    path.write_bytes(b"not gzip at all")
    with open_gzip(path) as stream, pytest.raises(BadFile, match=r"cut\.gz"):
        stream.read()


def test_sizes_are_written_with_the_unit_that_fits() -> None:
    sizes = (12, 5900, 4_400_000, 5_400_000_000, 150_000_000_000_000)
    assert [size_text(size) for size in sizes] == ["12 bytes", "5.9 kB", "4.4 MB", "5.4 GB", "150 TB"]


def test_commands_that_read_files_take_the_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dubio.cli.app import app

    monkeypatch.setenv(VARIABLE, "1")
    outcome = CliRunner().invoke(app, ["evaluate", str(tmp_path / "none.csv"), "--max-unpacked", "7MB"])
    assert isinstance(outcome.exception, UserError)
    assert unpacking_limit() == 7_000_000
    for command in (["evaluate", "a.csv"], ["data", "check", "a.csv"], ["run", "quick"]):
        outcome = CliRunner().invoke(app, [*command, "--max-unpacked", "much"])
        assert "--max-unpacked must be a size" in str(outcome.exception)
