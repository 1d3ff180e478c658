"""Key findings: the most important results in sentences that claim no more than the runs support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dubio.reporting.detectors import CHANCE, detection_on
from dubio.reporting.leaderboard import (
    QUESTIONS,
    Leaderboard,
    in_domain_leaderboard,
    leader,
    leaderboard,
    not_ranked_sentences,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, RETAINED_SHARE, detection_name, referral_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell, cell_text, decimals
from dubio.reporting.section import Block, Card, Cards, Section, Text, section
from dubio.reporting.wording import counted, enough_digits, listed, named_few, number
from dubio.statistics.verdicts import ALPHA, Estimate, Verdict, holm, two_sided_p

TOO_COARSE = 0.25
"""A smallest detectable difference above this share of the best score says nothing about who is better."""


@section("findings", part="opening", order=10)
class Findings(Section):
    """The most important results of every task, and across tasks."""

    title = "Key findings"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield one card per task, one across tasks, and one about failures."""
        cards = [Card(item.key, task_findings(run, item)) for item in run.tasks]
        if across := across_finding(run):
            cards.append(Card("All tasks", (across,), aside=True))
        if run.failures:
            text = f"{counted(len(run.failures), 'step').capitalize()} failed; see the failures below for the reasons."
            cards.append(Card("Incomplete", (f"{text} The tables show everything else.",), aside=True))
        yield Cards(tuple(cards))
        yield Text(how_to_read(run), "small")

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the verdict of every method under the ranking metric, and where and why it cannot rank."""
        rows = [
            {"task": task.key, "metric": RANKED_BY, "method": method, "place": verdict.place,
             "difference": verdict.difference, "resolves": verdict.resolves, "p": verdict.p,
             "limit": board.limits.get(method), "question": board.pairs.question}
            for task in run.tasks
            if (board := in_domain_leaderboard(run, task, RANKED_BY)) is not None
            for method, verdict in board.pairs.against_best().items()
        ]  # fmt: skip
        sharp = {task.key: names for task in run.tasks if (names := run.scores.without_temperature(task))}
        return {"standing": rows, "without_temperature": sharp}


def task_findings(run: RunView, task: TaskView) -> tuple[str, ...]:
    """Return the sentences about one task, the most important first."""
    best = " ".join([best_method(run, task), *not_ranked_sentences(run, task)]).strip()
    texts = (
        baseline_ahead(run, task), best, referral_harm(run, task), referral_gain(run, task), detection(run, task),
        corruption(run, task),
    )  # fmt: skip
    return tuple(text for text in texts if text) or ("No run of this task was completed.",)


def how_to_read(run: RunView) -> str:
    """Return how significance and spreads are computed."""
    if run.question == "systems":
        return (
            f"{QUESTIONS['systems']} Two systems are significantly different if a paired t-test over test examples "
            "(groups, where there are any) at 5 %, corrected over all pairs (Holm), says so; for metrics without "
            "values per example, over bootstrap replicates. “Not significantly different” does not mean equal: these "
            "data do not decide. In brackets: 95 % intervals over the same units, exact for accuracy and bootstrapped "
            "for other scores."
        )
    seeds = len(run.manifest.seeds)
    repeated = f"{counted(seeds, 'seed')} (for single fits, over all members trained)"
    if seeds == 1:
        repeated = "the members trained; with one seed an ensemble has no spread"
    return (
        f"{QUESTIONS['methods']} Two methods are significantly different if a t-test at 5 %, corrected over all pairs "
        "(Holm), says so. Its variance includes that over trainings "
        "(repeated runs, or the members of an ensemble left out one at a time) and, for metrics with values per "
        "example, over test examples. A method that was trained once is not judged, unless the training data alone "
        "determines its fit (baselines). “Not significantly different” does "
        f"not mean equal: these data do not decide. Spreads are standard deviations over {repeated}."
    )


def baseline_ahead(run: RunView, task: TaskView) -> str:
    """Return that a plain baseline has the best calibrated NLL, and whether it beats every other method."""
    split = task.in_domain.name
    cells, verdicts = run.scores.row(task, split, RANKED_BY), run.scores.verdicts(task, split, RANKED_BY)
    baselines = {method.name for method in run.methods if method.baseline}
    others = [name for name in verdicts if name not in baselines]
    first = min(verdicts, key=lambda name: cells[name].mean, default=None)
    if first not in baselines or not others:
        return ""
    beaten = sum(verdicts[name].place == "behind" for name in others)
    who = f"{run.title(first)}, a plain baseline,"
    if beaten == len(others):
        return f"{who} beats every network on {task.key}."
    if any(verdicts[name].place == "unjudged" for name in others):
        return f"{who} has the lowest calibrated NLL on {task.key}, below every network's."
    some = f", and {number(beaten)} of {number(len(others))} are significantly worse" if beaten else ""
    return f"{who} has the lowest calibrated NLL on {task.key}; no network is significantly better{some}."


def best_method(run: RunView, task: TaskView) -> str:
    """Return which method has the best calibrated NLL, and whether the others differ significantly from it."""
    split = task.in_domain.name
    cells, verdicts = run.scores.row(task, split, RANKED_BY), run.scores.verdicts(task, split, RANKED_BY)
    if sharp := run.scores.without_temperature(task):
        names = named_few([run.title(name) for name in sharp])
        return (
            f"Calibrated NLL cannot rank the methods: no temperature is optimal for {names}, "
            "because almost every example of this test set, or of a half of it, is classified correctly. Compare "
            "accuracy and Brier score, or use more, or harder, examples."
        )
    if not verdicts:
        return ""
    ranked = sorted(verdicts, key=lambda name: cells[name].mean)
    value = cell_text(cells[ranked[0]], decimals(cells.values()))
    start = f"{run.title(ranked[0])} has the lowest calibrated NLL, {value}"
    pairs = run.scores.pairs(task, split, RANKED_BY)
    same = [name for name in ranked[1:] if pairs.same(ranked[0], name)]
    twins = f" {same_predictions(run, same)}" if same else ""
    order = [name for name in ranked if name not in same]
    if len(order) == 1:
        only = "" if same else f"; it is the only method{' that is ranked' if len(cells) > 1 else ''}"
        return f"{start}{only}.{twins}"
    return f"{start}.{twins} {differences(run, order, verdicts, cells[order[0]].mean)}"


def same_predictions(run: RunView, names: list[str]) -> str:
    """Return that methods make the same predictions as the one before."""
    verb = "makes" if len(names) == 1 else "make"
    return f"{named_few([run.title(name) for name in names])} {verb} the same predictions."


def differences(run: RunView, order: list[str], verdicts: dict[str, Verdict], best: float) -> str:
    """Return which methods differ significantly from the best one.

    Args:
        run: The run.
        order: Methods, the best first, without those that make its predictions.
        verdicts: Method → its verdict against the best.
        best: The score of the best.
    """
    unjudged = [name for name in order[1:] if verdicts[name].place == "unjudged"]
    reason = "where a method was trained once, another training might reverse the order; --seeds 5 adds trainings"
    if run.question == "systems":
        reason = "too few examples or groups"
    if len(unjudged) == len(order) - 1:
        return f"The differences are not judged: {reason}."
    others = [name for name in order[1:] if name not in unjudged]
    remark = f" Not judged: {named_few([run.title(name) for name in unjudged])} ({reason})." if unjudged else ""
    return compared(run, others, verdicts, best, " that was judged" if unjudged else "") + remark


def compared(run: RunView, others: list[str], verdicts: dict[str, Verdict], best: float, among: str) -> str:
    """Return how the methods that were judged, the best of them first, compare with the best of all."""
    coarse = [name for name in others if verdicts[name].place == "tied" and too_coarse(verdicts[name], best)]
    tied = [name for name in others if verdicts[name].place == "tied" and name not in coarse]
    worse = [name for name in others if verdicts[name].place == "behind"]
    titles = {name: run.title(name) for name in others}
    next_best = next_phrase(list(titles.values()), verdicts[others[0]])
    if coarse == others:
        return f"{too_few(run)} to compare it with {named_few(list(titles.values()))}: {next_best}."
    if worse == others:
        every = f"Every other method{among} is" if len(others) > 1 else f"{titles[others[0]]} is"
        return f"{every} significantly worse: {next_best}."
    if tied == others:
        if len(others) == 1 and not verdicts[others[0]].difference:
            return f"{next_best}."
        no_other = f"No other method{among} is" if len(others) > 1 else f"{titles[others[0]]} is not"
        return f"{no_other} significantly different from it: {next_best}."
    texts = [f"Not significantly different: {listed([titles[name] for name in tied])}."] if tied else []
    if coarse:
        least = min(verdicts[name].resolves or 0.0 for name in coarse)
        names = named_few([titles[name] for name in coarse])
        texts.append(f"{too_few(run)} to compare it with {names}: smallest detectable difference {least:.2g} or more.")
    return " ".join([*texts, *([f"Significantly worse: {named_few([titles[n] for n in worse])}."] if worse else [])])


def too_coarse(verdict: Verdict, best: float) -> bool:
    """Return whether only a large difference would have been detected: that there is none then says nothing."""
    return (verdict.resolves or 0.0) > TOO_COARSE * abs(best)


def too_few(run: RunView) -> str:
    """Return the beginning of a sentence about a comparison that only a large difference would decide."""
    return "There are too few examples" if run.question == "systems" else "There are too few trainings or test examples"


def next_phrase(titles: list[str], verdict: Verdict) -> str:
    """Return how much worse the first of these methods is than the best, and which difference would be detected."""
    difference, smallest = enough_digits(verdict.difference, verdict.resolves or 0.0)
    detectable = f" (smallest detectable difference {smallest})" if verdict.resolves else ""
    if verdict.difference == 0:
        return f"{titles[0]} has the same value{detectable}"
    subject = f"the next, {titles[0]}," if len(titles) > 1 else "it"
    return f"{subject} is {difference} worse{detectable}"


def referral_harm(run: RunView, task: TaskView) -> str:
    """Return on which shifted test sets referring the leader's most uncertain fifth lowers the accuracy of the rest.

    A test set is named where the change is significant, corrected over the task's shifted test sets.
    """
    best = leader(run, task)
    if best is None:
        return ""
    changes: list[tuple[Estimate, str]] = []
    for split in task.of_kind("shift"):
        retained, everything = retained_and_all(run, task, split.name, best)
        if retained is not None and everything is not None:
            change = run.scores.accuracy_change(task, split.name, best, retained, everything)
            values = f"on “{split.name}” from {cell_text(everything)} to {cell_text(retained)}"
            changes += [] if change is None else [(change, values)]
    adjusted = holm([two_sided_p(*change) for change, _ in changes])
    harmed = [text for ((change, _), text), p in zip(changes, adjusted, strict=True) if change < 0 and p <= ALPHA]
    start = f"Under shift, referring its most uncertain {1 - RETAINED_SHARE:.0%} lowers the accuracy on the others"
    return f"{start}: {listed(harmed)}." if harmed else ""


def retained_and_all(run: RunView, task: TaskView, split: str, method: str) -> tuple[Cell | None, Cell | None]:
    """Return the accuracy of a method on the four fifths of which it is most certain, and on all examples."""
    metrics = (referral_name("referral_accuracy", fraction) for fraction in (RETAINED_SHARE, 1.0))
    retained, everything = (run.scores.cell(task, split, method, metric) for metric in metrics)
    return retained, everything


def referral_gain(run: RunView, task: TaskView) -> str:
    """Return how the accuracy of the leader changes when the most uncertain fifth is referred, where that is shown."""
    best = leader(run, task)
    if best is None:
        return ""
    retained, everything = retained_and_all(run, task, task.in_domain.name, best)
    if retained is None or everything is None:
        return ""
    start = f"Referring its most uncertain {1 - RETAINED_SHARE:.0%} of examples"
    if retained.mean == everything.mean:
        return f"{start} does not change the accuracy on the others, {cell_text(retained)}; nor would random referral."
    values = f"{cell_text(everything)} before and {cell_text(retained)} after"
    change = run.scores.accuracy_change(task, task.in_domain.name, best, retained, everything)
    if change is None:
        return f"Whether r{start[1:]} changes the accuracy on the others is not judged: {values}."
    if two_sided_p(*change) > ALPHA:
        return f"{start} does not significantly change the accuracy on the others, {values}."
    verb = "raises" if retained.mean > everything.mean else "lowers"
    values = f"from {cell_text(everything)} to {cell_text(retained)}"
    return f"{start} {verb} the accuracy on the others {values}; random referral would not change it."


def detection(run: RunView, task: TaskView) -> str:
    """Return the AUROC of detecting OOD and shifted examples: the highest mean, and the reference method's."""
    name, reference = detection_name("ood_auroc", HEADLINE), run.manifest.reference(task)
    texts, chance, cautions = [], [], []
    for split in (shifted.title for shifted in task.test_sets if len(shifted.splits) == 1):
        board = leaderboard(run, task, (split,), name, test_set=split)
        if board is None:
            continue
        best = board.order[0]
        shown = reference is not None and reference in board.cells and reference != best
        other = f"; {board.value(reference)} with {run.title(reference)}" if reference and shown else ""
        if board.cells[best].mean <= CHANCE:
            chance.append(f"“{split}” (the highest is {board.value(best)}, {run.title(best)})")
        else:
            texts.append(f"“{split}” {board.value(best)} ({run.title(best)}{not_worse(run, board)}){other}")
        cautions += [f"“{split}”: {text}" for text in detection_on(run, task, (split,)).sentences(run)]
    kind = f"AUROC of detection by {HEADLINE}"
    above = [f"Highest {kind} (0.5 is chance): {'. '.join(texts)}."] if texts else []
    none = [f"No method has an {kind} above chance (0.5) on {listed(chance)}."] if chance else []
    return " ".join([*above, *none, *cautions])


