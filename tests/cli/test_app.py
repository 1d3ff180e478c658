"""The command line as a user's shell meets it: messages, exit codes, pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dubio
from dubio.cli import app as app_module
from dubio.core.errors import CorruptFile, UserError
from dubio.runner.benchmark_file import benchmark_files

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
def test_every_command_has_help(command: str) -> None:
    done = dubio_command(command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_help_of_run_names_every_benchmark() -> None:
    told = dubio_command("run", "--help").stdout
    named = re.search(r"A benchmark's name \((.*?)\)", " ".join(told.replace("│", " ").split()))
    assert named is not None
    assert tuple(named[1].split(", ")) == tuple(benchmark_files())


def test_version() -> None:
    assert dubio_command("--version").stdout == f"dubio {dubio.__version__}\n"


@pytest.mark.parametrize("words", [("evalute",), ("list", "--no-such-option"), ("list", "tusks")])
def test_usage_errors_exit_with_two(words: tuple[str, ...]) -> None:
    done = dubio_command(*words)
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


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app_module, "app", fail)
    with pytest.raises(ZeroDivisionError):
        app_module.main()


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
