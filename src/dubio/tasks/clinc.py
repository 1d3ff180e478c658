"""CLINC150: the intent of a request to an assistant, and whether it is in scope."""

from __future__ import annotations

import csv
from pathlib import Path

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataSource, Document
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, text_corpus

OUT_OF_SCOPE = "oos"
_TABLES = {
    **{f"{subset}.csv": subset for subset in ("train", "val", "test")},
    **{"test_ood.csv": "novel", "train_ood.csv": "oos_train", "val_ood.csv": "oos_val"},
}


def _read_json(path: Path) -> list[Document]:
    try:
        splits = parse_json(path.read_bytes(), path.name)
        rows = [("novel" if split == "oos_test" else split, *row) for split, rows in splits.items() for row in rows]
        return [Document(subset, _text(text), (_text(intent),)) for subset, text, intent in rows]
    except (ValueError, TypeError, AttributeError) as fault:
        raise BadFile(f"{path.name}: expected an object of lists of [text, intent]: {fault}.") from fault


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _read_tables(folder: Path) -> list[Document]:
    documents = []
    for name, subset in _TABLES.items():
        with (folder / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("text") is None or row.get("intent_name") is None:
                    raise BadFile(f"{name}: expected the columns text and intent_name in every row.")
                inside = subset in ("train", "val", "test")
                documents.append(Document(subset, row["text"], (row["intent_name"] if inside else OUT_OF_SCOPE,)))
    return documents


CORPUS = text_corpus("clinc", json=_read_json, tables=_read_tables)


@task("clinc", source=DataSource(CORPUS.card, (CORPUS,)))
def clinc(
    *, setting: Setting = "in-domain", data_dir: str | None = None, split_seed: int = 42, cal: float = 0.0
) -> Task:
    """CLINC150, 150 intents: in-domain, or novelty with requests out of scope.

    Splits: train, val, test as published; the novelty setting adds ``novel``, the 1,000 requests of the published
    out-of-scope test part, and changes nothing else: both settings share their trainings. The published out-of-scope
    training and validation requests are not used.

    Args:
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where clinc``.
        split_seed: Seed of the split of ``cal``.
        cal: Share of training that becomes the split ``cal``.
    """
    options = CorpusOptions("clinc", "multiclass", setting, split_seed, cal)
    return corpus_task(obtain(CORPUS, data_dir), options)
