"""Amazon reviews of four kinds of products: trained on one, tested on it and on the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import task
from dubio.core.types import Split, Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataSource, Document, count_notes
from dubio.tasks.splitting import UNASSIGNED, SplitOptions, assign_parts, part_splits
from dubio.tasks.text_corpora import (
    VAL_SHARE,
    check_cal,
    copy_card,
    document_examples,
    document_labels,
    shared_text_notes,
    text_corpus,
    text_groups,
)

Domain = Literal["books", "dvd", "electronics", "kitchen"]
DOMAINS: tuple[Domain, ...] = ("books", "dvd", "electronics", "kitchen")
CLASSES = ("negative", "positive")
TEST_REVIEWS = 400
"""Number of test reviews of the source (T, Section III-B)."""

_FOLDERS = {"books": "books", "dvd": "dvd", "electronics": "electronics", "kitchen": "kitchen_&_housewares"}
_REVIEW = re.compile(r"<review>(.*?)</review>", re.DOTALL)


def _read_reviews(folder: Path) -> list[Document]:
    """Read the labelled reviews; a byte that is not UTF-8 becomes the replacement character."""
    documents = []
    for domain, name in _FOLDERS.items():
        for side in CLASSES:
            path = folder / name / f"{side}.review"
            reviews = _REVIEW.findall(path.read_text(encoding="utf-8", errors="replace"))
            if not reviews:
                raise BadFile(f"{name}/{path.name}: no <review> in it; word counts (processed_acl) are not texts.")
            for review in reviews:
                text = "\n".join(filter(None, (_field(review, "title"), _field(review, "review_text"))))
                documents.append(Document("", text, (side,), id=_field(review, "unique_id"), domain=domain))
    return documents


def _field(review: str, name: str) -> str:
    match = re.search(rf"<{name}>(.*?)</{name}>", review, re.DOTALL)
    return match[1].strip() if match is not None else ""


CORPUS = text_corpus("amazon", reviews=_read_reviews)


@task("amazon", source=DataSource(CORPUS.card, (CORPUS,)))
def amazon(
    *,
    source: Domain = "books",
    target: Literal["books", "dvd", "electronics", "kitchen", "all"] = "all",
    data_dir: str | None = None,
    split_seed: int = 42,
    cal: float = 0.0,
) -> Task:
    """Sentiment of product reviews, cross-domain: one source, one target or all others.

    Splits: of the source 400 held-out test reviews, val (15 % of the rest, stratified) and train; each complete target,
    as a split of kind ``shift`` that bears its name. The four sources with ``target = "all"`` are the twelve pairs,
    with one training for three of them.

    Args:
        source: The domain to train on: ``books``, ``dvd``, ``electronics`` or ``kitchen``.
        target: The shift: another of them, or ``all`` others.
        data_dir: A folder with the corpus; see ``dubio data where amazon``.
        split_seed: Seed of the split of the source.
        cal: Share of the source's training that becomes the split ``cal``.
    """
    if source == target:
        raise UserError(f"amazon: target must be another domain than source; given {source!r} for both.")
    copy = obtain(CORPUS, data_dir)
    documents = copy.read()
    domains = np.array([document.domain for document in documents], dtype=np.str_)
    for domain in DOMAINS:
        if not (domains == domain).any():
            raise BadFile(f"{copy.path.name} has no review of the domain {domain!r}.")
    labels = document_labels(documents, CLASSES, "multiclass")
    examples = document_examples(documents, labels)
    rows = np.flatnonzero(domains == source)
    if len(rows) <= TEST_REVIEWS:
        raise BadFile(f"{copy.path.name} has {len(rows):,} reviews of {source}; {TEST_REVIEWS} are held out to test.")
    test, cal = TEST_REVIEWS / len(rows), check_cal(cal)
    shares = ((1 - test) * (1 - VAL_SHARE - cal), (1 - test) * VAL_SHARE, (1 - test) * cal, test)
    parts = np.full(len(documents), UNASSIGNED, dtype=np.int64)
    parts[rows] = assign_parts(labels[rows], SplitOptions(shares, split_seed), group=text_groups(documents, rows)[rows])
    splits = part_splits(examples, parts)
    for domain in (other for other in DOMAINS if other != source and target in (other, "all")):
        splits.append(Split.of(domain, "shift", examples.take(np.flatnonzero(domains == domain))))
    name = f"amazon-{source}" if target == "all" else f"amazon-{source}-{target}"
    notes = (*shared_text_notes(splits), *count_notes(copy, documents))
    return Task(name, "text", "multiclass", CLASSES, tuple(splits), copy_card(copy, documents), notes)
