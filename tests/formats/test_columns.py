"""The roles of columns, in every format: groups are never lost, and every unused column is named."""

import numpy as np
import pandas as pd
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.predictions import Predictions, join
from dubio.formats import predictions_from_arrays, read_predictions, write_predictions
from dubio.formats.safetensors import write_tensors

ROWS = 60
PATIENTS = np.array([f"P{k // 3}" for k in range(ROWS)])
PROBS = np.tile([0.25, 0.75], (ROWS, 1))
LABELS = np.ones(ROWS, dtype=np.int64)
REFUSED = r"column 'patient_id' looks like groups.*--group patient_id.*--rows-are-independent"


def table(**columns):
    numbers = {"p0": PROBS[:, 0], "p1": PROBS[:, 1], "label": LABELS}
    return pd.DataFrame({**numbers, "patient_id": PATIENTS, "site": np.arange(ROWS) % 2, **columns})


def written(folder, suffix, **columns):
    path = folder / f"a{suffix}"
    frame = table(**columns)
    if suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="," if suffix == ".csv" else "\t")
    elif suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".npz":
        texts = {name: np.array(frame[name].tolist()) for name in frame.columns[3:]}
        np.savez(path, probs=PROBS, labels=LABELS, **texts)
    else:
        texts = {"patient_id": PATIENTS, "site": (np.arange(ROWS) % 2).astype(str)}
        logits = np.log(PROBS)[None].astype(np.float32)
        write_predictions(path, Predictions(logits, LABELS, columns=texts))
    return path


SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".safetensors")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_of_patients_is_named_or_refused(tmp_path, suffix):
    path = written(tmp_path, suffix)
    with pytest.raises(UserError, match=REFUSED):
        read_predictions(path)
    grouped = read_predictions(path, group="patient_id", by=["site"])
    assert grouped.group.tolist() == PATIENTS.tolist()
    assert grouped.columns["site"].tolist() == [str(k % 2) for k in range(ROWS)]
    assert "patient_id" not in grouped.columns
    assert grouped.notes == ()
    assert read_predictions(path, group="patient_id").notes == ("Columns that are not used: site.",)
    single = read_predictions(path, rows_are_independent=True)
    assert single.group is None
    assert "patient_id" in single.notes[0]
    assert "declared independent, although column 'patient_id' looks like groups" in single.notes[1]
    with pytest.raises(UserError, match=REFUSED):
        read_predictions(path, by=["patient_id"])  # a subgroup of each patient is no group


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_wrong_names_are_refused_with_the_nearest(tmp_path, suffix):
    path = written(tmp_path, suffix)
    for argument, option in (("group", "--group"), ("ids", "--id")):
        with pytest.raises(UserError, match=rf"column for {option} 'patient'.*Did you mean 'patient_id'"):
            read_predictions(path, **{argument: "patient"})
    with pytest.raises(UserError, match=r"column for --by 'sit'.*Did you mean 'site'"):
        read_predictions(path, group="patient_id", by=["sit"])
    with pytest.raises(UserError, match="by must be a list"):
        read_predictions(path, by="site")
    with pytest.raises(UserError, match="not both"):
        read_predictions(path, group="patient_id", rows_are_independent=True)


