"""Sentences of the report and its commands, in cases where a careless one would be wrong or say nothing."""

from __future__ import annotations

import pytest

from dubio.reporting.wording import TERMS, budget_note, duration, enough_digits, file_name, listed, named
from dubio.store.records import ManifestBudget


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ((0.0371, 0.5), ("0.037", "0.5")),
        ((0.003712, 0.003734), ("0.00371", "0.00373")),
        ((0.1234561, 0.1234569), ("0.123456", "0.123457")),
        ((0.25, 0.25), ("0.25", "0.25")),
    ],
)
def test_two_numbers_have_the_digits_that_tell_them_apart(pair: tuple[float, float], told: tuple[str, str]) -> None:
    assert enough_digits(*pair) == told


def test_a_file_name_has_one_dash_for_everything_that_is_no_letter_or_digit() -> None:
    assert file_name("cifar10 (preresnet)-cost") == "cifar10-preresnet-cost"
    assert file_name("quality: low / high") == "quality-low-high"
    assert file_name("…") == "unnamed"


def test_names_with_commas_are_separated_by_semicolons() -> None:
    """“Deep ensemble, TTA, SWA, TTA and Laplace” could be five methods."""
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a, TTA", "b, TTA", "c"]) == "a, TTA; b, TTA; and c"
    assert listed(["a, TTA", "b"]) == "a, TTA and b"


def test_metrics_with_digits_in_their_name_are_called_by_their_titles() -> None:
    assert named("macro_f1 and ood_fpr95 rank") == f"{_title('macro_f1')} and {_title('ood_fpr95')} rank"


def _title(metric: str) -> str:
    title = TERMS[metric].title
    return title if title.isupper() else title[:1].lower() + title[1:]


def test_a_method_with_another_budget_is_named_with_both() -> None:
    budgets = dict.fromkeys(("a", "b", "c"), ManifestBudget(30, 5))
    titles = {"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}
    assert budget_note(budgets, titles) == ""
    assert budget_note({**budgets, "d": ManifestBudget(60, 0), "e": ManifestBudget(30, 5, 3)}, titles) == (
        "Not the same budget: D trained for 60 epochs without early stopping; E trained for 30 epochs stopping after 5 "
        "without improvement, tuned in three trials; the others trained for 30 epochs stopping after 5 without "
        "improvement."
    )
    assert "whose epochs are not known" in budget_note({**budgets, "d": ManifestBudget()}, titles)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.22e-6, "1.22 µs"), (0.000995, "995 µs"), (0.0937, "93.7 ms"), (2.45, "2.45 s"), (69.6, "1.16 min"),
     (7200, "2 h"), (200_000, "2.31 d"), (4e-8, "0.04 µs"), (0.0, "0 µs")],
)  # fmt: skip
def test_a_duration_is_in_the_unit_that_a_reader_would_choose(seconds: float, text: str) -> None:
    assert duration(seconds) == text
