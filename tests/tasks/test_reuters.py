"""Reuters, documents with several labels, in the forms of their authors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile
from tests.tasks.helpers import make, make_real, needs, put, sizes

pytestmark = pytest.mark.usefixtures("no_other_data")


def story(number: int, split: str, topics: str, text: str, has_topics: str = "YES") -> str:
    names = "".join(f"<D>{topic}</D>" for topic in topics.split())
    return (
        f'<REUTERS TOPICS="{has_topics}" LEWISSPLIT="{split}" CGISPLIT="X" OLDID="1" NEWID="{number}">\n'
        f"<TOPICS>{names}</TOPICS><PLACES><D>usa</D></PLACES>\n<TEXT>&#2;\n{text}</TEXT>\n</REUTERS>\n"
    )


def test_reuters_apte_parts_from_sgml(tmp_path: Path) -> None:
    stories = [
        story(
            i,
            "TRAIN",
            "acq" if i % 4 == 0 else "earn grain" if i % 4 == 1 else "grain",
            f"<TITLE>T{i}</TITLE><BODY>b &lt;X> {i}&#3;</BODY>",
        )
        for i in range(40)
    ]
    stories += [
        story(100 + i, "TEST", topics, f"<TITLE>T{i}</TITLE>")
        for i, topics in enumerate(("acq", "acq earn", "grain", "earn tin"))
    ]
    stories += [
        story(200, "TRAIN", "lonely", "no test story has it"),
        story(201, "TRAIN", "earn", "no", "NO"),
        story(202, "NOT-USED", "earn", "no"),
    ]
    put(tmp_path / "reut2-000.sgm", "<!DOCTYPE lewis>\n" + "".join(stories[:20]), "latin-1")
    put(tmp_path / "reut2-001.sgm", "".join(stories[20:]), "latin-1")
    task = make("reuters", tmp_path)
    assert task.target == "multilabel"
    assert task.classes == ("acq", "earn", "grain")
    assert sizes(task) == {"train": 34, "val": 6, "test": 4}
    assert dict(zip(task.split("test").data.ids.tolist(), task.split("test").data.labels.tolist(), strict=True)) == {
        "test/100": [1, 0, 0],
        "test/101": [1, 1, 0],
        "test/102": [0, 0, 1],
        "test/103": [0, 1, 0],
    }
    everything = dict(zip(task.split("train").data.ids.tolist(), task.split("train").data.inputs, strict=True))
    assert all(text == f"T{name[6:]}\nb <X> {name[6:]}" for name, text in everything.items())
    novelty = make("reuters", tmp_path, setting="novelty")
    assert novelty.classes == ("earn", "grain")
    assert sizes(novelty) == {
        "train": 26,
        "val": 4,
        "test": 2,
        "novel": 2,
    }  # 15 % of 30 is 4.5: the class shares decide
    assert novelty.split("novel").data.labels.tolist() == [[0, 0], [1, 0]]


def test_reuters_in_nltks_folders(tmp_path: Path) -> None:
    lines = []
    for i in range(30):
        home = "training" if i < 20 else "test"
        put(tmp_path / "reuters" / home / str(i), f"STORY {i}\n  body &lt;ABC>\n", "iso-8859-2")
        lines.append(f"{home}/{i} {'acq' if i % 2 else 'earn ship'}")
    put(tmp_path / "reuters" / "cats.txt", "\n".join(lines) + "\n")
    task = make("reuters", tmp_path)
    assert sizes(task) == {"train": 17, "val": 3, "test": 10}
    assert task.split("test").data.inputs[0] == "STORY 20\n  body <ABC>"
    put(tmp_path / "reuters" / "cats.txt", "training/../../x earn\n")
    with pytest.raises(BadFile, match=r"cats\.txt, line 1"):
        make("reuters", tmp_path)


def test_reuters_novelty_drops_acquisitions_everywhere(real: Path) -> None:
    needs(real, "reuters90.jsonl.gz")
    whole, novelty = make_real("reuters", real), make_real("reuters", real, setting="novelty")
    acq = whole.classes.index("acq")
    carriers = int(whole.split("test").data.labels[:, acq].sum())
    assert len(novelty.split("novel")) == carriers == 719
    assert len(novelty.split("test")) == 3019 - carriers
    assert len(novelty.classes) == 89
    learned = sum(len(whole.split(name)) - len(novelty.split(name)) for name in ("train", "val"))
    assert learned == sum(int(whole.split(name).data.labels[:, acq].sum()) for name in ("train", "val"))
    mean = np.concatenate([split.data.labels for split in whole.splits]).sum(axis=1).mean()
    assert mean == pytest.approx(1.24, abs=0.005)  # T, Section III-B
