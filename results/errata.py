"""The page on what the errors of the papers' code did: every number measured, cells that were not run said to be so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from dubio.core.files import write_file
from dubio.metrics.metric import metric_named
from dubio.reporting.wording import listed
from dubio.studies.published_numbers import published_numbers
from results.pages import Page
from results.scoring_errata import (
    DOMAINS,
    MISTAKES,
    REPLICATES,
    SCORED,
    SPLITS,
    Effect,
    SplitEffect,
    domain_effects,
    scoring_effect,
    split_effect,
)
from results.stored import Runs, read_runs
from results.tables import interval_text, markdown_table
from results.training_errata import STUDIES, Change, Study, rows_within, training_changes
from results.writing import MARK, kept, sections_of, version_sentence

INTRODUCTION = (
    "The papers' formulas and code have errors (T: text classification, R: retina, P: pitfalls of ensembling; "
    "[sources](../sources.md)). dubio does the right thing under the plain name. This page switches the errors on "
    "again, one at a time, from the corrected base, and shows what each did to the numbers and, of the mistakes in "
    "scoring, to the order of methods."
)

ALL_OF_READING = "clinc-all"

ALL_OF_TEXTS = "clinc-all-fixed-batches"

NO_UNKNOWN = "clinc-no-unknown-token"

COMPARED = ("accuracy", "nll", "ood_auroc")
"""Scores of CLINC that T published."""

FEWEST = 3
"""Methods whose orders are compared."""

SWAP = "where two neighbours change places it falls to 0.67 with four methods, and to 0.33 with three."
"""With m methods it is 1 − 4/(m (m − 1)): one of m (m − 1)/2 pairs is reversed."""


@dataclass(frozen=True)
class ErrataSection:
    """A section of the page: its heading, the tasks that it needs, and its lines."""

    heading: str
    tasks: tuple[str, ...]
    lines: Callable[[Runs], Iterator[str]]


def errata_sections() -> list[ErrataSection]:
    """Return the sections of the page in their order."""
    training = [ErrataSection(f"Mistakes in training: {s.title}", s.tasks, partial(_training, s)) for s in STUDIES]
    return [
        ErrataSection("Mistakes in scoring", (*SCORED, *DOMAINS), _scoring),
        *training,
        ErrataSection("Why CLINC's AUROCs are above the published ones", ("clinc", ALL_OF_TEXTS), _gap),
    ]


def write_errata(page: Page, store: Path, *, computes: bool = True) -> Path:
    """Write the page from a store.

    A section is written anew where the store has all its tasks; another one stays as the page has it. What a new
    section lacks is marked as not run.

    Args:
        page: The page.
        store: The store.
        computes: Whether scores of stored predictions that are not in the store yet are computed.
    """
    runs = read_runs(store, computes=computes)
    earlier = sections_of(page.path.read_text(encoding="utf-8")) if page.path.is_file() else {}
    lines = [f"# {page.title}", "", MARK.format(name=page.name), "", INTRODUCTION]
    for section in errata_sections():
        lines += ["", f"## {section.heading}", ""]
        if section.heading in earlier and not set(section.tasks) <= {task for task, _ in runs}:
            lines += kept(earlier[section.heading])
        else:
            lines += [version_sentence(), "", *section.lines(runs)]
    write_file(page.path, "\n".join(lines) + "\n")
    return page.path


def _scoring(runs: Runs) -> Iterator[str]:
    yield (
        "Both definitions on the same stored predictions, of the first training of every method. The change is "
        "the published minus the correct value, averaged over methods; τ is Kendall's rank correlation τ_b of the two "
        f"orders of methods: {SWAP} Intervals of 95 % are percentiles over {REPLICATES} test sets of resampled rows "
        "(patients, where rows have them). P's AURC is 1 − a sum of accuracies divided by 1,000, whatever their "
        "number. P's code computes it on halves of its test sets, of 5,000 or 25,000 images: there it adds 1,000 "
        "accuracies, as on the 2,000 rows here, and is about 0.001 too large, which is up to a third of the values "
        "that P prints for CIFAR. On the 4,500 rows of CLINC it adds 1,125 of them, and can be negative."
    )
    yield ""
    body = []
    for task in SCORED:
        for mistake in (mistake for mistake in MISTAKES if task in mistake.tasks):
            effect = scoring_effect(runs, task, mistake)
            body.append([mistake.title, task, *["not run"] * 4] if effect is None else _effect_row(effect))
    head = ["mistake", "task", "methods", "mean change", "τ_b of the orders", "best as published / correctly"]
    yield markdown_table(head, body)
    yield from _domains(runs)
    yield from _splits(runs)


def _domains(runs: Runs) -> Iterator[str]:
    """Say what T's index does where the other domain's texts are many more than the in-domain ones."""
    yield from ("", "### Detecting another domain with `~index` (T), Amazon", "")
    effects = [effect for task in DOMAINS for effect in domain_effects(runs, task)]
    if not effects:
        yield "Not run."
        return
    yield (
        "T's code puts the in-domain test reviews first and the 2,000 of the other domain after them. Its index then "
        "takes 2,000 rows from the beginning for in-domain ones: 400 are, the others are of the domain to be detected. "
        "AUROC by confidence, its mean over methods:"
    )
    yield ""
    body = [
        [effect.task, str(len(effect.methods)), *(f"{value:.3f}" for value in reversed(effect.means)),
         _order_text(len(effect.methods), effect.agreement)]
        for effect in effects
    ]  # fmt: skip
    yield markdown_table(["trained on → detected", "methods", "correctly", "by T's index", "τ_b of the orders"], body)
    yield ""
    yield domain_sentence([effect.means for effect in effects])


def domain_sentence(means: Sequence[tuple[float, float]]) -> str:
    """Return what the index leaves of the detection of other domains, and of T's conclusion about it.

    Args:
        means: Of every pair of domains the mean AUROC by T's index and the correct one.
    """
    sides = [f"{min(side):.2f} to {max(side):.2f}" for side in zip(*means, strict=True)]
    return (
        "T concludes that other domains are detected hardly better than by chance, with AUROCs of 0.50 to 0.54 (Fig. "
        f"6). By its index they are {sides[0]} here, correctly {sides[1]}. The index alone brings any AUROC across "
        "these domains close to 0.5: T's values do not show how well methods detect."
    )


def _effect_row(effect: Effect) -> list[str]:
    tau = _order_text(len(effect.methods), effect.agreement)
    published, correct = effect.leaders
    lead = correct if published == correct else f"{published} / {correct}"
    return [effect.mistake.title, effect.task, str(len(effect.methods)), interval_text(*effect.change), tau, lead]


def _order_text(methods: int, agreement: tuple[float, float, float] | None) -> str:
    """Return how two orders agree; two methods can only agree or not, which says nothing."""
    if methods < FEWEST:
        return f"fewer than {FEWEST} methods"
    return "all tied" if agreement is None else interval_text(*agreement, signed=False, places=2)


def _splits(runs: Runs) -> Iterator[str]:
    yield from ("", "### A calibration split without a seed (P)", "")
    yield (
        "P's code fits temperatures on random halves of the test set and draws these anew for every method. Here every "
        f"method gets halves of its own, {SPLITS} times over, beside one seeded set of halves that all methods share."
    )
    yield ""
    effects = [(task, split_effect(runs, task)) for task in SCORED]
    deviation = "sd of calibrated nll, median (largest)"
    head = ["task", "methods", deviation, "τ_b with the seeded order", "another method leads"]
    yield markdown_table(head, [_split_row(task, effect) for task, effect in effects])


def _split_row(task: str, effect: SplitEffect | None) -> list[str]:
    if effect is None:
        return [task, *["not run"] * 4]
    median, largest = effect.spread
    tau = _order_text(len(effect.methods), effect.agreement)
    others = f"{effect.other_leader:.0%} of splits"
    return [task, str(len(effect.methods)), f"{median:.4f} ({largest:.4f})", tau, others]


def _training(study: Study, runs: Runs) -> Iterator[str]:
    yield from (study.note, "") if study.note else ()
    body, counts = [], set()
    for title, task in study.mistakes.items():
        changes = training_changes(runs, study.base, task, study.metrics, study.methods)
        counts |= {change.mistaken.n for change in changes}
        for method in study.methods:
            own = {change.metric: change for change in changes if change.method == method}
            trainings = str(next(iter(own.values())).mistaken.n) if own else "0"
            body.append([title, method, trainings, *(change_text(own.get(metric)) for metric in study.metrics)])
    yield markdown_table(["mistake", "method", "runs", *(metric.replace("_", " ") for metric in study.metrics)], body)
    yield ""
    yield " ".join(["With the mistake, and the change it makes [95 % interval].", *interval_sentences(counts)])
    if study.beside:
        yield from ("", beside_sentence(study, runs))
    if NO_UNKNOWN in study.tasks:
        yield from _short_requests(runs)


def beside_sentence(study: Study, runs: Runs) -> str:
    """Return the scores of the method that a study is read beside: of the networks that its methods continue."""
    continued = {
        training
        for method in study.methods
        for stored in runs.get((study.base, method), {}).values()
        for training in stored.first_trainings
    }
    beside = runs.get((study.base, study.beside), {}).values()
    own = [stored.in_domain() for stored in beside if continued.issuperset(stored.first_trainings)]
    values = {name: np.mean([metric_named(name).compute(p) for p in own]) for name in study.metrics if own}
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in values.items())
    return f"These networks without draws ({study.beside}): {scores or 'not run'}."


def interval_sentences(counts: Collection[int]) -> Iterator[str]:
    """Yield what the intervals of a table mean, for the numbers of runs that its rows have."""
    if any(count > 1 for count in counts):
        several = "With several runs the interval is over" if 1 in counts else "Intervals are over"
        yield f"{several} trainings and test rows; bold: significant at 5 %, every cell by itself."
    if 2 in counts:
        yield (
            "Two runs leave one degree of freedom: their intervals are very wide, and may reach past what a score can "
            "be."
        )
    if 1 in counts:
        start = "With one run it is" if len(counts) > 1 else "They are"
        yield f"{start} over test rows alone, and nothing is bold: another training may reverse the sign."


def is_significant(change: Change) -> bool:
    """Return whether several trainings show the change, at 5 %."""
    return min(change.corrected.n, change.mistaken.n) > 1 and change.test.p < 0.05


def change_text(change: Change | None) -> str:
    """Return the score with a mistake and its change, in bold where several trainings show it."""
    if change is None:
        return "not run"
    text = f"{change.mistaken.mean:.3f}: {interval_text(change.test.difference, change.test.low, change.test.high)}"
    return f"**{text}**" if is_significant(change) else text


def _short_requests(runs: Runs) -> Iterator[str]:
    """Say what padding costs the requests that T's code drops, and the others."""
    longer = [stored.in_domain() for stored in runs.get((ALL_OF_READING, "deterministic"), {}).values()][:1]
    sides = [runs.get((task, "deterministic"), {}) for task in ("clinc", NO_UNKNOWN)]
    if not longer or not all(sides):
        return
    changes = []
    right_of = metric_named("accuracy").per_example
    assert right_of is not None, "accuracy is a mean over rows"
    for key in sides[0].keys() & sides[1].keys():
        right = [right_of(side[key].in_domain()) for side in sides]
        chosen = np.zeros(len(right[0]), dtype=bool)
        chosen[rows_within(longer[0], sides[0][key].in_domain())] = True
        difference = right[1] - right[0]
        changes.append([difference[~chosen].mean(), difference[chosen].mean()])
    short, others = np.mean(changes, axis=0)
    yield ""
    yield (
        "Short requests have most padding: with no unknown token it changes the accuracy of requests of fewer than "
        f"five words by {short:+.3f}, and that of the others by {others:+.3f} (deterministic, {len(changes)} "
        "trainings). Where short requests are dropped, this part of its cost is not seen."
    )


