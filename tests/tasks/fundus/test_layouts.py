"""Each public layout, built in view with its own file names and columns, is read as its authors mean it."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.tasks.fundus.layouts import read_collection
from dubio.tasks.fundus.photographs import read_photographs
from dubio.tasks.retina import find_data
from dubio.tasks.sources.locate import DataMissing


def facts(collection):
    return {p.id: (p.grade, p.patient, p.site, p.quality, p.subset) for p in collection.photographs}


def lines(collection):
    return [problem.line() for problem in collection.problems]


def test_eyepacs_pairs_eyes_by_name(eyes):
    for number, name in enumerate(("10_left", "10_right", "13_left")):
        eyes.save(f"train/{name}.jpeg", number)
    eyes.write("trainLabels.csv", "image,level", "10_left,0", "10_right,3", "13_left,1")
    found = read_collection(eyes.home)
    assert found.name == "eyepacs"
    assert facts(found) == {
        "10_left": (0, "10", "", -1, ""),
        "10_right": (3, "10", "", -1, ""),
        "13_left": (1, "13", "", -1, ""),
    }
    eyes.save("test/1_left.jpeg", 9)
    eyes.write("retinopathy_solution.csv", "image,level,Usage", "1_left,2,Private")
    both = facts(read_collection(eyes.home))
    assert both["1_left"] == (2, "1", "", -1, "test")
    assert both["10_left"] == (0, "10", "", -1, "train")


def test_a_named_folder_without_photographs_is_refused_whatever_else_has_some(eyes, tmp_path, monkeypatch):
    eyes.save("train/10_left.jpeg", 0)
    eyes.write("trainLabels.csv", "image,level", "10_left,0")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("DUBIO_DATA", str(eyes.home))
    assert find_data(None, None, 64) == eyes.home
    assert find_data(None, str(eyes.home), 64) == eyes.home
    with pytest.raises(DataMissing, match=r"data_dir '.*empty' holds no photographs.*trainLabels\.csv"):
        find_data(None, str(tmp_path / "empty"), 64)


def test_photographs_smaller_than_the_size_are_named_and_not_enlarged(tmp_path):
    """With tables of other things beside them, the message was about these tables."""
    np.savez(tmp_path / "deepdrid_64.npz", x=np.zeros((2, 64, 64, 3), np.uint8), y=[0, 1])
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("image,grade\n", encoding="utf-8")
    assert find_data(None, str(tmp_path), 64).name == "deepdrid_64.npz"
    with pytest.raises(DataMissing, match=r"size 128: .*deepdrid_64\.npz\) are smaller, and none is enlarged\. Choose"):
        find_data(None, str(tmp_path), 128)
    with pytest.raises(UserError, match=r"size 128 is larger .* 64×64 pixels.*\. They allow these sizes: 64\."):
        read_photographs(tmp_path / "deepdrid_64.npz", 128)


def test_aptos_counts_every_photograph_as_a_patient(eyes):
    eyes.save("train_images/000c1434d8d7.png", 0)
    eyes.save("train_images/001639a390f0.png", 1)
    eyes.save("test_images/unlabelled.png", 2)
    eyes.write("train.csv", "id_code,diagnosis", "000c1434d8d7,2", "001639a390f0,4")
    found = read_collection(eyes.home)
    assert found.name == "aptos-2019"
    assert facts(found)["001639a390f0"] == (4, "001639a390f0", "", -1, "")
    assert found.problems == ()  # the pictures of the competition's test have no grades, and are not asked for
    assert "names no patients" in found.notes[0]


def sheet(path, *rows):
    """A minimal Excel file, as the format's standard has it: numbers in cells, texts shared."""
    texts: list[str] = []
    made = []
    for number, row in enumerate(rows, start=1):
        cells = []
        for letter, value in zip("ABCDE", row, strict=False):
            if isinstance(value, str):
                texts.append(value)
                cells.append(f'<c r="{letter}{number}" t="s"><v>{len(texts) - 1}</v></c>')
            elif value is not None:
                cells.append(f'<c r="{letter}{number}"><v>{value}</v></c>')
        made.append(f'<row r="{number}">{"".join(cells)}</row>')
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("xl/sharedStrings.xml", f"<sst {space}>{''.join(f'<si><t>{t}</t></si>' for t in texts)}</sst>")
        book.writestr(
            "xl/worksheets/sheet1.xml", f"<worksheet {space}><sheetData>{''.join(made)}</sheetData></worksheet>"
        )


