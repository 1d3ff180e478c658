from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from dubio.reporting.style import Style
from dubio.studies.ensembles.rank_agreement import (
    RankAgreement,
    TaceRanks,
    label_share,
    order_chart,
    order_reading,
    tace_chart,
    tace_reading,
)
from dubio.studies.ensembles.study import TACE_SETTINGS, Study
from tests.studies.charts import rows_of
from tests.studies.ensembles.helpers import curve

CURVES = tuple(curve(name, [[1.0] * 5]) for name in ("a", "b", "c"))


def errors(*columns: tuple[float, float, float]) -> TaceRanks:
    """TACE of three methods: these settings, then the last again and again."""
    filled = [*columns, *[columns[-1]] * (len(TACE_SETTINGS) - len(columns))]
    return TaceRanks(CURVES, np.array(filled).T)


def test_methods_without_a_finite_value_have_no_place_in_an_order() -> None:
    ranks = RankAgreement.of(
        {"a": 1.0, "b": math.nan, "c": math.inf, "d": 2.0}, {"a": 2.0, "b": 0.0, "c": 1.0, "d": 1.0}
    )
    assert ranks.names == ("d", "a")
    assert ranks.pairs == 1
    assert ranks.tau == -1.0


def test_a_tied_order_has_no_tau_in_its_reading() -> None:
    tied = RankAgreement({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0})
    assert tied.tau is None
    assert tied.swapped == ()
    reading = order_reading(tied, {"a": "A", "b": "B"}, 5)
    assert "not defined" in reading
    assert "nan" not in reading


def test_the_least_agreement_passes_over_settings_in_which_all_are_tied() -> None:
    ranks = errors((0.0, 0.0, 0.0), (0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.1, 0.2, 0.3))
    least = ranks.least_agreement
    assert least is not None
    tau, one, other = least
    assert tau == -1.0
    assert 0 not in (one, other)
    assert set(ranks.leaders) == {"a", "c"}
    assert ranks.orders == 3
    assert "nan" not in tace_reading(ranks)


def test_a_missing_error_neither_leads_nor_hides_the_leader() -> None:
    ranks = errors((math.nan, 0.2, 0.1), (math.nan, 0.2, 0.1))
    assert ranks.leaders == ("c",)
    assert ranks.ranks[1:, 0].tolist() == [2.0, 1.0]
    assert math.isnan(ranks.ranks[0, 0])
    least = ranks.least_agreement
    assert least is not None
    assert least[0] == 1.0
    styles = {each.name: Style(each.name, "#000000", "o", True) for each in CURVES}
    rows = rows_of(tace_chart(ranks, styles))
    assert [row["rank"] for row in rows[:3]] == [None, 2.0, 1.0]
    assert [row["tace"] for row in rows[:3]] == [None, 0.2, 0.1]
    assert [(row["threshold"], row["bins"]) for row in rows[::3]] == list(TACE_SETTINGS)


def test_where_all_are_tied_no_method_leads_and_no_two_settings_agree_least() -> None:
    ranks = errors((0.1, 0.1, 0.1))
    assert ranks.leaders == ()
    assert ranks.least_agreement is None
    assert ranks.orders == 1
    assert "all are tied" in tace_reading(ranks)
    assert errors((0.1, 0.1, 0.3)).leaders == ("a", "b")


def test_of_a_real_study_the_least_agreement_is_the_smallest_tau(study: Study) -> None:
    ranks = TaceRanks.of(study.select("method", augmented=False))
    every = [
        kendalltau(ranks.values[:, i], ranks.values[:, j]).statistic
        for i in range(len(TACE_SETTINGS))
        for j in range(i)
        if TACE_SETTINGS[i] != TACE_SETTINGS[j]
    ]
    least = ranks.least_agreement
    assert least is not None
    assert least[0] == pytest.approx(np.nanmin(every))


def test_swapped_pairs_and_tau_are_counted_by_hand() -> None:
    ranks = RankAgreement({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, {"a": 1.5, "b": 4.0, "c": 3.0, "d": 2.0})
    assert {frozenset(pair) for pair in ranks.swapped} == {frozenset("bc"), frozenset("bd"), frozenset("cd")}
    assert ranks.pairs == 6
    assert ranks.tau == pytest.approx(kendalltau([1, 2, 3, 4], [1.5, 4, 3, 2]).statistic)
    assert ranks.ranks()[1] == {"a": 1.0, "b": 4.0, "c": 3.0, "d": 2.0}


def test_the_order_shows_ranks_under_both_scores_and_who_moves() -> None:
    ranks = RankAgreement({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 0.9, "c": 0.7})
    styles = {name: Style(name.upper(), "#000000", "o", True) for name in "abc"}
    rows = {(row["method"], row["side"]): row for row in rows_of(order_chart(ranks, styles))}
    assert {key: row["rank"] for key, row in rows.items() if key[0] != "A"} == {
        ("B", "NLL at temperature 1"): 2, ("C", "NLL at temperature 1"): 3,
        ("B", "calibrated NLL"): 3, ("C", "calibrated NLL"): 2,
    }  # fmt: skip
    assert {title for (title, _), row in rows.items() if row["moves"]} == {"B", "C"}
    assert rows["C", "calibrated NLL"]["text"] == "0.700 C"


def test_labels_of_an_order_have_room() -> None:
    """Labels of “Ensemble of fast geometric ensembles, TTA” began outside the figure."""
    ranks = RankAgreement({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.9})
    for title in ("A", "Ensemble of fast geometric ensembles, TTA"):
        styles = {name: Style(title, "#000000", "o", True) for name in "ab"}
        layers = order_chart(ranks, styles).to_dict()["layer"]
        low, high = layers[0]["encoding"]["x"]["scale"]["domain"]
        beside = 640 * -low / (high - low)
        limits = {layer["mark"]["limit"] for layer in layers if layer["mark"]["type"] == "text"}
        assert 5.2 * len(f"{title} 0.900") < min(limits)
        assert max(limits) + 9 < beside
    assert label_share(200) == 0.42