@dataclass(frozen=True)
class GapShare:
    """What mistakes take away of the gap between a method's AUROC and the published one.

    Attributes:
        method: The method.
        gap: How far its AUROC is above the published one.
        own: What the mistakes take away.
        low: The lower end of its interval of 95 %.
        high: The upper end.
        significant: Whether several trainings show it, at 5 %.
    """

    method: str
    gap: float
    own: float
    low: float
    high: float
    significant: bool

    @classmethod
    def of(cls, published: float, change: Change) -> GapShare:
        """Return the share that a change has in the gap to a published value."""
        test, gap = change.test, change.corrected.mean - published
        return cls(change.method, gap, -test.difference, -test.high, -test.low, is_significant(change))


def _gap(runs: Runs) -> Iterator[str]:
    """Answer how far the mistakes in reading and batching texts explain the gap of CLINC's AUROCs."""
    published: dict[str, dict[str, float]] = {}
    for number in published_numbers("text"):
        if number.task == "clinc" and number.metric in COMPARED:
            published.setdefault(number.method, {})[number.metric] = number.value
    body: list[list[str]] = []
    explained: list[GapShare] = []
    compared: dict[str, list[tuple[float, Change]]] = {metric: [] for metric in COMPARED}
    for method, values in published.items():
        changes = {c.metric: c for c in training_changes(runs, "clinc", ALL_OF_TEXTS, COMPARED, (method,))}
        if not changes:
            continue
        body.append([method, *(_three(values.get(metric), changes[metric]) for metric in COMPARED)])
        for metric in values:
            compared[metric].append((values[metric], changes[metric]))
        if "ood_auroc" in values:
            explained.append(GapShare.of(values["ood_auroc"], changes["ood_auroc"]))
    yield "Published / corrected here / with all mistakes in reading and batching texts here:"
    yield ""
    yield markdown_table(["method", *(metric.replace("_", " ") for metric in COMPARED)], body)
    yield ""
    yield distance_sentence(compared)
    yield ""
    yield gap_sentence(explained)


