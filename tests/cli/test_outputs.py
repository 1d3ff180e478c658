"""Every file that a command writes: whole or not at all, wherever it goes, and never over an input."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.store import Store
from tests.cli.helpers import StoredRun, invoke
from tests.store.helpers import FIT, write_fit, write_prediction

posix = pytest.mark.skipif(os.name == "nt", reason="pipes and devices are files on POSIX systems")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("inputs"), np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    probs = np.clip(0.5 + 0.45 * (2 * labels - 1) * rng.random(300), 0.01, 0.99)
    np.savez(folder / "p.npz", probs=np.stack([1 - probs, probs], 1), labels=labels, ids=np.arange(300).astype(str))
    rows = [f"{d},{m},nll,{rng.random()}" for d in "abcd" for m in ("x", "y", "z")]
    (folder / "results.csv").write_text("\n".join(["dataset,method,metric,value", *rows]))
    return folder


COMMANDS = """
calibrate fit IN/p.npz -o OUT/t.json
calibrate apply OUT/t.json IN/p.npz -o OUT/c.npz
calibrate apply OUT/t.json IN/p.npz -o OUT/c.safetensors
refer fit IN/p.npz --capacity 0.2 -o OUT/policy.json
refer apply OUT/policy.json IN/p.npz -o OUT/decisions.csv
evaluate IN/p.npz --replicates 0 --require accuracy>=0.1 --junit OUT/gates.xml
compare IN/results.csv --metric nll --better nll=lower --diagram OUT/cd.svg
report --store STORE --out OUT/report
store export OUT/all.zip --store SMALL
store export OUT/all.tar --store SMALL
store export OUT/all --store SMALL
"""
"""Every command that writes a file or folder of the user's; dubio run writes a store and the report."""

AUDITED = """
import os, sys
from typer.testing import CliRunner
from dubio.cli.app import app

out = os.path.realpath(sys.argv[1])
direct = []


def is_scratch(path, flags):
    parts = os.path.relpath(path, out).split(os.sep)
    unnamed = hasattr(os, "O_TMPFILE") and flags & os.O_TMPFILE == os.O_TMPFILE
    return unnamed or any(part.startswith(".") and part.endswith(".tmp") for part in parts)


def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path, _, flags = arguments
        path = os.path.realpath(os.fsdecode(path))
        writes = flags & (os.O_WRONLY | os.O_RDWR) and flags & (os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        if writes and path.startswith(out + os.sep) and not is_scratch(path, flags):
            direct.append(path)


sys.addaudithook(watch)
for line in sys.stdin.read().strip().splitlines():
    done = CliRunner().invoke(app, line.split("\\t"))
    if done.exit_code:
        sys.exit(f"{line}: {done.output} {done.exception!r}")
open(os.path.join(out, "control"), "w").close()
print("\\n".join(direct))
"""


