"""The Ray executor: the same bits as local processes, whatever becomes of nodes and actors; refusals in words.

Those marked slow start clusters; a run is always a process of its own, as a user starts it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from campaigns.nodes import RUN_SECONDS, SMALL_NODE, Driver, content, run_round

from dubio.core.errors import MissingExtra, UserError
from dubio.runner import ray_cluster
from dubio.runner.execute import MOST_ATTEMPTS
from dubio.runner.executors import Event, Finished, Noted, WorkerOrders
from dubio.runner.ray_cluster import RayCluster, check_cluster, fault_of
from dubio.runner.ray_executor import RayExecutor
from dubio.store import Store
from tests.store.helpers import dump_index

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
JUST_ONE = ("quick", "--task", "breast-cancer", "--method", "mc-dropout", "--seeds", "0,1")
COMMAND_SECONDS = 200.0
NO_WAIT_SECONDS = 60.0
"""Far more than a refusal takes on a busy machine, and far less than Ray tries to connect."""


def dubio(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dubio", *words]
    return subprocess.run(
        command, cwd=folder, env={**ENVIRONMENT, **variables}, text=True, capture_output=True, check=False,
        timeout=COMMAND_SECONDS,
    )  # fmt: skip


@contextlib.contextmanager
def ray_cluster_of(**head: Any) -> Iterator[Any]:
    utilities = pytest.importorskip("ray.cluster_utils", reason="needs the extra ray")
    cluster = utilities.Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **SMALL_NODE, **head})
    try:
        yield cluster
    finally:
        cluster.shutdown()


# --- refusals ------------------------------------------------------------------------------------------------------


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    Store.open(tmp_path / "store").close()
    with pytest.raises(MissingExtra, match=r"dubio\[ray\]"):
        RayExecutor(1, WorkerOrders(tmp_path / "store"), tmp_path)
    with pytest.raises(MissingExtra, match=r"dubio\[ray\]"):
        check_cluster()


@pytest.mark.parametrize("address", ["banana", "host", "host:", "host:99999", ":6379", "ray://", "host:6379x", "a:b"])
def test_text_that_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=r"RAY_ADDRESS must be HOST:PORT, ray://HOST:PORT, auto .* given") as refusal:
        check_cluster()
    assert repr(address) in str(refusal.value)


def test_a_port_that_takes_connections_and_says_nothing_is_refused_before_ray_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dubio.runner.ray_cluster.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("dubio.runner.ray_cluster.load_ray", lambda: pytest.fail("Ray is imported"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(UserError, match="nothing answers there"):
            check_cluster()


@pytest.mark.parametrize(
    ("fault", "words"),
    [(TimeoutError(), "nothing answers there within 8 s"), (ConnectionRefusedError(111, "refused"), "refused")],
)
def test_an_address_where_nothing_answers_is_refused_before_ray_is_imported(
    monkeypatch: pytest.MonkeyPatch, fault: OSError, words: str
) -> None:
    def connect(*arguments: object, timeout: float) -> None:
        assert timeout <= 8
        raise fault

    monkeypatch.setenv("RAY_ADDRESS", "host.example:6379")
    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("dubio.runner.ray_cluster.load_ray", lambda: pytest.fail("Ray is imported"))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UserError, match=f"RAY_ADDRESS 'host.example:6379' cannot be used: .*{words}"):
        check_cluster()


FACTS = {"node": "0123456789", "host": "red", "executable": "/bin/python"}


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({}, ""),
        ({"dubio": None}, "node red (01234567) of the Ray cluster HERE has no dubio: install dubio"),
        ({"dubio": "0.0.1"}, "has dubio 0.0.1, this machine"),
        ({"torch": None}, "has torch none, this machine"),
        ({"torch": "1.0.0"}, "has torch 1.0.0, this machine"),
        ({"Python": "3.2.1"}, "has Python 3.2.1, this machine"),
    ],
)
def test_a_node_with_other_software_is_named(versions: dict[str, Any], words: str) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    own = ray_cluster.node_facts()("")["versions"]
    fault = fault_of({**FACTS, "versions": {**own, **versions}}, "HERE")
    assert words in fault
    assert bool(fault) == bool(words)


class FakeRay:
    """One node with a GPU, all of whose cores are taken."""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.cluster_resources()}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0, "GPU": 1.0}

    def available_resources(self) -> dict[str, float]:
        return {}

    def is_initialized(self) -> bool:
        return True


def test_parts_of_a_resource_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "load_ray", FakeRay)
    for part in (0.1, 0.2, 0.3, 0.7):  # 1 // 0.1 is 9 and 1 // 0.2 is 4, in fractions of two
        whole = int(Fraction(1) / Fraction(str(part)))
        assert RayCluster(whole, {"gpu": part, "cpu": 0.1}).shortage() == ""
        assert f"can hold {whole} of {whole + 1} jobs" in RayCluster(whole + 1, {"gpu": part, "cpu": 0.1}).shortage()


def test_ray_s_own_options_are_not_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Alone(FakeRay):
        def init(self, **_: Any) -> None:
            raise ConnectionError("Could not find any running Ray instance. Please set the `--address` flag.")

    monkeypatch.setattr(ray_cluster, "load_ray", Alone)
    monkeypatch.setattr(ray_cluster.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    assert ray_cluster.main("auto") == 1
    assert capsys.readouterr().out == "Could not find any running Ray instance\n"


def _greet_all(listener: socket.socket) -> None:
    connections = []
    with contextlib.suppress(OSError):  # the listener is closed at the end of the test
        while True:
            connections.append(listener.accept()[0])
            connections[-1].sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["closed", "silent", "another server", "garbage"])
def test_an_address_without_a_cluster_is_refused_soon(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind in ("silent", "another server"):  # connects, and never says a word
            listener.listen()
        if kind == "another server":  # or begins as HTTP/2 does: only Ray itself can then say that it is no cluster
            threading.Thread(target=_greet_all, args=(listener,), daemon=True).start()
        address = "banana" if kind == "garbage" else f"127.0.0.1:{listener.getsockname()[1]}"
        started = time.monotonic()
        result = dubio(tmp_path, "run", *JUST_ONE, "--executor", "ray", RAY_ADDRESS=address)
    assert result.returncode == 2
    assert f"RAY_ADDRESS {address!r}" in result.stderr or "RAY_ADDRESS must be" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert time.monotonic() - started < NO_WAIT_SECONDS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_dry_run_refuses_an_unknown_executor(tmp_path: Path) -> None:
    result = dubio(tmp_path, "run", *JUST_ONE, "--executor", "rya", "--dry-run")
    assert result.returncode == 2
    assert "Did you mean 'ray'?" in result.stderr


# --- one machine ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ray_actors_make_the_same_store(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    for executor in ("local", "ray"):
        words = [*JUST_ONE, "--executor", executor, "--jobs", "3", "--store", executor, "--out", f"{executor}-report"]
        result = dubio(tmp_path, "run", *words)
        assert result.returncode == 0, result.stderr
    local, ray = (Store.open(tmp_path / name, create=False) for name in ("local", "ray"))
    assert dump_index(local) == dump_index(ray)
    assert content(local.path) == content(ray.path)
    assert list((ray.path / "tmp").iterdir()) == []


class Watched:
    """An executor whose events are kept."""

    def __init__(self, folder: Path, jobs: int, **resources: float) -> None:
        Store.open(folder / "store").close()
        orders = WorkerOrders(
            folder / "store", trainer="tests.runner.fake_trainer", checkpoint_seconds=0, resources=resources
        )
        self.executor = RayExecutor(jobs, orders, folder)
        self.events: list[Event] = []

    def run(self, job: dict[str, Any], *, meanwhile: Any = None) -> dict[str, Any]:
        self.wait(lambda: self.executor.free() > 0)
        self.executor.submit(job)
        if meanwhile is not None:
            meanwhile()
        self.wait(lambda: self.results(job["id"]))
        return self.results(job["id"]).pop()

    def results(self, identifier: str) -> list[dict[str, Any]]:
        return [event.result for event in self.events if isinstance(event, Finished) and event.id == identifier]

    def wait(self, condition: Any) -> None:
        deadline = time.monotonic() + RUN_SECONDS
        while not condition():
            assert time.monotonic() < deadline
            self.events += self.executor.wait(0.1)


def fit_job(fake_world: Any, benchmark: Any, seed: int = 0, **training: Any) -> dict[str, Any]:
    prepared = fake_world.prepared(benchmark("drop", seeds=(seed,), **training))
    return prepared._plans()[2].of_kind("fit")[0].job()


@pytest.mark.slow
def test_progress_travels_and_a_killed_actor_loses_its_job_with_its_last_words(
    fake_world: Any, benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    watched = Watched(fake_world.path, 4)
    try:
        result = watched.run(fit_job(fake_world, benchmark, seconds=4.0, epochs=8))
        assert result["status"] == "made"
        fractions = [event.fraction for event in watched.events if hasattr(event, "fraction")]
        assert fractions == sorted(fractions)
        assert len(fractions) >= 2
        assert {event.detail[:5] for event in watched.events if hasattr(event, "detail")} == {"epoch"}
        lost = watched.run(fit_job(fake_world, benchmark, seed=1, fault="crash"))
        assert (lost["status"], lost["blame"]) == ("lost", True)
        assert "the worker process on node" in lost["error"]
        assert "Segmentation fault" in lost["traceback"]
        again = watched.run(fit_job(fake_world, benchmark, seed=2))
        assert again["status"] == "made"  # by another actor, or the one that follows
    finally:
        started = time.monotonic()
        watched.executor.close()
    assert time.monotonic() - started < 20
    assert capsys.readouterr().out == ""  # Ray's own messages stay out of the results


@pytest.mark.slow
def test_ctrl_c_ends_a_run_within_seconds(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    driver = Driver(tmp_path, "store", 2, "ray", 60.0)
    assert driver.wait_for(1), driver.errors()
    driver.process.send_signal(signal.SIGINT)
    driver.process.wait(30)
    assert list((driver.store / "tmp").glob("*")) == []


# --- clusters ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_runs_that_lose_two_of_three_nodes_make_the_same_bits(seed: int, tmp_path: Path) -> None:
    """Without spare cores, with spare cores, and with a node that joins."""
    pytest.importorskip("ray", reason="needs the extra ray")
    figures = run_round(tmp_path, seed)
    assert figures["runs with equal bits"] == 1, figures
    assert figures["jobs failed"] == 0
    assert figures["nodes lost in mid-run"] == 2


@pytest.mark.slow
def test_a_run_on_a_full_cluster_waits_says_so_and_uses_the_node_that_joins(tmp_path: Path) -> None:
    with ray_cluster_of(num_cpus=0) as cluster:
        driver = Driver(tmp_path, "store", 5, "ray", 0.1, cluster.address)
        deadline = time.monotonic() + 60
        while "no node of the cluster has cpu=1; waiting" not in driver.errors() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert driver.process.poll() is None, driver.errors()
        assert driver.begun() == 0
        cluster.add_node(num_cpus=2, **SMALL_NODE)  # has the only cores: what is made is made there
        ended = driver.finish()
    assert ended.get("failed") == 0, ended
    assert ended["made"] >= 18


@pytest.mark.slow
def test_a_job_outlives_more_nodes_than_it_may_crash(tmp_path: Path) -> None:
    with ray_cluster_of(num_cpus=0) as cluster:
        nodes = [cluster.add_node(num_cpus=1, **SMALL_NODE)]
        driver = Driver(tmp_path, "store", 1, "ray", 3.0, cluster.address)
        for lost in range(MOST_ATTEMPTS + 1):
            assert driver.wait_for(lost + 1), driver.errors()
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=1, **SMALL_NODE))
        ended = driver.finish()
    assert ended.get("failed") == 0, ended
    assert ended["lost"] >= MOST_ATTEMPTS


@pytest.mark.slow
def test_resources_place_jobs_and_choose_the_device(
    fake_world: Any, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ray_cluster_of(num_cpus=1, num_gpus=1, resources={"big": 2}) as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with pytest.raises(UserError, match="no node of the cluster offers 'bug'; there are: big, cpu, gpu, memory"):
            Watched(fake_world.path, 1, bug=1.0)
        watched = Watched(fake_world.path, 3, gpu=0.5, cpu=0.5, big=1.0)
        try:
            watched.run(fit_job(fake_world, benchmark))
            (fit_id,) = fake_world.store().ids("fits")
            assert fake_world.store().record(fit_id)["environment"]["device"] == "cuda"
            notes = [event.text for event in watched.events if isinstance(event, Noted)]
            assert notes == ["the cluster can hold 2 of 3 jobs at a time; more start when nodes join"]
        finally:
            watched.executor.close()


@pytest.mark.slow
def test_real_trainings_survive_a_lost_node(tmp_path: Path) -> None:
    words = ["run", *JUST_ONE, "--set", "epochs=40", "--set", "patience=0"]
    alone = dubio(tmp_path, *words, "--store", "local", "--out", "local-report")
    assert alone.returncode == 0, alone.stderr
    with ray_cluster_of(num_cpus=1) as cluster:
        node = cluster.add_node(num_cpus=1, **SMALL_NODE)
        environment = {**ENVIRONMENT, "RAY_ADDRESS": cluster.address}
        command = [*words, "--store", "ray", "--out", "ray-report", "--executor", "ray", "--jobs", "2"]
        run = subprocess.Popen([sys.executable, "-m", "dubio", *command], cwd=tmp_path, env=environment)
        deadline = time.monotonic() + COMMAND_SECONDS
        while not list(tmp_path.glob("ray/fits/*")) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        assert run.wait(COMMAND_SECONDS) == 0
    assert content(tmp_path / "ray") == content(tmp_path / "local")


# --- nodes without the driver's disk -------------------------------------------------------------------------------


@contextlib.contextmanager
def node_apart(cluster: Any, hidden: list[Path], *words: str) -> Iterator[None]:
    """A node in a mount namespace of its own, where other folders lie over these: empty ones."""
    mounts = " && ".join(f"mount -t tmpfs none '{path}'" for path in hidden)
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={cluster.address}", "--block", *words]
    command = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", *start]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def namespaces() -> bool:
    trial = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    with contextlib.suppress(OSError):
        return subprocess.run(trial, capture_output=True, check=False).returncode == 0
    return False


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="needs the right to mount")


@pytest.mark.slow
@needs_namespaces
def test_nodes_that_do_not_see_the_store_or_the_data_make_the_same_bits(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    rows = "\n".join(f"{(i * 37) % 101},{(i * 53) % 97},{'yes' if (i * 37) % 101 > 50 else 'no'}" for i in range(300))
    (disk / "mine.csv").write_text(f"a,b,answer\n{rows}\n")
    (disk / "plugin.py").write_text(
        "from dubio.core.registry import method\nfrom dubio.methods.deterministic import deterministic\n\n\n"
        '@method("mine")\ndef mine(*, epochs: int = 3):\n    """A method of a plugin."""\n'
        "    return deterministic(epochs=epochs)\n"
    )
    words = ["run", "--data", "mine.csv", "--label", "answer", "--features", "a,b", "--method", "mc-dropout"]
    words += ["--seeds", "2", "--set", "epochs=3"]
    alone = dubio(disk, *words, "--store", "local", "--out", "local-report")
    assert alone.returncode == 0, alone.stderr
    with ray_cluster_of(num_cpus=0) as cluster, node_apart(cluster, [disk], "--num-cpus=2"):
        command = [*words, "--store", "ray", "--out", "ray-report", "--executor", "ray", "--jobs", "2"]
        result = dubio(disk, *command, RAY_ADDRESS=cluster.address)
    assert result.returncode == 0, result.stderr
    assert content(disk / "ray") == content(disk / "local")
    with Store.open(disk / "ray", create=False) as store:
        for kind in ("fits", "predictions"):
            for identifier in store.ids(kind):
                store.verify(kind, identifier)
    assert list((disk / "ray" / "checkpoints").glob("*")) == []


@pytest.mark.slow
@needs_namespaces
def test_a_node_without_dubio_is_named(tmp_path: Path) -> None:
    editable = list(Path(sys.prefix).glob("lib/python3*/site-packages/*dubio*.pth"))
    if not editable:
        pytest.skip("dubio is installed as a copy, which cannot be hidden without hiding Ray")
    hidden = list({ROOT / "src", *(Path(path.read_text().strip()) for path in editable)})
    with ray_cluster_of(num_cpus=1) as cluster, node_apart(cluster, hidden, "--num-cpus=1"):
        wait_for_nodes(cluster, 2)
        result = dubio(tmp_path, "run", *JUST_ONE, "--executor", "ray", RAY_ADDRESS=cluster.address)
    assert result.returncode == 2, result.stderr
    assert "has no dubio" in result.stderr
    assert "Traceback" not in result.stderr


def wait_for_nodes(cluster: Any, count: int) -> None:
    deadline = time.monotonic() + 60
    ray = pytest.importorskip("ray")
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    try:
        while sum(node["Alive"] for node in ray.nodes()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        ray.shutdown()
