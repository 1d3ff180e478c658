"""Workers as copies of the process: sound ones alone, with the results and the end of new interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from dubio.runner.worker_process import can_fork

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OPENBLAS_NUM_THREADS": "1"}

linux = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")

START = """
import os, sys, time
from pathlib import Path
from dubio.runner.executors import LocalExecutor, WorkerOrders
from dubio.runner.worker_process import Fork, declare_command
from dubio.store import Store
import tests.runner.fake_trainer
folder = Path(sys.argv[1])
declare_command()
Store.open(folder / "store").close()
executor = LocalExecutor(2, WorkerOrders(folder / "store", trainer="tests.runner.fake_trainer"), folder)
print("once", end="")
executor.start(2)
while not all(worker.ready for worker in executor._workers):
    executor.wait(0.5)
first, second = (worker.process for worker in executor._workers)
assert isinstance(first, Fork) and isinstance(second, Fork)
"""


def run(code: str, folder: Path, before: str = "") -> str:
    command = [sys.executable, "-c", before + START + code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_is_copied_only_with_a_single_thread_and_the_trainer_loaded() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not can_fork("sys")
    finally:
        end.set()
        thread.join()
    assert not can_fork("no_such_trainer")


@linux
def test_copies_end_with_their_input_and_leave_no_zombie(tmp_path: Path) -> None:
    code = """
executor.close()
assert (first.returncode, second.returncode) == (0, 0)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(" gone")
"""
    assert run(code, tmp_path) == "once gone\n"  # what was printed before them is printed once


@linux
def test_a_copy_that_is_killed_is_lost_with_its_signal_and_followed_by_a_new_interpreter(tmp_path: Path) -> None:
    code = """
os.kill(first.pid, 9)
while len(executor._workers) > 1:
    executor.wait(0.5)
assert first.returncode == -9
executor.start(2)
assert isinstance(executor._workers[1].process, Fork) is False
executor.close()
"""
    run(code, tmp_path)


@linux
def test_a_lost_copy_is_noticed_where_the_system_keeps_no_exit_codes(tmp_path: Path) -> None:
    """A process may inherit that SIGCHLD is ignored: children then vanish without a word to their parent."""
    code = """
os.kill(first.pid, 9)
while len(executor._workers) > 1:
    executor.wait(0.5)
executor.close()
assert second.returncode == 0
"""
    run(code, tmp_path, before="import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)")


@linux
@pytest.mark.parametrize("stream", ["None", "type('Sink', (), {'write': len})()", "os.fdopen(os.dup2(1, 1), 'w', 1)"])
def test_a_copy_needs_no_standard_output_of_python(stream: str, tmp_path: Path) -> None:
    code = f"""
executor.close()
sys.stdout = {stream}
copy = Fork(folder / "copy.log", {{}})
sys.stdout = sys.__stdout__
copy.stdin.close()
assert copy.wait(30) == 0
"""
    run(code, tmp_path)


@linux
def test_a_copy_of_a_process_that_has_set_its_threads_becomes_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run("executor.close()", tmp_path, before="import torch; torch.set_num_interop_threads(1)")


@linux
def test_the_thread_of_jemalloc_does_not_hinder_a_copy() -> None:
    pytest.importorskip("pyarrow")
    code = (
        "import pyarrow; from dubio.runner.worker_process import can_fork, declare_command\n"
        "assert not can_fork('sys'); declare_command(); assert can_fork('sys')"
    )
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)


@linux
def test_an_interrupt_during_the_copy_reaches_the_parent_alone(tmp_path: Path) -> None:
    code = """
executor.close()
import signal
fork = os.fork
def interrupted():
    pid = fork()
    if pid == 0:
        signal.raise_signal(signal.SIGINT)
    return pid
os.fork = interrupted
try:
    copy = Fork(folder / "copy.log", {})
    assert copy.wait(30) == 1  # it ended as a worker, not through the code below
    assert "KeyboardInterrupt" in (folder / "copy.log").read_text()
finally:
    print(" left", end="")
"""
    assert run(code, tmp_path) == "once left"


@linux
def test_a_copy_that_nobody_gets_to_know_ends_with_the_interrupt(tmp_path: Path) -> None:
    code = """
executor.close()
import gc, signal
def interrupted():
    global pid
    pid = fork()
    if pid:
        signal.raise_signal(signal.SIGINT)
    return pid
fork, os.fork = os.fork, interrupted
before = len(os.listdir("/proc/self/fd"))
try:
    Fork(folder / "copy.log", {})
except KeyboardInterrupt:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        gc.collect()
        print(" ended", len(os.listdir("/proc/self/fd")) - before)
