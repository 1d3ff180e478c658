"""Documents as JSON lines: objects with ``split``, ``text``, ``labels`` and sometimes ``id`` and ``domain``.

From a corpus's documents to a task: given parts kept, what is missing cut out of training, novel labels dropped.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dubio.core.errors import BadFile, UserError
from dubio.core.types import BoolArray, Examples, IntArray, Kind, SourceCard, Split, StrArray, Target, Task
from dubio.tasks.shift import Novelty, hold_out, novel_names
from dubio.tasks.sources.locate import DataMissing, Document, Found, compared
from dubio.tasks.splitting import PARTS, TEST, TRAIN, VAL, stratified_parts

AS_IT_IS: Mapping[str, str] = {"train": "train", "val": "val", "test": "test"}


def jsonl_finder(name: str) -> Callable[[Path], Path | None]:
    """Looks for one file, gzipped or not."""

    def find(folder: Path) -> Path | None:
        return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)

    return find


def jsonl_reader(
    parts: Mapping[str, str] = AS_IT_IS, *, label: Callable[[str], str] = str
) -> Callable[[Path], list[Document]]:
    """Reads such a file.

    Args:
        parts: The file's splits and the parts they are; a split that is not named keeps its name.
        label: What a label's name becomes.
    """

    def read(path: Path) -> list[Document]:
        return [_document(row, f"{path.name}, line {number}", parts, label) for number, row in _rows(path)]

    return read


def _rows(path: Path) -> list[tuple[int, Any]]:
    rows = []
    number = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    rows.append((number, json.loads(line)))
    except (OSError, EOFError, ValueError) as fault:
        raise BadFile(f"{path.name}, line {number}: not JSON lines: {fault}.") from fault
    return rows


def _document(row: Any, place: str, parts: Mapping[str, str], label: Callable[[str], str]) -> Document:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not isinstance(row.get("labels"), list):
        raise BadFile(f"{place}: a document is an object with a text 'text' and a list 'labels'.")
    split = str(row.get("split", ""))
    return Document(
        part=parts.get(split, split),
        text=row["text"],
        labels=tuple(label(str(name)) for name in row["labels"]),
        id=str(row.get("id", "")),
        domain=str(row.get("domain", "")),
    )


Setting = Literal["in-domain", "novelty"]

VAL_SHARE = 0.15
"""Of training, where a corpus has no validation part (T, Appendix)."""

UNCUT_SHARES = (0.65, 0.15, 0.20)
"""Train, val and test where a corpus has no parts at all (T, Section III-B)."""

_OUTSIDE = -1


@dataclass(frozen=True)
class Wishes:
    """What is asked of a corpus.

    Attributes:
        name: What the task is called.
        target: What is predicted.
        setting: In-domain, or with novel labels held out.
        novel: The labels that the novelty setting holds out, if any.
        seed: Of whatever is cut at random.
        cal: Share of training that becomes the split ``cal``; 0 for none.
        order: Sorts the names of the classes.
    """

    name: str
    target: Target
    setting: Setting
    novel: Callable[[tuple[str, ...]], tuple[str, ...]]
    seed: int
    cal: float
    order: Callable[[str], object] = str


def task_of(found: Found, wishes: Wishes) -> Task:
    """Read a copy of a corpus and cut it.

    Raises:
        DataMissing: When it has no training document.
        UserError: When the shares cannot be.
    """
    everything = found.documents()
    documents = [document for document in everything if document.part in ("", *PARTS, "novel")]
    if not any(document.part in ("", "train") for document in documents):
        raise DataMissing(f"{found.path.name} has no training document; {wishes.name} cannot be trained on it.")
    inside = [name for document in documents if document.part != "novel" for name in document.labels]
    classes = tuple(sorted(set(inside), key=wishes.order))  # type: ignore[arg-type]
    labels = label_array(documents, classes, wishes.target)
    held: tuple[str, ...] = ()
    if wishes.setting == "novelty":
        held = novel_names(classes, [0] * len(classes), wishes.novel(classes), seed=wishes.seed)
    novel = hold_out(classes, labels, held).novel
    parts = _parts(documents, labels, novel, wishes)
    final = _of_training(classes, labels, parts, novel)
    splits, notes = _splits(documents, parts, novel, final, wishes)
    if held:
        notes.insert(0, f"Never trained on, {len(held)} of {len(classes)} classes: {', '.join(held)}.")
    lost = [name for name in classes if name not in final.classes and name not in held]
    if lost:
        notes.append(f"Classes that no training document carries, left out: {', '.join(lost)}.")
    notes += [count.sentence() for count in compared(found, everything) if count.differs]
    return Task(wishes.name, "text", wishes.target, final.classes, splits, card_of(found, documents), tuple(notes))


def label_array(documents: Sequence[Document], classes: Sequence[str], target: Target) -> IntArray:
    """Class index ``[N]`` or multi-hot ``[N, K]``; a label that is no class counts as none.

    Raises:
        UserError: When a single-label document has not exactly one label.
    """
    index = {name: number for number, name in enumerate(classes)}
    if target != "multilabel":
        for row, document in enumerate(documents):
            if len(document.labels) != 1:
                raise UserError(f"document {document.id or row} has {len(document.labels)} labels, not one.")
        return np.array([index.get(document.labels[0], -1) for document in documents], dtype=np.int64)
    hot = np.zeros((len(documents), len(classes)), dtype=np.int64)
    for row, document in enumerate(documents):
        hot[row, [index[name] for name in document.labels if name in index]] = 1
    return hot


def card_of(found: Found, documents: Sequence[Document]) -> SourceCard:
    """The corpus's card with the copy that was read as its revision."""
    card = found.corpus.card
    return replace(card, revision=f"{found.layout.name}: {found.path.name}, {len(documents):,} documents")


