"""Which method for your problem? Advice computed from what was measured, along the take-homes of T §V.

Every piece of advice belongs to a circumstance (few or many classes, several labels, little memory or time, novelty,
shift), names the test sets that speak to it, and rests on the report's own verdicts. Where no test set speaks to a
circumstance nothing is said; where the data do not decide, that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dubio.reporting.chapters import Elsewhere, elsewhere
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import DETECTED_BY, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.results import Results
from dubio.reporting.standing import Standing, compared, metric_words, standing, title_of, verdict_words
from dubio.reporting.wording import counted, listed, number
from dubio.statistics.verdicts import against_best

MANY = 20
"""From so many classes on there are many."""


@dataclass(frozen=True)
class Advice:
    """What to do in a circumstance: the conclusion, and a sentence a test set it rests on."""

    circumstance: str
    conclusion: str
    evidence: tuple[str, ...]


def advice(results: Results) -> tuple[Advice, ...]:
    """All advice that these results give."""
    makers: tuple[Callable[[Results], Advice | None], ...] = (
        _few_classes, _many_classes, _several_labels, _one_training, _one_pass, _novelty, _quantity, _shift,
        _shift_found,
    )  # fmt: skip
    return tuple(made for make in makers if (made := make(results)) is not None)


def home_standing(
    results: Results, task: TaskView, metric: str = RANKED_BY, among: Sequence[str] = ()
) -> Standing | None:
    """Where methods stand on a task's in-domain test set."""
    where = f"{task.key} ({number(len(task.classes))} {'labels' if task.target == 'multilabel' else 'classes'})"
    return standing(results, task, (task.of_kind("id")[0].name,), metric, where=where, among=among)


def away_standings(results: Results, kind: str, metric: str) -> list[Standing]:
    """Where methods stand at every place of a kind away from home."""
    found = [
        standing(results, task, place.splits, metric, where=f"{task.key} → {place.title}")
        for task in results.manifest.tasks
        for place in elsewhere(task)
        if place.kind == kind
    ]
    return [each for each in found if each is not None]


def _few_classes(results: Results) -> Advice | None:
    tasks = [task for task in _tasks(results) if task.target != "multilabel" and len(task.classes) < MANY]
    return _of_homes(results, f"Few classes (fewer than {MANY})", tasks)


def _many_classes(results: Results) -> Advice | None:
    tasks = [task for task in _tasks(results) if task.target != "multilabel" and len(task.classes) >= MANY]
    return _of_homes(results, f"Many classes ({MANY} or more)", tasks)


def _several_labels(results: Results) -> Advice | None:
    return _of_homes(results, "Several labels at once", [t for t in _tasks(results) if t.target == "multilabel"])


def _of_homes(results: Results, circumstance: str, tasks: Sequence[TaskView]) -> Advice | None:
    found = [each for task in tasks if (each := home_standing(results, task)) is not None]
    return _advice(results, circumstance, found)


def _novelty(results: Results) -> Advice | None:
    found = away_standings(results, "ood", detection_name("ood_auroc", HEADLINE))
    return _advice(results, "Novel classes may turn up", found)


def _shift(results: Results) -> Advice | None:
    return _advice(results, "Inputs will come from elsewhere: stay right", away_standings(results, "shift", "accuracy"))


def _shift_found(results: Results) -> Advice | None:
    found = away_standings(results, "shift", detection_name("ood_auroc", HEADLINE))
    return _advice(results, "Inputs will come from elsewhere: notice it", found)


def _advice(results: Results, circumstance: str, found: Sequence[Standing]) -> Advice | None:
    contests = [each for each in found if len(each.cells) > 1]
    if not contests:
        return None
    return Advice(circumstance, conclusion(results, contests), tuple(leader_words(results, each) for each in contests))


def leader_words(results: Results, found: Standing) -> str:
    """Who leads on a test set, who comes next, and whether they are told apart."""
    best, second = found.order[:2]
    verdict = found.verdicts[second]
    return (
        f"{found.where}: best {metric_words(found.metric)} with {title_of(results, best)}, {found.told(best)}; next "
        f"{title_of(results, second)}, {found.told(second)} ({verdict_words(verdict)})."
    )


def conclusion(results: Results, found: Sequence[Standing]) -> str:
    """The cheapest method that is nowhere told from the best; or that there is none, or that nothing is judged."""
    where = {1: "here", 2: "on both test sets"}.get(len(found), f"on all {number(len(found))} test sets")
    told = _conclusion(results, found, where)
    once = sorted({name for each in found for name, cell in each.cells.items() if cell.n == 1})
    if not once or "differences are not judged" in told:
        return told
    return f"{told} {counted(len(once), 'method').capitalize()} ran once: how much trainings vary is not known of them."


def _conclusion(results: Results, found: Sequence[Standing], where: str) -> str:
    if not all(each.judged for each in found):
        leaders = [each.order[0] for each in found]
        often = max(dict.fromkeys(leaders), key=leaders.count)
        lead = f"{title_of(results, often)} has the best mean on {leaders.count(often)} of {len(leaders)} test sets"
        return f"{lead}, but with one run a method differences are not judged: these data do not decide."
    safe = frozenset.intersection(*(each.among_the_best for each in found))
    if not safe:
        leaders = list(dict.fromkeys(title_of(results, each.order[0]) for each in found))
        return f"No method is among the best {where}: it depends on the data. Leading somewhere: {listed(leaders)}."
    everyone = frozenset.intersection(*(frozenset(each.cells) for each in found))
    if safe == everyone:
        cheap = cheapest(results, safe, found)
        return (
            f"No method can be told from the best {where}: these data do not decide, and the cheapest, "
            f"{title_of(results, cheap)}{_price(results, cheap)}, is as good a choice as any."
        )
    cheap = cheapest(results, safe, found)
    others = [title_of(results, name) for name in found[0].order if name in safe and name != cheap]
    also = f" Not told from the best either: {listed(others)}." if others else ""
    return f"Take {title_of(results, cheap)}{_price(results, cheap)}: never told from the best {where}.{also}"


