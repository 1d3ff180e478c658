"""The catalogue of public data sets, and data inside other packages."""

from __future__ import annotations

import re
import sys
from dataclasses import fields

import pytest

from dubio.core.errors import MissingExtra
from dubio.core.registry import TASKS
from dubio.core.types import SourceCard
from dubio.tasks.sources.locate import catalogue, public_corpus, source_card


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    for name in ("digits", "breast-cancer"):
        with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
            TASKS.make(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
        TASKS.make("movie-reviews")


@pytest.mark.parametrize("name", catalogue())
def test_an_entry_of_the_catalogue_is_a_card_with_addresses_and_full_hashes(name: str) -> None:
    card, corpus = source_card(name), public_corpus(name)
    assert all(getattr(card, field.name) for field in fields(SourceCard))
    more = {"originals", "wheel", "published", "advice", "files", "classes", "layouts"}
    assert set(catalogue()[name]) <= more | {field.name for field in fields(SourceCard)}
    hashes = [source.sha256 for source in (corpus.wheel, *corpus.originals) if source is not None]
    assert all(sha256 is None or re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes)
    for original in corpus.originals:
        assert original.url.startswith(("http://", "https://"))
        re.compile(original.keep)
