import io
import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import BadFile
from dubio.core.npz import read_npy, read_npz
from dubio.formats.safetensors import read_tensors


def everything(names):
    return names


def npy_bytes(array, **more):
    handle = io.BytesIO()
    np.save(handle, array, **more)
    return handle.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.empty((0, 2)),
        np.array(3.0),
        np.arange(4, dtype=">i4"),
    ],
)
def test_arrays_come_back_as_numpy_wrote_them(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    assert (read_npy(tmp_path / "a.npy") == array).all()
    assert read_npy(tmp_path / "a.npy").shape == array.shape
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", x=array, y=np.ones(2))
        found = read_npz(tmp_path / "a.npz", everything)
        assert (found["x"] == array).all()
        assert found["x"].dtype == array.dtype
    assert list(read_npz(tmp_path / "a.npz", lambda names: ("y",))) == ["y"]


def test_pickles_are_refused_and_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    objects = np.array([Bomb(), None], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", probs=objects)
    with pytest.raises(BadFile, match="pickled"):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(BadFile, match="array 'probs' is an array of Python objects"):
        read_npz(tmp_path / "a.npz", everything)
    (tmp_path / "b.npy").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(BadFile, match="no readable npy header"):
        read_npy(tmp_path / "b.npy")


def lying(shape, data=b"\0" * 80):
    handle = io.BytesIO()
    np.lib.format.write_array_header_1_0(handle, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return handle.getvalue() + data


@pytest.mark.parametrize("shape", [(0, 10**30), (0, 1 << 40, 1 << 40), (0,) * 80, (1,) * 65])
def test_a_shape_that_no_array_can_have_is_refused(tmp_path, shape):
    data = b"" if 0 in shape else b"\0" * 8
    (tmp_path / "a.npy").write_bytes(lying(shape, data))
    with pytest.raises(BadFile, match="no array can have"):
        read_npy(tmp_path / "a.npy")
    header = json.dumps({"x": {"dtype": "F64", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    with pytest.raises(BadFile):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("shape", [(10**15,), (1 << 40, 1 << 40), (9,), (11,), (2, 6)])
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(lying(shape))
    with pytest.raises(BadFile, match="the file has 80 for it"):
        read_npy(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", lying(shape))
    with pytest.raises(BadFile, match="array 'x' has shape"):
        read_npz(tmp_path / "a.npz", everything)


def test_other_types_and_truncated_files_are_refused(tmp_path):
    content = npy_bytes(np.arange(100.0))
    path = tmp_path / "a.npy"
    for damaged in (content[:-8], content + b"x", content[:20], b""):
        path.write_bytes(damaged)
        with pytest.raises(BadFile):
            read_npy(path)
    path.write_bytes(npy_bytes(np.zeros(3, dtype=[("a", "f4")])))
    with pytest.raises(BadFile, match="one plain type"):
        read_npy(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_an_array_or_a_named_refusal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("n") / "a.npy"
    content = bytearray(npy_bytes(np.arange(6.0)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 90))] = data.draw(st.sampled_from(b"({[,:'\"\0\xff190xOU"))
    path.write_bytes(content)
    try:
        read_npy(path)
    except BadFile as refusal:
        assert str(path) in str(refusal)  # noqa: PT017


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("probs.npy", "w", force_zip64=True) as out,
    ):
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (40_000_000,)})
        for _ in range(320):
            out.write(bytes(1_000_000))
    assert path.stat().st_size < 400_000
    with pytest.raises(BadFile, match="zip bomb"):
        read_npz(path, everything)


def test_damaged_archives_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, probs=np.random.default_rng(0).random((50, 3)), labels=np.zeros(50, int))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadFile, match="not an npz file, or is damaged"):
        read_npz(path, everything)
    damaged = bytearray(content)
    damaged[200] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(BadFile):
        read_npz(path, everything)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy_bytes(np.zeros(1)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", npy_bytes(np.ones(1)))
    with pytest.raises(BadFile, match="same name twice"):
        read_npz(path, everything)
    with pytest.raises(BadFile, match="cannot be read"):
        read_npz(tmp_path / "none.npz", everything)


def save_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("part", ["both", "directory", "local"])
def test_a_member_name_that_is_no_utf8_is_refused(tmp_path, part):
    path = tmp_path / "names.npz"
    save_zip(path, {"é.npy": npy_bytes(np.zeros(3)), "labels.npy": npy_bytes(np.zeros(3))})  # é sets the flag for UTF-8
    content = path.read_bytes()
    local, directory = content.index("é".encode()), content.rindex("é".encode())
    for place in {"both": (local, directory), "directory": (directory,), "local": (local,)}[part]:
        content = content[:place] + b"\xff\xfe" + content[place + 2 :]
    path.write_bytes(content)
    with pytest.raises(BadFile, match="not an npz file, or is damaged"):
        read_npz(path, everything)


def test_names_without_the_flag_for_utf8_are_names(tmp_path):
    path = tmp_path / "names.npz"
    save_zip(path, {"ab.npy": npy_bytes(np.zeros(3))})
    path.write_bytes(path.read_bytes().replace(b"ab.npy", b"\xff\xfe.npy"))
    assert len(read_npz(path, everything)) == 1


def test_bzip2_is_refused(tmp_path):
    path = tmp_path / "other.npz"
    save_zip(path, {"probs.npy": npy_bytes(np.zeros(3))}, zipfile.ZIP_BZIP2)
    with pytest.raises(BadFile, match=r"'probs\.npy' is compressed in a way that is not read; save it with numpy"):
        read_npz(path, everything)


def test_lzma_is_read(tmp_path):
    arrays = {"probs": np.random.default_rng(0).random((500, 7)), "ids": np.array(["a", "longer"])}
    save_zip(tmp_path / "a.npz", {f"{name}.npy": npy_bytes(array) for name, array in arrays.items()}, zipfile.ZIP_LZMA)
    for name, array in read_npz(tmp_path / "a.npz", everything).items():
        np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.slow
def test_lzma_that_holds_more_than_it_declares_takes_little_memory(tmp_path):
    path, array = tmp_path / "bomb.npz", npy_bytes(np.zeros(4 << 20))  # 32 MB, more than the header's 4 kB unpack to
    whole = array + bytes(160 << 20)
    save_zip(path, {"probs.npy": whole}, zipfile.ZIP_LZMA)
    declared = [struct.pack("<I", len(content)) for content in (whole, array)]
    path.write_bytes(path.read_bytes().replace(*declared))
    tracemalloc.start()
    with pytest.raises(BadFile, match="damaged"):
        read_npz(path, everything)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 20


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_what_is_no_character_is_refused_with_its_row(tmp_path, code, order, shape):
    codes = np.full((6, 4), ord("a"), dtype=f"{order}u4")
    codes[5, 2] = code
    texts = codes.view(f"{order}U4").reshape(shape)
    row = 5 if len(shape) == 1 else 1
    np.save(tmp_path / "texts.npy", texts)
    with pytest.raises(BadFile, match=rf"texts.npy': row {row} is not Unicode text"):
        read_npy(tmp_path / "texts.npy")
    np.savez(tmp_path / "texts.npz", first=np.zeros(2), ids=texts)
    with pytest.raises(BadFile, match=rf"texts.npz': array 'ids': row {row} is not Unicode text"):
        read_npz(tmp_path / "texts.npz", everything)


@pytest.mark.parametrize(
    "texts", [np.array(["\ud7ff", "\ue000\U0010ffff", ""]), np.array([], "U3"), np.array("x"), np.zeros(2, "U0")]
)
def test_every_character_is_read(tmp_path, texts):
    np.savez(tmp_path / "texts.npz", ids=texts)
    if texts.dtype.itemsize:
        assert (read_npz(tmp_path / "texts.npz", everything)["ids"] == texts).all()


def test_a_stated_limit_lifts_the_rule_on_the_ratio(tmp_path, monkeypatch):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, probs=np.zeros(40_000_000))
    with pytest.raises(BadFile, match="--max-unpacked"):
        read_npz(path, everything)
    monkeypatch.setenv("DUBIO_MAX_UNPACKED", "1GB")
    assert read_npz(path, everything)["probs"].shape == (40_000_000,)
    monkeypatch.setenv("DUBIO_MAX_UNPACKED", "300MB")
    with pytest.raises(BadFile, match="would unpack to 320 MB"):
        read_npz(path, everything)
