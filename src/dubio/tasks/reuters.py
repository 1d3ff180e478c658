"""Reuters-21578, ApteMod: the topics of newswire stories, several at a time."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataSource, Document
from dubio.tasks.text_corpora import CorpusOptions, Setting, corpus_task, text_corpus

NOVEL = "acq"

_STORY = re.compile(r"<REUTERS(.*?)>(.*?)</REUTERS>", re.DOTALL)
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_CONTROL = re.compile(r"&#\d+;|[\x00-\x08\x0b-\x1f]")


def _read_sgm(folder: Path) -> list[Document]:
    """Read the ApteMod stories: Lewis's parts, and the topics that both train and test have."""
    files = sorted(folder.glob("reut2-0*.sgm"))
    documents = [story for path in files for story in _stories(path.read_text(encoding="latin-1"))]
    if not documents:
        raise BadFile(f"{folder.name}: no story of the ApteMod parts in its reut2-0….sgm files.")
    topics = {name: {topic for d in documents if d.subset == name for topic in d.labels} for name in ("train", "test")}
    both = topics["train"] & topics["test"]
    filtered = [(d, tuple(topic for topic in d.labels if topic in both)) for d in documents]
    return [Document(d.subset, d.text, names, d.id) for d, names in filtered if names]


def _stories(text: str) -> Iterator[Document]:
    for head, body in _STORY.findall(text):
        facts = dict(re.findall(r'(\w+)="(.*?)"', head))
        subset = {"TRAIN": "train", "TEST": "test"}.get(facts.get("LEWISSPLIT", ""))
        topics = _TOPICS.search(body)
        if subset is None or facts.get("TOPICS") != "YES" or topics is None:
            continue
        names = tuple(dict.fromkeys(re.findall(r"<D>(.*?)</D>", topics[1])))
        yield Document(subset, _words(body), names, id=facts.get("NEWID", ""))


def _words(body: str) -> str:
    """Return title and text; the complete text of a story without these tags."""
    texts = [text for tag in ("TITLE", "BODY") for text in re.findall(rf"<{tag}>(.*?)</{tag}>", body, re.DOTALL)[:1]]
    texts = texts or re.findall(r"<TEXT.*?>(.*?)</TEXT>", body, re.DOTALL)[:1]
    return html.unescape(_CONTROL.sub(" ", "\n".join(texts))).strip()


def _read_apte(folder: Path) -> list[Document]:
    documents = []
    for number, line in enumerate((folder / "cats.txt").read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, *topics = line.split()
        subset, _, story = name.partition("/")
        path = folder / subset / story
        if subset not in ("training", "test") or not story.isalnum() or not topics or not path.is_file():
            raise BadFile(f"cats.txt, line {number}: expected training/NUMBER or test/NUMBER, a file, and its topics.")
        text = html.unescape(path.read_text(encoding="iso-8859-2"))
        documents.append(Document("train" if subset == "training" else "test", text.strip(), tuple(topics), id=story))
    return documents


CORPUS = text_corpus("reuters", sgml=_read_sgm, apte=_read_apte)


@task("reuters", source=DataSource(CORPUS.card, (CORPUS,)))
def reuters(
    *, setting: Setting = "in-domain", data_dir: str | None = None, split_seed: int = 42, cal: float = 0.0
) -> Task:
    """Topics of newswire stories, multi-label: in-domain, or novelty with acquisitions held out.

    Splits: train, val (15 % of the published training part, stratified), test. In the novelty setting every training
    and validation story with the topic ``acq`` is dropped; test stories that carry it are the split ``novel``, with
    what other topics they have as labels.

    Args:
        setting: ``in-domain`` or ``novelty``.
        data_dir: A folder with the corpus; see ``dubio data where reuters``.
        split_seed: Seed of the split into train and val.
        cal: Share of training that becomes the split ``cal``.
    """
    options = CorpusOptions("reuters", "multilabel", setting, split_seed, cal, novel=lambda classes: (NOVEL,))
    return corpus_task(obtain(CORPUS, data_dir), options)
