"""The fuzzers cover every file that dubio reads, their files are valid before they are damaged, and no case fails."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import typing
from fnmatch import fnmatch
from pathlib import Path
from random import Random

import pytest
from campaigns.cases import Case, make_case, run_case
from campaigns.covered import ARGUMENTS, MODULES, REASONS
from campaigns.readers import BY_NAME

from dubio.cli.app import app

ROOT = Path(__file__).parents[1]
FILES = re.compile(r"\b(PATH|TOML|CSV, TSV|Files? of|A file|Tables? of|folder of images)\b")
OPENS = re.compile(
    r"np\.load\(|np\.fromfile\(|json\.loads?\(|tomllib\.loads?\(|\.read_text\(|\.read_bytes\(|image_module\.open|ZipFile\("
    r"|tarfile\.open|gzip\.(open|decompress|GzipFile)|safe_open\(|(?<!Store)\.open\(|Unpickler\(|sqlite3\.connect|parse_json\(|parse_toml\("
)


def commands(typed=app, path=()):
    for command in typed.registered_commands:
        yield (*path, command.name or command.callback.__name__), command.callback
    for group in typed.registered_groups:
        yield from commands(group.typer_instance, (*path, group.name))


def arguments():
    for path, callback in commands():
        hints = typing.get_type_hints(callback, include_extras=True)
        for name in inspect.signature(callback).parameters:
            described = " ".join(str(getattr(item, "help", "")) for item in typing.get_args(hints[name])[1:])
            if "Path" in str(typing.get_args(hints[name])[:1]) or FILES.search(described):
                yield " ".join(path), name


def test_every_argument_that_names_a_file_has_a_fuzzer():
    missing = {(command, name) for command, name in arguments() if name not in ARGUMENTS}
    assert not missing, "add a reader to campaigns/readers.py and the argument to campaigns/covered.py"
    assert ARGUMENTS.keys() <= {name for _, name in arguments()}, "arguments that no command has any more"


def test_every_module_that_opens_files_has_a_fuzzer():
    source = ROOT / "src" / "dubio"
    opening = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if OPENS.search(re.sub(r"#.*", "", path.read_text(encoding="utf-8")))
    }
    missing = {name for name in opening if name not in MODULES and f"{name.split('/')[0]}/" not in MODULES}
    assert not missing, "add a reader to campaigns/readers.py and the module to campaigns/covered.py"


@pytest.mark.parametrize("covered", sorted({*ARGUMENTS.values(), *MODULES.values()}))
def test_covering_readers_exist(covered):
    assert covered in REASONS or set(covered.split(", ")) <= BY_NAME.keys()


def test_a_case_is_the_same_bytes_every_time():
    for number in range(40):
        if make_case(3, number).reader.name not in ("manifest", "records", "checkpoint", "fit file"):
            assert make_case(3, number).tree == make_case(3, number).tree


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_most_cases_differ_from_the_valid_file(name):
    reader = BY_NAME[name]
    changed = 0
    for number in range(20):
        tree, damaged = reader.damage(Random(number))
        changed += all(tree[damaged] != valid.get(damaged) for valid in reader.trees())
    assert changed >= 15


def test_no_case_changes_the_limit_of_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIO_MAX_UNPACKED", "250MB")
    reader = BY_NAME["npz"]
    tree = reader.trees()[0]
    command = f"evaluate {next(iter(tree))} --replicates 5 --json --max-unpacked 1GB"
    outcome = run_case(Case(0, reader, tree, next(iter(tree)), command), tmp_path / "case")
    assert (outcome.failure, outcome.exit) == ("", 0)
    assert os.environ["DUBIO_MAX_UNPACKED"] == "250MB"


def campaign(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "campaigns.fuzz", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_pattern_names_a_file(name):
    files = [path for tree in BY_NAME[name].trees() for path in tree]
    for pattern, _ in BY_NAME[name].damaged:
        assert any(fnmatch(path, pattern) for path in files), pattern


def test_every_valid_file_is_read_and_no_damaged_file_breaks_dubio(tmp_path):
    done = campaign("--valid", "--cases", "2000", "--jobs", "1", "--failures", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


INTERRUPTED = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from campaigns import fuzz

def wait(case, folder):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)

fuzz.run_case = wait
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    list(fuzz.run_parallel(range(4), lambda k: SimpleNamespace(number=k), int(sys.argv[1]), Path(sys.argv[2])))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("signalled", [os.kill, os.killpg], ids=["the first process", "all processes"])
def test_an_interrupted_campaign_leaves_no_process_and_says_nothing(tmp_path, jobs, signalled):
    command = [sys.executable, "-c", INTERRUPTED, str(jobs), str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes)
    workers = [int(process.stdout.readline()) for _ in range(jobs)]
    signalled(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("interrupted\n", "")
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
