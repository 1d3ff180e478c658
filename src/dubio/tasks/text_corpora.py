"""From a corpus's documents to a task: named parts stay, missing ones are cut out of training, novel labels leave it.

Documents may come as JSON lines: objects with ``split``, ``text``, ``labels`` and sometimes ``id`` and ``domain``.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile, UserError
from dubio.core.types import BoolArray, Examples, IntArray, SourceCard, Split, StrArray, Target, Task
from dubio.core.unpacking import open_gzip
from dubio.tasks.shift import Novelty, hold_out, hold_out_untrained, novel_names
from dubio.tasks.sources.locate import (
    Corpus,
    DataMissing,
    Document,
    Layout,
    LocalCopy,
    catalogue,
    count_notes,
    find_file,
    find_folder,
    public_corpus,
)
from dubio.tasks.splitting import (
    PARTS,
    TEST,
    TRAIN,
    UNASSIGNED,
    VAL,
    SplitOptions,
    fill_parts,
    label_array,
    part_splits,
)

Setting = Literal["in-domain", "novelty"]

VAL_SHARE = 0.15
"""Share of training for validation, where a corpus has no validation part (T, Appendix)."""

UNDIVIDED_SHARES = (0.65, 0.15, 0.0, 0.20)
"""Shares of train, val, cal and test where a corpus has no parts at all (T, Section III-B)."""


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus becomes a task.

    Attributes:
        name: The corpus's name; the task of the novelty setting has its own where it trains on fewer classes.
        target: The kind of target.
        setting: In-domain, or with novel labels held out.
        seed: Seed of random parts.
        cal: Share of training that becomes the split ``cal``; 0 for none.
        novel: Chooses the labels that the novelty setting holds out; None where the corpus names them.
        order: Sorts the names of the classes.
    """

    name: str
    target: Target
    setting: Setting
    seed: int
    cal: float
    novel: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None
    order: Callable[[str], Any] = str


def corpus_task(copy: LocalCopy, options: CorpusOptions) -> Task:
    """Read a copy of a corpus and divide it.

    Raises:
        DataMissing: When it has no training document.
        UserError: When the shares are impossible.
    """
    content = copy.read()
    documents = [document for document in content if document.subset in ("", *PARTS, "novel")]
    if not any(document.subset in ("", "train") for document in documents):
        raise DataMissing(f"{copy.path.name} has no training document; {options.name} cannot be trained on it.")
    names = {name for document in documents if document.subset != "novel" for name in document.labels}
    classes = tuple(sorted(names, key=options.order))
    labels = document_labels(documents, classes, options.target)
    name, held_out = options.name, tuple[str, ...]()
    if options.setting == "novelty" and options.novel is not None:
        held_out = novel_names(classes, [0] * len(classes), options.novel(classes), seed=options.seed)
        name = f"{name}-novelty"
    novel = hold_out(classes, labels, held_out).novel
    parts = _parts(documents, labels, novel, options)
    trained = hold_out_untrained(classes, labels, (parts == TRAIN) & ~novel)
    splits, notes, left_out = _splits(documents, parts, novel, trained, options)
    if other := len(content) - len(documents):
        left_out["because their part of the corpus is not used"] = other
    if held_out:
        notes.insert(0, f"Never trained on, {len(held_out)} of {len(classes)} classes: {', '.join(held_out)}.")
    lost = [name for name in classes if name not in trained.classes and name not in held_out]
    if lost:
        notes.append(f"Classes that no training document carries, left out: {', '.join(lost)}.")
    notes += count_notes(copy, content)
    card = copy_card(copy, documents)
    rows = len(content)
    return Task(name, "text", options.target, trained.classes, splits, card, tuple(notes), rows, left_out)


def document_labels(documents: Sequence[Document], classes: Sequence[str], target: Target) -> IntArray:
    """Return class indices ``[N]`` or multi-hot labels ``[N, K]``; a label that is no class counts as none.

    Raises:
        UserError: When a single-label document has not exactly one label.
    """
    for row, document in enumerate(documents):
        if target != "multilabel" and len(document.labels) != 1:
            raise UserError(f"document {document.id or row} has {len(document.labels)} labels, not one.")
    return label_array([document.labels for document in documents], classes, target)


def copy_card(copy: LocalCopy, documents: Sequence[Document]) -> SourceCard:
    """Return the corpus's card with the copy that was read as its revision."""
    revision = f"{copy.layout.name}: {copy.path.name}, {len(documents):,} documents"
    return replace(copy.corpus.card, revision=revision)


def document_examples(documents: Sequence[Document], labels: IntArray) -> Examples:
    """Return the documents as examples."""
    return Examples(tuple(document.text for document in documents), labels, ids=_ids(documents))


def _ids(documents: Sequence[Document]) -> StrArray:
    """Name every document uniquely: its part (or domain) and its own id, or else its position in that part."""
    counts: Counter[str] = Counter()
    repeats: Counter[str] = Counter()
    ids = []
    for document in documents:
        prefix = document.subset or document.domain
        counts[prefix] += 1
        name = f"{prefix or 'row'}/{document.id or counts[prefix]}"
        repeats[name] += 1
        ids.append(name if repeats[name] == 1 else f"{name}#{repeats[name]}")
    return np.array(ids, dtype=np.str_)


def check_cal(cal: float) -> float:
    """Return the share of training for ``cal``.

    Raises:
        UserError: When it is negative or above one half.
    """
    if not 0 <= cal <= 0.5:
        raise UserError(f"cal must be a share of training between 0 and 0.5; given {cal}.")
    return cal


