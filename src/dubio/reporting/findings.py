"""What came out, in plain words: sentences made of numbers, that claim no more than the runs can tell."""

from __future__ import annotations

from dataclasses import dataclass

from dubio.reporting.aggregate import Cell, average_over, cell_text, decimals
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name, referral_name
from dubio.reporting.results import Results
from dubio.reporting.wording import counted, listed, number, told_apart_in_digits
from dubio.statistics.verdicts import Verdict

KEPT = 0.8
"""The fraction retained that the referral sentence speaks of."""


@dataclass(frozen=True)
class Finding:
    """What is said of a task, the most important sentence first; ``aside`` marks what is not about one task."""

    head: str
    texts: tuple[str, ...]
    aside: bool = False


def findings(results: Results) -> list[Finding]:
    """Everything worth saying first, task by task, then across tasks."""
    found = []
    for task in results.manifest.tasks:
        texts = (_best(results, task), _referral(results, task), _foreign(results, task), _spoilt(results, task))
        said = tuple(text for text in texts if text)
        found.append(Finding(task.key, said or ("No run of this task came to its end.",)))
    return [*found, *_across(results), *_failed(results)]


def reading(results: Results) -> str:
    """How the sentences are to be read."""
    return (
        "Two methods are told apart only where their difference exceeds what the spread over runs and, for metrics "
        "that are means over examples, over test examples leaves open: a t-test at 5 % over all pairs (Bonferroni), in "
        "which single fits share one variance over runs and ensembles of a size another. "
        "Not distinguishable does not mean equal; it means that these data do not decide. "
        f"Spreads are standard deviations over {_repeated(len(results.manifest.seeds))}."
    )


def _repeated(seeds: int) -> str:
    """What was repeated, so that something could spread."""
    if seeds == 1:
        return "the members trained; with one seed an ensemble has none"
    return f"{counted(seeds, 'seed')} (and, for single fits, over all members trained)"


def leader(results: Results, task: TaskView) -> str | None:
    """The method with the lowest calibrated nll."""
    cells = results.cells_of(task, task.of_kind("id")[0].name, RANKED_BY)
    known = {name: cell for name, cell in cells.items() if cell.n}
    return min(known, key=lambda name: known[name].mean) if known else None


def _title(results: Results, name: str) -> str:
    return next(method.title for method in results.manifest.methods if method.name == name)


def _best(results: Results, task: TaskView) -> str:
    """Which method has the best calibrated nll, and whether the next can be told from it."""
    split = task.of_kind("id")[0].name
    cells, verdicts = results.cells_of(task, split, RANKED_BY), results.verdicts(task, split, RANKED_BY)
    if not verdicts:
        return ""
    order = sorted(verdicts, key=lambda name: cells[name].mean)
    hits, fits = results.unsettled.get((task.key, order[0]), (0, 0))
    if fits and hits == fits:
        return (
            f"Calibrated NLL cannot rank here: with {_title(results, order[0])} no temperature has a finite optimum, "
            "because hardly anything in this test set is misclassified. Harder or more examples would tell."
        )
    value = cell_text(cells[order[0]], decimals(cells.values()))
    start = f"{_title(results, order[0])} has the lowest calibrated NLL, {value}"
    return f"{start}; it is the only method." if len(order) == 1 else f"{start}. {_standing(results, order, verdicts)}"