def cheapest(results: Results, names: Iterable[str], found: Sequence[Standing]) -> str:
    """The method with the fewest trainings; of those with as many, the one with the best mean place."""
    places = {name: sum(each.order.index(name) for each in found) for name in names}
    return min(places, key=lambda name: (_trainings(results, name), places[name], name))


def _trainings(results: Results, name: str) -> float:
    counts = [cost.trainings for (_, method), cost in results.costs.items() if method == name]
    return max((count.mean for count in counts if count.n), default=float("inf"))


def _price(results: Results, name: str) -> str:
    trainings = _trainings(results, name)
    return f" ({counted(int(trainings), 'training')})" if trainings != float("inf") else ""


def _one_training(results: Results) -> Advice | None:
    """Little memory, or time to train: the best of what needs one fit, and what it gives away."""
    single = [method.name for method in results.manifest.methods if not method.ensemble]
    return _limited(results, "Little memory or time to train: one training", single, _size)


def _one_pass(results: Results) -> Advice | None:
    """Little time to answer: the best of what answers in one deterministic pass."""
    plain = [method.name for method in results.manifest.methods if not method.ensemble and not method.samples]
    return _limited(results, "Little time to answer: one network, one pass", plain, _speed)


def _limited(
    results: Results, circumstance: str, allowed: Sequence[str], spoken_cost: Callable[[Results, TaskView, str], str]
) -> Advice | None:
    evidence, inside = [], []
    for task in _tasks(results):
        whole, part = home_standing(results, task), home_standing(results, task, among=allowed)
        if whole is None or part is None or len(whole.cells) == len(part.cells):
            continue
        inside.append(part)
        chosen, best = part.order[0], whole.order[0]
        text = f"{whole.where}: {title_of(results, chosen)}, {metric_words(RANKED_BY)} {part.told(chosen)}"
        text += spoken_cost(results, task, chosen)
        verdict = None if chosen == best else compared(results, whole, (chosen, best))
        if verdict is None:
            text += "; nothing dearer does better."
        else:
            text += f"; without that limit {title_of(results, best)}, {whole.told(best)}"
            text += f"{spoken_cost(results, task, best)} ({verdict_words(verdict)})."
        evidence.append(text)
    contests = [each for each in inside if len(each.cells) > 1]
    if not evidence:
        return None
    only = f"{title_of(results, inside[0].order[0])} is the only such method here."
    return Advice(circumstance, conclusion(results, contests) if contests else only, tuple(evidence))


def _size(results: Results, task: TaskView, name: str) -> str:
    cost = results.costs.get((task.key, name))
    if cost is None or not cost.stored_bytes.n or not cost.training_seconds.n:
        return ""
    return f" ({cost.stored_bytes.mean / 1e6:.3g} MB of weights, {cost.training_seconds.mean:.3g} s of training)"


def _speed(results: Results, task: TaskView, name: str) -> str:
    cost = results.costs.get((task.key, name))
    if cost is None or not cost.examples_per_second.n:
        return ""
    return f" ({cost.examples_per_second.mean:,.0f} examples a second)"


def _quantity(results: Results) -> Advice | None:
    """Which uncertainty to put a threshold on: the quantity with the best AUROC, for the leading method of each set."""
    found = [
        each
        for task in results.manifest.tasks
        for place in elsewhere(task)
        if place.kind == "ood" and (each := _quantities(results, task, place)) is not None
    ]
    if not found:
        return None
    leaders = [each.order[0] for each in found]
    often = max(dict.fromkeys(leaders), key=leaders.count)
    share = f"{leaders.count(often)} of {len(leaders)} test sets" if len(leaders) > 1 else "the one test set there is"
    lead = f"{_quantity_words(often).capitalize()} tells novel classes best on {share}."
    evidence = [
        f"{each.where}: {_quantity_words(each.order[0])}, AUROC {each.told(each.order[0])}; next "
        f"{_quantity_words(each.order[1])}, {each.told(each.order[1])} "
        f"({verdict_words(each.verdicts[each.order[1]])})."
        for each in found
    ]
    return Advice("Which uncertainty to look at for novelty", lead, tuple(evidence))


def _quantities(results: Results, task: TaskView, place: Elsewhere) -> Standing | None:
    """The quantities of the method that leads at a place, the best first."""
    name = detection_name("ood_auroc", HEADLINE)
    found = standing(results, task, place.splits, name, where=f"{task.key} → {place.title}")
    if found is None:
        return None
    best = found.order[0]
    cells = {
        quantity: results.cells.get((task.key, place.splits[0], best, detection_name("ood_auroc", quantity)))
        for quantity in DETECTED_BY
    }
    known = {quantity: cell for quantity, cell in cells.items() if cell is not None and cell.n}
    order = sorted(known, key=lambda quantity: -known[quantity].mean)
    if len(order) < 2:
        return None
    ranked = {quantity: known[quantity] for quantity in order}
    where = f"{found.where}, {title_of(results, best)}"
    return Standing(where, name, ranked, against_best(ranked, "higher"), None)


def _quantity_words(name: str) -> str:
    return name.replace("_", " ")


def _tasks(results: Results) -> list[TaskView]:
    return [task for task in results.manifest.tasks if results.methods_of(task)]