def not_worse(run: RunView, board: Leaderboard) -> str:
    """Return which methods are not shown to be worse than the best of a leaderboard, to stand behind its name."""
    same = board.same_as(board.order[0])
    others = [name for name in board.order[1:] if name not in same]
    unjudged = [name for name in others if board.verdicts[name].place == "unjudged"]
    named = {
        "the same predictions": same,
        "not significantly different": [name for name in board.tied if name not in same],
        "not judged": unjudged,
    }
    if unjudged and unjudged == others:
        named |= {"not judged": ()}
    texts = (f"; {what}: {named_few([run.title(name) for name in names])}" for what, names in named.items() if names)
    return "".join(texts) + ("; differences are not judged" if unjudged and unjudged == others else "")


def corruption(run: RunView, task: TaskView) -> str:
    """Return the accuracy of the leader under the worst severity of each corruption."""
    best = leader(run, task)
    if best is None or not task.severities:
        return ""
    clean = cell_text(run.scores.row(task, task.in_domain.name, "accuracy")[best])
    worst = {base: splits[-1].name for base, splits in task.severities.items()}
    start = f"At the worst severity its accuracy falls from {clean} to"
    if task.many_corruptions:
        mean = run.scores.average(task, list(worst.values()), best, "accuracy")
        return "" if mean is None else f"{start} {cell_text(mean)}, the mean over {len(worst)} corruptions."
    cells = {base: run.scores.cell(task, split, best, "accuracy") for base, split in worst.items()}
    parts = [f"{cell_text(cell)} under {base}" for base, cell in cells.items() if cell is not None]
    return f"{start} {listed(parts)}." if parts else ""


def across_finding(run: RunView) -> str:
    """Return which methods are among the best on every task; empty for fewer than two tasks."""
    scored = [task for task in run.tasks if run.methods_of(task)]
    verdicts = [row for task in scored if (row := run.scores.verdicts(task, task.in_domain.name, RANKED_BY))]
    if len(verdicts) < 2:
        return ""
    best = [{name for name, verdict in row.items() if verdict.place in ("best", "tied")} for row in verdicts]
    always = [run.title(name) for name in verdicts[0] if all(name in names for names in best)]
    subject = f"{listed(always)} {'is' if len(always) == 1 else 'are'}" if always else "No method is"
    few = "" if len(verdicts) >= 5 else f"; {counted(len(verdicts), 'task')} are too few to rank methods in general"
    unjudged = any(verdict.place == "unjudged" for row in verdicts for verdict in row.values())
    few += "; methods that were not judged do not count" if unjudged else ""
    every = "every task" if len(verdicts) == len(scored) else "every task with a ranking"
    return f"{subject} best, or not significantly different from the best, on {every}{few}."
