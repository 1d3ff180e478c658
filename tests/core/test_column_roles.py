from __future__ import annotations

import pytest

from dubio.core.column_roles import column_role


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


@pytest.mark.parametrize("name", ["width", "x1", "label", "text", "groupon_price", "updated", "mean radius", ""])
def test_parts_of_words_and_other_names_suggest_nothing(name: str) -> None:
    assert column_role(name) is None
