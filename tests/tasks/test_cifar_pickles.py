"""The authors' pickles are read without executing them: files as Python 2 wrote them, and files that mean harm."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile
from dubio.tasks.images.formats import read_pickle


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
