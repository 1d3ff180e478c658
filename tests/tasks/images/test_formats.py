"""CIFAR in every form it comes in.

The authors' pickles are read without executing them: files as Python 2 wrote them, and files that mean harm.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile
from dubio.core.registry import TASKS
from dubio.tasks import cifar as names
from dubio.tasks.cifar import CIFAR10, CIFAR100, FASHION
from dubio.tasks.images.formats import read_idx, read_pickle
from dubio.tasks.sources.locate import DataMissing
from tests.tasks.helpers import flat, made, npz, python_files, same, ten

pytestmark = pytest.mark.usefixtures("alone")


def test_python_binary_and_arrays_hold_the_same(tmp_path: Path) -> None:
    python_files(tmp_path / "p" / "cifar-10-batches-py", "labels", ten())
    (tmp_path / "b" / "cifar-10-batches-bin").mkdir(parents=True)
    for name, (images, labels) in ten().items():
        rows = np.concatenate([labels[:, None], flat(images)], axis=1)
        rows.tofile(tmp_path / "b" / "cifar-10-batches-bin" / f"{name}.bin")
    npz(tmp_path / "cifar10_small.npz")
    tasks = [TASKS.make("cifar10", data=str(place)) for place in (tmp_path / "p", tmp_path / "b", tmp_path)]
    tasks.append(TASKS.make("cifar10", data_dir=str(tmp_path / "p")))
    assert all(same(tasks[0], other) for other in tasks[1:])
    test = tasks[0].split("test").data
    np.testing.assert_array_equal(test.inputs, ten()["test_batch"][0])
    np.testing.assert_array_equal(test.labels, ten()["test_batch"][1])
    assert tasks[0].classes == names.CIFAR10.classes
    assert any("100 of the published 50,000" in note for note in tasks[0].notes)


def test_an_archive_is_opened_where_it_lies_but_only_the_right_one(tmp_path: Path, monkeypatch) -> None:
    python_files(tmp_path / "in" / "cifar-10-batches-py", "labels", ten())
    home = tmp_path / "data"
    home.mkdir()
    archive = home / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "in" / "cifar-10-batches-py", "cifar-10-batches-py")
    with pytest.raises(BadFile, match="SHA-256"):
        TASKS.make("cifar10", data=str(archive))
    original = CIFAR10.corpus.originals[0]
    monkeypatch.setitem(original.__dict__, "sha256", hashlib.sha256(archive.read_bytes()).hexdigest())
    for where in ({"data": str(archive)}, {"data": str(home)}, {"data_dir": str(home)}):
        assert same(TASKS.make("cifar10", **where), TASKS.make("cifar10", data=str(tmp_path / "in")))


def test_an_archive_that_leads_outside_is_not_opened(tmp_path: Path, monkeypatch) -> None:
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("../cifar-10-batches-py/data_batch_1")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"."))
    monkeypatch.setitem(
        CIFAR10.corpus.originals[0].__dict__, "sha256", hashlib.sha256(archive.read_bytes()).hexdigest()
    )
    with pytest.raises(BadFile, match="leads outside"):
        TASKS.make("cifar10", data=str(archive))


def test_a_folder_of_images_for_each_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 4), ("test", 1)):
        for k, name in enumerate(names.CIFAR10.classes):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = np.full((32, 32, 3), 20 * k + i, np.uint8)
                image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    task = TASKS.make("cifar10", data=str(tmp_path), val=0.25)
    assert {split.name: len(split) for split in task.splits} == {"train": 30, "val": 10, "test": 10}
    for split in task.splits:
        assert split.data.inputs.shape[1:] == (32, 32, 3)
        np.testing.assert_array_equal(split.data.inputs[:, 0, 0, 0] // 20, split.data.labels)
    (tmp_path / "train" / "zebra").mkdir()
    image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "train" / "zebra" / "0.png")
    with pytest.raises(BadFile, match="zebra"):
        TASKS.make("cifar10", data=str(tmp_path))


def test_cifar100_takes_the_fine_labels_of_both_forms(tmp_path: Path) -> None:
    parts = {"train": made(400, 100, 1), "test": made(100, 100, 2)}
    python_files(tmp_path / "p" / "cifar-100-python", "fine_labels", parts)
    (tmp_path / "b").mkdir()
    for name, (images, labels) in parts.items():
        rows = np.concatenate([(labels // 5)[:, None], labels[:, None], flat(images)], axis=1)
        rows.tofile(tmp_path / "b" / f"{name}.bin")
    one, other = (TASKS.make("cifar100", data=str(tmp_path / place), val=0.25) for place in "pb")
    assert same(one, other)
    assert len(one.classes) == len(set(one.classes)) == 100
    np.testing.assert_array_equal(one.split("test").data.labels, parts["test"][1])


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("data_batch_3", lambda images, labels: {"data": flat(images)}),
        ("data_batch_1", lambda images, labels: {"data": flat(images)[:, :-1], "labels": labels.tolist()}),
        ("test_batch", lambda images, labels: {"data": flat(images), "labels": [10] * len(labels)}),
        ("test_batch", lambda images, labels: {"data": flat(images), "labels": [0]}),
    ],
)
def test_broken_batches_are_refused_by_name(tmp_path: Path, name: str, broken) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    python_files(folder, "labels", ten())
    (folder / name).write_bytes(pickle.dumps(broken(*ten()[name]), 2))
    with pytest.raises(BadFile, match=name.partition("_batch")[0] if "data" in name else "test"):
        TASKS.make("cifar10", data=str(tmp_path))


def test_data_that_is_nowhere_is_said_to_be(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadFile, match="does not hold cifar10"):
        TASKS.make("cifar10", data=str(empty))
    with pytest.raises(DataMissing, match="data_batch_1"):
        TASKS.make("cifar10", data_dir=str(empty))
    x, y = made(100, 100, 55)
    np.savez(empty / "cifar100_few.npz", x=x, y=y)
    with pytest.raises(BadFile, match="training images"):
        TASKS.make("cifar100", data=str(empty / "cifar100_few.npz"))


def cut_off(path: Path) -> None:
    whole = npz(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def damaged_inside(path: Path) -> None:
    x, y = made(100, 10, 0)
    np.savez_compressed(path, x_train=x // 64, y_train=y, x_test=x // 64, y_test=y)
    raw = bytearray(path.read_bytes())
    raw[100:120] = b"\xff" * 20
    path.write_bytes(raw)


def without_training_images(path: Path) -> None:
    x, y = made(100, 10, 0)
    np.savez(path, y_train=y, x_test=x, y_test=y)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [cut_off, damaged_inside, without_training_images, empty])
@pytest.mark.parametrize("inner", [".", "cifar10"])
def test_a_bad_npz_is_named_and_not_said_to_be_absent(tmp_path: Path, monkeypatch, spoil, inner: str) -> None:
    home = tmp_path / "data" / inner
    home.mkdir(parents=True)
    spoil(home / "cifar10_some.npz")
    for where in ({"data_dir": str(tmp_path / "data")}, {"data": str(home)}):
        with pytest.raises(BadFile, match=r"cifar10_some\.npz.* ('x_train'|is not an npz file)"):
            TASKS.make("cifar10", **where)
    monkeypatch.setenv("DUBIO_DATA", str(tmp_path / "data"))
    with pytest.raises(BadFile, match=r"cifar10_some\.npz"):
        TASKS.make("cifar10")
    with pytest.raises(BadFile, match=r"cifar10_some\.npz"):
        CIFAR10.test_images(None)


def test_a_whole_npz_is_taken_though_a_bad_one_lies_beside_it(tmp_path: Path) -> None:
    cut_off(tmp_path / "cifar10_bad.npz")
    np.savez(tmp_path / "cifar10_another.npz", images=np.zeros(3))  # called like it, and something else
    npz(tmp_path / "cifar10_good.npz")
    assert same(TASKS.make("cifar10", data_dir=str(tmp_path)), TASKS.make("cifar10", data=str(tmp_path)))
    (tmp_path / "cifar10_good.npz").unlink()
    (tmp_path / "cifar10_bad.npz").unlink()
    with pytest.raises(DataMissing, match="does not hold"):
        TASKS.make("cifar10", data_dir=str(tmp_path))


def test_fashion_as_its_authors_publish_it(tmp_path: Path) -> None:
    images = np.arange(3 * 28 * 28).astype(np.uint8).reshape(3, 28, 28)
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 3, 28, 28) + images.tobytes()))
    np.testing.assert_array_equal(read_idx(path, 28), images)
    clothes = FASHION.test_images(str(tmp_path))
    np.testing.assert_array_equal(clothes.inputs[:, 2:-2, 2:-2, 2], images)
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 4, 28, 28) + images.tobytes()))
    with pytest.raises(BadFile, match="truncated"):
        read_idx(path, 28)


def test_the_archives_have_the_published_hashes() -> None:
    told = [original.sha256 for images in (CIFAR10, CIFAR100) for original in images.corpus.originals]
    assert [said[:8] for said in told] == ["6d958be0", "c4a38c50", "85cd44d0", "58a81ae1"]
    assert all(len(said) == 64 for said in told)


def short(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()


def as_python_2(rows: np.ndarray, labels: list[int], label: str = "labels") -> bytes:
    """A batch as cPickle of Python 2 writes it with protocol 2, built instruction by instruction."""
    numbers = b"".join(b"K" + bytes([number]) for number in labels)
    shape = b"".join(b"M" + struct.pack("<H", side) for side in rows.shape)
    kind = b"cnumpy\ndtype\nq\n" + short("u1") + b"K\x00K\x01\x87Rq\x0b"
    kind += b"(K\x03" + short("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85" + short("b") + b"\x87Rq\t"
    content = b"T" + struct.pack("<i", rows.nbytes) + rows.tobytes() + b"q\x0c"
    array += b"(K\x01" + shape + b"\x86" + kind + b"\x89" + content + b"tb"
    filenames = short("filenames") + b"q\r]q\x0e(" + b"".join(short(f"{i}.png") for i in range(len(labels))) + b"e"
    head = b"\x80\x02}q\x01(" + short("batch_label") + b"q\x02" + short("training batch 1 of 5") + b"q\x03"
    return head + short(label) + b"q\x04]q\x05(" + numbers + b"e" + short("data") + b"q\x06" + array + filenames + b"u."


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 3072)).astype(np.uint8)


def test_a_file_of_python_2_says_what_it_says_to_pickle(tmp_path: Path, rows: np.ndarray) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(as_python_2(rows, [3, 1, 4, 1, 5]))
    outside = pickle.loads(path.read_bytes(), encoding="latin1")  # our own bytes, made above
    found = read_pickle(path)
    assert found.keys() == outside.keys()
    np.testing.assert_array_equal(found["data"], outside["data"])
    np.testing.assert_array_equal(found["data"], rows)
    assert found["labels"] == outside["labels"] == [3, 1, 4, 1, 5]
    assert found["filenames"] == outside["filenames"]
    assert found["batch_label"] == "training batch 1 of 5"


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_files_saved_again_by_python_3(tmp_path: Path, rows: np.ndarray, protocol: int, order: str) -> None:
    (tmp_path / "b").write_bytes(
        pickle.dumps({"data": np.array(rows, order=order), "n": [1, 300, -7, 2**40]}, protocol)
    )
    found = read_pickle(tmp_path / "b")
    np.testing.assert_array_equal(found["data"], rows)
    assert found["n"] == [1, 300, -7, 2**40]


class Harm:
    def __init__(self, does: object, *arguments: object) -> None:
        self.does, self.arguments = does, arguments

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return self.does, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("called", ["os.system", "subprocess.Popen", "eval", "numpy.load"])
def test_nothing_is_ever_called(tmp_path: Path, called: str, protocol: int) -> None:
    mark = tmp_path / "mark"
    harm = {
        "os.system": Harm(os.system, f"touch {mark}"),
        "subprocess.Popen": Harm(subprocess.Popen, ["touch", str(mark)]),
        "eval": Harm(eval, f"open({str(mark)!r}, 'w')"),
        "numpy.load": Harm(np.load, str(mark)),
    }[called]
    (tmp_path / "b").write_bytes(pickle.dumps({"data": harm, "labels": []}, protocol))
    with pytest.raises(BadFile, match="is not read"):
        read_pickle(tmp_path / "b")
    assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02cos\nsystem\nU\x04true\x85R.",
        b"\x80\x02(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",  # an allowed name, not as the files use it
        b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.",  # an array of objects
        b"\x80\x02cnumpy\ndtype\n}b.",  # a state of an allowed name
        b"\x80\x02cnumpy\ndtype\nN}U\x0c__defaults__)s\x86b.",
        b"\x80\x02}r\xff\xff\xff\x7f.",  # an index that would reserve gigabytes
        b"\x80\x02}}b.",  # a state of a dict
        b"\x80\x02}(U\x01ae.",  # elements of a dict
        b"\x80\x02h\x07.",  # what was never remembered
        b"\x80\x02\x85.",
        b"\x80\x02]K\x01.",
        b"\x80\x02]q\x01h\x01a.",  # a list, though it holds itself
        b"",
        b"no pickle",
    ],
)
def test_what_the_files_do_not_have_is_refused(tmp_path: Path, program: bytes) -> None:
    (tmp_path / "b").write_bytes(program)
    with pytest.raises(BadFile):
        read_pickle(tmp_path / "b")


def test_every_cut_off_file_is_refused(tmp_path: Path, rows: np.ndarray) -> None:
    whole = as_python_2(rows[:1], [3])
    for end in [*range(0, 120), *range(len(whole) - 40, len(whole) - 1)]:
        (tmp_path / "b").write_bytes(whole[:end])
        with pytest.raises(BadFile):
            read_pickle(tmp_path / "b")


def test_an_array_of_another_length_than_its_shape_is_refused(tmp_path: Path, rows: np.ndarray) -> None:
    whole = as_python_2(rows, [0] * 5).replace(b"M\x05\x00M", b"M\xff\xffM")
    (tmp_path / "b").write_bytes(whole)
    with pytest.raises(BadFile, match="bytes for an array"):
        read_pickle(tmp_path / "b")
