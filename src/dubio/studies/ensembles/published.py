"""Our numbers beside those of P: numbers where the network, the data and the samples are P's, else the order alone.

The numbers are in ``published.csv``: Tables 4–6 of P and, for test-time augmentation, Tables 7–9. A number of ours is
compared with P's only where it was made from the complete published data set: all its training images, used for
training or for validation, and all its test images. On a part of the data, or with another network, no number can be
expected to agree; the order of methods can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.section import Block, Headline, Text
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.reporting.wording import counted
from dubio.studies.ensembles.curve_figures import Styles
from dubio.studies.ensembles.paper_tables import SCORES, PaperScore
from dubio.studies.ensembles.rank_agreement import RankAgreement, tau_phrase
from dubio.studies.ensembles.study import SampleCurve, Study
from dubio.studies.published_numbers import Agreement, PublishedNumber, paper_of, published_numbers

CLOSE = 0.05
"""Differences up to this share of the published value count as agreement."""

FEWEST = 3
"""Methods that an order needs."""

PAPER = paper_of("ensembles")

CORPORA: Mapping[str, tuple[str, int, int]] = PAPER["corpora"]
"""Task → P's name of it, and its published numbers of training and test images."""

NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = PAPER["networks"]
"""Network → P's name of it, and the arguments with which it is P's; they are the defaults."""

STAND_IN = "vgg16-bn"
"""The network of P whose order is compared with that of a network of a family that P does not have."""

SETTINGS = {"": "", "tta": ", with test-time augmentation"}
"""Setting of a published number → how sentences and captions call it."""

SOURCE = (
    f"{PAPER['source']}. Numbers are compared only where network, number of samples and images are those of the paper; "
    "otherwise only the order of methods is compared."
)

PUBLISHED = ("task", "network", "published_network", "method", "augmented", "measure", "samples", "published_samples",
             "value", "published", "comparable")  # fmt: skip
"""Columns of the table that is written beside the page."""


@dataclass(frozen=True, eq=False)
class PublishedOrder:
    """The same methods here and in P, by calibrated NLL.

    Attributes:
        setting: With or without test-time augmentation, see :data:`SETTINGS`.
        network: P's network.
        samples: The number of samples here.
        published_samples: The number of samples in P.
        values: Values here (before), and in P (after).
        significant: The reversed pairs that differ significantly here.
    """

    setting: str
    network: str
    samples: int
    published_samples: int
    values: RankAgreement
    significant: tuple[tuple[str, str], ...]


def corpus_of(task: TaskView) -> str:
    """Return the registered name of the data set."""
    return task.corpus or task.name


def is_complete(task: TaskView) -> bool:
    """Return whether a task has every published training image, also if held out, and every published test image."""
    training_images = sum(split.examples for split in task.of_kind("train", "val", "cal"))
    return [training_images, task.in_domain.examples] == list(CORPORA.get(corpus_of(task), ())[1:])


def network_of(task: TaskView) -> str | None:
    """Return the name of P's network that a task has; None for another, or for the same with other arguments."""
    _, own = NETWORKS.get(task.network, ("", None))
    stated = {key: value for key, value in task.network_arguments.items() if value is not None}
    return task.network if own is not None and stated.items() <= own.items() else None


def curves_of(study: Study, setting: str) -> dict[str, SampleCurve]:
    """Return registered name → the method as it is in a setting: no variant of it but for its views."""
    plain = [curve for curve in study.curves if not curve.augmented and not curve.method.settings]
    curves = {curve.name: curve for curve in plain if curve.name == curve.method.registered}
    if setting == "tta":
        pairs = {name: study.with_augmentation(curve) for name, curve in curves.items()}
        curves = {name: curve for name, curve in pairs.items() if curve is not None}
    return curves


def agreements(study: Study) -> tuple[Agreement, ...]:
    """Return the published numbers that can be compared, each with ours."""
    if not is_complete(study.task):
        return ()
    curves = {setting: curves_of(study, setting) for setting in SETTINGS}
    return tuple(
        Agreement(number, cell, CLOSE * number.value)
        for number in _numbers_of(study, network_of(study.task))
        if number.method in curves[number.setting]
        if (cell := curves[number.setting][number.method].at(number.metric, number.samples)) is not None
    )


def _numbers_of(study: Study, network: str | None) -> list[PublishedNumber]:
    """Return P's numbers on the same data set with one of its networks."""
    key = corpus_of(study.task), network
    return [number for number in published_numbers("ensembles") if (number.task, number.network) == key]


