from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import UnknownName, UserError
from dubio.core.specs import describe, restore
from dubio.core.types import PADDING_WORD, UNKNOWN_WORD, Examples
from dubio.encoders import PAD, UNK, TextEncoding, TokenRows, encoder_from_json, encoding_for, fit_encoder
from dubio.encoders.text import tokenise


def examples(*texts: str) -> Examples:
    return Examples(texts, np.zeros(len(texts), dtype=np.int64))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't PANIC!", ["don't", "panic", "!"]),
        ("1,000.5 km/h", ["1,000.5", "km", "/", "h"]),
        ("a_b <br />", ["a", "_", "b", "<", "br", "/", ">"]),
        ("E\u0301te\u0301", ["\u00e9t\u00e9"]),
        ("東京 tower", ["東", "京", "tower"]),
        (" \n\t", []),
        ("end.'quote'", ["end", ".", "'", "quote", "'"]),
    ],
)
def test_tokens_are_as_documented(text: str, tokens: list[str]) -> None:
    assert tokenise(text) == tokens


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_visible_character_is_lost(text: str) -> None:
    import unicodedata

    composed = unicodedata.normalize("NFC", text).lower()
    assert "".join(tokenise(text)) == "".join(composed.split())


def test_vocabulary_is_the_most_frequent_words_ties_in_alphabetical_order() -> None:
    encoder = fit_encoder(TextEncoding(vocabulary=3, min_frequency=2), examples("b b b a a", "c c d d rare"))
    assert encoder.words == ("b", "a", "c")
    assert encoder.shape == (5,)
    rows = encoder.encode(examples("b a c d never"))
    assert rows.tokens.tolist() == [2, 3, 4, UNK, UNK]


def test_vocabulary_comes_from_training_alone() -> None:
    encoder = fit_encoder(TextEncoding(min_frequency=1), examples("one two"))
    assert "three" not in encoder.words
    before = encoder.to_json()
    encoder.encode(examples("three three three"))
    assert encoder.to_json() == before


def test_an_empty_text_is_one_unknown_token_and_no_row_holds_padding() -> None:
    encoder = fit_encoder(TextEncoding(min_frequency=1, max_length=2), examples("a b c"))
    rows = encoder.encode(examples("", "  ", "a b c", "c"))
    assert rows.lengths.tolist() == [1, 1, 2, 1]
    assert rows.row(0).tolist() == [UNK]
    assert (rows.tokens != PAD).all()
    assert rows.tokens.dtype == np.int32
    assert rows.offsets.dtype == np.int64


@given(st.lists(st.text(alphabet="abc ", max_size=12), min_size=1, max_size=8), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_vocabulary_agrees_with_a_plain_count(texts: list[str], least: int) -> None:
    counts = Counter(word for text in texts for word in text.split())
    wanted = sorted((word for word, count in counts.items() if count >= least), key=lambda w: (-counts[w], w))
    encoding = TextEncoding(min_frequency=least)
    if not wanted:
        with pytest.raises(UserError, match="min_frequency"):
            fit_encoder(encoding, examples(*texts))
        return
    encoder = fit_encoder(encoding, examples(*texts))
    assert list(encoder.words) == wanted
    assert encoder_from_json(json.loads(json.dumps(encoder.to_json()))) == encoder


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=5), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_taking_rows_of_tokens_agrees_with_lists(rows: list[list[int]], data: st.DataObject) -> None:
    flat = np.array([token for row in rows for token in row], dtype=np.int32)
    packed = TokenRows(flat, np.concatenate(([0], np.cumsum([len(row) for row in rows]))))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8))
    taken = packed.take(np.array(order))
    assert [taken.row(i).tolist() for i in range(len(taken))] == [rows[i] for i in order]
    mask = np.array([i % 2 == 0 for i in range(len(rows))])
    assert packed.take(mask).tokens.tolist() == [token for row in rows[::2] for token in row]


def test_encodings_are_parts_and_refuse_what_they_do_not_know() -> None:
    encoding = encoding_for("text", {"vocabulary": 10})
    assert restore(json.loads(json.dumps(describe(encoding)))) == encoding
    with pytest.raises(UnknownName, match="vocabulary"):
        encoding_for("text", {"vocabluary": 10})
    with pytest.raises(UnknownName, match="table"):
        encoding_for("tables", {})
    with pytest.raises(UserError, match="max_length"):
        encoding_for("text", {"max_length": 0})
    with pytest.raises(UserError, match="incomplete"):
        encoder_from_json({"encoder": "text"})
    with pytest.raises(UserError, match="needs texts"):
        fit_encoder(encoding, Examples(np.zeros((2, 2)), np.zeros(2, dtype=np.int64)))


def test_words_that_fill_up_a_text_are_in_no_vocabulary() -> None:
    filled = examples(f"a a b {PADDING_WORD} {PADDING_WORD} {UNKNOWN_WORD} {UNKNOWN_WORD}")
    encoder = fit_encoder(TextEncoding(min_frequency=1), filled)
    assert encoder.words == ("a", "b")
    rows = encoder.encode(examples(f"a {PADDING_WORD} never {UNKNOWN_WORD} b", ""))
    assert [rows.row(i).tolist() for i in range(2)] == [[2, PAD, UNK, UNK, 3], [UNK]]


def test_errata_that_are_off_leave_the_description_as_it_was() -> None:
    fields = {"vocabulary": 20_000, "min_frequency": 3, "max_length": 256}
    assert describe(TextEncoding()) == {"part": "text-encoding", "version": 1, **fields}
    assert describe(TextEncoding(vocabulary_from_all_text=True))["vocabulary_from_all_text"] is True
