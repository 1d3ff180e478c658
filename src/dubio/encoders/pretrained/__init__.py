"""Pre-trained encoders: given by folder, package or hub name, identified by their fingerprint, stored in the cache."""

from __future__ import annotations

from dubio.encoders.pretrained.cache import ENCODER, folder_of, load_library, source_of
from dubio.encoders.pretrained.resolve import encoder_argument, resolve_arguments, resolve_encoder

__all__ = [
    "ENCODER",
    "encoder_argument",
    "folder_of",
    "load_library",
    "resolve_arguments",
    "resolve_encoder",
    "source_of",
]
