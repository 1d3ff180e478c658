"""The parts of the page that are about all tasks together: advice, tables over tasks, agreement with the paper.

Each is a plain value that the template sets; what there are no data for is empty, and then the page has no such part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dubio.reporting.advice import advice
from dubio.reporting.as_published import mended, mended_grid, mended_words
from dubio.reporting.claims import claims
from dubio.reporting.over_tasks import across_tables
from dubio.reporting.published_figures import SOURCE, agreement_grid, agreement_words
from dubio.reporting.results import Results
from dubio.reporting.words import counted, listed

TEXT = "text"


def advice_part(results: Results) -> list[dict[str, Any]]:
    """Which method for which problem."""
    return [
        {"circumstance": each.circumstance, "conclusion": each.conclusion, "evidence": each.evidence}
        for each in advice(results)
    ]


def across_part(results: Results) -> list[dict[str, Any]]:
    """Tables over test sets: the first of a setting open, the others folded."""
    found, seen = [], set()
    for table in across_tables(results):
        field = table.title.rpartition(": ")[0]
        found.append({"title": table.title, "table": table.grid, "words": table.words, "folded": field in seen})
        seen.add(field)
    return found


def paper_part(results: Results) -> dict[str, Any]:
    """Agreement with the study of text classification: numbers beside numbers, and its conclusions tested."""
    text = [task for task in results.manifest.tasks if task.inputs == TEXT and results.methods_of(task)]
    if not text:
        return {}
    numbers = [
        {"title": task.key, "table": table, "words": agreement_words(results, task)}
        for task in text
        if (table := agreement_grid(results, task)) is not None
    ]
    tested = claims(replace(results, manifest=replace(results.manifest, tasks=tuple(text))))
    return {
        "source": SOURCE,
        "numbers": numbers,
        "claims": [claim for claim in tested if claim.evidence],
        "silent": [claim.statement for claim in tested if not claim.evidence],
    }


def mended_part(results: Results) -> list[dict[str, Any]]:
    """Published definitions beside the right ones, task by task; empty unless they were asked for."""
    found = []
    for task in results.manifest.tasks:
        pairs = mended(results, task)
        if pairs:
            splits = dict.fromkeys(pair.split for pair in pairs)
            tables = [table for split in splits if (table := mended_grid(results, task, split)) is not None]
            words = [text for pair in pairs if (text := mended_words(results, pair))]
            found.append({"title": task.key, "tables": tables, "words": words})
    return found


def parts_words(results: Results) -> list[str]:
    """What each of several runs that are reported together was about, a sentence each."""
    return [
        f"{part.name}: {f'preset {part.preset}' if part.preset else 'no preset'}, {counted(part.methods, 'method')} on "
        f"{listed(list(part.tasks))}, {counted(len(part.seeds), 'seed')} ({', '.join(map(str, part.seeds))})."
        for part in results.manifest.parts
    ]
