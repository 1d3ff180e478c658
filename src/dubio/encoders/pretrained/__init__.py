"""Pre-trained encoders: found by folder, package or hub name, known by their content, kept in the cache."""

from __future__ import annotations

from dubio.encoders.pretrained.extra import module
from dubio.encoders.pretrained.kept import ENCODER, folder_of, source_of
from dubio.encoders.pretrained.naming import encoder_argument, settle, settled

__all__ = ["ENCODER", "encoder_argument", "folder_of", "module", "settle", "settled", "source_of"]