def distance_sentence(compared: Mapping[str, Sequence[tuple[float, Change]]]) -> str:
    """Return how far scores are from the published ones, as corrected and with the mistakes, on average over methods.

    Args:
        compared: Metric → published value and change of every method.
    """
    texts = []
    for metric, pairs in compared.items():
        distances = [(abs(v - c.corrected.mean), abs(v - c.mistaken.mean)) for v, c in pairs]
        if distances:
            corrected, mistaken = map(mean, zip(*distances, strict=True))
            closer = f"closer with {sum(after < before for before, after in distances)} of {len(pairs)} methods"
            texts.append(f"{metric.replace('_', ' ')} {corrected:.3f} → {mistaken:.3f} ({closer})")
    if not texts:
        return "No method was trained both ways."
    return f"Mean distance from the published values, as corrected → with the mistakes: {', '.join(texts)}."


def _three(published: float | None, change: Change) -> str:
    first = "–" if published is None else f"{published:.3f}"
    return f"{first} / {change.corrected.mean:.3f} / {change.mistaken.mean:.3f}"


def gap_sentence(explained: Sequence[GapShare]) -> str:
    """Return how much of the gap of AUROCs the mistakes explain, for every method with its interval.

    No mean over methods is stated: they share test rows, and one whose change is not significant would decide it.
    """
    order = (
        "The mistake in scoring, `~index`, is harmless on CLINC: out-of-scope requests come last, so that the index "
        "takes in-domain rows alone for in-domain ones. The published values are not stated in T's text, which shows "
        "them in figures; they are those given with T's released results."
    )
    if not explained:
        return f"{order} The share of the mistakes in reading and batching texts was not measured."
    above, below = [s for s in explained if s.gap > 0], [s.method for s in explained if s.gap <= 0]
    without = f"{listed(below)}: not above the published AUROC here, so that there is no gap." if below else ""
    if not above:
        return f"{order} {without}"
    shares = "; ".join(f"{interval_text(s.own, s.low, s.high)} of {s.gap:.3f} ({s.method})" for s in above)
    others = [share.method for share in above if not share.significant]
    sentences = [
        order,
        f"The mistakes in reading and batching texts explain {shares} of the gap in AUROC.",
        "In brackets are 95 % intervals of what they change; the published values, of a few runs, are taken as exact.",
        *(part_sentence(share) for share in above if share.significant),
        *([f"With {listed(others)} the change is not significant, and shows no share."] if others else ()),
        *([without] if without else ()),
        "Not the same here: three members of an ensemble instead of five, 30 epochs instead of 45, and a patience of 5 "
        "instead of 15.",
    ]
    return " ".join(sentences)


def part_sentence(share: GapShare) -> str:
    """Return the part of its gap that a significant change is, as the range that its interval leaves."""
    if share.own < 0:
        return f"With {share.method} they explain no gap."
    low, high = (round(100 * end / share.gap) for end in (share.low, share.high))
    rest = "the rest is not explained" if share.high < share.gap else "it may be all of it"
    return f"With {share.method} this is roughly {low} to {high} %: {rest}."
