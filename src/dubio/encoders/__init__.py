"""Encodings, fitted on the training split before a network sees it and saved as JSON beside the weights.

An *encoding* says how to encode and is part of a fit's identity. Fitted on the training split it becomes an *encoder*,
which encodes any split and is unchanged by a round trip through JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from dubio.core.errors import UnknownName, UserError, check_known
from dubio.core.registry import Entry
from dubio.core.types import Examples
from dubio.encoders.arrays import ImageEncoder, ImageEncoding, ScaledImageEncoding, TableEncoder, TableEncoding
from dubio.encoders.pretrained import encoder_argument
from dubio.encoders.rows import ArrayRows, Encoded, Encoder, Encoding, ImageRows, TokenRows
from dubio.encoders.text import PAD, UNK, TextEncoder, TextEncoding
from dubio.encoders.wordpieces import WordPieceEncoder, WordPieceEncoding

_KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "text": (TextEncoding, TextEncoder),
    "image": (ImageEncoding, ImageEncoder),
    "scaled-image": (ScaledImageEncoding, ImageEncoder),
    "table": (TableEncoding, TableEncoder),
    "wordpieces": (WordPieceEncoding, WordPieceEncoder),
}
"""The encoding and the encoder of each kind."""

__all__ = [
    "PAD", "UNK", "ArrayRows", "Encoded", "Encoder", "Encoding", "ImageEncoder", "ImageEncoding", "ImageRows",
    "ScaledImageEncoding", "TableEncoder", "TableEncoding", "TextEncoder", "TextEncoding", "TokenRows",
    "WordPieceEncoder", "WordPieceEncoding", "encoder_from_json", "encoding_for", "encoding_of", "fit_encoder",
]  # fmt: skip


def encoding_for(modality: str, arguments: Mapping[str, Any]) -> Encoding:
    """Return the encoding of a modality with these arguments and defaults for the others.

    Args:
        modality: ``"text"``, ``"image"``, ``"table"``, or an encoding that a network needs, ``"wordpieces"`` or
            ``"scaled-image"``.
        arguments: Fields of that encoding.

    Raises:
        UnknownName: For a modality or an argument that does not exist.
    """
    check_known("modality", [modality], _KINDS)
    encoding, _ = _KINDS[modality]
    names = [field.name for field in dataclasses.fields(encoding)]
    check_known(f"argument of the {modality} encoding", arguments, names)
    return cast(Encoding, encoding(**arguments))


def encoding_of(network: Entry[Any], network_arguments: Mapping[str, Any], arguments: Mapping[str, Any]) -> Encoding:
    """Return the encoding that a network needs, with these arguments; word pieces are those of its encoder.

    Args:
        network: The network.
        network_arguments: Its arguments, resolved by :func:`dubio.encoders.pretrained.resolve_arguments`.
        arguments: Fields of the encoding.
    """
    key, kind = encoder_argument(network), network.facts.get("encoding", network.facts["inputs"])
    encoder = {} if key is None or kind != "wordpieces" else {"encoder": network_arguments[key]}
    if encoder and "encoder" in arguments:
        raise UserError("encoding: the encoder is an argument of the network, network.encoder.")
    encoding = encoding_for(kind, {**arguments, **encoder})
    encoding.check()
    return encoding


def fit_encoder(encoding: Encoding, train: Examples) -> Encoder:
    """Return the encoder fitted on the training examples, the only ones it learns from."""
    return encoding.fit(train)


def encoder_from_json(saved: Mapping[str, Any]) -> Encoder:
    """Return the encoder that ``to_json`` wrote.

    Raises:
        UserError: When the JSON is not that of an encoder.
    """
    kind = saved.get("encoder") if isinstance(saved, Mapping) else saved
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnknownName("encoder", kind, _KINDS)
    try:
        return cast(Encoder, _KINDS[kind][1].from_json(saved))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as fault:
        raise UserError(f"the saved {kind} encoder is incomplete or damaged: {fault}.") from fault
