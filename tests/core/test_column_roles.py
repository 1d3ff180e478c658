"""Columns that are units or have another role, by their names and by their values; and columns that are not."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.column_roles import column_role, looks_like_units, names_units, words_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("patient_id", "group"),
        ("PatientID", "group"),
        ("subjects", "group"),
        ("user", "group"),
        ("doc.id", "group"),
        ("split", "split"),
        ("fold", "split"),
        ("visit_date", "time"),
        ("timestamp", "time"),
        ("site", "domain"),
        ("hospital name", "domain"),
    ],
)
def test_a_column_is_recognised_by_a_word_of_its_name(name: str, role: str) -> None:
    assert column_role(name) == role


@pytest.mark.parametrize(
    "name", ["width", "x1", "label", "text", "groupon_price", "updated", "mean radius", "", "patient_age"]
)
def test_parts_of_words_and_other_names_suggest_nothing(name: str) -> None:
    assert column_role(name) is None


PATIENTS = np.repeat(np.arange(100), 3)


def test_words_of_a_name():
    assert words_of("patient_id") == ["patient", "id"]
    assert words_of("PatientID2") == ["patient", "id"]
    assert words_of("study.subjectNo") == ["study", "subject", "no"]
    assert words_of("USER-name") == ["user", "name"]


@pytest.mark.parametrize(
    "name",
    ["patient_id", "PatientID", "subjectNo", "user", "Document", "doc_id", "case", "SESSION", "study-patient", "groups",
     "gruop", "grp_group", "patinet_id", "person.id", "speaker_id"],
)  # fmt: skip
def test_names_of_units(name):
    assert names_units(name)
    assert looks_like_units(name, PATIENTS)
    assert looks_like_units(name, [f"P{k}" for k in PATIENTS])
    assert looks_like_units(name, [str(k) for k in PATIENTS])


@pytest.mark.parametrize(
    "name",
    [
        "site",
        "device",
        "patient_age",
        "userAgent",
        "document_length",
        "version",
        "object",
        "particle",
        "use",
        "cause",
        "phase",
        "age",
        "id",
    ],
)
def test_names_of_other_columns(name):
    assert not names_units(name)
    assert not looks_like_units(name, PATIENTS)  # numbers, and no name for units


def test_values_must_repeat_and_be_no_fractions():
    assert not looks_like_units("patient_id", np.arange(50))  # every row its own patient
    assert not looks_like_units("patient_id", ["P1"] * 50)  # nothing to tell apart
    assert not looks_like_units("patient", np.repeat(np.linspace(0, 1, 25), 2))
    assert looks_like_units("patient", np.array([1.0, 1.0, np.nan, 2.0]))  # whole numbers, one missing
    assert looks_like_units("patient_id", ["1", "1", "", "2"])
    assert looks_like_units("patient_id", [None, "a", "a", "b"])


@pytest.mark.parametrize(
    ("levels", "rows", "units"),
    [
        (50, 1000, True),  # a twentieth of the rows
        (49, 1000, False),
        (950, 1000, True),  # the other twentieth repeats
        (951, 1000, False),  # nearly every row has its own, such as a text with a few copies
        (4, 40, False),  # a category of a small file
        (5, 40, True),
    ],
)
def test_texts_with_many_levels_that_repeat(levels, rows, units):
    names = [f"n{k % levels}" for k in range(rows)]
    assert looks_like_units("code", names) is units
    assert not looks_like_units("code", [k % levels for k in range(rows)])
