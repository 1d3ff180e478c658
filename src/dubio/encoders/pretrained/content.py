"""What a pre-trained encoder consists of, and the name that its content gives it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile
from dubio.tasks.sources.download import file_sha256

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENISER = "tokenizer.json"
VOCABULARY = "vocab.txt"
TOKENISER_CONFIG = "tokenizer_config.json"
FILES = (CONFIG, WEIGHTS, TOKENISER, VOCABULARY, TOKENISER_CONFIG)
"""Every file that is ever read of an encoder; all others are passed over."""

MODEL_TYPE = "bert"

PICKLES = ("pytorch_model.bin", "model.bin", "tf_model.h5", "flax_model.msgpack")


def parts_of(folder: Path) -> tuple[str, ...]:
    """The files an encoder in this folder consists of; a vocabulary counts only where there is no tokenizer.json.

    Raises:
        BadFile: When one is missing, when its weights are not safetensors, or when it is of another architecture.
    """
    if not (folder / CONFIG).is_file():
        raise BadFile(f"encoder {folder.name!r}: no {CONFIG} there; it must hold {CONFIG}, {WEIGHTS} and {TOKENISER}.")
    if not (folder / WEIGHTS).is_file():
        raise BadFile(_no_weights(folder))
    found = read_config(folder).get("model_type")
    if found != MODEL_TYPE:
        raise BadFile(f"encoder {folder.name!r}: its model_type is {found!r}; network 'bert' reads {MODEL_TYPE!r}.")
    if (folder / TOKENISER).is_file():
        return (CONFIG, WEIGHTS, TOKENISER)
    if not (folder / VOCABULARY).is_file():
        raise BadFile(f"encoder {folder.name!r}: neither {TOKENISER} nor {VOCABULARY} is there to cut texts with.")
    more = (TOKENISER_CONFIG,) if (folder / TOKENISER_CONFIG).is_file() else ()
    return (CONFIG, WEIGHTS, VOCABULARY, *more)


def digest(folder: Path) -> str:
    """SHA-256, in hexadecimal, of the names and hashes of the files an encoder consists of."""
    parts = {name: file_sha256(folder / name) for name in parts_of(folder)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The encoder's configuration.

    Raises:
        BadFile: When it is not a JSON object.
    """
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
    except ValueError as fault:
        raise BadFile(f"encoder {folder.name!r}: {CONFIG} is not JSON: {fault}.") from fault
    if not isinstance(config, dict):
        raise BadFile(f"encoder {folder.name!r}: {CONFIG} must hold an object.")
    return config


def _no_weights(folder: Path) -> str:
    others = [name for name in PICKLES if (folder / name).is_file()]
    if not others:
        return f"encoder {folder.name!r}: no {WEIGHTS} there."
    return (
        f"encoder {folder.name!r}: its weights are {others[0]}, which dubio does not open: such a file can run code. "
        f"Convert it once where you trust it, with transformers: BertModel.from_pretrained(FOLDER)"
        f".save_pretrained(FOLDER), which writes {WEIGHTS}."
    )
