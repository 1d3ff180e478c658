"""Text to the word pieces of a pre-trained encoder, by the encoder's own tokeniser; nothing is fitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dubio.core.errors import BadFile, UserError
from dubio.core.specs import describe, part, restore
from dubio.core.types import Examples
from dubio.core.validate import at_least, matching
from dubio.encoders.pretrained import (
    ENCODER,
    TOKENISER,
    TOKENISER_CONFIG,
    VOCABULARY,
    folder_of,
    load_library,
    read_config,
    source_of,
)
from dubio.encoders.rows import Encoding, TokenRows
from dubio.encoders.text import texts_of

CHUNK = 4096
"""Texts tokenised at once, which bounds memory."""

SPECIAL = 2
"""[CLS] in front and [SEP] at the end, which count towards ``max_length``."""

DEFAULT_POSITIONS = 512
"""Positions of a BERT whose configuration does not give them."""


@part("wordpiece-encoding")
@dataclass(frozen=True)
class WordPieceEncoding(Encoding):
    """How texts become word pieces.

    Attributes:
        encoder: The pre-trained encoder, by its content (``sha256:…``).
        max_length: Largest number of pieces of a text, from its beginning, [CLS] and [SEP] included.
    """

    encoder: Annotated[str, matching(ENCODER.pattern, "that is a fingerprint sha256:…")]
    max_length: Annotated[int, at_least(SPECIAL + 1)] = 256

    def check(self) -> None:
        """Refuse texts longer than the encoder has positions for.

        Raises:
            UserError: When max_length is larger than that.
        """
        most = int(read_config(folder_of(self.encoder)).get("max_position_embeddings", DEFAULT_POSITIONS))
        if self.max_length > most:
            raise UserError(f"max_length must be at most {most}, the encoder's positions; given {self.max_length}.")

    def fit(self, train: Examples) -> WordPieceEncoder:
        """Return the encoder's own tokeniser; it does not depend on the training examples.

        Raises:
            BadFile: When the tokeniser cannot be read.
        """
        return WordPieceEncoder(self, _tokeniser(folder_of(self.encoder)), source_of(self.encoder))


@dataclass(frozen=True)
class WordPieceEncoder:
    """Texts to rows of word pieces, [CLS] first and [SEP] last.

    Attributes:
        encoding: The encoding that was fitted.
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
        tokenizer = load_library("tokenizers").Tokenizer.from_str(self.tokeniser)
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.encoding.max_length)
        return tokenizer

    def encode(self, examples: Examples) -> TokenRows:
        """Return piece indices; a text without a visible character becomes [CLS] [SEP]."""
        texts = texts_of(examples.inputs)
        tokens, lengths = [np.empty(0, dtype=np.int32)], [0]
        for start in range(0, len(texts), CHUNK):
            for row in self._pieces.encode_batch(list(texts[start : start + CHUNK])):
                tokens.append(np.array(row.ids, dtype=np.int32))
                lengths.append(len(row.ids))
        return TokenRows(np.concatenate(tokens), np.cumsum(lengths, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        """Return everything needed to restore this encoder without the pre-trained encoder's files."""
        return {
            "encoder": "wordpieces",
            "encoding": describe(self.encoding),
            "tokeniser": json.loads(self.tokeniser),
            "source": dict(self.source),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> WordPieceEncoder:
        """Return the encoder that :meth:`to_json` wrote."""
        return cls(restore(saved["encoding"]), json.dumps(saved["tokeniser"]), saved["source"])


def _tokeniser(folder: Path) -> str:
    """Return the tokeniser of an encoder's folder as JSON, made from the vocabulary if it has no tokenizer.json."""
    library = load_library("tokenizers")
    try:
        if (folder / TOKENISER).is_file():
            return str(library.Tokenizer.from_file(str(folder / TOKENISER)).to_str())
        settings = folder / TOKENISER_CONFIG
        options = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
        # not splitlines: a piece may itself be one of Unicode's rarer line ends
        pieces = (folder / VOCABULARY).read_text("utf-8").removesuffix("\n").split("\n")
        tokenizer = library.BertWordPieceTokenizer(
            {piece: index for index, piece in enumerate(pieces)},
            lowercase=bool(options.get("do_lower_case", True)),
            strip_accents=options.get("strip_accents"),
            handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        )
        return str(tokenizer.to_str())
    except Exception as fault:  # the library raises bare exceptions
        raise BadFile(f"the tokeniser of encoder {folder.name[:12]} cannot be read: {fault}.") from fault
