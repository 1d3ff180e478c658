"""What is fitted on training data before a network sees it, and saved as JSON beside the weights.

An *encoding* is a part: how to encode, part of a fit's identity. Fitted on the training split it becomes an *encoder*,
which encodes any split and survives a trip through JSON unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import Entry
from dubio.core.types import Examples
from dubio.encoders.image import ImageEncoder, ImageEncoding
from dubio.encoders.pretrained import encoder_argument
from dubio.encoders.rows import ArrayRows, Encoded, ImageRows, TokenRows
from dubio.encoders.table import TableEncoder, TableEncoding
from dubio.encoders.text import PAD, UNK, TextEncoder, TextEncoding
from dubio.encoders.wordpieces import WordPieceEncoder, WordPieceEncoding

Encoding = TextEncoding | ImageEncoding | TableEncoding | WordPieceEncoding
Encoder = TextEncoder | ImageEncoder | TableEncoder | WordPieceEncoder

_ENCODINGS: dict[str, type[Encoding]] = {
    "text": TextEncoding,
    "image": ImageEncoding,
    "table": TableEncoding,
    "wordpieces": WordPieceEncoding,
}
_ENCODERS: dict[str, type[Encoder]] = {
    "text": TextEncoder,
    "image": ImageEncoder,
    "table": TableEncoder,
    "wordpieces": WordPieceEncoder,
}

__all__ = [
    "PAD",
    "UNK",
    "ArrayRows",
    "Encoded",
    "Encoder",
    "Encoding",
    "ImageEncoder",
    "ImageEncoding",
    "ImageRows",
    "TableEncoder",
    "TableEncoding",
    "TextEncoder",
    "TextEncoding",
    "TokenRows",
    "WordPieceEncoder",
    "WordPieceEncoding",
    "encoder_from_json",
    "encoding_for",
    "encoding_of",
    "fit_encoder",
]


def encoding_for(modality: str, arguments: Mapping[str, Any]) -> Encoding:
    """The encoding of a modality with these arguments, the rest at its defaults.

    Args:
        modality: ``"text"``, ``"image"``, ``"table"``, or an encoding that a network asks for, ``"wordpieces"``.
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


def encoding_of(network: Entry[Any], network_arguments: Mapping[str, Any], arguments: Mapping[str, Any]) -> Encoding:
    """The encoding a network wants with these arguments; one of a pre-trained encoder is made for that encoder.

    Args:
        network: The network.
        network_arguments: Its arguments, settled (:func:`dubio.encoders.pretrained.resolve_arguments`).
        arguments: Fields of the encoding.
    """
    key = encoder_argument(network)
    encoder = {} if key is None else {"encoder": network_arguments[key]}
    if encoder and "encoder" in arguments:
        raise UserError("encoding: the encoder is an argument of the network, network.encoder.")
    made = encoding_for(network.facts.get("encoding", network.facts["inputs"]), {**arguments, **encoder})
    if isinstance(made, WordPieceEncoding):
        made.check()
    return made


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
