"""Word the blocks of a report about trained systems.

Sections speak of methods, their runs and trainings. Of systems that are known by their predictions there is one each:
the same sentences are about systems, and those about runs and trainings are left out. Names that users gave stay as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from dubio.reporting.run_view import RunView
from dubio.reporting.wording import quantity_words

PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"Mean and 95 % confidence interval, each on its own; the bar is the interval, its mark the mean",
     "Value and 95 % confidence interval, each on its own; the bar is the interval, its mark the value"),
    (r", baselines aside\. Shaded", ". Shaded"),
    (r" Intervals of ECE and AURC are over trainings alone\.", ""),
    (r" A baseline far from all methods (stands at the edge|is outside the plot)\.", ""),
    (r"95 % interval over test examples alone; trained once", "95 % interval over test examples"),
    (r"mean ± standard deviation over runs", "in brackets 95 % intervals"),
    (r"Mean over runs of the", "The"),
    (r"Mean over runs under", "Value under"),
    (r"Mean over runs: hollow", "Hollow"),
    (r", first run of each method", ""),
    (r", with one run of this size and independent", ", with this number of independent"),
    (r"Mean over runs, with", "With"),
    (r"Mean over examples and runs", "Mean over examples"),
    (r"; mean over runs of the", "; the"),
    (r"[;,] mean over runs", ""),
    (r",? and are for the mean over runs", ""),
    (r"All runs together, in", "In"),
    (r", all runs together", ""),
    (r"Ticks are runs, the marker is their mean, the bar one standard deviation\. ", ""),
    (r" ?(Bands|Bars) are one standard deviation over runs\.", ""),
    (r", with one standard deviation over runs", ""),
    (r" and over runs\b", ""),
    (r"; ± standard error over trainings \(ensembles: over seeds\)", ""),
    (r"the first run of (each|every) method", "every system"),
    (r"Of the same runs", "Of the same systems"),
    (r"met in \d+ of \d+ runs", ""),
    (r"not defined in any of \d+ runs", "not defined on these examples"),
    (r"for the mean over these trained networks on", "for these systems on"),
    (r"; they do not include the spread over trainings", ""),
    (r"includes the spread over runs and over examples; for other metrics, the spread over runs alone",
     "is judged over examples; other metrics are not judged"),
    (r"rows of a table", "examples"),
    (r"This task has no calibration split", "There is no calibration set (--cal)"),
    (r"No run of this task was completed", "No system can be ranked on these examples"),
    (r", because one of the two was trained only once", ""),
    (r"for want of repeated trainings", "for want of examples"),
    (r"\bbest mean\b", "best value"),
    (r"\b([Mm])ethod(s?)\b", lambda match: {"M": "S", "m": "s"}[match[1]] + "ystem" + match[2]),
)  # fmt: skip
"""What a section says → what it says of systems, in the order in which they are looked for."""

_PATTERNS = tuple((re.compile(pattern), phrase) for pattern, phrase in PHRASES)
_ANY = re.compile("ethod|run|seed|train|task|best mean|Mean and|table|baseline")
_WORDED = frozenset({
    "text", "title", "caption", "reading", "sub", "note", "hint", "texts", "evidence", "first", "terminal", "rows",
    "columns", "cells", "cards", "fallback",
})  # fmt: skip
"""The fields of blocks that have words; others are keys, styles and numbers."""

T = TypeVar("T")


def worded_for_systems(run: RunView) -> Callable[[T], T]:
    """Return a function that words a block of this report for systems."""
    names = [*run.titles.values()]
    names += [text for name in run.scores.own_quantities for text in (name, quantity_words(name))]
    for task in run.tasks:
        columns = [text for own in task.columns.values() for name, column in own.items() for text in (name, *column)]
        names += [task.key, *task.classes, *(split.name for split in task.splits), *columns]
    apart = sorted({name for name in names if _ANY.search(name)}, key=len, reverse=True)
    divider = re.compile("|".join(map(re.escape, apart))) if apart else None

    def word(value: Any) -> Any:
        if isinstance(value, str):
            return _worded(value, divider) if _ANY.search(value) else value
        if isinstance(value, tuple):
            return tuple(map(word, value))
        if is_dataclass(value) and not isinstance(value, type):
            own = {item.name: getattr(value, item.name) for item in fields(value) if item.name in _WORDED}
            return replace(value, **{name: word(content) for name, content in own.items()}) if own else value
        return value

    return word


def _worded(text: str, names: re.Pattern[str] | None) -> str:
    """Return a text about systems, the names in it as they are."""
    between = [text] if names is None else names.split(text)
    untouched: Iterable[str] = () if names is None else names.findall(text)
    pieces = [_reworded(piece) for piece in between]
    return "".join(piece + name for piece, name in zip(pieces, (*untouched, ""), strict=True))


def _reworded(text: str) -> str:
    for pattern, phrase in _PATTERNS:
        text = pattern.sub(phrase, text)
    return text
