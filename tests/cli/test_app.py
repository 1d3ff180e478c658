"""The command line as a user's shell meets it: messages, exit codes, pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dubio
from dubio import __main__ as main_module
from dubio.cli import app as app_module
from dubio.core.errors import CorruptFile, UserError
from dubio.runner.benchmark_file import benchmark_files
from tests.cli.helpers import run_here

COMMANDS = ("run", "evaluate", "compare", "report", "list", "data", "check", "show", "store", "refer")


def dubio_command(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dubio", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb"},
        **options,  # type: ignore[call-overload]
    )


def test_help_names_every_command() -> None:
    done = dubio_command("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", done.stdout), command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, tmp_path: Path) -> None:
    done = run_here(tmp_path, command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_help_of_run_names_every_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    told = run_here(tmp_path, "run", "--help").stdout
    named = re.search(r"A benchmark's name \((.*?)\)", " ".join(told.replace("│", " ").split()))
    assert named is not None
    assert tuple(named[1].split(", ")) == tuple(benchmark_files())


def test_version() -> None:
    assert dubio_command("--version").stdout == f"dubio {dubio.__version__}\n"


@pytest.mark.parametrize("words", [("evalute",), ("list", "--no-such-option"), ("list", "tusks")])
def test_usage_errors_exit_with_two(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(tmp_path, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_refusal_is_one_line_on_standard_error() -> None:
    done = dubio_command("list", "metrics", "--plugin", "nowhere.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "dubio: plugin 'nowhere.py': no such file.\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("wrong"), 2, "dubio: wrong\n"),
        (CorruptFile("broken"), 1, "dubio: broken\n"),
        (PermissionError(13, "Permission denied", "report.html"), 2, "dubio: Permission denied: report.html\n"),
    ],
)
def test_errors_become_messages_and_codes(
    error: Exception, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(app_module, "app", fail)
    with pytest.raises(SystemExit) as stop:
        app_module.main()
    assert stop.value.code == code
    assert capsys.readouterr().err == message


UNFORESEEN: dict[str, BaseException] = {
    "bug": ZeroDivisionError("first line\nsecond line"),
    "depth": RecursionError("maximum recursion depth exceeded"),
    "panic": BaseException("a panic of an extension is no Exception"),
    "long": ValueError("x" * 10_000),
}


def run_and_fail(error: BaseException, monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """Run the command line with a bug in it, and return its exit code."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(app_module, "app", fail)
    monkeypatch.setattr(sys, "argv", ["dubio", *words])
    with pytest.raises(SystemExit) as stop:
        main_module.main()
    return stop.value.code


@pytest.mark.parametrize("kind", UNFORESEEN)
def test_the_unforeseen_is_one_line_a_log_and_exit_code_70(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ("evaluate", "https://me:secret@host/mine.npz", "\udcff.npz")
    assert run_and_fail(UNFORESEEN[kind], monkeypatch, *words) == 70
    (line,) = capsys.readouterr().err.splitlines()
    name = type(UNFORESEEN[kind]).__name__
    assert re.fullmatch(
        rf"dubio: unexpected error: {name}: .{{1,300}}; the details are in (.*\.log); "
        r"--debug shows the traceback; please report it\.",
        line,
    )
    (log,) = (tmp_path / "dubio").iterdir()
    assert str(log) in line
    details = log.read_text("utf-8")
    assert f"dubio {dubio.__version__}, Python 3" in details
    assert "command: dubio evaluate" in details
    assert "secret" not in details
    assert "Traceback (most recent call last)" in details
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("words", [("--debug", "list"), ("list", "metrics", "--debug")])
def test_debug_shows_the_traceback_instead(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run_and_fail(ZeroDivisionError(), monkeypatch, *words) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_debug_is_an_option_anywhere_but_after_the_end_of_options(tmp_path: Path) -> None:
    assert run_here(tmp_path, "list", "metrics", "--debug").returncode == 0
    assert run_here(tmp_path, "list", "--", "--debug").returncode == 2


def test_too_little_memory_is_for_the_user_to_correct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run_and_fail(MemoryError("Unable to allocate 8.00 TiB"), monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dubio: out of memory: MemoryError: Unable to allocate 8.00 TiB; the details are in ")


def test_old_logs_are_removed_and_none_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(main_module.LOGS_KEPT + 5):
        run_and_fail(ZeroDivisionError(), monkeypatch)
    assert len(list((tmp_path / "dubio").iterdir())) == main_module.LOGS_KEPT


def test_the_log_goes_to_the_temporary_folder_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run_and_fail(ZeroDivisionError(), monkeypatch) == 70
    (log,) = tmp_path.glob("*.log")
    assert str(log) in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", str(file))
    assert run_and_fail(ZeroDivisionError(), monkeypatch) == 70
    assert "no log could be written; --debug shows" in capsys.readouterr().err


def test_an_error_while_the_command_line_is_loaded_is_caught_too(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ZeroDivisionError\n")
    paths = os.pathsep.join((str(tmp_path), str(Path(dubio.__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", "from dubio.__main__ import main; main()"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert done.returncode == 70
    assert done.stderr.startswith("dubio: unexpected error: ZeroDivisionError; the details are in ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_a_file_name_that_is_no_text_can_be_printed(language: str, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9\xff.npz"
    done = subprocess.run(
        [sys.executable, "-m", "dubio", "evaluate", name],
        capture_output=True,
        env={**os.environ, "LC_ALL": language, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_interrupt_exits_with_130(tmp_path: Path) -> None:
    plugin = tmp_path / "stops.py"
    plugin.write_text("raise KeyboardInterrupt\n")
    done = dubio_command("list", "metrics", "--plugin", str(plugin))
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m dubio list metrics --json | true", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_completion_offers_the_commands() -> None:
    start = "import sys; sys.argv = ['dubio']; from dubio.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start],
        capture_output=True,
        text=True,
        env={**os.environ, "_DUBIO_COMPLETE": "complete_bash", "COMP_WORDS": "dubio ", "COMP_CWORD": "1"},
    )
    assert set(COMMANDS) <= set(done.stdout.split())


@pytest.mark.parametrize(("stated", "used"), [(None, "1"), ("3", "3")])
def test_a_command_computes_with_one_thread_unless_the_user_says_otherwise(stated: str | None, used: str) -> None:
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    given |= {} if stated is None else {"OPENBLAS_NUM_THREADS": stated}
    program = (
        "import os, sys; from dubio import __main__; import dubio.cli.app as app; assert 'numpy' not in sys.modules\n"
        "app.main = lambda: print(os.environ['OPENBLAS_NUM_THREADS']); __main__.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given, check=True)
    assert done.stdout.strip() == used
