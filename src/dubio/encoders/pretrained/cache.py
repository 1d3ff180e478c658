"""The cache of pre-trained encoders, each in a folder named by the fingerprint of its files.

The libraries of the extra ``bert`` are imported when they are first needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.files import atomic_directory
from dubio.core.specs import hash_file, identity
from dubio.tasks.sources.locate import CACHE_VARIABLE, cache_dir

EXTRA = "bert"
LIBRARIES = ("transformers", "tokenizers", "huggingface_hub")

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENISER = "tokenizer.json"
VOCABULARY = "vocab.txt"
TOKENISER_CONFIG = "tokenizer_config.json"
FILES = (CONFIG, WEIGHTS, TOKENISER, VOCABULARY, TOKENISER_CONFIG)
"""The files of an encoder that are read; all others are ignored."""

MODEL_TYPE = "bert"

PICKLES = ("pytorch_model.bin", "model.bin", "tf_model.h5", "flax_model.msgpack")

ENCODER = re.compile(r"sha256:[0-9a-f]{64}")
"""The form of an encoder's fingerprint in a specification."""

SOURCE = "source.json"


def load_library(name: str) -> Any:
    """Import a module of one of :data:`LIBRARIES`.

    Raises:
        MissingExtra: When it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in LIBRARIES:
            raise
        raise _missing() from missing


def require_extra() -> None:
    """Check that the extra is installed, before anything is fetched or planned.

    Raises:
        MissingExtra: When one of its libraries is not installed.
    """
    if any(importlib.util.find_spec(name) is None for name in LIBRARIES):
        raise _missing()


def _missing() -> MissingExtra:
    return MissingExtra("a pre-trained encoder (network 'bert')", EXTRA)


def encoder_files(folder: Path) -> tuple[str, ...]:
    """Return the files of the encoder in a folder; a vocabulary counts only if there is no tokenizer.json.

    Raises:
        BadFile: When one is missing, the weights are not safetensors, or the architecture is another one.
    """
    if not (folder / CONFIG).is_file():
        raise BadFile(
            f"encoder {folder.name!r}: {CONFIG} is missing; the folder must hold {CONFIG}, {WEIGHTS} and {TOKENISER}."
        )
    if not (folder / WEIGHTS).is_file():
        raise BadFile(_no_weights(folder))
    model_type = read_config(folder).get("model_type")
    if model_type != MODEL_TYPE:
        raise BadFile(
            f"encoder {folder.name!r}: its model_type is {model_type!r}; network 'bert' reads {MODEL_TYPE!r}."
        )
    if (folder / TOKENISER).is_file():
        return (CONFIG, WEIGHTS, TOKENISER)
    if not (folder / VOCABULARY).is_file():
        raise BadFile(f"encoder {folder.name!r}: it has neither {TOKENISER} nor {VOCABULARY}.")
    more = (TOKENISER_CONFIG,) if (folder / TOKENISER_CONFIG).is_file() else ()
    return (CONFIG, WEIGHTS, VOCABULARY, *more)


def fingerprint(folder: Path) -> str:
    """Return the SHA-256, in hexadecimal, of the names and hashes of an encoder's files."""
    hashes = {name: hash_file(folder / name) for name in encoder_files(folder)}
    return identity(hashes)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the encoder's configuration.

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
        return f"encoder {folder.name!r}: {WEIGHTS} is missing."
    return (
        f"encoder {folder.name!r}: its weights are {others[0]}, which dubio does not open: such a file can run code. "
        f"Convert it once where you trust it, with transformers: BertModel.from_pretrained(FOLDER)"
        f".save_pretrained(FOLDER), which writes {WEIGHTS}."
    )


def cache_folder() -> Path:
    """Return the folder of all cached encoders.

    Raises:
        UserError: When the folder cannot be created.
    """
    folder = cache_dir() / "encoders"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(
            f"the cache {str(folder)!r} cannot be created: {fault.strerror}; set {CACHE_VARIABLE}."
        ) from fault
    return folder


def is_cached(name: str) -> bool:
    """Return whether the encoder with this fingerprint is in the cache."""
    return (cache_folder() / name.partition(":")[2]).is_dir()


def add_to_cache(folder: Path, source: Mapping[str, Any]) -> str:
    """Copy the encoder in a folder into the cache; return its fingerprint.

    Args:
        folder: The folder of the encoder's files.
        source: Its origin, for the record; not part of the fingerprint.
    """
    digest = fingerprint(folder)
    target = cache_folder() / digest
    with FileLock(cache_folder() / ".lock"):
        if not target.is_dir():
            with atomic_directory(target) as scratch:
                for name in encoder_files(folder):
                    shutil.copyfile(folder / name, scratch / name)
                (scratch / SOURCE).write_text(json.dumps(dict(source), indent=1, sort_keys=True), "utf-8")
    return f"sha256:{digest}"


def folder_of(name: str) -> Path:
    """Return the folder of the encoder with this fingerprint, verified once per process.

    Raises:
        UserError: When it is not in the cache.
        BadFile: When its files have changed.
    """
    folder = cache_folder() / name.partition(":")[2]
    if not folder.is_dir():
        raise UserError(
            f"the encoder {name} is not in the cache {str(folder.parent)!r}; give its folder, package or hub name "
            "once more (the same dubio run restores it)."
        )
    _verify(folder)
    return folder


@lru_cache(maxsize=16)
def _verify(folder: Path) -> None:
    if fingerprint(folder) != folder.name:
        raise BadFile(
            f"the encoder in {str(folder)!r} has changed since it was cached; delete that folder and try again."
        )


def source_of(name: str) -> dict[str, Any]:
    """Return the recorded origin of the encoder with this fingerprint."""
    source: dict[str, Any] = json.loads((folder_of(name) / SOURCE).read_text("utf-8"))
    return source