"""
    assert run(code, tmp_path) == "once ended 0\n"


@linux
def test_a_copy_that_the_system_refuses_leaves_no_pipe_open(tmp_path: Path) -> None:
    code = """
executor.close()
import gc
before = len(os.listdir("/proc/self/fd"))
pipe, fork = os.pipe, os.fork
def refused(*_):
    raise OSError(24, "Too many open files")
def second():
    os.pipe = refused
    return pipe()
for name, replacement in (("pipe", second), ("fork", refused)):
    os.pipe, os.fork = pipe, fork
    setattr(os, name, replacement)
    try:
        Fork(folder / "copy.log", {})
    except OSError:
        gc.collect()
        print(len(os.listdir("/proc/self/fd")) - before, end="")
"""
    assert run(code, tmp_path) == "once00"


@linux
def test_a_program_that_calls_dubio_is_never_copied(tmp_path: Path) -> None:
    """What it has set, such as torch's default type, would be in every copy, and the same fit had other weights."""
    without = START.replace("declare_command()", "").replace("assert isinstance(first", "assert not isinstance(first")
    without = without.replace("and isinstance(second", "and not isinstance(second")
    command = [sys.executable, "-c", without + "executor.close()", str(tmp_path)]
    subprocess.run(command, env=ENVIRONMENT, timeout=120, check=True)


@linux
def test_a_copy_computes_with_one_thread_where_scikit_learn_was_loaded_before_torch(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "OMP_NUM_THREADS"}
    code = (
        "import sklearn.ensemble, torch\n"
        "from dubio.runner.worker import _use_one_thread\n"
        "_use_one_thread()\n"
        "from sklearn.utils._openmp_helpers import _openmp_effective_n_threads\n"
        "assert _openmp_effective_n_threads() == 1 == torch.get_num_threads()"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=True)


@linux
def test_copies_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = "Path(folder / 'pids').write_text(f'{first.pid} {second.pid}'); os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", START + code, str(tmp_path)]
    assert subprocess.run(command, env=ENVIRONMENT, timeout=120, check=False).returncode == -9
    for pid in (tmp_path / "pids").read_text().split():
        for _ in range(200):
            if not _lives(pid):
                break
            threading.Event().wait(0.05)
        assert not _lives(pid)


def _lives(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody may be there to take notice of its end


@linux
def test_copies_hold_no_lock_of_their_parent(tmp_path: Path) -> None:
    code = """
executor.close()
import fcntl
from dubio.store.locks import try_lock
held = open(folder / "a.lock", "w")
fcntl.flock(held, fcntl.LOCK_EX)
copy = Fork(folder / "copy.log", {})  # the threads of the first two have ended
copy.stdin.write(executor._orders.to_json().encode() + b"\\n")
copy.stdin.flush()
assert b"ready" in copy.stdout.readline()
held.close()  # without a release, as when a process dies: a copy that had kept the file would hold the lock
assert try_lock(folder / "a.lock") is not None
copy.stdin.close()
assert copy.wait(30) == 0
"""
    run(code, tmp_path)


BENCHMARK = """
name = "two"
seeds = [0, 1]
methods = ["deterministic", "mc-dropout"]

[[task]]
name = "digits"
network = "cnn"
training = { epochs = 1, patience = 0 }
"""


@linux
@pytest.mark.slow
def test_copies_and_new_interpreters_and_any_number_of_them_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "two.toml").write_text(BENCHMARK)
    digests = []
    for index, (kind, jobs) in enumerate([("copies", 2), ("copies", 1), ("interpreters", 2)]):
        store = tmp_path / str(index)
        arguments = ["run", str(tmp_path / "two.toml"), "--jobs", str(jobs), "--store", str(store / "store")]
        code = (
            f"import sys; sys.argv = ['dubio', *{[*arguments, '--out', str(store / 'report')]!r}]\n"
            "import dubio.runner.executors as executors\n"
            "made = []\n"
            "class Counted(executors.Fork):\n"
            "    def __init__(self, *arguments):\n"
            "        super().__init__(*arguments)\n"
            "        made.append(self)\n"
            "executors.Fork = Counted\n"
            f"if {kind != 'copies'}: executors.can_fork = lambda trainer: False\n"
            "from dubio.__main__ import main\n"
            "try:\n"
            "    main()\n"
            "finally:\n"
            f"    assert len(made) == {jobs if kind == 'copies' else 0}, made\n"
        )
        subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, timeout=300, check=True, capture_output=True)
        paths = sorted((store / "store").rglob("*.safetensors"))
        assert paths
        digests.append({path.relative_to(store): sha256(path.read_bytes()).hexdigest() for path in paths})
        digests[-1][Path("results")] = (store / "report" / "results.csv").read_text()
    assert digests[0] == digests[1] == digests[2]
