"""CLINC150: the intent of a request to an assistant, and whether it is in scope."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import SourceCard, Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import Corpus, DataSource, Document, Layout, Original
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, find_files, jsonl_layout

CARD = SourceCard(
    source="https://github.com/clinc/oos-eval, data_full.json",
    revision="full",
    licence="CC BY 3.0",
    citation="S. Larson et al. (2019), An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction, "
    "EMNLP",
    description="Short requests to an assistant, 150 intents in 10 domains. Novelty: 1,000 requests out of scope.",
)

OUT_OF_SCOPE = "oos"
COUNTS = {"train": 15000, "val": 3000, "test": 4500, "novel": 1000, "oos_train": 100, "oos_val": 100, "classes": 150}
_PARTS = {"train": "train", "val": "val", "test": "test", "oos_test": "novel"}
_TABLES = {
    "train.csv": "train",
    "val.csv": "val",
    "test.csv": "test",
    "test_ood.csv": "novel",
    "train_ood.csv": "oos_train",
    "val_ood.csv": "oos_val",
}


def _find_json(folder: Path) -> Path | None:
    candidates = (folder / "data_full.json", folder / "clinc150_uci" / "data_full.json")
    return next((path for path in candidates if path.is_file()), None)


def _read_json(path: Path) -> list[Document]:
    try:
        splits = json.loads(path.read_text(encoding="utf-8"))
        return [
            Document(_PARTS.get(split, split), text, (intent,))
            for split, rows in splits.items()
            for text, intent in rows
        ]
    except (ValueError, TypeError, AttributeError) as fault:
        raise BadFile(f"{path.name}: expected an object of lists of [text, intent]: {fault}.") from fault


def _read_tables(folder: Path) -> list[Document]:
    documents = []
    for name, subset in _TABLES.items():
        with (folder / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if "text" not in row or "intent_name" not in row:
                    raise BadFile(f"{name}: expected the columns text and intent_name.")
                inside = subset in ("train", "val", "test")
                documents.append(Document(subset, row["text"], (row["intent_name"] if inside else OUT_OF_SCOPE,)))
    return documents


CORPUS = Corpus(
    name="clinc",
    card=CARD,
    layouts=(
        Layout("the authors' JSON", "data_full.json", _find_json, _read_json, COUNTS),
        Layout(
            "the tables of TensorFlow Datasets",
            ", ".join(_TABLES),
            find_files(list(_TABLES), "clinc_oos"),
            _read_tables,
            COUNTS,
        ),
        jsonl_layout("clinc150.jsonl", COUNTS, parts=_PARTS),
    ),
    originals=(
        Original("https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json", "data_full.json"),
        Original(
            # the hash is the one that TensorFlow Datasets checks; T reads this copy too
            url="https://github.com/jereliu/datasets/raw/master/clinc_oos.zip",
            file="clinc_oos.zip",
            sha256="e4e11b767b435a840ee9216eacec93cb69f2d6707252b416ebd0d4843cd3d9ee",
        ),
    ),
    published={"documents": 22500, "classes": 150},
)


@task("clinc", source=DataSource(CARD, (CORPUS,)))
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
    options = CorpusOptions("clinc", "multiclass", setting, lambda classes: (), split_seed, cal)
    return corpus_task(obtain(CORPUS, data_dir), options)
