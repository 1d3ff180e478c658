"""Files of torch.save read as data: against torch's own restricted reader, and hostile or damaged files refused."""

import io
import os
import pickle
import struct

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import BadFile
from dubio.encoders.torch_weights import COUNT_BYTES, MAGIC, PROTOCOL, read_torch_weights


def saved(path, value):
    torch.save(value, path, _use_new_zipfile_serialization=False)
    return path


def legacy(path, content, keys=(), storages=b""):
    """A file in torch's earlier form around any pickled content."""
    start = [pickle.dumps(value, 2) for value in (MAGIC, PROTOCOL, {"little_endian": True})]
    path.write_bytes(b"".join([*start, content, pickle.dumps(list(keys), 2), storages]))
    return path


def tensor_pickle(*, shape=(2, 3), strides=(3, 1), count=6, offset=0, kind="FloatStorage", function=None):
    """The instructions of ``{"w": tensor}`` with one storage, in which any number may be wrong."""
    function = function or "torch._utils\n_rebuild_tensor_v2"
    out = io.BytesIO()
    out.write(b"\x80\x02}X\x01\x00\x00\x00w" + f"c{function}\n".encode() + b"((X\x07\x00\x00\x00storage")
    out.write(f"ctorch\n{kind}\n".encode() + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu")
    out.write(b"J" + struct.pack("<i", count) + b"NtQ" + b"J" + struct.pack("<i", offset))
    for numbers in (shape, strides):
        out.write(b"(" + b"".join(b"J" + struct.pack("<i", number) for number in numbers) + b"t")
    out.write(b"\x89ccollections\nOrderedDict\n)RtRs.")
    return out.getvalue()


VALUES = np.arange(6, dtype=np.float32)
STORED = struct.pack("<q", 6) + VALUES.tobytes()


def test_a_state_dict_is_what_torch_reads(tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    path = saved(tmp_path / "module.pth", module.state_dict())
    arrays, wanted = read_torch_weights(path), torch.load(path, weights_only=True)
    assert list(arrays) == list(wanted)
    for name, tensor in wanted.items():
        assert arrays[name].dtype == tensor.numpy().dtype
        assert arrays[name].shape == tuple(tensor.shape)
        assert np.array_equal(arrays[name], tensor.numpy())


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
              torch.uint8, torch.bool],
)  # fmt: skip
def test_types_orders_and_shared_storages(tmp_path, dtype):
    whole = torch.arange(24).reshape(2, 3, 4).to(dtype)
    tensors = {
        "whole": whole,
        "turned": whole.permute(2, 0, 1),
        "last": whole[1],
        "one": whole[:, :1].contiguous(),
        "number": whole[0, 0, 1].clone(),
        "empty": torch.empty(0, 3, dtype=dtype),
    }
    path = saved(tmp_path / "tensors.pth", tensors)
    arrays, wanted = read_torch_weights(path), torch.load(path, weights_only=True)
    for name, tensor in wanted.items():
        assert arrays[name].dtype == tensor.numpy().dtype
        assert np.array_equal(arrays[name], tensor.numpy()), name


def test_the_helper_writes_what_torch_reads(tmp_path):
    path = legacy(tmp_path / "w.pth", tensor_pickle(), ["0"], STORED)
    assert np.array_equal(torch.load(path, weights_only=True)["w"].numpy(), VALUES.reshape(2, 3))
    assert np.array_equal(read_torch_weights(path)["w"], VALUES.reshape(2, 3))


