"""Published numbers beside ours: which, when, and how far two orders agree."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import kendalltau

from dubio.core.registry import METHODS
from dubio.networks.preresnet import preresnet, preresnet_164
from dubio.networks.vgg import vgg16_bn
from dubio.networks.wide_resnet import wrn
from dubio.reporting.style import Style
from dubio.studies.ensembles.document import published_document
from dubio.studies.ensembles.published import (
    CLOSE,
    NETWORKS,
    agreements,
    network_of,
    order_of,
    published_figures,
    whole,
)
from dubio.studies.ensembles.published_tables import (
    numbers_grid,
    numbers_words,
    order_grid,
    order_words,
    published_part,
    unlike_words,
)
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.tables import table_files
from tests.reporting.ensembles.lines import line, study, task

ALL = (45_000, 5_000, 10_000)
P_ORDER = {"snapshot-ensemble": 0.137, "deep-ensemble": 0.138, "csgld": 0.147, "fge": 0.150, "swag": 0.152,
           "mean-field-vi": 0.184, "laplace": 0.200, "mc-dropout": 0.226, "deterministic": 0.229}  # fmt: skip
"""P, Table 4: VGG16 on CIFAR-10, negative calibrated log-likelihood with 100 samples."""

SIZES = (1, 2, 3, 5, 10, 100)


def ours(values: dict[str, float], wobble: float = 0.001, **about: Any) -> Study:
    """A study whose methods have these calibrated NLLs whatever the samples, and an error of a quarter of it."""
    lines = []
    for name, value in values.items():
        sizes = (1,) if name == "deterministic" else SIZES
        rows = [[value + by] * len(sizes) for by in (-wobble, 0.0, wobble)]
        role = {"deterministic": "network", "deep-ensemble": "pool"}.get(name, "method")
        errors = [[value / 4] * len(sizes)] * 3
        lines.append(line(name, rows, sizes=sizes, role=role, error=errors))  # type: ignore[arg-type]
    return study(*lines, of=task(about.pop("network", "vgg16-bn"), "cifar10", about.pop("images", ALL), **about))


def styles(found: Study) -> dict[str, Style]:
    return {each.name: Style(each.name, "#000000", "o", True) for each in found.lines}


def test_the_shipped_numbers_are_those_of_tables_4_and_5() -> None:
    figures = {(f.corpus, f.network, f.method, f.metric): (f.value, f.std) for f in published_figures()}
    assert len(figures) == len(published_figures()) == 2 * 2 * (9 + 8 + 8 + 8)
    for name, value in P_ORDER.items():
        assert figures["cifar10", "vgg16-bn", name, "calibrated_nll"][0] == value
    for key, told in {
        ("cifar10", "preresnet", "csgld", "error"): (0.0383, 0.0002),
        ("cifar10", "preresnet-164", "mean-field-vi", "error"): (0.0450, 0.0005),
        ("cifar10", "wrn", "mc-dropout", "calibrated_nll"): (0.118, 0.002),
        ("cifar10", "vgg16-bn", "laplace", "error"): (0.0580, 0.0019),
        ("cifar100", "preresnet", "deterministic", "calibrated_nll"): (0.848, 0.009),
        ("cifar100", "preresnet-164", "snapshot-ensemble", "error"): (0.1763, 0.0017),
        ("cifar100", "vgg16-bn", "laplace", "calibrated_nll"): (1.050, 0.008),
        ("cifar100", "wrn", "deep-ensemble", "error"): (0.1570, 0.0005),
    }.items():
        assert figures[key] == pytest.approx(told)
    # P gives no dropout to PreResNets and no snapshot ensemble to WideResNet
    assert ("cifar10", "preresnet", "mc-dropout", "error") not in figures
    assert ("cifar100", "wrn", "snapshot-ensemble", "error") not in figures
    assert {f.method for f in published_figures()} <= set(METHODS.names())
    assert {f.samples for f in published_figures()} == {100}


def test_the_papers_networks_are_the_defaults_of_ours() -> None:
    made = {"vgg16-bn": vgg16_bn, "preresnet": preresnet, "preresnet-164": preresnet_164, "wrn": wrn}
    assert set(made) == set(NETWORKS)
    for name, make in made.items():
        defaults = make.__kwdefaults__
        assert all(defaults[argument] == value for argument, value in NETWORKS[name][1].items())


@pytest.mark.parametrize(("factor", "outcome"), [(1.04, "within"), (1.2, "worse"), (0.8, "better")])
def test_ours_stand_beside_theirs_on_the_whole_data(factor: float, outcome: str) -> None:
    found = ours({name: factor * value for name, value in P_ORDER.items()})
    told = [each for each in agreements(found) if each.published.metric == "calibrated_nll"]
    assert [each.outcome for each in told] == [outcome] * 9
    assert {each.line.name: each.difference for each in told}["swag"] == pytest.approx((factor - 1) * 0.152)
    assert {each.published.metric for each in agreements(found)} == {"error", "calibrated_nll"}
    table = numbers_grid(found, styles(found))
    assert table is not None
    assert len(table.rows) == 9
    swag = next(row for row in table.rows if row.title == "swag")
    assert [cell.text for cell in swag.cells][3:5] == [f"{factor * 0.152:.3f}", "0.152"]
    assert [cell.text for cell in swag.cells][1] == "5.04"  # per cent
    words = numbers_words(found)
    assert "45,000 of 50,000 images are trained on, 5,000 are kept back" in words
    assert f"within {CLOSE:.0%}" in words


@pytest.mark.parametrize(
    "about",
    [
        {"images": (4_000, 1_000, 10_000)},
        {"images": (45_000, 5_000, 2_000)},
        {"network": "vgg-small"},
        {"arguments": {"base": 16}},
    ],
)
def test_a_part_of_the_data_or_another_network_has_no_number_beside_theirs(about: dict[str, Any]) -> None:
    found = ours(P_ORDER, **about)
    assert agreements(found) == ()
    assert numbers_grid(found, styles(found)) is None
    assert "No number of it stands beside P's" in unlike_words(found)
    assert order_of(found) is not None


def test_a_number_needs_as_many_samples_and_the_method_as_it_is() -> None:
    found = ours(P_ORDER)
    assert {each.line.name for each in agreements(found)} == set(P_ORDER)
    fewer = replace(found, lines=tuple(
        replace(each, sizes=SIZES[:-1], values=each.values[:, :-1]) if each.name == "swag" else each
        for each in found.lines
    ))  # fmt: skip
    assert {each.line.name for each in agreements(fewer)} == set(P_ORDER) - {"swag"}
    variant = line("laplace-last", [[0.2] * 6] * 3, sizes=SIZES, registered="laplace", settings='{"structure": "last"}')
    again = replace(found, lines=(variant, *found.lines))
    laplace = [each.line.name for each in agreements(again) if each.published.method == "laplace"]
    assert laplace == ["laplace", "laplace"]  # error and likelihood
    assert whole(found.task)
    assert network_of(task("preresnet", "cifar10", arguments={"depth": 110})) == "preresnet"
    assert network_of(task("preresnet", "cifar10", arguments={"depth": 20})) is None


def test_orders_are_compared_by_kendalls_tau_and_say_which_pairs_are_surely_reversed() -> None:
    values = {**P_ORDER, "swag": 0.14, "fge": 0.151, "laplace": 0.25}
    found = ours(values, network="vgg-small", images=(3_600, 400, 2_000))
    order = order_of(found)
    assert order is not None
    assert order.network == "vgg16-bn"
    assert (order.here, order.there) == (found.equal, 100)
    expected = kendalltau([values[name] for name in P_ORDER], list(P_ORDER.values())).statistic
    assert order.values.tau == pytest.approx(expected)
    assert {frozenset(pair) for pair in order.reversed} == {
        frozenset(pair)
        for pair in [("swag", "csgld"), ("swag", "fge"), ("laplace", "mc-dropout"), ("laplace", "deterministic")]
    }
    assert set(order.surely) == set(order.reversed)  # a spread of 0.001
    table = order_grid(found, order, styles(found))
    assert [row.title for row in table.rows] == list(P_ORDER)
    assert table.rows[4].cells[0].text == "5"
    assert table.rows[4].cells[1].text == "3"
    assert "VGG16, CIFAR-10" in table.caption
    assert "swag before csgld" in order_words(found, order)
    unsure = order_of(ours(values, wobble=0.5, network="vgg-small"))
    assert unsure is not None
    assert unsure.surely == ()
    assert len(unsure.reversed) == 4
    assert "none of which the spread over runs tells apart" in order_words(found, unsure)


def test_other_data_and_few_methods_have_no_order_to_compare() -> None:
    found = ours(P_ORDER)
    other = replace(found, task=task("vgg16-bn", "pictures"))
    assert order_of(other) is None
    assert unlike_words(other) == ""
    assert published_part([other], {"pictures": styles(other)}) == []
    assert order_of(ours({"swag": 0.1, "fge": 0.2})) is None
    (shown,) = published_part([found], {"cifar10": styles(found)})
    assert shown["numbers"] is not None
    assert shown["order"] is not None


def test_the_table_of_both_says_what_can_be_compared() -> None:
    rows = list(csv.DictReader(io.StringIO(table_files([ours(P_ORDER)])["ensembles-published.csv"])))
    numbers = [row for row in rows if row["comparable"] == "1"]
    assert len(numbers) == 18
    assert len(rows) == 18 + 9
    single = next(row for row in numbers if (row["method"], row["measure"]) == ("deterministic", "calibrated_nll"))
    assert (single["samples"], single["published_samples"]) == ("1", "100")
    assert float(single["value"]) == pytest.approx(float(single["published"]))
    small = table_files([ours(P_ORDER, network="vgg-small")])["ensembles-published.csv"]
    assert {row["comparable"] for row in csv.DictReader(io.StringIO(small))} == {"0"}


def test_the_document_holds_both() -> None:
    told = json.loads(json.dumps(published_document(ours(P_ORDER)), allow_nan=False))
    assert len(told["numbers"]) == 18
    assert told["order"]["kendall_tau"] == 1.0
    assert told["order"]["reversed"] == []