def order_of(study: Study, setting: str = "") -> PublishedOrder | None:
    """Return the order of methods here and in P on the same data set; None for other data or too few methods.

    P's network is the study's own, whatever its arguments, or :data:`STAND_IN` where P has none of its family. Of
    several numbers of samples in P, it is the one with most methods.
    """
    network = study.task.network if study.task.network in NETWORKS else STAND_IN
    curves = curves_of(study, setting)
    published: dict[int, dict[str, float]] = {}
    for number in _numbers_of(study, network):
        if (number.metric, number.setting) == (RANKED_BY, setting) and number.method in curves:
            published.setdefault(number.samples, {})[curves[number.method].name] = number.value
    if not published:
        return None
    samples = max(published, key=lambda count: (len(published[count]), count))
    cells = study.cells(curves.values())
    values = RankAgreement.of({name: cell.mean for name, cell in cells.items()}, published[samples])
    if len(values.after) < FEWEST:
        return None
    judged = {name: cell for name, cell in cells.items() if study.by_name[name].role != "deep_ensemble"}
    significant = tuple(pair for pair in values.swapped if study.differ(judged, pair))
    return PublishedOrder(setting, network, study.compared_samples, samples, values, significant)


def orders_of(study: Study) -> list[PublishedOrder]:
    """Return the order of methods without and with augmentation, where it can be compared."""
    return [order for setting in SETTINGS if (order := order_of(study, setting)) is not None]


def published_blocks(study: Study, styles: Styles) -> Iterator[Block]:
    """Yield the comparison of one task with P; nothing where P has no counterpart."""
    numbers, orders = numbers_table(study, styles), orders_of(study)
    if numbers is None and not orders:
        return
    yield Headline(study.task.key)
    if numbers is not None:
        yield numbers
    if sentence := incomparable_sentence(study) if numbers is None else numbers_sentence(study):
        yield Text(sentence, "small")
    for order in orders:
        yield order_table(study, order, styles)
        yield Text(order_sentence(study, order), "small")


def numbers_table(study: Study, styles: Styles) -> Table | None:
    """Return ours, the published value and the difference for every score of P; None where nothing is comparable."""
    compared: dict[tuple[str, int], dict[str, Agreement]] = {}
    for agreement in agreements(study):
        number = agreement.published
        curve = curves_of(study, number.setting)[number.method]
        compared.setdefault((curve.name, number.samples), {})[number.metric] = agreement
    scores = [score for score in SCORES if any(score.measure in row for row in compared.values())]
    columns = tuple(
        Column(score.title.partition(" (negative")[0], sub, arrow, unranked=True)
        for score in scores
        for sub, arrow in (("ours", "↓"), ("published", "↓"), ("difference", ""))
    )
    rows = []
    several = len({samples for _, samples in compared}) > 1
    for (name, samples), row in compared.items():
        cells = [cell for score in scores for cell in _three_cells(row.get(score.measure), score)]
        title = study.by_name[name].title + (f", {samples} samples" if several else "")
        rows.append(Row(title, tuple(cells), styles[name]))
    caption = f"Difference: ours minus published; within: at most {CLOSE:.0%} of the published value apart"
    return Table(columns, tuple(rows), caption) if compared else None


def _three_cells(agreement: Agreement | None, score: PaperScore) -> tuple[TableCell, ...]:
    if agreement is None:
        return EMPTY, EMPTY, EMPTY
    places, ours = score.places, agreement.ours
    spread = "(1 run)" if ours.std is None else f"± {score.factor * ours.std:.{places}f}"
    cell = TableCell(f"{score.factor * ours.mean:.{places}f}", spread, f"{ours.mean:.9g}", "unranked")
    return cell, *agreement.cells(places, score.factor)


def numbers_sentence(study: Study) -> str:
    """Return how many numbers agree, and which images they were trained on."""
    compared = agreements(study)
    near = sum(agreement.outcome == "within" for agreement in compared)
    trained = sum(split.examples for split in study.task.of_kind("train"))
    title, images, _ = CORPORA[corpus_of(study.task)]
    unused = f"; {images - trained:,} are held out for validation, P trains on all" if trained < images else ", as in P"
    return (
        f"{near} of {len(compared)} published numbers of {NETWORKS[study.task.network][0]} on {title} agree within "
        f"{CLOSE:.0%}. Trained here on {trained:,} of {images:,} images{unused}."
    )


def order_table(study: Study, order: PublishedOrder, styles: Styles) -> Table:
    """Return methods in P's order, with their ranks and values here and there."""
    here, there = order.values.ranks()
    rows = []
    for name in order.values.names:
        ours, published = order.values.before[name], order.values.after[name]
        ranks = [TableCell(f"{rank:g}", sort_key=f"{rank:g}") for rank in (there[name], here[name])]
        values = [TableCell(f"{v:.3f}", sort_key=f"{v:.9g}", place="unranked") for v in (published, ours)]
        rows.append(Row(study.by_name[name].title, (*ranks, *values), styles[name]))
    columns = (
        Column("Rank", "in P"),
        Column("Rank", "here"),
        Column("Calibrated NLL", f"in P, {order.published_samples} samples", "↓", unranked=True),
        Column("Calibrated NLL", f"here, {order.samples} samples", "↓", unranked=True),
    )
    sides = f"here ({study.task.network}) and in P ({_setup(study, order)})"
    caption = f"Order by calibrated NLL, on each side at one number of samples{SETTINGS[order.setting]}: {sides}"
    return Table(columns, tuple(rows), caption)