class Call:
    """What a pickle calls when it is loaded."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_is_called(tmp_path, protocol):
    marker = tmp_path / "called"
    for content in (Call(os.system, f"touch {marker}"), {"w": Call(open, str(marker), "w")}, Call(eval, "1 + 1")):
        path = legacy(tmp_path / "hostile.pth", pickle.dumps(content, protocol))
        with pytest.raises(BadFile, match=r"hostile\.pth is not read.*weights do not need"):
            read_torch_weights(path)
    # as the first pickle of the file, before anything is known about it
    (tmp_path / "first.pth").write_bytes(pickle.dumps(Call(os.system, f"touch {marker}"), protocol))
    with pytest.raises(BadFile, match=r"first\.pth is not read"):
        read_torch_weights(tmp_path / "first.pth")
    assert not marker.exists()


@pytest.mark.parametrize(
    "function", ["os\nsystem", "posix\nsystem", "builtins\neval", "torch\nload", "torch._utils\n_rebuild_tensor_v3"]
)
def test_other_names_are_refused(tmp_path, function):
    path = legacy(tmp_path / "w.pth", tensor_pickle(function=function), ["0"], STORED)
    with pytest.raises(BadFile, match=function.replace("\n", r"\.")):
        read_torch_weights(path)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"shape": (4, 3)}, "needs 12 values"),
        ({"offset": 1}, "needs 7 values"),
        ({"offset": -1}, "an offset"),
        ({"shape": (-2, 3)}, "from 0"),
        ({"strides": (3,)}, "from 0"),
        ({"strides": (0, 0)}, "gaps or repeats"),
        ({"shape": (10**9, 10**9), "strides": (0, 0)}, "gaps or repeats"),
        ({"strides": (6, 2)}, "gaps or repeats"),
        ({"count": 7}, "7 are announced"),
        ({"count": -1}, "another way"),
        ({"kind": "DoubleStorage"}, "truncated"),
        ({"kind": "HalfStorage"}, "goes on"),
        ({"kind": "ComplexFloatStorage"}, "ComplexFloatStorage"),
        ({"shape": (1,) * 40, "strides": (1,) * 40}, "at most 32"),
    ],
)
def test_wrong_sizes_are_refused(tmp_path, numbers, reason):
    path = legacy(tmp_path / "w.pth", tensor_pickle(**numbers), ["0"], STORED)
    with pytest.raises(BadFile, match=reason):
        read_torch_weights(path)


@pytest.mark.parametrize(
    ("keys", "storages", "reason"),
    [
        ([], STORED, "keys"),
        (["0", "0"], STORED, "keys"),
        (["1"], STORED, "keys"),
        ([0], STORED, "list of texts"),
        (["0"], STORED + b"x", "goes on"),
        (["0"], STORED[: COUNT_BYTES - 1], "values where 6"),
    ],
    ids=["none", "twice", "another", "number", "too long", "no count"],
)
def test_wrong_storages_are_refused(tmp_path, keys, storages, reason):
    path = legacy(tmp_path / "w.pth", tensor_pickle(), keys, storages)
    with pytest.raises(BadFile, match=reason):
        read_torch_weights(path)


def test_a_truncated_or_damaged_file_is_refused_and_never_anything_else(tmp_path):
    path = saved(tmp_path / "w.pth", nn.Linear(3, 2).state_dict())
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(BadFile, match=r"w\.pth"):
            read_torch_weights(path)
    generator = np.random.default_rng(0)
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[generator.integers(len(whole))] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            arrays = read_torch_weights(path)
        except BadFile:
            continue
        assert all(array.size <= 6 for array in arrays.values())  # a changed value, name or shape of the same size


@pytest.mark.parametrize(
    "value",
    [
        [torch.ones(2)],
        {"w": [torch.ones(2)]},
        {"w": 1},
        {"model": {"w": torch.ones(2)}},
        {1: torch.ones(2)},
        {"w": nn.Parameter(torch.ones(2))},
        nn.Linear(2, 2),
    ],
    ids=["list", "nested list", "number", "nested dict", "key", "parameter", "module"],
)
def test_anything_but_tensors_by_name_is_refused(tmp_path, value):
    with pytest.raises(BadFile, match="is not read as weights"):
        read_torch_weights(saved(tmp_path / "other.pth", value))


def test_other_files_are_named(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "new.pth")
    with pytest.raises(BadFile, match=r"zip archive.*1\.6"):
        read_torch_weights(tmp_path / "new.pth")
    (tmp_path / "text.pth").write_text("weights", encoding="utf-8")
    with pytest.raises(BadFile, match=r"text\.pth"):
        read_torch_weights(tmp_path / "text.pth")
    (tmp_path / "number.pth").write_bytes(pickle.dumps(1, 2))
    with pytest.raises(BadFile, match="magic number"):
        read_torch_weights(tmp_path / "number.pth")
    with pytest.raises(BadFile, match="missing"):
        read_torch_weights(tmp_path / "missing.pth")
    start = [pickle.dumps(value, 2) for value in (MAGIC, PROTOCOL, {"little_endian": False})]
    (tmp_path / "big.pth").write_bytes(b"".join(start))
    with pytest.raises(BadFile, match="little-endian"):
        read_torch_weights(tmp_path / "big.pth")
    (tmp_path / "version.pth").write_bytes(pickle.dumps(MAGIC, 2) + pickle.dumps(7, 2))
    with pytest.raises(BadFile, match="version must be 1001; given 7"):
        read_torch_weights(tmp_path / "version.pth")
