"""The referral policy of each method as a table."""

from __future__ import annotations

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.promise_cells import PROMISE_COLUMNS, PROMISE_NOTES, promise_cells
from dubio.reporting.promises import CONFIDENCE, SHARE
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, method_table


def promise_grid(results: Results, task: TaskView) -> Table | None:
    """The referral policy of each method and what became of its promise; None where nothing could be asked."""
    promises = results.promises.get(task.key) or {}
    if not promises:
        return None
    titles = {splits[-1].name: f"{base}, at its worst" for base, splits in task.severities.items()}
    made = {name: promise_cells(promise) for name, promise in promises.items()}
    columns = [FilledColumn(head, {name: cells.pop(key) for name, cells in made.items() if key in cells})
               for key, head in PROMISE_COLUMNS.items()]  # fmt: skip
    for split in task.farthest:
        known = any(seen.error is not None for p in promises.values() for seen in p.away if seen.split == split.name)
        title = "Error, kept, shift" if known else "Kept, shift"
        head = Column(title, titles.get(split.name, split.name), "↓", PROMISE_NOTES["away"])
        columns.append(
            FilledColumn(head, {name: cells[split.name] for name, cells in made.items() if split.name in cells})
        )
    kept_aside, target = task.of_kind("cal")[0], next(iter(promises.values())).target
    caption = (
        f"Error among the kept below {target:g}, with {CONFIDENCE:.0%} confidence, from the {kept_aside.examples:,} "
        f"examples of “{kept_aside.name}”"
    )
    methods = [method for method in results.methods_of(task) if method.name in promises]
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def promise_words(results: Results, task: TaskView) -> str:
    """What is asked of every policy, and of whom."""
    reference = results.manifest.reference(task)
    title = next((m.title for m in results.manifest.methods if m.name == reference), "")
    return (
        f"Asked of the first run of every method: an error among the kept below {SHARE:.0%} of what {title} errs on "
        f"the test set without referral, with {CONFIDENCE:.0%} confidence; referred by predictive entropy. All methods "
        "share the examples kept aside and those of the test set, so that promises hold, or fail, together."
    )