def test_no_command_opens_its_output_to_write_into_it(
    files: Path, stored_run: StoredRun, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every file is written aside; the audit finds the one that is opened directly on purpose."""
    with Store.open(tmp_path_factory.mktemp("small") / "s") as store:
        write_fit(store)
        run = {"id": write_prediction(store), "fits": [FIT], "spec": {}, "task": "toy", "network": "net", "method": "m"}
        own = {"tasks": [{"name": "toy"}], "methods": [{"name": "m"}], "runs": [{**run, "seed": 0}], "failures": []}
        store.write_manifest({"name": "run", **own}, "a" * 64)
    places = {"IN/": f"{files}/", "OUT/": f"{tmp_path}/", "STORE": str(stored_run.path), "SMALL": str(store.path)}
    lines = []
    for line in COMMANDS.strip().splitlines():
        for name, path in places.items():
            line = line.replace(f" {name}", f" {path}")
        lines.append("\t".join(line.split(" ")))
    done = subprocess.run([sys.executable, "-c", AUDITED, str(tmp_path)], input="\n".join(lines), text=True,
                          capture_output=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path.resolve() / "control")]
    written = {path.name for path in tmp_path.iterdir()}
    names = {"t.json", "c.npz", "c.safetensors", "policy.json", "decisions.csv", "gates.xml", "cd.svg", "all.zip",
             "all.tar", "all"}  # fmt: skip
    assert written == names | {"report", "control"}  # and nothing that was written aside


def dubio(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dubio", *map(str, arguments)]
    return subprocess.run(command, text=True, check=False, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


@posix
def test_standard_output_receives_the_file_and_nothing_else(files: Path, tmp_path: Path) -> None:
    fit = ("refer", "fit", files / "p.npz", "--capacity", 0.2, "-o", "/dev/stdout")
    piped = dubio(*fit, capture_output=True)
    assert json.loads(piped.stdout)["dubio"] == "referral policy"
    assert "policy: /dev/stdout" in piped.stderr
    with (tmp_path / "p.json").open("w") as sink:  # a file, which must not be replaced while it is open
        sink.write("\n")
        sink.flush()
        dubio(*fit, stdout=sink, stderr=subprocess.DEVNULL)
    assert json.loads((tmp_path / "p.json").read_text()) == json.loads(piped.stdout)
    assert Path("/dev/stdout").is_symlink()


@posix
def test_a_pipe_is_written_to_and_stays_a_pipe(files: Path, tmp_path: Path) -> None:
    pipe, contents = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: contents.append(pipe.read_bytes()))
    reader.start()
    invoke(app, "refer", "fit", files / "p.npz", "--capacity", 0.2, "-o", pipe)
    reader.join(20)
    assert json.loads(contents[0])["dubio"] == "referral policy"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_input_is_not_overwritten(files: Path, tmp_path: Path) -> None:
    invoke(app, "refer", "fit", files / "p.npz", "--capacity", 0.2, "-o", tmp_path / "policy.json")
    invoke(app, "calibrate", "fit", files / "p.npz", "-o", tmp_path / "t.json")
    link = tmp_path / "link.npz"
    link.symlink_to(files / "p.npz")
    before = {path: path.read_bytes() for path in (files / "p.npz", tmp_path / "policy.json", tmp_path / "t.json")}
    for arguments in (
        ("refer", "apply", tmp_path / "policy.json", files / "p.npz", "-o", tmp_path / "policy.json"),
        ("refer", "fit", files / "p.npz", "--capacity", 0.2, "-o", link),
        ("calibrate", "fit", files / "p.npz", "-o", files / "p.npz"),
        ("calibrate", "apply", tmp_path / "t.json", files / "p.npz", "-o", link),
    ):
        with pytest.raises(UserError, match="is the input"):
            invoke(app, *arguments)
    assert before == {path: path.read_bytes() for path in before}


def test_a_folder_or_a_file_in_the_way_is_named_and_missing_folders_are_made(files: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for command in (["calibrate", "fit", files / "p.npz"], ["refer", "fit", files / "p.npz", "--capacity", 0.2]):
        for output, reason in ((tmp_path, "it is a folder"), (tmp_path / "file" / "x", "in the way")):
            with pytest.raises(UserError, match=f"cannot write '{tmp_path}.*{reason}"):
                invoke(app, *command, "-o", output)
        invoke(app, *command, "-o", tmp_path / "a" / "b" / "out.json")
    invoke(app, "calibrate", "fit", files / "p.npz", "-o", tmp_path / "t.json")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UserError, match=r"cannot write '.*folder.npz': it is a folder"):
        invoke(app, "calibrate", "apply", tmp_path / "t.json", files / "p.npz", "-o", tmp_path / "folder.npz")
    invoke(app, "calibrate", "apply", tmp_path / "t.json", files / "p.npz", "-o", tmp_path / "new" / "c.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "file", "folder.npz", "new", "t.json"]