def test_deepdrid_takes_the_grade_of_the_eye_and_the_hospital(eyes):
    home = "regular_fundus_images"
    header = (
        "patient_id,image_id,image_path,Overall quality,left_eye_DR_Level,right_eye_DR_Level,patient_DR_Level,"
        "Clarity,Field definition,Artifact"
    )
    for seed, name in enumerate(("1/1_l1", "1/1_r1", "56/56_r3")):
        eyes.save(f"{home}/regular-fundus-training/Images/{name}.jpg", seed)
    eyes.write(
        f"{home}/regular-fundus-training/regular-fundus-training.csv",
        header,
        r"1,1_l1,\regular-fundus-training\1\1_l1.jpg,0,0,,3,8,8,4",
        r"1,1_r1,\regular-fundus-training\1\1_r1.jpg,1,,3,3,8,8,4",
        r"56,56_r3,\regular-fundus-training\56\56_r3.jpg,1,1,,1,10,8,1",
        r"57,57_l1,\regular-fundus-training\57\57_l1.jpg,1,5,,5,10,8,1",
    )
    eyes.write(
        f"{home}/regular-fundus-training/regular-fundus-source-training.csv",
        "patient_id,image_id,image_path,Source",
        r"1,1_l1,\x,Nicheng",
        r"1,1_r1,\x,Nicheng",
        r"56,56_r3,\x,Nation",
    )
    eyes.save(f"{home}/regular-fundus-validation/Images/265/265_l1.jpg", 7)
    eyes.write(f"{home}/regular-fundus-validation/regular-fundus-validation.csv", header, r"265,265_l1,\x,1,2,,2,8,8,4")
    eyes.save(f"{home}/Online-Challenge1&2-Evaluation/Images/347/347_l1.jpg", 8)
    sheet(
        eyes.home / home / "Online-Challenge1&2-Evaluation" / "Challenge1_labels.xlsx",
        ("image_id", "DR_Levels"),
        ("347_l1", 4),
    )
    sheet(
        eyes.home / home / "Online-Challenge1&2-Evaluation" / "Challenge2_labels.xlsx",
        ("image_id", "Overall quality", "Artifact"),
        ("347_l1", 0, 8),
    )
    found = read_collection(eyes.home)
    assert found.name == "deepdrid"
    assert facts(found) == {
        "1_l1": (0, "1", "Nicheng", 0, "train"),
        "1_r1": (3, "1", "Nicheng", 1, "train"),
        "56_r3": (1, "56", "Nation", 1, "train"),
        "265_l1": (2, "265", "", 1, "val"),
        "347_l1": (4, "347", "", 0, "test"),
    }
    assert lines(found) == ["57_l1: without grade: its grade is '5' (left out)"]


def test_idrid_has_two_parts_that_number_alike(eyes):
    for part, number in (("a. Training Set", 0), ("b. Testing Set", 1)):
        eyes.save(f"B. Disease Grading/1. Original Images/{part}/IDRiD_001.jpg", number)
    for letter, part, grade in (("a", "Training", 3), ("b", "Testing", 0)):
        eyes.write(
            f"B. Disease Grading/2. Groundtruths/{letter}. IDRiD_Disease Grading_{part} Labels.csv",
            "Image name,Retinopathy grade,Risk of macular edema ,,,,",
            f"IDRiD_001,{grade},2,,,,",
            ",,,,,,",
        )
    found = read_collection(eyes.home)
    assert found.name == "idrid"
    assert facts(found) == {
        "training/IDRiD_001": (3, "training/IDRiD_001", "", -1, "train"),
        "testing/IDRiD_001": (0, "testing/IDRiD_001", "", -1, "test"),
    }


