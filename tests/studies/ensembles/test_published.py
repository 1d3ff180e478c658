"""Published numbers beside ours: which numbers are compared, and how well two orders agree."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import kendalltau

from dubio.core.registry import METHODS
from dubio.core.specs import describe
from dubio.networks.preresnet import preresnet, preresnet_164
from dubio.networks.resnet import resnet50
from dubio.networks.vgg import vgg16_bn
from dubio.networks.wide_resnet import wrn
from dubio.reporting.style import Style
from dubio.studies.ensembles.published import (
    CLOSE,
    NETWORKS,
    agreements,
    incomparable_sentence,
    is_complete,
    network_of,
    numbers_sentence,
    numbers_table,
    order_of,
    order_sentence,
    order_table,
    published_blocks,
    published_document,
    published_rows,
)
from dubio.studies.ensembles.study import Study
from dubio.studies.published_numbers import published_numbers
from tests.studies.ensembles.helpers import curve, study, task

ALL = (45_000, 5_000, 10_000)
P_ORDER = {"snapshot-ensemble": 0.137, "deep-ensemble": 0.138, "csgld": 0.147, "fge": 0.150, "swag": 0.152,
           "mean-field-vi": 0.184, "laplace": 0.200, "mc-dropout": 0.226, "deterministic": 0.229}  # fmt: skip
"""P, Table 4: VGG16 on CIFAR-10, negative calibrated log-likelihood with 100 samples."""

SIZES = (1, 2, 3, 5, 10, 100)


def ours(values: dict[str, float], wobble: float = 0.001, **about: Any) -> Study:
    """A study whose methods have these calibrated NLLs whatever the samples, and an error of a quarter of it."""
    curves = []
    for name, value in values.items():
        sizes = (1,) if name == "deterministic" else SIZES
        rows = [[value + by] * len(sizes) for by in (-wobble, 0.0, wobble)]
        role = {"deterministic": "network", "deep-ensemble": "deep_ensemble"}.get(name, "method")
        errors = [[value / 4] * len(sizes)] * 3
        curves.append(curve(name, rows, sizes=sizes, role=role, error=errors))  # type: ignore[arg-type]
    return study(*curves, of=task(about.pop("network", "vgg16-bn"), "cifar10", about.pop("images", ALL), **about))


def styles(example: Study) -> dict[str, Style]:
    return {each.name: Style(each.name, "#000000", "o", True) for each in example.curves}


def test_the_shipped_numbers_are_those_of_tables_4_to_9() -> None:
    """Cells copied from P by hand, some of every table and score; and how many cells each table fills."""
    shipped = published_numbers("ensembles")
    numbers = {(n.task, n.network, n.samples, n.method, n.setting, n.metric): (n.value, n.std) for n in shipped}
    assert len(numbers) == len(shipped) == 2 * 4 * (2 * (9 + 8 + 8 + 8) + 15)
    for name, value in P_ORDER.items():
        assert numbers["cifar10", "vgg16-bn", 100, name, "", "calibrated_nll"][0] == value
    for key, expected in {
        ("cifar10", "preresnet", 100, "csgld", "", "error"): (0.0383, 0.0002),
        ("cifar10", "preresnet-164", 100, "mean-field-vi", "", "error"): (0.0450, 0.0005),
        ("cifar10", "wrn", 100, "mc-dropout", "", "calibrated_nll"): (0.118, 0.002),
        ("cifar10", "vgg16-bn", 100, "laplace", "", "error"): (0.0580, 0.0019),
        ("cifar10", "vgg16-bn", 100, "swag", "", "calibrated_brier"): (0.075, 0.001),
        ("cifar10", "wrn", 100, "fge", "", "calibrated_aurc"): (0.0031, None),
        ("cifar100", "preresnet", 100, "deterministic", "", "calibrated_nll"): (0.848, 0.009),
        ("cifar100", "preresnet-164", 100, "snapshot-ensemble", "", "error"): (0.1763, 0.0017),
        ("cifar100", "vgg16-bn", 100, "laplace", "", "calibrated_nll"): (1.050, 0.008),
        ("cifar100", "wrn", 100, "deep-ensemble", "", "error"): (0.1570, 0.0005),
        ("cifar100", "preresnet", 100, "swag", "", "calibrated_brier"): (0.281, 0.003),
        ("cifar100", "vgg16-bn", 100, "mc-dropout", "", "calibrated_aurc"): (0.0857, None),
        ("imagenet", "resnet50", 7, "deep-ensemble", "", "error"): (0.2101, 0.000485),
        ("imagenet", "resnet50", 7, "snapshot-ensemble", "", "calibrated_nll"): (0.852, None),
        ("imagenet", "resnet50", 40, "fge", "", "calibrated_brier"): (0.324, None),
        ("imagenet", "resnet50", 50, "laplace", "", "calibrated_nll"): (0.936, 0.0015),
        ("imagenet", "resnet50", 50, "mean-field-vi", "", "calibrated_aurc"): (0.0684, None),
        ("cifar10", "vgg16-bn", 100, "deterministic", "tta", "error"): (0.0527, None),
        ("cifar10", "preresnet", 100, "csgld", "tta", "calibrated_nll"): (0.111, None),
        ("cifar10", "vgg16-bn", 100, "fge", "tta", "calibrated_aurc"): (0.0053, None),
        ("cifar10", "wrn", 100, "mc-dropout", "tta", "calibrated_brier"): (0.053, None),
        ("cifar100", "vgg16-bn", 100, "mean-field-vi", "tta", "error"): (0.2371, None),
        ("cifar100", "preresnet-164", 100, "laplace", "tta", "calibrated_nll"): (0.740, None),
        ("cifar100", "wrn", 100, "deep-ensemble", "tta", "calibrated_aurc"): (0.0330, None),
        ("imagenet", "resnet50", 7, "deep-ensemble", "tta", "calibrated_nll"): (0.817, None),
        ("imagenet", "resnet50", 40, "mean-field-vi", "tta", "calibrated_nll"): (0.807, None),
        ("imagenet", "resnet50", 50, "deterministic", "tta", "error"): (0.2106, None),
        ("imagenet", "resnet50", 50, "deep-ensemble", "tta", "calibrated_aurc"): (0.0544, None),
    }.items():
        assert numbers[key] == pytest.approx(expected), key
    # P gives no dropout to PreResNets, no snapshot ensemble to WideResNet, and 50 samples of ImageNet to few methods
    assert ("cifar10", "preresnet", 100, "mc-dropout", "", "error") not in numbers
    assert ("cifar100", "wrn", 100, "snapshot-ensemble", "tta", "error") not in numbers
    assert ("imagenet", "resnet50", 50, "fge", "", "error") not in numbers
    assert {n.method for n in shipped} <= set(METHODS.names())
    assert {(n.task == "imagenet", n.samples) for n in shipped} == {(False, 100), (True, 7), (True, 40), (True, 50)}


def test_published_scores_agree_with_each_other() -> None:
    """One network is worse than the ensembles of its kind, by every score, and views help it (P §4.3)."""
    numbers = published_numbers("ensembles")
    by = {(n.task, n.network, n.samples, n.setting, n.metric, n.method): n.value for n in numbers}
    for (*row, method), value in by.items():
        task, network, samples, setting, metric = row
        if method == "deterministic":
            assert value > by[(*row, "deep-ensemble")], row
            assert setting == "tta" or value >= by[task, network, samples, "tta", metric, method], row


def test_the_papers_networks_are_the_defaults_of_ours() -> None:
    made = {"vgg16-bn": vgg16_bn, "preresnet": preresnet, "preresnet-164": preresnet_164, "wrn": wrn}
    made["resnet50"] = resnet50
    assert set(made) == set(NETWORKS)
    for name, make in made.items():
        defaults = make.__kwdefaults__
        for argument, value in NETWORKS[name][1].items():
            assert defaults[argument] == (tuple(value) if isinstance(value, list) else value)
        # as a manifest states them, with every default: PreResNets were no networks of P's before, for block = None
        assert network_of(task(name, "cifar10", arguments=describe(dict(defaults)))) == name
    assert network_of(task("preresnet", "cifar10", arguments={"depth": 110, "block": "bottleneck"})) is None


@pytest.mark.parametrize(("factor", "outcome"), [(1.04, "within"), (1.2, "worse"), (0.8, "better")])
def test_ours_are_compared_on_the_complete_data(factor: float, outcome: str) -> None:
    example = ours({name: factor * value for name, value in P_ORDER.items()})
    compared = [each for each in agreements(example) if each.published.metric == "calibrated_nll"]
    assert [each.outcome for each in compared] == [outcome] * 9
    assert {each.published.method: each.difference for each in compared}["swag"] == pytest.approx((factor - 1) * 0.152)
    assert {each.published.metric for each in agreements(example)} == {
        "error", "calibrated_nll", "calibrated_brier", "calibrated_aurc",
    }  # fmt: skip
    table = numbers_table(example, styles(example))
    assert table is not None
    assert len(table.rows) == 9
    swag = next(row for row in table.rows if row.title == "swag")
    assert [cell.text for cell in swag.cells][3:5] == [f"{factor * 0.152:.3f}", "0.152"]
    assert [cell.text for cell in swag.cells][1] == "5.04"  # per cent
    sentence = numbers_sentence(example)
    assert "45,000 of 50,000 images; 5,000 are held out" in sentence
    assert f"within {CLOSE:.0%}" in sentence


@pytest.mark.parametrize(
    "about",
    [
        {"images": (4_000, 1_000, 10_000)},
        {"images": (45_000, 5_000, 2_000)},
        {"network": "vgg-small"},
        {"arguments": {"base": 16}},
    ],
)
def test_a_part_of_the_data_or_another_network_has_no_comparable_number(about: dict[str, Any]) -> None:
    example = ours(P_ORDER, **about)
    assert agreements(example) == ()
    assert numbers_table(example, styles(example)) is None
    assert "cannot be compared" in incomparable_sentence(example)
    assert order_of(example) is not None


def test_a_number_needs_the_same_samples_and_no_variant() -> None:
    example = ours(P_ORDER)
    assert {each.published.method for each in agreements(example)} == set(P_ORDER)
    fewer = replace(example, curves=tuple(
        replace(each, sizes=SIZES[:-1], values=each.values[:, :-1]) if each.name == "swag" else each
        for each in example.curves
    ))  # fmt: skip
    assert {each.published.method for each in agreements(fewer)} == set(P_ORDER) - {"swag"}
    variant = curve("laplace-last", [[0.2] * 6] * 3, sizes=SIZES, registered="laplace", settings={"structure": "last"})
    again = replace(example, curves=(variant, *example.curves))
    laplace = [each.published.method for each in agreements(again) if each.published.method == "laplace"]
    assert laplace == ["laplace"] * 4  # once for every score
    assert is_complete(example.task)
    assert network_of(task("preresnet", "cifar10", arguments={"depth": 110})) == "preresnet"
    assert network_of(task("preresnet", "cifar10", arguments={"depth": 20})) is None


def test_orders_are_compared_by_kendalls_tau_and_name_the_significantly_reversed_pairs() -> None:
    values = {**P_ORDER, "swag": 0.14, "fge": 0.151, "laplace": 0.25}
    example = ours(values, network="vgg-small", images=(3_600, 400, 2_000))
    order = order_of(example)
    assert order is not None
    assert order.network == "vgg16-bn"
    assert (order.samples, order.published_samples) == (example.compared_samples, 100)
    expected = kendalltau([values[name] for name in P_ORDER], list(P_ORDER.values())).statistic
    assert order.values.tau == pytest.approx(expected)
    assert {frozenset(pair) for pair in order.values.swapped} == {
        frozenset(pair)
        for pair in [("swag", "csgld"), ("swag", "fge"), ("laplace", "mc-dropout"), ("laplace", "deterministic")]
    }
    assert set(order.significant) == set(order.values.swapped)  # a spread of 0.001
    table = order_table(example, order, styles(example))
    assert [row.title for row in table.rows] == list(P_ORDER)
    assert table.rows[4].cells[0].text == "5"
    assert table.rows[4].cells[1].text == "3"
    assert "VGG16, CIFAR-10" in table.caption
    assert "swag before csgld" in order_sentence(example, order)
    unsure = order_of(ours(values, wobble=0.5, network="vgg-small"))
    assert unsure is not None
    assert unsure.significant == ()
    assert len(unsure.values.swapped) == 4
    assert "none of them significantly different" in order_sentence(example, unsure)
    once = replace(example, curves=tuple(replace(own, values=own.values[:1]) for own in example.curves))
    assert "none of them judged here, because methods were trained once" in order_sentence(once, unsure)
    first = unsure.values.swapped[0]
    kept = replace(once, curves=tuple(
        example.by_name[own.name] if own.name in first else own for own in once.curves
    ))  # fmt: skip
    assert ", 1 of them judged here, none significantly different" in order_sentence(kept, unsure)


def augmented(values: dict[str, float], **about: Any) -> Study:
    """The same, each method also with views, by which it gains a tenth; of one network as many as samples."""
    plain = ours(values, **about)
    viewed = [
        curve(f"{each.name}-views", [[0.9 * values[each.name]] * len(SIZES)] * 3, sizes=SIZES, base=each.name,
              role=each.role)
        for each in plain.curves
    ]  # fmt: skip
    return replace(plain, curves=(*plain.curves, *viewed))


def test_augmented_methods_are_compared_with_the_augmented_ones_of_the_paper() -> None:
    """P, Table 7: VGG16 on CIFAR-10."""
    example = augmented(P_ORDER)
    compared = {(a.published.method, a.published.setting, a.published.metric): a for a in agreements(example)}
    assert len(compared) == 2 * 4 * 9
    single = compared["deterministic", "tta", "calibrated_nll"]
    assert (single.published.value, single.ours.mean) == (0.170, pytest.approx(0.9 * 0.229))
    table = numbers_table(example, styles(example))
    assert table is not None
    assert [row.title for row in table.rows[-9:]] == [f"{name}-views" for name in dict.fromkeys(
        a.published.method for a in agreements(example)
    )]  # fmt: skip
    order = order_of(example, "tta")
    assert order is not None
    published = {
        "deterministic": 0.170, "deep-ensemble": 0.139, "snapshot-ensemble": 0.138, "csgld": 0.146, "fge": 0.150,
        "swag": 0.152, "mc-dropout": 0.171, "mean-field-vi": 0.160, "laplace": 0.164,
    }  # fmt: skip
    assert dict(order.values.after) == {f"{name}-views": value for name, value in published.items()}
    expected = kendalltau([P_ORDER[name] for name in published], list(published.values())).statistic
    assert order.values.tau == pytest.approx(expected)
    assert ", with test-time augmentation here (vgg16-bn" in order_sentence(example, order)
    rows = [row for row in published_rows(example) if row[3:6] == ("swag", 1, "calibrated_nll")]
    assert [(row[9], row[10]) for row in rows] == [(0.152, 1), (0.152, 0)]
    assert json.loads(json.dumps(published_document(example)))["order_augmented"]["network"] == "vgg16-bn"


def test_imagenet_is_compared_at_each_number_of_samples_and_ordered_where_most_methods_are() -> None:
    """P, Table 6: seven samples of every method, 50 of some."""
    sizes = (1, 2, 3, 5, 7, 40, 50)
    names = ("deterministic", "deep-ensemble", "snapshot-ensemble", "fge", "mean-field-vi", "laplace")
    curves = [curve(name, [[0.9 + 0.01 * k] * len(sizes)] * 3, sizes=sizes) for k, name in enumerate(names)]
    example = study(*curves, of=task("resnet50", "imagenet", (1_153_050, 128_117, 50_000)))
    counts = [(a.published.method, a.published.samples) for a in agreements(example) if a.published.metric == "error"]
    assert len(counts) == 3 + 3 + 1 + 2 + 3 + 3
    order = order_of(example)
    assert order is not None
    assert order.published_samples == 7
    assert order.values.after["snapshot-ensemble"] == 0.852
    table = numbers_table(example, styles(example))
    assert table is not None
    assert "snapshot-ensemble, 7 samples" in [row.title for row in table.rows]


def test_a_smaller_network_has_the_order_of_its_own_family() -> None:
    example = ours(P_ORDER, network="preresnet", arguments={"depth": 20, "block": None}, images=(4_000, 1_000, 2_000))
    order = order_of(example)
    assert order is not None
    assert order.network == "preresnet"
    assert order.values.after["swag"] == 0.126
    assert "preresnet (depth = 20" in incomparable_sentence(example)


def test_other_data_and_few_methods_have_no_order_to_compare() -> None:
    example = ours(P_ORDER)
    other = replace(example, task=task("vgg16-bn", "pictures"))
    assert order_of(other) is None
    assert incomparable_sentence(other) == ""
    assert list(published_blocks(other, styles(other))) == []
    assert order_of(ours({"swag": 0.1, "fge": 0.2})) is None
    blocks = list(published_blocks(example, styles(example)))
    assert [type(block).__name__ for block in blocks] == ["Headline", "Table", "Text", "Table", "Text"]


def test_the_table_of_both_says_what_can_be_compared() -> None:
    rows = list(published_rows(ours(P_ORDER)))
    numbers = [row for row in rows if row[-1] == 1]
    assert len(numbers) == 36
    assert len(rows) == 36 + 9
    single = next(row for row in numbers if row[3:6] == ("deterministic", 0, "calibrated_nll"))
    assert single[6:8] == (1, 100)
    assert float(str(single[8])) == pytest.approx(single[9])
    assert {row[-1] for row in published_rows(ours(P_ORDER, network="vgg-small"))} == {0}


def test_the_document_holds_both() -> None:
    document = json.loads(json.dumps(published_document(ours(P_ORDER)), allow_nan=False))
    assert len(document["numbers"]) == 36
    assert document["order_augmented"] is None
    assert document["order"]["kendall_tau"] == 1.0
    assert document["order"]["reversed"] == []
