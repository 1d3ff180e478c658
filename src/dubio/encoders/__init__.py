"""What is fitted on training data before a network sees it, and saved as JSON beside the weights.

An *encoding* is a part: how to encode, part of a fit's identity. Fitted on the training split it becomes an *encoder*,
which encodes any split and survives a trip through JSON unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dubio.encoders.encoded import ArrayRows, Encoded, TokenRows
from dubio.encoders.image import ImageEncoder, ImageEncoding
from dubio.encoders.table import TableEncoder, TableEncoding
from dubio.encoders.text import TextEncoder, TextEncoding
from dubio.encoders.vocabulary import PAD, UNK
from dubio.errors import UnknownName, UserError
from dubio.types import Examples

Encoding = TextEncoding | ImageEncoding | TableEncoding
Encoder = TextEncoder | ImageEncoder | TableEncoder

_ENCODINGS: dict[str, type[Encoding]] = {"text": TextEncoding, "image": ImageEncoding, "table": TableEncoding}
_ENCODERS: dict[str, type[Encoder]] = {"text": TextEncoder, "image": ImageEncoder, "table": TableEncoder}

__all__ = [
    "PAD",
    "UNK",
    "ArrayRows",
    "Encoded",
    "Encoder",
    "Encoding",
    "ImageEncoder",
    "ImageEncoding",
    "TableEncoder",
    "TableEncoding",
    "TextEncoder",
    "TextEncoding",
    "TokenRows",
    "encoder_from_json",
    "encoding_for",
    "fit_encoder",
]


def encoding_for(modality: str, arguments: Mapping[str, Any]) -> Encoding:
    """The encoding of a modality with these arguments, the rest at its defaults.

    Args:
        modality: ``"text"``, ``"image"`` or ``"table"``.
        arguments: Fields of that encoding.

    Raises:
        UnknownName: For a modality or an argument that does not exist.
    """
    if modality not in _ENCODINGS:
        raise UnknownName("modality", modality, _ENCODINGS)
    encoding = _ENCODINGS[modality]
    known = [field.name for field in dataclasses.fields(encoding)]
    for name in arguments:
        if name not in known:
            raise UnknownName(f"argument of the {modality} encoding", name, known)
    return encoding(**arguments)


def fit_encoder(encoding: Encoding, train: Examples) -> Encoder:
    """The encoder fitted on the training examples, which must be the only ones it ever learns from."""
    return encoding.fit(train)


def encoder_from_json(saved: Mapping[str, Any]) -> Encoder:
    """The encoder that ``to_json`` wrote down.

    Raises:
        UserError: When the JSON is not of an encoder.
    """
    sort = saved.get("encoder")
    if not isinstance(sort, str) or sort not in _ENCODERS:
        raise UnknownName("encoder", sort, _ENCODERS)
    try:
        return _ENCODERS[sort].from_json(saved)
    except (KeyError, TypeError) as fault:
        raise UserError(f"the saved {sort} encoder is not whole: {fault}.") from fault