def order_sentence(study: Study, order: PublishedOrder) -> str:
    """Return how well the two orders agree, and the reversed pairs that differ significantly here."""
    title = {curve.name: curve.title for curve in study.curves}
    pairs = [f"{title[worse]} before {title[better]}" for better, worse in order.significant]
    detail = f"; significantly different here: {'; '.join(pairs)}" if pairs else ""
    if order.values.swapped and not pairs:
        detail = _undecided(study, order.values.swapped)
    methods = f"{counted(len(order.values.after), 'method')}{SETTINGS[order.setting]}"
    return (
        f"Order of {methods} here ({study.task.network}, {order.samples} samples) "
        f"and in P ({_setup(study, order)}, {order.published_samples} samples): {tau_phrase(order.values.tau)}; "
        f"{len(order.values.swapped)} of {order.values.pairs} pairs are reversed{detail}."
    )


def _undecided(study: Study, reversed_pairs: Sequence[tuple[str, str]]) -> str:
    """Return that no reversed pair differs significantly here, or that pairs cannot be judged: methods trained once."""
    once = {curve.name for curve in study.select("method") if len(curve.values) == 1}
    judged = [pair for pair in reversed_pairs if not once.intersection(pair)]
    if not judged:
        return ", none of them judged here, because methods were trained once"
    if len(judged) == len(reversed_pairs):
        return ", none of them significantly different here"
    return f", {len(judged)} of them judged here, none significantly different"


def incomparable_sentence(study: Study) -> str:
    """Return why a task's numbers are not compared with P's; empty where they are, or where P has no such data."""
    corpus = corpus_of(study.task)
    if corpus not in CORPORA:
        return ""
    stated = {key: value for key, value in study.task.network_arguments.items() if value is not None}
    arguments = ", ".join(f"{key} = {value}" for key, value in stated.items())
    called = f"{study.task.network} ({arguments})" if study.task.network in NETWORKS else study.task.network
    network = f"{called} is not one of P's networks" if network_of(study.task) is None else ""
    images = "" if is_complete(study.task) else f"the task is a part of {CORPORA[corpus][0]}"
    reasons = " and ".join(reason for reason in (network, images) if reason)
    return f"Its numbers cannot be compared with P's: {reasons}." if reasons else ""


def _setup(study: Study, order: PublishedOrder) -> str:
    return f"{NETWORKS[order.network][0]}, {CORPORA[corpus_of(study.task)][0]}"


def published_document(study: Study) -> dict[str, Any]:
    """Return P's numbers with ours where they can be compared, and the order of methods in both, as JSON."""
    numbers = [
        {
            "method": agreement.published.method,
            "augmented": agreement.published.setting == "tta",
            "measure": agreement.published.metric,
            "samples": agreement.published.samples,
            "ours": agreement.ours.mean if math.isfinite(agreement.ours.mean) else None,
            "published": agreement.published.value,
        }
        for agreement in agreements(study)
    ]
    plain, augmented = (order_of(study, setting) for setting in SETTINGS)
    return {"numbers": numbers, "order": _order_document(plain), "order_augmented": _order_document(augmented)}


def _order_document(order: PublishedOrder | None) -> dict[str, Any] | None:
    if order is None:
        return None
    return {
        "network": order.network,
        "samples": {"here": order.samples, "published": order.published_samples},
        "calibrated_nll": {"here": dict(order.values.before), "published": dict(order.values.after)},
        "kendall_tau": order.values.tau,
        "reversed": [list(pair) for pair in order.values.swapped],
        "reversed_and_significant": [list(pair) for pair in order.significant],
    }


def published_rows(study: Study) -> Iterator[tuple[object, ...]]:
    """Yield our values with the published ones: ``comparable`` is 0 where only their order can be compared."""
    task = study.task.key, study.task.network
    for agreement in agreements(study):
        number = agreement.published
        curve = curves_of(study, number.setting)[number.method]
        samples = min(curve.samples, number.samples), number.samples
        values = agreement.ours.mean, number.value
        yield (*task, number.network, number.method, int(curve.augmented), number.metric, *samples, *values, 1)
    for order in orders_of(study):
        for name in order.values.names:
            curve = study.by_name[name]
            samples = min(curve.samples, order.samples), order.published_samples
            values = order.values.before[name], order.values.after[name]
            method = curve.method.registered, int(curve.augmented)
            yield (*task, order.network, *method, RANKED_BY, *samples, *values, 0)
