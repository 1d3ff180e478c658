"""The command ``dubio``, also as ``python -m dubio``, and its one boundary for errors that nobody foresaw.

It needs the standard library alone, so that it also holds while the rest is being imported.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import sys
import tempfile
import time
import traceback
from pathlib import Path

INTERRUPTED = 130
UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
OUT_OF_MEMORY = 2  # as for a full disk: whoever runs the command can ask for less, or give more

DEBUG = "--debug"

LOGS_KEPT = 20
LONGEST_MESSAGE = 300

_FOLDERS = {"darwin": ("", "Library/Logs"), "win32": ("LOCALAPPDATA", "AppData/Local")}


def main() -> None:
    """Run the command line; what nobody foresaw becomes one line, a log file and exit code 70."""
    debug = _move_debug_forward()
    # Read when numpy is loaded. Its threads wait for each other longer than they compute: the matrices of scores and
    # fits to them are small, and passes over many rows have threads of their own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        for stream in (sys.stdout, sys.stderr):
            # a file's name may hold bytes that are no text, and a terminal may know ASCII alone
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        from dubio.cli.app import main as run

        run()
    except SystemExit:
        raise
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BaseException as error:  # a panic of an extension written in Rust is no Exception
        if debug:
            traceback.print_exc()
        else:
            print(_sentence(error), file=sys.stderr)
        sys.exit(OUT_OF_MEMORY if isinstance(error, MemoryError) else UNEXPECTED)


def _move_debug_forward() -> bool:
    """Make ``--debug`` the first argument wherever it stands among the options; return whether it is there."""
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if DEBUG not in arguments[:end]:
        return False
    sys.argv[1:] = [DEBUG, *(argument for argument in arguments[:end] if argument != DEBUG), *arguments[end:]]
    return True


def _sentence(error: BaseException) -> str:
    """Return the line that a user reads, and write the log that it names."""
    summary = " ".join("".join(traceback.format_exception_only(error)).split())
    summary = summary if len(summary) <= LONGEST_MESSAGE else f"{summary[: LONGEST_MESSAGE - 3]}..."
    log = _write_log(error)
    where = f"the details are in {log}; " if log else "no log could be written; "
    if isinstance(error, MemoryError):
        return f"dubio: out of memory: {summary}; {where}fewer rows, samples or jobs need less."
    return f"dubio: unexpected error: {summary}; {where}{DEBUG} shows the traceback; please report it."


def _write_log(error: BaseException) -> Path | None:
    """Write the traceback, the command and versions to a new file; return None where nothing can be written."""
    for folder in _log_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".log", time.strftime("dubio-error-%Y%m%dT%H%M%S-"), folder)
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
                log.write(_details(error))
            for old in sorted(folder.glob("dubio-error-*.log"))[:-LOGS_KEPT]:
                old.unlink(missing_ok=True)
            return Path(name)
    return None


def _details(error: BaseException) -> str:
    from dubio import __version__

    command = re.sub(r"://[^/\s@]*@", "://...@", shlex.join(sys.argv))  # a password in an address is not logged
    versions = f"dubio {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return f"{versions}\ncommand: {command}\n\n{''.join(traceback.format_exception(error))}"


def _log_folders() -> list[Path]:
    """Return the platform's folder for a program's logs, and the one for temporary files where that cannot be had."""
    variable, default = _FOLDERS.get(sys.platform, ("XDG_STATE_HOME", ".local/state"))
    parent = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), default)
    return [Path(parent) / "dubio"] * os.path.isabs(parent) + [Path(tempfile.gettempdir())]


if __name__ == "__main__":
    main()
