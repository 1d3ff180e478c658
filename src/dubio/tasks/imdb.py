"""IMDB ratings: how many stars did the writer of a review give?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import SourceCard, Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import (
    Corpus,
    DataSource,
    Document,
    Layout,
    LocalCopy,
    Original,
    find_copy,
    holds_corpus,
)
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, find_files, jsonl_layout

CARD = SourceCard(
    source="data.json of JMARS (ten ratings), or the Large Movie Review Dataset (eight ratings)",
    revision="2014, or 1.0",
    licence="the reviews are their authors'; research use",
    citation="Q. Diao et al. (2014), Jointly Modeling Aspects, Ratings and Sentiments for Movie Recommendation, KDD; "
    "A. Maas et al. (2011), Learning Word Vectors for Sentiment Analysis, ACL",
    description="Film reviews and their ratings. Novelty: the lower middle rating is never trained on.",
)

TEN_CARD = SourceCard(
    source="https://www.dropbox.com/s/0oea49j7j30y671/data.json (JMARS)",
    revision="2014",
    licence=CARD.licence,
    citation=CARD.citation.partition(";")[0],
    description="348,415 film reviews with ratings 1 to 10. Novelty: rating 5 is never trained on.",
)
EIGHT_CARD = SourceCard(
    source="https://ai.stanford.edu/~amaas/data/sentiment/ (Large Movie Review Dataset)",
    revision="1.0",
    licence=CARD.licence,
    citation=CARD.citation.partition("; ")[2],
    description="Film reviews with ratings 1 to 4 and 7 to 10: a stand-in for the ten ratings, with the same protocol. "
    "Novelty: rating 4 is never trained on.",
)


def _find_json(folder: Path) -> Path | None:
    return next((p for p in (folder / "jmars" / "data.json", folder / "imdb_jmars.json") if p.is_file()), None)


def _read_json(path: Path) -> list[Document]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [
            Document("", _plain(row["review"]), (str(int(row["rating"])),), id=str(index))
            for index, row in enumerate(rows)
            if 1 <= int(row["rating"]) <= 10
        ]
    except (ValueError, TypeError, KeyError) as fault:
        raise BadFile(f"{path.name}: expected a list of objects with review and rating: {fault!r}.") from fault


def _read_reviews(folder: Path) -> list[Document]:
    documents = []
    for subset in ("train", "test"):
        for side in ("neg", "pos"):
            for path in sorted((folder / subset / side).glob("*_*.txt")):
                number, _, rating = path.stem.partition("_")
                if not rating.isdigit():
                    raise BadFile(f"{path.name}: a review is called NUMBER_RATING.txt.")
                text = _plain(path.read_text(encoding="utf-8"))
                documents.append(Document(subset, text, (rating,), id=f"{side}/{number}"))
    return documents


def _plain(text: str) -> str:
    """Replace line breaks written as tags."""
    return text.replace("<br />", "\n").replace("<br/>", "\n").replace("<br>", "\n")


TEN = Corpus(
    name="imdb",
    card=TEN_CARD,
    layouts=(
        Layout("the JSON of JMARS", "data.json in a folder jmars, or imdb_jmars.json", _find_json, _read_json),
        jsonl_layout("imdb.jsonl", parts={"all": ""}),
    ),
    originals=(Original("https://www.dropbox.com/s/0oea49j7j30y671/data.json?dl=1", "imdb_jmars.json"),),
    published={"documents": 348415, "classes": 10},
)
EIGHT = Corpus(
    name="imdb-lmrd",
    card=EIGHT_CARD,
    layouts=(
        Layout(
            "the authors' folders",
            "the folder aclImdb with train and test, pos and neg",
            find_files(("train/pos", "train/neg", "test/pos", "test/neg"), "aclImdb"),
            _read_reviews,
            {"train": 25000, "test": 25000, "classes": 8},
        ),
        jsonl_layout(
            "imdb_lmrd_18k.jsonl", {"train": 12000, "test": 6000, "classes": 8}, name="JSON lines, a stratified subset"
        ),
    ),
    originals=(
        Original(
            url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            file="aclImdb_v1.tar.gz",
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            keep=r"/(train|test)/(pos|neg)/[^/]+\.txt$",
        ),
    ),
    published=TEN.published,
)


@task("imdb", source=DataSource(CARD, (TEN, EIGHT)))
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
    name = "imdb" if setting == "in-domain" else "imdb-novelty"
    options = CorpusOptions(name, "multiclass", setting, _lower_middle, split_seed, cal, order=int)
    return corpus_task(_copy(ratings, data_dir), options)


def _copy(ratings: str, data_dir: str | None) -> LocalCopy:
    if ratings == "auto":
        here = find_copy(TEN, data_dir) if data_dir is None or holds_corpus(TEN, data_dir) else None
        return here if here is not None else obtain(EIGHT, data_dir)
    return obtain(TEN if ratings == "ten" else EIGHT, data_dir)


def _lower_middle(classes: tuple[str, ...]) -> tuple[str, ...]:
    return (classes[(len(classes) - 1) // 2],)
