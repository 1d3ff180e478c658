"""CLINC150: the intent of a request to an assistant, and whether it is in scope."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile, UserError
from dubio.core.registry import task
from dubio.core.types import PADDING_WORD, UNKNOWN_WORD, Split, Task
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

LONG_WORD = re.compile(r"\b\w\S+\b")
"""A word of the text paper's code."""

FEWEST_WORDS = 5
"""Words of a request that its code does not drop: the widest convolution needs them."""

BATCH = 32
"""Texts that its code pads to one length."""


def without_short_requests(read: Task) -> Task:
    """Return the task without requests of fewer than :data:`FEWEST_WORDS` long words."""
    rows = [[i for i, text in enumerate(_texts(split)) if len(LONG_WORD.findall(text)) >= FEWEST_WORDS]
            for split in read.splits]  # fmt: skip
    splits = [
        Split.of(split.name, split.kind, split.data.take(np.array(own, dtype=np.int64)))
        for split, own in zip(read.splits, rows, strict=True)
    ]
    dropped = sum(map(len, read.splits)) - sum(map(len, splits))
    reason = f"because they have fewer than {FEWEST_WORDS} words of two or more characters, as in the text paper's code"
    return replace(read, splits=tuple(splits), left_out={**read.left_out, reason: dropped})


def with_long_words(split: Split) -> Split:
    """Return the split without words of one character."""
    return _with_texts(split, (" ".join(LONG_WORD.findall(text)) for text in _texts(split)))


def padded(split: Split, word: str, seed: int) -> Split:
    """Return the split with texts filled up by a word to the longest of their batch, in a random order of the texts.

    Args:
        split: The split.
        word: What fills them up.
        seed: Seed of the order.
    """
    texts = _texts(split)
    lengths = np.array([len(text.split()) for text in texts])
    batches = np.empty(len(texts), dtype=np.int64)
    batches[np.random.default_rng(seed).permutation(len(texts))] = np.arange(len(texts)) // BATCH
    longest = np.zeros(int(batches.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(longest, batches, lengths)
    missing = longest[batches] - lengths
    return _with_texts(split, (text + f" {word}" * count for text, count in zip(texts, missing.tolist(), strict=True)))


def _texts(split: Split) -> tuple[str, ...]:
    assert isinstance(split.data.inputs, tuple), "a corpus holds texts"
    return split.data.inputs


def _with_texts(split: Split, texts: Iterable[str]) -> Split:
    return Split.of(split.name, split.kind, replace(split.data, inputs=tuple(texts)))


@task("clinc", source=DataSource(CORPUS.card, (CORPUS,)))
def clinc(
    *,
    setting: Setting = "in-domain",
    data_dir: str | None = None,
    split_seed: int = 42,
    cal: float = 0.0,
    unmasked_padding: bool = False,
    no_unknown_token: bool = False,
    drop_one_letter_words: bool = False,
    drop_short_requests: bool = False,
) -> Task:
    """CLINC150, 150 intents: in-domain, or novelty with requests out of scope.

    Splits: train, val, test as published; the novelty setting adds ``novel``, the 1,000 requests of the published
    out-of-scope test part, and changes nothing else: both settings share their trainings. The published out-of-scope
    training and validation requests are not used.

    The last four arguments repeat errors of the text paper's code, to measure what they did. That code sorts the texts
    of training and validation by length before it cuts them into batches of 32, which leaves hardly anything to pad;
    test texts stay in the random order of TensorFlow Datasets and are padded to the longest of their batch.

    Args:
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where clinc``.
        split_seed: Seed of the split of ``cal``, and of the batches of ``unmasked_padding``.
        cal: Share of training that becomes the split ``cal``.
        unmasked_padding: Erratum: test texts are filled up to the longest of their batch with words whose vector is
            zero, and which count like any word.
        no_unknown_token: Erratum: these words have the vector of words that are not in the vocabulary.
        drop_one_letter_words: Erratum: words of one character (*i*, *a*, *5*) and punctuation are dropped.
        drop_short_requests: Erratum: requests of fewer than five words of two or more characters are in no split.

    Raises:
        UserError: For ``no_unknown_token`` without padding that it could concern.
    """
    if no_unknown_token and not unmasked_padding:
        reason = "training batches hold no padding, so that padding must be unmasked for it to have any effect"
        raise UserError(f"no_unknown_token: {reason}; set unmasked_padding, too.")
    options = CorpusOptions("clinc", "multiclass", setting, split_seed, cal)
    read = corpus_task(obtain(CORPUS, data_dir), options)
    if drop_short_requests:
        read = without_short_requests(read)
    splits, notes = list(read.splits), list(read.notes)
    if drop_one_letter_words:
        splits = [with_long_words(split) for split in splits]
        notes.append("Words of one character and punctuation are dropped, as in the text paper's code.")
    if unmasked_padding:
        word = UNKNOWN_WORD if no_unknown_token else PADDING_WORD
        splits = [padded(split, word, split_seed) if split.kind in ("id", "ood") else split for split in splits]
        notes.append(f"Test texts are filled up to the longest of {BATCH}, as in the text paper's code.")
    return replace(read, splits=tuple(splits), notes=tuple(notes))
