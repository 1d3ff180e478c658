"""Text corpora: the real ones, where they are, hold as many documents as their own description says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dubio.tasks import aapd, amazon, clinc, imdb, reuters
from dubio.tasks.sources.locate import Corpus, count_content, find_copy
from tests.tasks.helpers import needs

pytestmark = pytest.mark.usefixtures("no_other_data")

COUNTS: list[tuple[str, Corpus, dict[str, int]]] = [
    ("clinc150.jsonl.gz", clinc.CORPUS, {**clinc.CORPUS.layouts[0].counts, "documents": 22500}),
    ("reuters90.jsonl.gz", reuters.CORPUS, {"train": 7770, "test": 3019, "documents": 10789, "classes": 90}),
    ("amazon.jsonl.gz", amazon.CORPUS, {"uncut": 8000, "documents": 8000, "classes": 2}),
    # described as 12,000 training reviews; the file holds one fewer
    ("imdb_lmrd_18k.jsonl.gz", imdb.EIGHT, {"train": 11999, "test": 6000, "documents": 17999, "classes": 8}),
    ("aapd_val_test.jsonl.gz", aapd.CORPUS, {"val": 1000, "test": 1000, "documents": 2000, "classes": 54}),
]


@pytest.mark.parametrize(("file", "corpus", "counts"), COUNTS, ids=[name for name, *_ in COUNTS])
def test_counts(real: Path, file: str, corpus: Corpus, counts: dict[str, int]) -> None:
    needs(real, file)
    found = find_copy(corpus, str(real))
    assert found is not None
    assert found.path.name == file
    assert count_content(found.read()) == counts
