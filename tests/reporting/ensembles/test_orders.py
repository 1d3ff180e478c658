from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from dubio.reporting.style import Style
from dubio.studies.ensembles.orders import Reordering, Taces, agreement_of, reordering_of, taces_of
from dubio.studies.ensembles.rankings import taces_figure
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.thresholded import SETTINGS
from dubio.studies.ensembles.told import reordering_words, taces_words
from tests.reporting.ensembles.lines import line

LINES = tuple(line(name, [[1.0] * 5]) for name in ("a", "b", "c"))


def errors(*columns: tuple[float, float, float]) -> Taces:
    """TACE of three methods: these settings, then the last again and again."""
    filled = [*columns, *[columns[-1]] * (len(SETTINGS) - len(columns))]
    return Taces(LINES, np.array(filled).T)


def test_agreement_is_kendalls_tau_of_what_is_finite_and_none_where_all_are_tied() -> None:
    one, other = [1.0, 2.0, 3.0, math.nan, 5.0], [2.0, 1.0, 3.0, 0.0, math.inf]
    assert agreement_of(one, other) == pytest.approx(kendalltau([1, 2, 3], [2, 1, 3]).statistic)
    assert agreement_of([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert agreement_of([1.0, math.nan], [1.0, 2.0]) is None
    assert agreement_of([], []) is None


def test_methods_without_a_finite_value_have_no_place_in_an_order() -> None:
    found = reordering_of({"a": 1.0, "b": math.nan, "c": math.inf, "d": 2.0}, {"a": 2.0, "b": 0.0, "c": 1.0, "d": 1.0})
    assert found.names == ("d", "a")
    assert found.pairs == 1
    assert found.tau == -1.0


def test_a_tied_order_says_so_in_words() -> None:
    tied = Reordering({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0})
    assert tied.tau is None
    assert tied.swapped == ()
    told = reordering_words(tied, {"a": "A", "b": "B"}, 5)
    assert "not defined" in told
    assert "nan" not in told


def test_the_least_agreement_passes_over_settings_in_which_all_are_tied() -> None:
    found = errors((0.0, 0.0, 0.0), (0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.1, 0.2, 0.3))
    least = found.least_agreement
    assert least is not None
    tau, one, other = least
    assert tau == -1.0
    assert 0 not in (one, other)
    assert set(found.leaders) == {"a", "c"}
    assert found.orders == 3
    assert "nan" not in taces_words(found)


def test_a_missing_error_neither_leads_nor_hides_the_leader() -> None:
    found = errors((math.nan, 0.2, 0.1), (math.nan, 0.2, 0.1))
    assert found.leaders == ("c",)
    assert found.ranks[1:, 0].tolist() == [2.0, 1.0]
    assert math.isnan(found.ranks[0, 0])
    least = found.least_agreement
    assert least is not None
    assert least[0] == 1.0
    styles = {each.name: Style(each.name, "#000000", "o", True) for each in LINES}
    assert taces_figure(found, styles).axes


def test_where_all_are_tied_no_method_leads_and_no_two_settings_agree_least() -> None:
    found = errors((0.1, 0.1, 0.1))
    assert found.leaders == ()
    assert found.least_agreement is None
    assert found.orders == 1
    assert "all are tied" in taces_words(found)
    assert errors((0.1, 0.1, 0.3)).leaders == ("a", "b")


def test_of_a_real_study_the_least_agreement_is_the_smallest_tau(study: Study) -> None:
    found = taces_of(study.chosen("method", augmented=False))
    every = [
        kendalltau(found.values[:, i], found.values[:, j]).statistic
        for i in range(len(SETTINGS))
        for j in range(i)
        if SETTINGS[i] != SETTINGS[j]
    ]
    least = found.least_agreement
    assert least is not None
    assert least[0] == pytest.approx(np.nanmin(every))
