"""Text to the word pieces of a pre-trained encoder: nothing is fitted, the tokeniser is the encoder's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import BadFile, UserError
from dubio.core.specs import describe, part, restore
from dubio.core.types import Examples, Inputs
from dubio.encoders.pretrained import ENCODER, folder_of, load_library, source_of
from dubio.encoders.pretrained.cache import TOKENISER, TOKENISER_CONFIG, VOCABULARY, read_config
from dubio.encoders.rows import TokenRows

CHUNK = 4096
"""Texts cut at once: bounds what is held beside the result."""

SPECIAL = 2
"""[CLS] in front and [SEP] at the end, which count among ``max_length``."""


DEFAULT_POSITIONS = 512
"""Of a BERT whose configuration does not say."""


@part("wordpiece-encoding")
@dataclass(frozen=True)
class WordPieceEncoding:
    """How texts become word pieces.

    Attributes:
        encoder: The pre-trained encoder, by its content (``sha256:…``).
        max_length: Pieces kept of a text, from its beginning, [CLS] and [SEP] among them.
    """

    encoder: str
    max_length: int = 256

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, str) or not ENCODER.fullmatch(self.encoder):
            raise UserError(f"encoder of a word-piece encoding is called by its content; given {self.encoder!r}.")
        if isinstance(self.max_length, bool) or not isinstance(self.max_length, int) or self.max_length <= SPECIAL:
            raise UserError(
                f"max_length of a word-piece encoding must be a whole number over {SPECIAL}; given {self.max_length!r}."
            )

    def check(self) -> None:
        """Refuse texts longer than the encoder has positions for.

        Raises:
            UserError: When they may be.
        """
        most = int(read_config(folder_of(self.encoder)).get("max_position_embeddings", DEFAULT_POSITIONS))
        if self.max_length > most:
            raise UserError(f"max_length must be at most {most}, the encoder's positions; given {self.max_length}.")

    def fit(self, train: Examples) -> WordPieceEncoder:
        """The encoder's own tokeniser; the training examples change nothing of it.

        Raises:
            BadFile: When the tokeniser cannot be read.
        """
        return WordPieceEncoder(self, _tokeniser(folder_of(self.encoder)), source_of(self.encoder))


@dataclass(frozen=True)
class WordPieceEncoder:
    """Texts to rows of word pieces, [CLS] first and [SEP] last.

    Attributes:
        encoding: What it was made with.
        tokeniser: The tokeniser as JSON, as the library ``tokenizers`` writes it.
        source: Where the encoder came from, for the record.
    """

    encoding: WordPieceEncoding
    tokeniser: str
    source: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """(size of the vocabulary,)."""
        return (int(self._pieces.get_vocab_size()),)

    @cached_property
    def _pieces(self) -> Any:
        made = load_library("tokenizers").Tokenizer.from_str(self.tokeniser)
        made.no_padding()
        made.enable_truncation(self.encoding.max_length)
        return made

    def encode(self, examples: Examples) -> TokenRows:
        """Piece indices; a text without a visible character becomes [CLS] [SEP]."""
        texts = _texts(examples.inputs)
        tokens, lengths = [np.empty(0, dtype=np.int32)], [0]
        for start in range(0, len(texts), CHUNK):
            for row in self._pieces.encode_batch(list(texts[start : start + CHUNK])):
                tokens.append(np.array(row.ids, dtype=np.int32))
                lengths.append(len(row.ids))
        return TokenRows(np.concatenate(tokens), np.cumsum(lengths, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        """Everything needed to make this encoder again, without the pre-trained encoder's files."""
        return {
            "encoder": "wordpieces",
            "encoding": describe(self.encoding),
            "tokeniser": json.loads(self.tokeniser),
            "source": dict(self.source),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> WordPieceEncoder:
        """The encoder that :meth:`to_json` wrote down."""
        return cls(restore(saved["encoding"]), json.dumps(saved["tokeniser"]), saved["source"])


def _tokeniser(folder: Path) -> str:
    """The tokeniser of an encoder's folder as JSON; one is made from a vocabulary where that is all there is."""
    library = load_library("tokenizers")
    try:
        if (folder / TOKENISER).is_file():
            return str(library.Tokenizer.from_file(str(folder / TOKENISER)).to_str())
        settings = folder / TOKENISER_CONFIG
        given = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
        # not splitlines: a piece may itself be one of Unicode's rarer line ends
        words = (folder / VOCABULARY).read_text("utf-8").removesuffix("\n").split("\n")
        made = library.BertWordPieceTokenizer(
            {word: index for index, word in enumerate(words)},
            lowercase=bool(given.get("do_lower_case", True)),
            strip_accents=given.get("strip_accents"),
            handle_chinese_chars=bool(given.get("tokenize_chinese_chars", True)),
        )
        return str(made.to_str())
    except Exception as fault:  # the library raises bare exceptions
        raise BadFile(f"the tokeniser of encoder {folder.name[:12]} cannot be read: {fault}.") from fault


def _texts(inputs: Inputs) -> tuple[str, ...]:
    if not isinstance(inputs, tuple):
        raise UserError(f"a word-piece encoder needs texts; given an array of shape {inputs.shape}.")
    return inputs
