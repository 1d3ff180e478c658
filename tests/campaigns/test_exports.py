"""What a reader of exported files sees: a folder is one thing, so that half of it is neither old nor new."""

from __future__ import annotations

from campaigns.exports import observe_files
from campaigns.operations import Operation
from campaigns.system_calls import Trial


def write_two(folder):
    (folder / "out" / "model").mkdir()
    (folder / "out" / "model" / "weights").write_bytes(b"1")
    (folder / "out" / "model" / "card").write_bytes(b"2")


def make_out(folder):
    (folder / "out").mkdir()


def test_half_a_folder_is_neither_old_nor_new(tmp_path):
    trial = Trial(Operation("write two", make_out, write_two, observe_files), tmp_path)
    assert trial.differences(trial.old, must_be_new=False) == []
    write_two(trial.copy())
    (tmp_path / "case" / "out" / "model" / "card").unlink()
    (problem,) = trial.differences(observe_files(tmp_path / "case"), must_be_new=False)
    assert problem.startswith("out/model is ")


def test_files_aside_and_finished_chunks_are_not_outputs(tmp_path):
    write_two_folder = tmp_path / "out"
    write_two_folder.mkdir()
    (write_two_folder / ".table.csv.abc.tmp").write_bytes(b"half")
    (write_two_folder / "table.csv.parts").mkdir()
    (write_two_folder / "table.csv.parts" / "000000.safetensors").write_bytes(b"chunk")
    (write_two_folder / "table.csv").write_bytes(b"all")
    assert [*observe_files(tmp_path)] == ["out/table.csv"]
