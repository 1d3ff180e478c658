"""Encoders of the Hugging Face hub: the copy on this machine first, else a download whose revision is noted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile
from dubio.encoders.pretrained.content import FILES, WEIGHTS
from dubio.encoders.pretrained.extra import module
from dubio.tasks.sources.corpus import DataMissing

HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
"""``owner/name`` or ``name``, with ``@revision`` where a certain one is meant."""


def fetch_from_hub(name: str, packages: str) -> tuple[Path, str]:
    """The folder of an encoder's files and the revision they are of.

    Args:
        name: ``owner/name`` or ``owner/name@revision``.
        packages: Encoders that come from the package index instead, for the message.

    Raises:
        DataMissing: When this machine has no copy and the hub cannot be reached.
        BadFile: When the hub has no such encoder, or none with safetensors.
    """
    hub, errors = module("huggingface_hub"), module("huggingface_hub.errors")
    repository, _, revision = name.partition("@")
    wanted = {"revision": revision or None, "allow_patterns": list(FILES)}
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True, **wanted))
        if not (folder / WEIGHTS).is_file():  # a copy that lacks weights, left by a download that stopped
            raise FileNotFoundError(WEIGHTS)
    except (errors.LocalEntryNotFoundError, FileNotFoundError):
        folder = _download(name, repository, wanted, packages)
    return folder, folder.name


def _download(name: str, repository: str, wanted: dict[str, Any], packages: str) -> Path:
    hub, errors = module("huggingface_hub"), module("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(repository, **wanted))
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as fault:
        raise BadFile(f"encoder {name!r}: the Hugging Face hub has no such model or revision, or hides it.") from fault
    except Exception as fault:
        said = str(fault).strip().partition("\n")[0] or type(fault).__name__
        raise DataMissing(
            f"encoder {name!r} is not on this machine and the Hugging Face hub cannot be reached ({said}). Give a "
            f"folder with its config.json, model.safetensors and tokenizer.json, or a package of the index: {packages}."
        ) from fault
