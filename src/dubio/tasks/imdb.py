"""IMDB ratings: how many stars did the writer of a review give?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import (
    DataSource,
    Document,
    LocalCopy,
    find_copy,
    holds_corpus,
    source_card,
)
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, text_corpus


def _read_json(path: Path) -> list[Document]:
    try:
        rows = [(int(row["rating"]), _plain(row["review"])) for row in parse_json(path.read_bytes(), path.name)]
    except (ValueError, TypeError, KeyError) as fault:
        raise BadFile(f"{path.name}: expected a list of objects with review and rating: {fault!r}.") from fault
    numbered = ((str(index), *row) for index, row in enumerate(rows))
    return [Document("", review, (str(rating),), id=name) for name, rating, review in numbered if 1 <= rating <= 10]


def _read_reviews(folder: Path) -> list[Document]:
    documents = []
    folders = [folder / subset / side for subset in ("train", "test") for side in ("neg", "pos")]
    for path in (path for inner in folders for path in sorted(inner.glob("*_*.txt"))):
        subset, side = path.parts[-3:-1]
        number, _, rating = path.stem.partition("_")
        if not rating.isdigit():
            raise BadFile(f"{path.name}: a review is called NUMBER_RATING.txt.")
        documents.append(Document(subset, _plain(path.read_text("utf-8")), (rating,), id=f"{side}/{number}"))
    return documents


def _plain(text: str) -> str:
    """Replace line breaks written as tags."""
    return re.sub("<br( ?/)?>", "\n", text)


TEN = text_corpus("imdb", json=_read_json)
EIGHT = text_corpus("imdb-lmrd", reviews=_read_reviews)


@task("imdb", source=DataSource(source_card("imdb-either"), (TEN, EIGHT)))
def imdb(
    *,
    ratings: Literal["auto", "ten", "eight"] = "auto",
    setting: Setting = "in-domain",
    data_dir: str | None = None,
    split_seed: int = 42,
    cal: float = 0.0,
) -> Task:
    """Ratings of film reviews: in-domain, or novelty with a middle rating held out.

    The ten ratings have no published parts and are cut 65/15/20, stratified. The stand-in with eight ratings (1–4 and
    7–10) keeps its published train and test; val is 15 % of train. In the novelty setting the lower middle rating (5
    of ten, 4 of eight) is dropped from training and validation; its test reviews are the split ``novel``.

    Args:
        ratings: ``ten``, ``eight``, or ``auto``: ten where this machine has them, else eight; the card says which.
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where imdb``.
        split_seed: Seed of random parts.
        cal: Share of training that becomes the split ``cal``.
    """
    options = CorpusOptions("imdb", "multiclass", setting, split_seed, cal, novel=_lower_middle, order=int)
    return corpus_task(_copy(ratings, data_dir), options)


def _copy(ratings: str, data_dir: str | None) -> LocalCopy:
    if ratings == "auto":
        here = find_copy(TEN, data_dir) if data_dir is None or holds_corpus(TEN, data_dir) else None
        return here or obtain(EIGHT, data_dir)
    return obtain(TEN if ratings == "ten" else EIGHT, data_dir)


def _lower_middle(classes: tuple[str, ...]) -> tuple[str, ...]:
    return (classes[(len(classes) - 1) // 2],)
