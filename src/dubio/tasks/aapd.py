"""AAPD: the subjects of computer science abstracts, several at a time."""

from __future__ import annotations

from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataSource, Document
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, text_corpus

NOVEL = "cs.it"
_PARTS = ("train", "val", "test")


def _read_lines(folder: Path) -> list[Document]:
    documents = []
    for subset in _PARTS:
        texts, labels = ((folder / f"{what}_{subset}").read_text("utf-8").splitlines() for what in ("text", "label"))
        if len(texts) != len(labels):
            raise BadFile(f"text_{subset} has {len(texts):,} lines, label_{subset} {len(labels):,}; they go together.")
        pairs = zip(texts, labels, strict=True)
        documents += [Document(subset, text.strip(), tuple(names.lower().split())) for text, names in pairs]
    return documents


CORPUS = text_corpus("aapd", lines=_read_lines)


@task("aapd", source=DataSource(CORPUS.card, (CORPUS,)))
def aapd(
    *, setting: Setting = "in-domain", data_dir: str | None = None, split_seed: int = 42, cal: float = 0.0
) -> Task:
    """Subjects of computer science abstracts, multi-label: in-domain, or novelty with information theory held out.

    Splits: train, val, test as published. In the novelty setting every training and validation abstract with the
    subject ``cs.it`` is dropped; test abstracts that carry it are the split ``novel``, with what other subjects they
    have as labels. ``math.it`` is another name of the same subject and leaves training with it. Labels are in lower
    case.

    Args:
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where aapd``.
        split_seed: Seed of the split of ``cal``.
        cal: Share of training that becomes the split ``cal``.
    """
    options = CorpusOptions("aapd", "multilabel", setting, split_seed, cal, novel=lambda classes: (NOVEL,))
    return corpus_task(obtain(CORPUS, data_dir), options)