def test_messidor_pairs_examinations_whatever_the_case_of_endings(eyes):
    for number, name in enumerate(("20051020_44782_0100_PP.png", "20051020_44843_0100_PP.png", "IM003852.JPG")):
        eyes.save(f"IMAGES/{name}", number)
    eyes.write("messidor-2.csv", "left;right", "20051020_44782_0100_PP.png;20051020_44843_0100_PP.png")
    eyes.write(
        "messidor_data.csv",
        "image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable",
        "20051020_44782_0100_PP.png,0,0,1",
        "20051020_44843_0100_PP.png,2,0,1",
        "IM003852.jpg,,,0",
    )
    found = read_collection(eyes.home)
    assert facts(found) == {
        "20051020_44782_0100_PP": (0, "examination 1", "", 1, ""),
        "20051020_44843_0100_PP": (2, "examination 1", "", 1, ""),
    }
    assert lines(found) == ["IM003852: without grade: its grade is '' (left out)"]


def test_any_folder_with_a_table(eyes):
    eyes.save("a/one.png", 1)
    eyes.save("b/two.png", 2)
    eyes.save("b/stray.png", 3)
    eyes.write(
        "labels.csv",
        "Image;Grade;Patient;Site;Quality",
        "a/one.png;2;p1;north;good",
        "two;0.0;p2;south;bad",
        "three;1;p3;south;good",
        "one;1;p4;;",
        "one;2;p4;;",
    )
    found = read_collection(eyes.home)
    assert facts(found) == {"a/one.png": (2, "p1", "north", 1, ""), "two": (0, "p2", "south", 0, "")}
    assert lines(found) == [
        "three: label without image (left out)",
        "one: duplicate id: 2 labels, which disagree: all left out",
        "b/stray.png: image without label (left out)",
    ]
    assert facts(read_collection(eyes.home / "labels.csv")) == facts(found)


def test_what_is_no_layout_is_refused_with_what_would_be(eyes):
    eyes.save("one.png", 1)
    with pytest.raises(BadFile, match=r"no layout.*trainLabels\.csv"):
        read_collection(eyes.home)
    eyes.write("labels.csv", "picture,grade", "one,1")
    with pytest.raises(UnknownName, match="none for the image"):
        read_collection(eyes.home)
    eyes.write("labels.csv", "image,grade,quality", "one,1,so-so")
    with pytest.raises(UserError, match="given 'so-so'"):
        read_collection(eyes.home)
    eyes.write("labels.csv", "image,grade", "two,1")
    with pytest.raises(BadFile, match="no photograph with a grade and a file"):
        read_collection(eyes.home)


def test_two_files_of_one_name_are_not_guessed_between(eyes):
    eyes.save("a/same.png", 1)
    eyes.save("b/same.png", 2)
    eyes.save("c/other.png", 3)
    eyes.write("labels.csv", "image,grade", "same,1", "other,0")
    found = read_collection(eyes.home)
    assert lines(found) == ["same: label without image: 2 files have this name (left out)"]


def test_an_excel_sheet_is_read_like_a_table(eyes, tmp_path):
    eyes.save("one.png", 1)
    sheet(eyes.home / "labels.xlsx", ("image", None, "grade"), ("one", None, 3))
    assert [p.grade for p in read_collection(eyes.home).photographs] == [3]
    (eyes.home / "labels.xlsx").write_bytes(b"no sheet")
    with pytest.raises(BadFile, match="Excel"):
        read_collection(eyes.home)


def test_arrays_are_refused_where_they_cannot_be(eyes, tmp_path):
    path = tmp_path / "mine.npz"
    x = np.random.default_rng(0).integers(0, 255, (6, 64, 64, 3), dtype=np.uint8)
    np.savez(path, x=x, y=[0, 1, 2, 3, 4, 5])
    with pytest.raises(BadFile, match="row 5 has the grade '5'"):
        read_photographs(path, 64)
    np.savez(path, x=x, y=[0, 1, 2, 3, 4, 0], id=list("aabcde"))
    with pytest.raises(BadFile, match="'a' occurs more than once"):
        read_photographs(path, 64)
    np.savez(path, x=x, y=[0, 1, 2, 3, 4])
    with pytest.raises(BadFile, match="grade has shape"):
        read_photographs(path, 64)
    np.savez(path, x=x, y=[0, 1, 2, 3, 4, 0])
    with pytest.raises(UserError, match="size 128 is larger"):
        read_photographs(path, 128)
    with pytest.raises(UserError, match="64, 128, 256, 512"):
        read_photographs(path, 100)
    np.savez(path, x=x[..., 0], y=[0, 1, 2, 3, 4, 0])
    assert read_photographs(path, 64).images.shape == (6, 64, 64, 3)