def _parts(documents: Sequence[Document], labels: IntArray, novel: BoolArray, options: CorpusOptions) -> IntArray:
    """Return the part of every document."""
    names = np.array([document.subset for document in documents])
    codes = {name: code for code, name in enumerate(PARTS)} | {"": TRAIN}
    parts = np.array([codes.get(name, UNASSIGNED) for name in names.tolist()], dtype=np.int64)
    undivided = np.flatnonzero(names == "")
    if len(undivided):
        shares = SplitOptions(UNDIVIDED_SHARES, options.seed)
        fill_parts(parts, undivided, labels, shares, group=text_groups(documents, undivided))
    val = 0.0 if (parts == VAL).any() else VAL_SHARE
    shares = SplitOptions.of_training(val=val, cal=check_cal(options.cal), seed=options.seed)
    # novel documents go first, so that every remaining class has its share of the rest
    pool = np.flatnonzero((parts == TRAIN) & ~novel)
    fill_parts(parts, pool, labels, shares, group=text_groups(documents, pool))
    return parts


def text_groups(documents: Sequence[Document], rows: IntArray) -> StrArray:
    """Return the group of each document ``[N]``; of the given rows, those with exactly the same text share one."""
    first: dict[str, int] = {}
    groups = np.zeros(len(documents), dtype=f"<U{len(str(len(documents)))}")
    for row in rows.tolist():
        groups[row] = first.setdefault(documents[row].text, row)
    return groups


def _splits(
    documents: Sequence[Document], parts: IntArray, novel: BoolArray, trained: Novelty, options: CorpusOptions
) -> tuple[tuple[Split, ...], list[str], dict[str, int]]:
    """Return the splits, notes, and reason → documents in no split."""
    labelled = trained.labels.any(axis=1) if trained.labels.ndim == 2 else trained.labels >= 0
    lost = {
        f"because training has none of the classes of these documents of {name}": (parts == code) & ~novel & ~labelled
        for code, name in enumerate(PARTS)
    }
    examples = document_examples(documents, trained.labels)
    usable = np.where(novel | ~labelled, UNASSIGNED, parts)
    splits = part_splits(examples, usable, required=("train", "val", "test"))
    named = np.array([document.subset == "novel" for document in documents], dtype=bool)
    if options.setting == "novelty":
        rows = np.flatnonzero(named | (novel & (parts == TEST)))
        if len(rows) == 0:
            raise UserError(f"{options.name}: the split novel would be empty.")
        splits.append(Split.of("novel", "ood", examples.take(rows)))
        lost["because they are of held-out classes and not test documents"] = novel & (parts != TEST) & ~named
    else:
        lost["because this setting does not test novel documents"] = named
    left_out = {reason: count for reason, mask in lost.items() if (count := int(mask.sum()))}
    return tuple(splits), shared_text_notes(splits), left_out


def shared_text_notes(splits: Sequence[Split]) -> list[str]:
    """Count the documents of each later split whose exact text training sees."""
    train = next(split for split in splits if split.kind == "train")
    texts = set(train.data.inputs)
    counts = {split.name: sum(text in texts for text in split.data.inputs) for split in splits if split is not train}
    return [
        f"Documents of {name} whose exact text is also in train: {count:,} (the published parts stay as they are)."
        for name, count in counts.items()
        if count
    ]


def text_corpus(name: str, **readers: Callable[[Path], list[Document]]) -> Corpus:
    """Return a public corpus of texts in the formats that the catalogue declares.

    Args:
        name: Its name in the catalogue.
        readers: The functions that read its documents, by the name of the format's ``reader``; JSON lines need none.
    """
    layouts = []
    for entry in catalogue()[name]["layouts"]:
        facts = {key: entry[key] for key in ("counts", "partial") if key in entry}
        if "file" in entry:
            file, read = entry["file"], partial(_read_json_lines, entry.get("parts", {}), entry.get("lower", False))
            find, title = find_file(f"{file}.gz", file), entry.get("name", "JSON lines")
            layouts.append(Layout(title, f"{file} or {file}.gz", find, read, **facts))
        else:
            folder = "all_of" in entry
            find = find_folder(entry["all_of"], *entry.get("inside", ())) if folder else find_file(*entry["any_of"])
            layouts.append(Layout(entry["name"], entry["files"], find, readers[entry["reader"]], **facts))
    return public_corpus(name, *layouts)


MOST_LINES = 10_000_000
"""Lines of a corpus, blank ones too: a small gzip file can hold any number of those."""


def _read_json_lines(parts: Mapping[str, str], lower: bool, path: Path) -> list[Document]:
    """Read documents; a split has the name of its part, if it has one, and labels may be converted to lower case."""
    label = str.lower if lower else str
    return [_document(row, f"{path.name}, line {line}", parts, label) for line, row in _json_lines(path)]


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield number and content of each line; one at a time, so that the first that is no document ends the reading."""
    number = 1
    try:
        stream: BinaryIO = open_gzip(path) if path.suffix == ".gz" else path.open("rb")
        with stream, io.TextIOWrapper(stream, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if number > MOST_LINES:
                    raise ValueError(f"more than {MOST_LINES:,} lines")
                if line.strip():
                    yield number, parse_json(line, "the line")
    except (OSError, ValueError) as fault:
        raise BadFile(f"{path.name}, line {number}: not JSON lines: {fault}.") from fault


def _document(row: Any, reference: str, parts: Mapping[str, str], label: Callable[[str], str]) -> Document:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not isinstance(row.get("labels"), list):
        raise BadFile(f"{reference}: a document is an object with a text 'text' and a list 'labels'.")
    split, labels = str(row.get("split", "")), tuple(label(str(name)) for name in row["labels"])
    return Document(parts.get(split, split), row["text"], labels, str(row.get("id", "")), str(row.get("domain", "")))