def examples_of(documents: Sequence[Document], labels: IntArray, names: StrArray) -> Examples:
    """The documents as examples."""
    return Examples(tuple(document.text for document in documents), labels, ids=names)


def ids_of(documents: Sequence[Document]) -> StrArray:
    """A name for every document, unique: its part (or domain) and its own id, or else its place in that part."""
    seen: Counter[str] = Counter()
    made = []
    for document in documents:
        home = document.part or document.domain
        seen[home] += 1
        name = f"{home or 'row'}/{document.id or seen[home]}"
        seen[f"={name}"] += 1
        again = seen[f"={name}"]
        made.append(name if again == 1 else f"{name}#{again}")
    return np.array(made, dtype=np.str_)


def checked_cal(cal: float) -> float:
    """The share of training for ``cal``, refused unless it can be.

    Raises:
        UserError: When it is negative or leaves too little.
    """
    if not 0 <= cal <= 0.5:
        raise UserError(f"cal must be a share of training between 0 and 0.5; given {cal}.")
    return cal


def _parts(documents: Sequence[Document], labels: IntArray, novel: BoolArray, wishes: Wishes) -> IntArray:
    """The part of every document; −1 for what is in none."""
    given = np.array([document.part for document in documents])
    codes = {name: code for code, name in enumerate(PARTS)}
    parts = np.array([codes.get(name, _OUTSIDE) for name in given.tolist()], dtype=np.int64)
    uncut = np.flatnonzero(given == "")
    if len(uncut):
        train, val, test = UNCUT_SHARES
        parts[uncut] = cut_whole(documents, labels, uncut, (train, val, 0.0, test), wishes.seed)
    cal = checked_cal(wishes.cal)
    val = 0.0 if (parts == VAL).any() else VAL_SHARE
    # novel documents go before the cut, so that every class that stays has its share of the rest
    pool = np.flatnonzero((parts == TRAIN) & ~novel)
    if val or cal:
        parts[pool] = cut_whole(documents, labels, pool, (1 - val - cal, val, cal, 0.0), wishes.seed)
    return parts


def cut_whole(
    documents: Sequence[Document], labels: IntArray, rows: IntArray, fractions: Sequence[float], seed: int
) -> IntArray:
    """Stratified parts of some documents; those with the very same text stay together."""
    first: dict[str, int] = {}
    texts = np.array([first.setdefault(documents[row].text, row) for row in rows.tolist()]).astype(np.str_)
    return stratified_parts(labels[rows], fractions=fractions, seed=seed, group=texts)


def _of_training(classes: tuple[str, ...], labels: IntArray, parts: IntArray, novel: BoolArray) -> Novelty:
    """Labels among the classes that training has; ``novel`` then marks every document that carries another one."""
    trained = labels[(parts == TRAIN) & ~novel]
    seen = trained.any(axis=0) if labels.ndim == 2 else np.bincount(trained, minlength=len(classes)) > 0
    return hold_out(classes, labels, [name for name, there in zip(classes, seen.tolist(), strict=True) if not there])


def _splits(
    documents: Sequence[Document], parts: IntArray, novel: BoolArray, final: Novelty, wishes: Wishes
) -> tuple[tuple[Split, ...], list[str]]:
    labelled = final.labels.any(axis=1) if final.labels.ndim == 2 else final.labels >= 0
    rows = {name: (parts == code) & ~novel for code, name in enumerate(PARTS)}
    notes = []
    for name, mask in rows.items():
        bare = int((mask & ~labelled).sum())
        if bare:
            notes.append(f"Left out of {name}, because training has none of their classes: {bare:,} documents.")
    kinds: dict[str, Kind] = dict(zip(PARTS, ("train", "val", "cal", "id"), strict=True))
    chosen = {name: np.flatnonzero(mask & labelled) for name, mask in rows.items()}
    if wishes.setting == "novelty":
        outside = np.array([document.part == "novel" for document in documents], dtype=bool)
        kinds["novel"] = "ood"
        chosen["novel"] = np.flatnonzero(outside | (novel & (parts == TEST)))
    for name in ("train", "val", "test", *(["novel"] if wishes.setting == "novelty" else [])):
        if len(chosen[name]) == 0:
            raise UserError(f"{wishes.name}: the split {name} would be empty.")
    everything = examples_of(documents, final.labels, ids_of(documents))
    splits = tuple(Split.of(name, kinds[name], everything.take(which)) for name, which in chosen.items() if len(which))
    return splits, notes + shared_notes(splits)


def shared_notes(splits: Sequence[Split]) -> list[str]:
    """How many documents of a later split have word for word the text of one that training sees."""
    train = next(split for split in splits if split.kind == "train")
    known = set(train.data.inputs)
    counts = {split.name: sum(text in known for text in split.data.inputs) for split in splits if split is not train}
    return [
        f"Documents of {name} whose very text is also in train: {count:,} (the published parts are kept as they are)."
        for name, count in counts.items()
        if count
    ]
