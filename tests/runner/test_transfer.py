"""Files between the driver and nodes: pieces put together again, paths of copies, and what is accepted on arrival."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import CorruptFile
from dubio.core.predictions import Predictions
from dubio.core.registry import TASKS
from dubio.core.specs import identity
from dubio.core.types import Examples, Split
from dubio.runner import transfer
from dubio.runner.ray_node import NodeFolder
from dubio.store import Store
from dubio.store.records import Layout


class DirectCalls:
    """Stands for Ray where actors are objects of this process; keeps the sizes of what travelled."""

    def __init__(self, held: Any) -> None:
        self.held, self.sizes = held, []
        self.open = self.call = self

    def remote(self, name: str, *arguments: Any) -> Any:
        if name == "NodeFolder":
            return None
        if name == "write":
            self.sizes.append(sum(len(content) for _, _, content in arguments[0]))
        answer = getattr(self.held, name)(*arguments)
        if name == "read":
            self.sizes.append(len(answer))
        return answer

    def get(self, answer: Any) -> Any:
        return answer


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A link to a node whose folder is another one of this machine."""
    (tmp_path / "node").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    monkeypatch.setattr(transfer, "PIECE", 1000)
    folder = NodeFolder([])
    calls = DirectCalls(folder)
    yield transfer.NodeLink(calls, calls, "there"), calls
    folder.close()
    assert list((tmp_path / "node").rglob("*.bin")) == []


@pytest.mark.parametrize("sizes", [[0], [1], [999, 1, 0, 1000, 1001, 0], [5000], [10] * 250, [2000, 3, 2000]])
def test_files_arrive_as_they_were_in_pieces_of_bounded_size(sizes: list[int], tmp_path: Path, node: Any) -> None:
    link, calls = node
    generator = np.random.default_rng(0)
    source = tmp_path / "data"
    for index, size in enumerate(sizes):
        path = source / f"folder {index % 3}" / f"{index}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.bytes(size))
    link.send(source)
    copies = Path(link.root) / transfer.copy_name(source)
    for path in source.rglob("*.bin"):
        assert (copies / path.relative_to(source)).read_bytes() == path.read_bytes()
    assert max(calls.sizes) <= transfer.PIECE
    assert sum(calls.sizes) == sum(sizes)
    sent = len(calls.sizes)
    link.send(source)  # the node has it
    assert len(calls.sizes) == sent


def stored_fit(store: Store, seed: int = 0) -> str:
    weights = np.random.default_rng(seed).normal(size=(40, 10))
    return store.write_fit({"seed": seed}, {"weights": weights}, {"encoder": 1}, {"seconds": 1.0})


def test_a_fit_travels_there_and_back_and_is_verified(tmp_path: Path, node: Any) -> None:
    link, calls = node
    there = Store.open(Path(link.root) / "store", create=False)
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        fit_id = stored_fit(one)
        link.send_fit(one.layout, fit_id)
        assert there.read_fit(fit_id).spec == {"seed": 0}
        two.write_failure(fit_id, {"id": fit_id})
        link.collect(two, "fits", fit_id)
        np.testing.assert_array_equal(two.read_fit(fit_id).tensors["weights"], one.read_fit(fit_id).tensors["weights"])
        assert two.failures() == ()
        assert max(calls.sizes) <= transfer.PIECE
        link.forget_fit(fit_id)
        assert not there.has_fit(fit_id)
        with pytest.raises(CorruptFile, match="missing"):
            link.send_fit(one.layout, "0" * 64)


def test_what_does_not_arrive_as_it_was_written_is_refused(tmp_path: Path, node: Any) -> None:
    link, _ = node
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        fit_id = stored_fit(one)
        link.send_fit(one.layout, fit_id)
        path = Path(link.root) / "store" / "fits" / fit_id / "weights.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        with pytest.raises(CorruptFile, match="SHA-256"):
            link.collect(two, "fits", fit_id)
        assert two.ids("fits") == ()


def split_of(name: str, rows: int = 5) -> Split:
    inputs = np.random.default_rng(len(name)).normal(size=(rows, 2))
    return Split.of(name, "id", Examples(inputs, np.zeros(rows, dtype=np.int64)))


def write_prediction(store: Store, spec: dict[str, Any], *names: str) -> None:
    with store.prediction_writer(spec, {"device": "cpu"}) as writer:
        for name in names:
            logits = np.random.default_rng(len(name)).normal(size=(1, 5, 2)).astype(np.float32)
            writer.add(split_of(name), Predictions(logits, np.zeros(5, dtype=np.int64)), 1.0)


def test_predictions_join_those_that_the_store_has(tmp_path: Path, node: Any) -> None:
    link, _ = node
    spec = {"kind": "prediction"}
    pred_id = identity(spec)
    with Store.open(Path(link.root) / "store") as there, Store.open(tmp_path / "here") as here:
        write_prediction(here, spec, "test")
        write_prediction(there, spec, "shift")
        link.collect(here, "predictions", pred_id)
        here.verify("predictions", pred_id)
        keys = [(name, split_of(name).fingerprint) for name in ("test", "shift", "other")]
        assert here.missing_splits(pred_id, keys) == (keys[2],)
        assert there.ids("predictions") == ()  # the node keeps no predictions
        job = {"kind": "predict", "id": pred_id, "splits": keys[:2]}
        assert transfer.is_complete(here, job)
        assert not transfer.is_complete(here, {**job, "splits": keys})


def test_arguments_that_name_files_are_changed_to_those_of_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("label", "mine.csv", "other.csv"):
        (tmp_path / name).write_text("x")
    arguments = {"data": "mine.csv", "label": "label", "table": str(tmp_path / "other.csv"), "size": 3, "order": ("a",)}
    (tmp_path / "third.csv").write_text("x")
    others = [("own", {"data": "third.csv"})]
    job = {"kind": "fit", "id": "1", "spec": {}, "task": ("own", arguments), "others": others, "splits": []}
    whole = transfer.with_paths(job)["task"][1]
    assert whole == {**arguments, "data": str(tmp_path / "mine.csv")}  # label names a column, although a file has it
    there = transfer.with_paths(job, "/node")["task"][1]
    assert there["data"] == f"/node/files{tmp_path}/mine.csv"
    assert there["table"] == f"/node/files{tmp_path}/other.csv"
    assert there["label"] == "label"
    assert transfer.with_paths(job, "/node")["others"] == [["own", {"data": f"/node/files{tmp_path}/third.csv"}]]
    assert set(transfer.data_paths(job)) == {tmp_path / name for name in ("mine.csv", "other.csv", "third.csv")}


def test_of_a_folder_of_data_sets_only_the_one_that_a_task_reads_is_sent(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    copies = TASKS.entry("clinc").facts["source"].copies(str(data_dir))
    if not copies:
        pytest.skip("the data set is not here")
    task = ("clinc", {"data_dir": str(data_dir)})
    job = {"kind": "fit", "id": "1", "spec": {}, "task": task, "others": [], "splits": []}
    assert transfer.data_paths(job) == [Path(copy["path"]) for copy in copies]
    assert transfer.with_paths(job, "/node")["task"][1]["data_dir"] == f"/node/{transfer.copy_name(data_dir)}"


def test_a_folder_of_a_killed_actor_is_swept_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = os.fork()
    if not child:
        NodeFolder([])
        os._exit(0)
    os.waitpid(child, 0)
    (left,) = [path for path in tmp_path.glob("*/*") if path.is_dir()]
    folder = NodeFolder([])
    assert not left.exists()
    assert Layout(Path(folder.root()) / "store").header.exists()
    folder.close()