def _standing(results: Results, order: list[str], verdicts: dict[str, Verdict]) -> str:
    """How far the others are from the best, as far as the data can tell."""
    tied = [name for name in order[1:] if verdicts[name].place == "tied"]
    second, ahead = _title(results, order[1]), verdicts[order[1]]
    if any(verdict.place == "unjudged" for verdict in verdicts.values()):
        return "With one run a method there is no spread to judge the differences by."
    far, resolves = told_apart_in_digits(ahead.difference, ahead.resolves or 0.0)
    gap = f"the next, {second}, is {far} behind"
    if not tied:
        return f"It is distinguishable from every other method: {gap}, and {resolves} would have been enough."
    if len(tied) == len(order) - 1:
        return f"No other method can be told from it on these data: {gap}, where {resolves} would be resolved."
    names = listed([_title(results, name) for name in tied])
    behind = len(order) - 1 - len(tied)
    return f"{names} cannot be told from it; the other {number(behind)} can, and {_are(behind)} behind."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _referral(results: Results, task: TaskView) -> str:
    """What referring the most uncertain fifth brings, against referring at random."""
    split, best = task.of_kind("id")[0].name, leader(results, task)
    if best is None:
        return ""
    kept = results.cells_of(task, split, referral_name("referral_accuracy", KEPT)).get(best)
    whole = results.cells_of(task, split, referral_name("referral_accuracy", 1.0)).get(best)
    if kept is None or whole is None:
        return ""
    return (
        f"Referring its most uncertain {1 - KEPT:.0%} takes accuracy on the rest from {cell_text(whole)} to "
        f"{cell_text(kept)}; referring as many at random would leave it where it is."
    )


def _foreign(results: Results, task: TaskView) -> str:
    """How well examples from elsewhere are told from those of home, the best mean against the reference method."""
    name, reference = detection_name("ood_auroc", HEADLINE), results.manifest.reference(task)
    parts = []
    graded = {split for splits in task.severities.values() for split in splits}
    for split in task.of_kind("ood", "shift"):
        cells = {method: cell for method, cell in results.cells_of(task, split.name, name).items() if cell.n}
        if not cells or split in graded:
            continue
        best = max(cells, key=lambda method, cells=cells: cells[method].mean)  # type: ignore[misc]
        text = f"“{split.name}”: AUROC {cell_text(cells[best])} at best ({_title(results, best)})"
        if reference in cells and reference != best:
            text += f", {cell_text(cells[reference])} with {_title(results, reference)}"
        parts.append(text)
    return f"Told from home by {HEADLINE}, where 0.5 is a coin: {'; '.join(parts)}." if parts else ""


def _spoilt(results: Results, task: TaskView) -> str:
    """What the worst severity of each corruption does to the leader's accuracy."""
    best = leader(results, task)
    if best is None or not task.severities:
        return ""
    home = results.cells_of(task, task.of_kind("id")[0].name, "accuracy")[best]
    if task.many_corruptions:
        names = [splits[-1].name for splits in task.severities.values()]
        mean = average_over(results.cells, task.key, names, best, "accuracy")
        told = f"{cell_text(home)} to {cell_text(mean)}, the mean over {counted(len(names), 'corruption')}"
        return "" if mean is None else f"At the worst severity its accuracy falls from {told}."
    worst: dict[str, Cell | None] = {
        base: results.cells_of(task, splits[-1].name, "accuracy").get(best) for base, splits in task.severities.items()
    }
    parts = [f"{cell_text(cell)} under {base}" for base, cell in worst.items() if cell is not None]
    return f"At the worst severity its accuracy falls from {cell_text(home)} to {listed(parts)}." if parts else ""


def _across(results: Results) -> list[Finding]:
    """Whether one method leads everywhere; said only of several tasks."""
    scored = [task for task in results.manifest.tasks if results.methods_of(task)]
    if len(scored) < 2:
        return []
    leading: dict[str, int] = {}
    for task in scored:
        for name, verdict in results.verdicts(task, task.of_kind("id")[0].name, RANKED_BY).items():
            leading[name] = leading.get(name, 0) + (verdict.place in ("best", "tied"))
    always = [_title(results, name) for name, count in leading.items() if count == len(scored)]
    if always:
        text = f"{listed(always)} {_are(len(always))} best or not distinguishable from the best on every task"
    else:
        text = "No method is best, or not distinguishable from the best, on every task"
    more = "" if len(scored) >= 5 else f"; {counted(len(scored), 'task')} are too few to rank methods in general"
    return [Finding("All tasks", (f"{text}{more}.",), aside=True)]


def _failed(results: Results) -> list[Finding]:
    count = len(results.failures)
    if not count:
        return []
    text = f"{counted(count, 'thing').capitalize()} failed, and the report says why; the tables hold what is there."
    return [Finding("Not complete", (text,), aside=True)]
