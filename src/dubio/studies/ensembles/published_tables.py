"""Ours beside P's as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dubio.reporting.style import Style
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.reporting.wording import counted
from dubio.studies.ensembles.paper_tables import BLOCKS, Block
from dubio.studies.ensembles.published import (
    CLOSE,
    CORPORA,
    NETWORKS,
    Agreement,
    Order,
    agreements,
    corpus_of,
    network_of,
    order_of,
    whole,
)
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.told import agreement_words, signed

SOURCE = (
    "A. Ashukha, A. Lyzhov, D. Molchanov and D. Vetrov (2020), Pitfalls of In-Domain Uncertainty Estimation and "
    "Ensembling in Deep Learning, ICLR, Tables 4 and 5"
)
CONDITION = (
    "Numbers stand beside published ones only where the network is one of P's, the number of samples is the same, and "
    "all published images are there; else only the order of methods is compared."
)


def numbers_grid(study: Study, styles: Mapping[str, Style]) -> Table | None:
    """Ours, theirs and the difference of every score that P has; None where nothing can be compared."""
    found = agreements(study)
    if not found:
        return None
    names = dict.fromkeys(each.line.name for each in found)
    blocks = [block for block in BLOCKS if any(each.published.metric == block.measure for each in found)]
    columns = [
        Column(block.title.partition(" (negative")[0], sub, "↓" if sub != "difference" else "", unranked=True)
        for block in blocks
        for sub in ("ours", "published", "difference")
    ]
    by_place = {(each.line.name, each.published.metric): each for each in found}
    rows = tuple(
        Row(
            study.by_name[name].title,
            tuple(cell for block in blocks for cell in _three(by_place.get((name, block.measure)), block)),
            styles[name],
        )
        for name in names
    )
    caption = f"Difference: ours minus published; shaded: at most {CLOSE:.0%} of the published value"
    return Table(tuple(columns), rows, caption)


def _three(found: Agreement | None, block: Block) -> tuple[TableCell, TableCell, TableCell]:
    if found is None:
        return EMPTY, EMPTY, EMPTY
    places, ours, theirs = block.places, found.ours, found.published
    spread = "(1 run)" if ours.std is None else f"± {block.factor * ours.std:.{places}f}"
    return (
        TableCell(f"{block.factor * ours.mean:.{places}f}", spread, f"{ours.mean:.9g}", "unranked"),
        TableCell(
            f"{block.factor * theirs.value:.{places}f}",
            f"± {block.factor * theirs.std:.{places}f}",
            f"{theirs.value}",
            "unranked",
        ),
        TableCell(
            signed(block.factor * found.difference, places),
            found.outcome,
            f"{found.difference:.9g}",
            "tied" if found.outcome == "within" else "",
        ),
    )


def numbers_words(study: Study) -> str:
    """What the compared numbers were made of, and how many agree."""
    found = agreements(study)
    near = sum(each.outcome == "within" for each in found)
    trained = sum(split.examples for split in study.task.of_kind("train"))
    title, images, _ = CORPORA[corpus_of(study.task)]
    kept = images - trained
    validated = f", {kept:,} are kept back for validation; P trains on all" if kept else ", as in P"
    return (
        f"{near} of {len(found)} published numbers of {NETWORKS[study.task.network][0]} on {title} agree within "
        f"{CLOSE:.0%}. Here {trained:,} of {images:,} images are trained on{validated}."
    )


def order_grid(study: Study, order: Order, styles: Mapping[str, Style]) -> Table:
    """Methods in P's order, with their ranks and values on both sides."""
    here, there = order.values.ranks()
    rows = tuple(
        Row(
            study.by_name[name].title,
            (
                TableCell(f"{there[name]:g}", sort=f"{there[name]:g}"),
                TableCell(f"{here[name]:g}", sort=f"{here[name]:g}"),
                TableCell(f"{order.values.after[name]:.3f}", sort=f"{order.values.after[name]}", place="unranked"),
                TableCell(
                    f"{order.values.before[name]:.3f}", sort=f"{order.values.before[name]:.9g}", place="unranked"
                ),
            ),
            styles[name],
        )
        for name in order.values.names
    )
    columns = (
        Column("Rank", "in P"),
        Column("Rank", "here"),
        Column("Calibrated NLL", f"in P, {order.there} samples", "↓", unranked=True),
        Column("Calibrated NLL", f"here, {order.here} samples", "↓", unranked=True),
    )
    caption = f"Order by calibrated NLL at equal samples: here ({study.task.network}) and in P ({_where(study, order)})"
    return Table(columns, rows, caption)


def order_words(study: Study, order: Order) -> str:
    """How far the two orders agree, and which pairs are reversed beyond what the spread over runs leaves open."""
    text = (
        f"Order of {counted(len(order.values.after), 'method')} here ({study.task.network}, {order.here} samples) and "
        f"in P ({_where(study, order)}, {order.there} samples): {agreement_words(order.values.tau)}; "
        f"{len(order.reversed)} of {order.values.pairs} pairs are reversed"
    )
    if not order.reversed:
        return f"{text}."
    if not order.surely:
        return f"{text}, none of which the spread over runs tells apart here."
    pairs = [f"{study.by_name[worse].title} before {study.by_name[better].title}" for better, worse in order.surely]
    return f"{text}; told apart here by the spread over runs: {'; '.join(pairs)}."


def unlike_words(study: Study) -> str:
    """Why a task's numbers are not set beside P's; empty where they are, or where P has no such data."""
    if corpus_of(study.task) not in CORPORA:
        return ""
    reasons = []
    if network_of(study.task) is None:
        reasons.append(f"{study.task.network} is none of P's networks")
    if not whole(study.task):
        reasons.append(f"it is a part of {CORPORA[corpus_of(study.task)][0]}")
    return f"No number of it stands beside P's: {' and '.join(reasons)}." if reasons else ""


def published_part(studies: Sequence[Study], styles: Mapping[str, Mapping[str, Style]]) -> list[dict[str, Any]]:
    """What the page shows of every task that P has a counterpart of.

    Args:
        studies: The studies.
        styles: Task → how its methods are drawn.
    """
    found = []
    for study in studies:
        numbers, order = numbers_grid(study, styles[study.task.key]), order_of(study)
        if numbers is None and order is None:
            continue
        found.append(
            {
                "title": study.task.key,
                "numbers": numbers,
                "words": numbers_words(study) if numbers is not None else unlike_words(study),
                "order": None if order is None else order_grid(study, order, styles[study.task.key]),
                "order_words": "" if order is None else order_words(study, order),
            }
        )
    return found


def _where(study: Study, order: Order) -> str:
    return f"{NETWORKS[order.network][0]}, {CORPORA[corpus_of(study.task)][0]}"
