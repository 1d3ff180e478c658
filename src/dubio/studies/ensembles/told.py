"""The study in sentences: what is seen in its figures, each with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dubio.reporting.wording import counted, listed
from dubio.statistics.ensemble_equivalent import Equivalent, EquivalentRange
from dubio.studies.ensembles.orders import Reordering, Taces
from dubio.studies.ensembles.scatters import Beside, coefficient
from dubio.studies.ensembles.study import Line, Study
from dubio.studies.ensembles.thresholded import SETTINGS


def equivalent_words(worth: EquivalentRange) -> str:
    """An equivalent with its bounds: ``3.2 networks (2.9 to 3.6)``."""
    central, lower, upper = (_number(part) for part in (worth.central, worth.lower, worth.upper))
    noun = "network" if central == "1.0" else "networks"
    return f"{central} {noun}" if lower == central == upper else f"{central} {noun} ({lower} to {upper})"


def _number(worth: Equivalent) -> str:
    return f"more than {worth.longest}" if worth.beyond else f"{worth.size:.1f}"


def signed(value: float, places: int = 3) -> str:
    """A change with its sign."""
    return f"{value:+.{places}f}".replace("-", "−")


def worth_order(study: Study, lines: Sequence[Line]) -> list[tuple[Line, EquivalentRange]]:
    """Methods with :attr:`Study.equal` samples by what they are worth, the most first; what has one sample has it."""
    found = [(line, study.equivalent_at(line, study.equal)) for line in lines]
    known = [(line, worth, line.at("calibrated_nll", study.equal)) for line, worth in found if worth is not None]
    ordered = sorted(known, key=lambda entry: np.inf if entry[2] is None else entry[2].mean)
    return [(line, worth) for line, worth, _ in ordered]


def worth_words(study: Study, lines: Sequence[Line]) -> str:
    """The order of methods by deep-ensemble equivalent with as many samples each."""
    told = [f"{line.title}: {equivalent_words(worth)}" for line, worth in worth_order(study, lines)]
    return f"With {study.equal} samples each, by calibrated NLL. {'; '.join(told)}." if told else ""


def curve_words(study: Study, lines: Sequence[Line]) -> str:
    """How much calibrated NLL falls from one sample to :attr:`Study.equal`, most and least."""
    falls = {}
    for line in lines:
        if study.equal in line.sizes and line.samples > 1:
            curve = line.mean("calibrated_nll")
            falls[line.method.title] = float(curve[line.sizes.index(study.equal)] - curve[0])
    if not falls:
        return ""
    ordered = sorted(falls.items(), key=lambda item: item[1])
    told = [f"{title} {signed(fall)}" for title, fall in ordered]
    return f"Change of calibrated NLL from one sample to {study.equal}: {', '.join(told)}."


def temperature_words(study: Study, lines: Sequence[Line]) -> str:
    """Between which bounds the best temperatures lie, with one sample and with many."""
    told = []
    for size in dict.fromkeys((1, study.equal)):
        found = [(cell.mean, line.method.title) for line in lines if (cell := line.at("temperature", size)) is not None]
        if found:
            (low, first), (high, last) = min(found), max(found)
            few = counted(size, "sample")
            told.append(f"with {few} from {low:.2f} ({first}) to {high:.2f} ({last})")
    return f"The best temperature lies {' and '.join(told)}." if told else ""


def reordering_words(found: Reordering, titles: Mapping[str, str], size: int) -> str:
    """How many pairs change their order, and which method moves most."""
    before, after = found.ranks()
    mover = max(after, key=lambda name: abs(before[name] - after[name]))
    moved = (
        f" The largest move is that of {titles[mover]}, from rank {before[mover]:g} to {after[mover]:g}."
        if before[mover] != after[mover]
        else ""
    )
    return (
        f"With {size} samples each, {len(found.swapped)} of {found.pairs} pairs change their order "
        f"({agreement_words(found.tau)}).{moved}"
    )


def agreement_words(tau: float | None) -> str:
    """How far two orders agree: Kendall's τ, where there is one."""
    return "Kendall's τ is not defined: all are tied" if tau is None else f"Kendall's τ = {signed(tau, 2)}"


def taces_words(found: Taces) -> str:
    """How often the order changes, who leads where, and how little two settings may agree."""
    titles = {line.name: line.method.title for line in found.lines}
    told = f"{len(set(SETTINGS))} settings give {counted(found.orders, 'order')} of {len(found.lines)} methods"
    if found.leaders:
        who = "alone is lowest in any" if len(found.leaders) == 1 else "are each lowest somewhere"
        told += f"; {listed([titles[name] for name in found.leaders])} {who}"
    least = found.least_agreement
    if least is None:
        return f"{told}. No two settings order the methods: all are tied."
    tau, *places = least
    sides = " and ".join(f"threshold {SETTINGS[at][0]:g} with {SETTINGS[at][1]} bins" for at in places)
    return f"{told}. The two that agree least, {sides}, have {agreement_words(tau)}."


def beside_words(panels: Sequence[Beside]) -> str:
    """The four correlations, and over how many points."""
    points = sum(len(each) for each in panels[0].x)
    told = [
        f"{panel.names[0]} with {panel.names[1]} {coefficient(panel.pearson)} (ranks {coefficient(panel.spearman)})"
        for panel in panels
    ]
    return f"Over {points:,} points (method, number of samples, run): {'; '.join(told)}."
