import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from dubio.core.errors import BadFile
from dubio.formats.safetensors import read_tensors, write_tensors

ARRAYS = {
    "logits": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "labels": np.array([1, 2, 3], dtype=np.int64),
    "flags": np.array([True, False, True]),
    "empty": np.empty((0, 3), np.float64),
    "half": np.array([0.5, 1.5], np.float16),
}


def raw(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_what_we_write_the_reference_library_reads_and_the_other_way_round(tmp_path):
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    write_tensors(ours, ARRAYS, {"note": "täst"})
    loaded = load_file(ours)
    assert loaded.keys() == ARRAYS.keys()
    assert all((loaded[name] == ARRAYS[name]).all() and loaded[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    with safe_open(ours, "numpy") as handle:
        assert handle.metadata() == {"note": "täst"}
    save_file(ARRAYS, theirs, metadata={"a": "b"})
    found, metadata = read_tensors(theirs)
    assert metadata == {"a": "b"}
    assert all((found[name] == ARRAYS[name]).all() and found[name].shape == ARRAYS[name].shape for name in ARRAYS)


def test_reading_maps_the_file_and_is_read_only(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, ARRAYS, {})
    array = read_tensors(path)[0]["logits"]
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    assert array.flags.aligned


def test_big_endian_and_strided_arrays_are_written_right(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.arange(5, dtype=">f4"), "b": np.arange(12.0).reshape(3, 4).T}, {})
    found = load_file(path)
    assert found["a"].tolist() == [0, 1, 2, 3, 4]
    assert (found["b"] == np.arange(12.0).reshape(3, 4).T).all()


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.ones(3)}, {})
    before = path.read_bytes()

    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_tensors(path, {"a": np.zeros(9)}, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    write_tensors(tmp_path / "a", ARRAYS, {"x": "1", "y": "2"})
    write_tensors(tmp_path / "b", dict(reversed(ARRAYS.items())), {"y": "2", "x": "1"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"a": {**F32, "shape": [3]}}, b"\0" * 8, "takes 12 bytes; its header gives it 8"),
        ({"a": F32}, b"\0" * 4, "truncated or too long"),
        ({"a": F32}, b"\0" * 12, "truncated or too long"),
        ({"a": {**F32, "data_offsets": [8, 16]}}, b"\0" * 16, "starts at byte 8; expected 0"),
        ({"a": F32, "b": F32}, b"\0" * 8, "starts at byte 0; expected 8"),
        ({"a": {**F32, "dtype": "F8_E5M2"}}, b"\0" * 8, "type 'F8_E5M2'"),
        ({"a": {**F32, "dtype": ["F32"]}}, b"\0" * 8, "type"),
        ({"a": {**F32, "shape": [-2]}}, b"\0" * 8, "whole numbers"),
        ({"a": {**F32, "shape": [True, 2]}}, b"\0" * 8, "whole numbers"),
        ({"a": {**F32, "shape": [2.0]}}, b"\0" * 8, "whole numbers"),
        ({"a": {**F32, "shape": [1 << 62, 1 << 62]}}, b"\0" * 8, "takes"),
        ({"a": {"dtype": "F32"}}, b"", "must have dtype, shape and data_offsets"),
        ({"a": 3}, b"", "must have dtype"),
        ({"__metadata__": {"a": 1}}, b"", "metadata of the header must be texts"),
        ([1], b"", "not a JSON object"),
        (b"{", b"", "not JSON"),
        (b"\xff\xff", b"", "not JSON"),
        (b"[" * 100_000, b"", "nested deeper than 100 levels"),
        (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}', b"", "twice"),
        ({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"\x02", "neither 0 nor 1"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, data, words):
    with pytest.raises(BadFile, match=words):
        read_tensors(raw(tmp_path / "x.safetensors", header, data))


def test_a_header_longer_than_the_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    for content in (b"", b"\0\0", (1 << 60).to_bytes(8, "little") + b"{}", (3).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(BadFile, match="header exceeds the file"):
            read_tensors(path)
    with pytest.raises(BadFile, match="cannot be read"):
        read_tensors(tmp_path / "none.safetensors")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_the_arrays_or_a_named_refusal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "x.safetensors"
    write_tensors(path, ARRAYS, {})
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_tensors(path)
    except BadFile as refusal:
        assert str(path) in str(refusal)  # noqa: PT017


def test_bfloat16_is_read_as_float32(tmp_path):
    from safetensors.torch import save_file

    numbers = torch.tensor([[0.1, -3.5e20, 0.0], [-float("inf"), 1.0, 7.25]]).to(torch.bfloat16)
    save_file({"logits": numbers, "labels": torch.tensor([0, 1])}, tmp_path / "a.safetensors")
    found, _ = read_tensors(tmp_path / "a.safetensors")
    assert found["logits"].dtype == np.float32
    np.testing.assert_array_equal(found["logits"], numbers.float().numpy())


def test_a_file_that_cannot_be_mapped_is_named(tmp_path, monkeypatch):
    write_tensors(tmp_path / "a", ARRAYS, {})

    def refuse(*arguments, **keywords):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(np, "memmap", refuse)
    with pytest.raises(BadFile, match=r"a' cannot be read: Input/output error"):
        read_tensors(tmp_path / "a")