def test_a_misspelt_group_is_refused(tmp_path):
    frame = table(gruop=np.arange(ROWS) // 2).drop(columns=["patient_id", "site"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match="'gruop' looks like groups"):
        read_predictions(tmp_path / "a.csv")
    frame.rename(columns={"gruop": "groups"}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match="did you mean 'group'"):
        read_predictions(tmp_path / "a.csv")
    assert read_predictions(tmp_path / "a.csv", group="groups").group is not None
    assert read_predictions(tmp_path / "a.csv", rows_are_independent=True).group is None
    arrays = {"probs": PROBS, "groups": np.arange(ROWS) // 2}
    with pytest.raises(UserError, match="did you mean 'group'"):
        predictions_from_arrays(arrays)


def test_a_column_of_the_name_gives_way_to_the_one_that_is_named(tmp_path):
    path = written(
        tmp_path, ".csv", group="all", id=[f"r{k}" for k in range(ROWS)], image=[f"i{k}" for k in range(ROWS)]
    )
    rows = read_predictions(path, group="patient_id", ids="image")
    assert rows.group.tolist() == PATIENTS.tolist()
    assert rows.ids[0] == "i0"
    # what the file names itself, and what it sets aside as further columns, which a report shows as subgroups
    assert rows.notes == ("Columns that are not used: site.", "Columns that are not used: group, id.")
    with pytest.raises(UserError, match="ids must be unique"):
        read_predictions(path, ids="patient_id", group="group")
    by_label = read_predictions(path, group="patient_id", by=["label", "group"])
    assert set(by_label.columns["label"]) == {"1"}
    assert by_label.group.tolist() == PATIENTS.tolist()
    assert set(by_label.columns["group"]) == {"all"}


def test_tables_of_samples_and_of_named_classes(tmp_path):
    frame = table().drop(columns="label").assign(id=np.arange(ROWS))
    both = pd.concat([frame.assign(sample=0), frame.assign(sample=1)])
    both.to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(UserError, match=REFUSED):
        read_predictions(tmp_path / "s.csv")
    assert read_predictions(tmp_path / "s.csv", group="patient_id").group.tolist() == PATIENTS.tolist()
    # every row of an example repeats its id: samples are no units
    both.drop(columns="patient_id").to_csv(tmp_path / "s.csv", index=False)
    assert read_predictions(tmp_path / "s.csv").notes == ("Columns that are not used: site.",)
    named = table().rename(columns={"p0": "no", "p1": "yes"}).assign(label="yes", site="Bern")
    named.to_csv(tmp_path / "n.csv", index=False)
    with pytest.raises(UserError, match=REFUSED):
        read_predictions(tmp_path / "n.csv", values="probs")
    rows = read_predictions(tmp_path / "n.csv", values="probs", group="patient_id")
    assert rows.classes == ("no", "yes")
    assert rows.notes == ("Columns that are not used: site.",)
    named.assign(patient_id=np.arange(ROWS) // 3).to_csv(tmp_path / "n.csv", index=False)
    with pytest.raises(UserError, match=r"'patient_id' looks like groups.*would be read as a class"):
        read_predictions(tmp_path / "n.csv", values="logits")


def test_arrays_that_are_not_needed_are_named_and_not_unpacked(tmp_path):
    features = np.zeros((ROWS, 4))
    objects = np.array(["a"] * ROWS, dtype=object)
    np.savez(tmp_path / "a.npz", probs=PROBS, features=features, files=objects, age=np.arange(ROWS) % 7)
    notes = read_predictions(tmp_path / "a.npz").notes
    assert len(notes) == 1
    assert all(name in notes[0] for name in ("features", "files", "age"))
    np.savez(tmp_path / "a.npz", probs=PROBS, patient_id=objects)
    with pytest.raises(BadFile, match="'patient_id' is an array of Python objects"):
        read_predictions(tmp_path / "a.npz")
    assert "patient_id" in read_predictions(tmp_path / "a.npz", rows_are_independent=True).notes[0]
    np.savez(tmp_path / "a.npz", mine=PROBS, patient_id=PATIENTS)
    assert read_predictions(tmp_path / "a.npz", values="probs", group="patient_id").group is not None


def test_tensors_of_another_library_and_mappings(tmp_path):
    numbers = np.arange(ROWS) // 3
    write_tensors(tmp_path / "a.safetensors", {"probs": PROBS, "patient_id": numbers}, {})
    with pytest.raises(UserError, match=REFUSED):
        read_predictions(tmp_path / "a.safetensors")
    assert read_predictions(tmp_path / "a.safetensors", group="patient_id").group[5] == "1"
    with pytest.raises(UserError, match=REFUSED):
        predictions_from_arrays({"probs": PROBS, "patient_id": numbers.tolist()})


def test_notes_stay_with_rows_that_are_taken_or_joined():
    one = Predictions(np.zeros((1, 2, 2), np.float32), np.zeros(2, dtype=np.int64), notes=("a",))
    two = Predictions(np.zeros((1, 2, 2), np.float32), np.zeros(2, dtype=np.int64), notes=("a", "b"))
    assert one.take(np.array([1])).notes == ("a",)
    assert join([one, two]).notes == ("a", "b")
