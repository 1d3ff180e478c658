"""Choose a method by a run's results: the best, or the cheapest within the margin of the best, and the reason in words.

The best mean is taken, or a cheaper method where the simultaneous upper limit of its difference to the best
(:mod:`dubio.statistics.limits`) is within the run's margin on every test set: "not significantly different" is not "as
good". A method that is worse in mean and more expensive than another is never taken, nor is one whose comparison was
not judged.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from dubio.core.errors import DubioError
from dubio.referral import NoGuarantee, fit_risk_policy
from dubio.reporting.leaderboard import Leaderboard, in_domain_leaderboard, leader, metric_phrase
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import PREDICTED, RunView
from dubio.reporting.wording import listed, named_few, number, seconds
from dubio.store import Store

MAX_RISK = 0.05
"""The error of the retained in commands that are filled in."""

CAPACITY = 0.2
"""The share of referrals there, where that error cannot be guaranteed."""


def deployment_commands(run: RunView, task: TaskView, name: str) -> dict[str, str]:
    """Return the commands that put a run to use, by their purpose: the method that the verdict supports, else the best.

    Args:
        run: The run.
        task: The task.
        name: The run's name in its store.
    """
    if run.question == "systems":
        return {}
    method = "best" if supported_method(run, task)[0] is not None else leader(run, task) or _most_accurate(run, task)
    if method is None:
        return {}
    several = f" --task {shlex.quote(task.name)}" if len({own.name for own in run.tasks}) > 1 else ""
    networks = [own.network for own in run.tasks if own.name == task.name]
    several += f" --network {shlex.quote(task.network)}" if len(networks) > 1 else ""
    chosen = f"{shlex.quote(name)} --method {shlex.quote(method)}{several}{run.store_option}"
    rows = "images/" if task.inputs == "image" else "new.csv"
    goal = _goal(run, task, supported_method(run, task)[0] or method)
    return {
        "Predict new rows": f"dubio predict {chosen} {rows} -o predictions.csv",
        "Export a model": f"dubio export {chosen} -o model{goal}",
        "Serve it": f"dubio serve model{'' if goal else ' --refer-all'}",
    }


def stored_name(run: RunView) -> str:
    """Return the name under which commands find a run in its store; the beginning of it where there is no store."""
    beginning, ids = run.manifest.name, {own.id for own in run.manifest.runs}
    if not isinstance(run.source, Store):
        return beginning
    names = [name for name in run.source.manifests() if name.startswith(f"{beginning}-")]
    own = [name for name in names if {stored["id"] for stored in run.source.manifest(name)["runs"]} == ids]
    return own[0] if len(own) == 1 else beginning


def _goal(run: RunView, task: TaskView, method: str) -> str:
    """Return the option of a policy that can be fitted: an error of the retained below 5 %, else a share of referrals.

    Of several errors the smallest that can be guaranteed would be chosen by the rows that guarantee it; a share of
    referrals says nothing about errors.
    """
    if not task.of_kind("cal"):
        return ""
    own = next((own for own in run.manifest.runs if (own.task, own.method) == (task.key, method)), None)
    try:
        if own is not None:
            fit_risk_policy(task.read(run.source, own, task.of_kind("cal")[0]), max_risk=MAX_RISK)
    except NoGuarantee:
        return f" --capacity {CAPACITY}"
    except DubioError:  # predictions that cannot be read are listed in a section of their own
        pass
    return f" --max-risk {MAX_RISK}"


def _most_accurate(run: RunView, task: TaskView) -> str | None:
    """Return the method with the best mean accuracy, where calibrated NLL cannot rank; None without one."""
    metric = "micro_f1" if task.target == "multilabel" else "accuracy"
    cells = {name: cell for name, cell in run.scores.row(task, task.in_domain.name, metric).items() if cell.n}
    return max(cells, key=lambda name: cells[name].mean, default=None)


def supported_method(run: RunView, task: TaskView) -> tuple[str | None, str]:
    """Return the method that the verdict on a task's in-domain test set supports, or None, and the verdict in words.

    Args:
        run: The run.
        task: The task.
    """
    board = in_domain_leaderboard(run, task, RANKED_BY)
    if board is None:
        return None, f"The methods on {task.key} cannot be ranked."
    if len(board.cells) == 1:
        return board.order[0], f"{run.title(board.order[0])} is the only method that is ranked."
    choice = _choice(run, _distinct(run, [board])[0])
    return (None if choice is None else choice.method), conclusion(run, [board])


@dataclass(frozen=True)
class _Choice:
    """The method to take, the best methods, the sole best one, and those within the margin of the best."""

    method: str
    leaders: list[str]
    sole: list[str]
    within: list[str]


def _leaders(boards: Sequence[Leaderboard]) -> tuple[list[str | None], list[str]]:
    """Return the best judged method of each test set, None where none is judged, and all of them once."""
    firsts = [next((name for name in board.order if name in board.limits), None) for board in boards]
    return firsts, list(dict.fromkeys(name for name in firsts if name is not None))


def _choice(run: RunView, boards: Sequence[Leaderboard]) -> _Choice | None:
    """Return the best method on all test sets, or the cheapest within the margin of the best; None without any."""
    firsts, leaders = _leaders(boards)
    if None in firsts:
        return None  # the best method of the other test sets may not even be on this one
    within = [name for name in boards[0].order if all(b.limits.get(name, inf) <= run.margin for b in boards)]
    sole = leaders if len(leaders) == 1 else []
    candidates = [name for name in dict.fromkeys([*sole, *within]) if not _dominated(run, name, boards)]
    if not candidates:
        return None
    method = min(candidates, key=lambda name: (_seconds(run, name, boards), candidates.index(name)))
    return _Choice(method, leaders, sole, within)


def conclusion(run: RunView, boards: Sequence[Leaderboard]) -> str:
    """Return the method to take in words: the best on all test sets, or the cheapest within the margin of the best."""
    distinct, same = _distinct(run, boards)
    texts = [f"{listed([run.title(n) for n in own])} {_make(own)} {run.title(name)}." for name, own in same.items()]
    return " ".join([_conclusion(run, distinct), *texts])


def _make(names: Sequence[str]) -> str:
    return f"{'makes' if len(names) == 1 else 'make'} the same predictions as"


def _distinct(run: RunView, boards: Sequence[Leaderboard]) -> tuple[list[Leaderboard], dict[str, list[str]]]:
    """Return the leaderboards without methods that only repeat the predictions of a cheaper one, and by whom.

    The cheaper is the one with fewer fits behind it, as a network is than scores that are read off its features, then
    the faster, then the simpler: what is measured of two such methods differs by chance.
    """
    same: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for board in boards for name in board.order):
        own = [board for board in boards if name in board.cells]
        twins = [set(board.same_as(name)) for board in own]
        group = [name, *(other for other in own[0].order if all(other in names for names in twins))]
        simplest = list(run.manifest.simplest_first(dict.fromkeys(group)))
        chosen = min(simplest, key=lambda one: (_fits(run, one, own), _seconds(run, one, own), simplest.index(one)))
        if chosen != name:
            same.setdefault(chosen, []).append(name)
    repeated = {name for names in same.values() for name in names}
    return [board.of(board.cells.keys() - repeated) for board in boards], same


def _fits(run: RunView, name: str, boards: Sequence[Leaderboard]) -> int:
    """Return the number of fits behind a method on the tasks of these test sets, and those that they continue."""
    runs = [own for task in {board.task for board in boards} for own in run.manifest.runs_of(task, name)]
    return len({fit for own in runs for start in own.fits for fit in run.lineage(start)})


def _conclusion(run: RunView, boards: Sequence[Leaderboard]) -> str:
    firsts, leaders = _leaders(boards)
    choice = _choice(run, boards)
    if None in firsts or (len(leaders) == 1 and choice is None):
        often, count = Counter(board.order[0] for board in boards).most_common(1)[0]
        share = f" on {number(count)} of {number(len(boards))} test sets" if len(boards) > 1 else ""
        return (
            f"{run.title(often)} has the best mean{share}, but its difference to others is not judged for want of "
            "repeated trainings: these data do not decide."
        )
    unjudged = dict.fromkeys(run.title(name) for board in boards for name in board.order if name not in board.limits)
    note = f" Not judged, for want of repeated trainings: {listed(list(unjudged))}." if unjudged else ""
    if choice is None:
        return _undecided(run, leaders, boards) + note
    method, within = choice.method, choice.within
    others = [run.title(name) for name in within if name != method]
    also = f" Also within the margin, but not cheaper: {listed(others)}." if others else ""
    best = method in choice.sole
    reason = _best(run, method, within, boards) if best else _cheaper(run, method, leaders, boards)
    return f"Take {run.title(method)}{_price(run, method, boards)}: {reason}{also}{note}"


def _undecided(run: RunView, leaders: Sequence[str], boards: Sequence[Leaderboard]) -> str:
    """Return that no method suits all test sets, and the one with the smallest upper limit over them."""
    common = [name for name in boards[0].order if all(name in board.limits for board in boards)]
    worst = {name: max(board.limits[name] for board in boards) for name in common}
    closest = min(worst, key=worst.__getitem__, default=None)
    text = f"No method is shown to be within {run.margin:g} of the best {sets_phrase(boards)}: it depends on the data."
    text += f" Best means: {listed([run.title(name) for name in leaders])}."
    return text + (
        "" if closest is None else f" Closest on all: {run.title(closest)}, at most {worst[closest]:.2g} worse."
    )


def _best(run: RunView, choice: str, within: Sequence[str], boards: Sequence[Leaderboard]) -> str:
    """Return why the method with the best mean is taken."""
    rivals = {name for board in boards for name in board.order} - {choice}
    if not rivals:
        return "it is the only such method."
    tied = list(dict.fromkeys(run.title(n) for board in boards for n in board.tied if n not in within))
    tie = f" A tie with {named_few(tied)}: not significantly different, but not shown to be as good." if tied else ""
    cheaper = any(_seconds(run, name, boards) < _seconds(run, choice, boards) for name in rivals)
    why = "no ranked method is cheaper to train and run"
    if cheaper:
        why = f"no cheaper method is shown to be within {run.margin:g} of it"
    return f"it has the best {metric_phrase(boards[0].metric)} {sets_phrase(boards)}, and {why}.{tie}"


def _cheaper(run: RunView, choice: str, leaders: Sequence[str], boards: Sequence[Leaderboard]) -> str:
    """Return why a method is taken that has not the best mean."""
    limit = max(board.limits[choice] for board in boards)
    best = [run.title(name) for name in leaders if name != choice]
    return f"it is at most {limit:.2g} worse than the best {sets_phrase(boards)} ({listed(best)}), and cheaper."


def sets_phrase(boards: Sequence[Leaderboard]) -> str:
    """Return "on this test set", "on both test sets" and so on."""
    return {1: "on this test set", 2: "on both test sets"}.get(len(boards), f"on all {number(len(boards))} test sets")


def _dominated(run: RunView, name: str, boards: Sequence[Leaderboard]) -> bool:
    """Return whether another method is cheaper and has a better mean everywhere."""
    better = frozenset.intersection(*(frozenset(board.order[: board.order.index(name)]) for board in boards))
    return any(_seconds(run, other, boards) < _seconds(run, name, boards) for other in better)


def _seconds(run: RunView, name: str, boards: Sequence[Leaderboard]) -> float:
    """Return what a method costs on the tasks of these test sets; infinite where that was not measured."""
    costs = [run.costs.get((task, name)) for task in dict.fromkeys(board.task for board in boards)]
    return sum(inf if cost is None else sum(cost.seconds) for cost in costs)


def _price(run: RunView, name: str, boards: Sequence[Leaderboard]) -> str:
    """Return training and prediction of a method in seconds, summed over tasks; nothing where not measured."""
    tasks = dict.fromkeys(board.task for board in boards)
    if not isfinite(_seconds(run, name, boards)):
        return ""
    training, prediction = (
        sum(values) for values in zip(*(run.costs[task, name].seconds for task in tasks), strict=True)
    )
    over = f", {number(len(tasks))} tasks together" if len(tasks) > 1 else ""
    return f" ({seconds(training)} of training and {seconds(prediction)} to predict {PREDICTED:,} examples{over})"
