"""Paths, records and manifests of a store: its directories, and whether their files are still what was written.

``record.json`` names every file of its directory with its SHA-256 and size, beside timings and environment, and carries
the hash of itself under ``seal``. ``spec.json`` needs no entry: its hash is the directory's name. The manifest of a
benchmark run has the form of :class:`Manifest` and a seal as well; those of earlier versions have none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from dubio.core.documents import parse_json
from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.files import reading, writing
from dubio.core.specs import check_id, hash_file, identity, to_plain
from dubio.core.types import EmptyDecision, Kind, Modality, Target
from dubio.core.validate import NonNegative, decode, encode

EntryKind = Literal["fits", "predictions"]

LONGEST_SPLIT_NAME = 120


class Layout:
    """The paths of a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # The file that marks a store and holds its schema.
        self.header = root / "store.json"
        # The derived index.
        self.index = root / "index.sqlite"
        # Reports of unchanged runs, to be reused; derived too.
        self.derived = root / "derived"
        # Temporary directories of running processes.
        self.scratch = root / "tmp"
        # One lock file per id.
        self.locks = root / "locks"
        # One manifest per benchmark run.
        self.manifests = root / "runs"
        # Examples of test splits, one directory per split; those of earlier versions are images.
        self.examples = root / "examples"
        self.pictures = root / "pictures"
        # Damaged fits and predictions that were moved out of the way.
        self.corrupt = root / "corrupt"
        # Checkpoints of unfinished fits.
        self.checkpoints = root / "checkpoints"
        # One record per failed id.
        self.failures = root / "failures"

    def entries(self, kind: EntryKind) -> Path:
        """Return the directory of all fits or of all predictions."""
        return self.root / kind

    def directory(self, kind: EntryKind, identifier: str) -> Path:
        """Return the directory of one fit or prediction."""
        return self.root / kind / check_id(identifier)

    def checkpoint(self, fit_id: str) -> Path:
        """Return the directory of one fit's checkpoint."""
        return self.checkpoints / check_id(fit_id)

    def failure(self, identifier: str) -> Path:
        """Return the path of the record of one failure."""
        return self.failures / f"{check_id(identifier)}.json"

    def lock(self, identifier: str) -> Path:
        """Return the lock file of one id."""
        return self.locks / f"{check_id(identifier)}.lock"


def split_file(split: str, fingerprint: str) -> str:
    """Return the file name of a prediction on one split; a split's name may hold any character."""
    safe = quote(split, safe="")
    if len(safe) > LONGEST_SPLIT_NAME:
        safe = f"{safe[:100]}~{hashlib.sha256(split.encode()).hexdigest()[:16]}"
    return f"{safe}-{check_id(fingerprint)}.safetensors"


SPEC = "spec.json"
RECORD = "record.json"
SEAL = "seal"


def json_bytes(value: Any) -> bytes:
    """Return an indented JSON document with sorted keys and no NaN."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def file_facts(path: Path) -> dict[str, Any]:
    """Return the entry of a file in a record: its SHA-256 and size."""
    return {"sha256": hash_file(path), "bytes": path.stat().st_size}


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a record or manifest, with the hash of itself."""
    body = to_plain({name: value for name, value in document.items() if name != SEAL})
    return json_bytes({**body, SEAL: identity(body)})


def read_json(path: Path) -> Any:
    """Read a stored JSON file.

    Raises:
        CorruptFile: When it is missing or is not JSON.
        StoreError: When the disk cannot be read.
    """
    if not path.is_file():
        raise CorruptFile(f"{path}: the file is missing.")
    with reading(path, StoreError):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8", "surrogatepass")  # ids may be names of files that are no text
    except UnicodeDecodeError as fault:
        raise CorruptFile(f"{path} is not JSON: {fault}.") from fault
    return parse_json(text, str(path), CorruptFile)


@dataclass(frozen=True)
class StoredFile:
    """A file as a record names it."""

    sha256: str
    bytes: NonNegative
    others: Mapping[str, Any] = field(default_factory=dict, metadata={"extra": True})


@dataclass(frozen=True)
class StoredSplit(StoredFile):
    """The predictions on a split, as a record names them."""

    split: str = field(kw_only=True)
    fingerprint: str = field(kw_only=True)
    examples: NonNegative = field(kw_only=True)
    seconds: float = field(kw_only=True)


FIGURES = frozenset({"bytes", "seconds", "examples", "parameters", "epochs"})
"""Numbers of a record, where it has them; one of predictions states its bytes, seconds and examples,
and its environment."""


def read_record(directory: Path, files: type[StoredFile] = StoredFile) -> dict[str, Any]:
    """Return the record of a stored directory.

    Args:
        directory: The directory.
        files: What it says of each file.

    Raises:
        CorruptFile: When it is missing, damaged or has been altered.
    """
    path = directory / RECORD
    record = read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
        raise CorruptFile(f"{path}: not a record.")
    sealed = record.pop(SEAL, None)
    if sealed is None or sealed != identity(record):
        raise CorruptFile(f"{path}: its content is not what was written.")
    for name, facts in record["files"].items():
        check_file(path, name, facts, files)
    required = () if files is StoredFile else ("bytes", "seconds", "examples")
    for name in {*FIGURES & record.keys(), *required}:
        value = record.get(name)
        if not isinstance(value, int | float) and (value is not None or name in required):
            raise CorruptFile(f"{path}: {name!r} is no number.")
    if not isinstance(record.get("environment", None if required else {}), dict):
        raise CorruptFile(f"{path}: 'environment' is no object.")
    return record


def check_file(path: Path, name: Any, facts: Any, form: type[StoredFile]) -> None:
    """Raise a CorruptFile where the entry of a file, in the document at a path, is not of this form."""
    if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\\", "\0"} & set(name):
        raise CorruptFile(f"{path}: names a file outside its directory, {name!r}.")
    try:
        decode(form, facts)
    except UserError as fault:
        raise CorruptFile(f"{path}: file {name!r}: {fault}") from fault


def read_spec(directory: Path) -> dict[str, Any]:
    """Return the specification that a stored directory is named after.

    Raises:
        CorruptFile: When its hash is not the directory's name.
    """
    path = directory / SPEC
    spec = read_json(path)
    if not isinstance(spec, dict) or identity(spec) != directory.name:
        raise CorruptFile(f"{path}: its hash is not the id of its directory.")
    return spec


def verify_file(directory: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Compare a stored file with its record without reading it into memory at once.

    Raises:
        CorruptFile: When it is missing or differs.
        StoreError: When the disk cannot be read.
    """
    path = directory / name
    if not path.is_file():
        raise CorruptFile(f"{path}: the file is missing.")
    with reading(path, StoreError):
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise CorruptFile(f"{path}: {size} bytes, its record says {facts['bytes']}.")
        if hash_file(path) != facts["sha256"]:
            raise CorruptFile(f"{path}: its SHA-256 is not the one in its record.")


def copy_verified(source: Path, name: str, facts: Mapping[str, Any], target: Path) -> None:
    """Copy a stored file into another directory and compare the copy with its record.

    Raises:
        CorruptFile: When the file is missing, is no plain file of its directory, or differs from its record.
        StoreError: When the copy cannot be written.
    """
    path = source / name
    if path.is_symlink() or not path.is_file():
        raise CorruptFile(f"{path}: the file is missing.")
    with reading(path), path.open("rb") as original:  # noqa: SIM117  each names the file that is at fault
        with writing(target / name, StoreError), (target / name).open("wb") as copy:
            shutil.copyfileobj(original, copy)
    if file_facts(target / name) != {key: facts[key] for key in ("sha256", "bytes")}:
        raise CorruptFile(f"{path}: its content is not what its record says.")


# --- manifests of benchmark runs ------------------------------------------------------------------------------------

Table = Mapping[str, Any]
EXTRA = {"extra": True}
"""Marks the field that collects keys of which the store knows nothing."""


@dataclass(frozen=True)
class ManifestSplit:
    """A split of a task."""

    name: str
    kind: Kind
    fingerprint: str
    examples: NonNegative
    family: str | None = None
    severity: int | None = None
    others: Table = field(default_factory=dict, metadata=EXTRA, compare=False)


@dataclass(frozen=True)
class ManifestColumn:
    """A column of a split beside its labels, such as a site: its values, and the number of the value of each row."""

    values: tuple[str | int | float | bool | None, ...]
    rows: str


@dataclass(frozen=True)
class ManifestBudget:
    """The budget of a method on a task; None where it is not known.

    Attributes:
        epochs: Epochs at most, of all trainings of one fit.
        patience: Epochs without improvement that end a training; 0 for never.
        trials: Trials of its tuning.
    """

    epochs: int | None = None
    patience: int | None = None
    trials: int = 0


@dataclass(frozen=True)
class ManifestTask:
    """A task of a run: its data, and the network that was trained on it.

    Attributes:
        name: Its name in the report.
        network: The network.
        inputs: The modality of its inputs.
        target: The kind of labels.
        classes: Names of the classes.
        splits: Its splits.
        notes: What was done to its data.
        task: The name it is registered under; its own where empty.
        arguments: Arguments of the task.
        network_arguments: Arguments of the network.
        card: Source, licence and citation of its data.
        thresholds: How labels of multi-label predictions are decided: at one half, or fitted on validation.
        empty_decision: How a row without a label above its threshold is decided; older manifests do not state it.
        facts: Split → name of a column → the column.
        rows: Number of rows read, where it is known.
        left_out: Reason → rows that were read and are in no split.
        budgets: Method → its budget to train the network.
    """

    name: str
    network: str = ""
    inputs: Modality = "table"
    target: Target = "multiclass"
    classes: tuple[str, ...] = ()
    splits: tuple[ManifestSplit, ...] = ()
    notes: tuple[str, ...] = ()
    task: str = ""
    arguments: Table = field(default_factory=dict)
    network_arguments: Table = field(default_factory=dict)
    card: Mapping[str, str] = field(default_factory=dict)
    thresholds: str = "half"
    empty_decision: EmptyDecision = "empty"
    facts: Mapping[str, Mapping[str, ManifestColumn]] = field(default_factory=dict)
    rows: NonNegative | None = None
    left_out: Mapping[str, NonNegative] = field(default_factory=dict)
    budgets: Mapping[str, ManifestBudget] = field(default_factory=dict)
    others: Table = field(default_factory=dict, metadata=EXTRA)


@dataclass(frozen=True)
class ManifestMethod:
    """A method of a run.

    Attributes:
        name: Its name in the report.
        method: The name it is registered under; its own where empty.
        title: Its title in the report.
        family: The single-fit method that an ensemble is made of.
        summary: One line about it.
        members: Independent fits that are pooled.
        samples: Samples of each fit; 0 for one pass.
        arguments: Arguments that make it a variant of the registered method.
        facts: Facts of its registration, such as its colour; manifests of version 0.1 do not state them.
        pools: The numbers of samples and members by task, where merged runs differ in them.
    """

    name: str
    method: str = ""
    title: str = ""
    family: str | None = None
    summary: str = ""
    members: NonNegative = 1
    samples: NonNegative = 0
    arguments: Table = field(default_factory=dict, hash=False)
    facts: Table = field(default_factory=dict, hash=False)
    pools: str = ""
    others: Table = field(default_factory=dict, metadata=EXTRA, hash=False)


@dataclass(frozen=True)
class ManifestRun:
    """One set of predictions: a method on a task with a seed."""

    id: str
    fits: tuple[str, ...]
    spec: Table
    task: str = ""
    network: str = ""
    method: str = ""
    seed: NonNegative = 0
    member: NonNegative | None = None
    others: Table = field(default_factory=dict, metadata=EXTRA)


@dataclass(frozen=True)
class ManifestTrial:
    """One fit of a tuning, and its score on validation."""

    fit: str
    arguments: Table = field(default_factory=dict)
    val_nll: float | None = None


@dataclass(frozen=True)
class ManifestTuning:
    """The trials of one method on one task, and the arguments that were chosen."""

    trials: tuple[ManifestTrial, ...]
    task: str = ""
    network: str = ""
    method: str = ""
    chosen: Table = field(default_factory=dict)
    others: Table = field(default_factory=dict, metadata=EXTRA)


@dataclass(frozen=True)
class Manifest:
    """The manifest of a benchmark run: what was run, under which names, and where its predictions are.

    Attributes:
        name: Name of the benchmark.
        tasks: The tasks that were run.
        methods: The methods, in the order of the report.
        runs: The predictions.
        failures: Records of fits and predictions that failed.
        schema: Raised by hand when manifests written now can no longer be read by an older dubio.
        tuning: The choices of tuning.
        skipped: Tasks that could not be run, with the reason.
        advice: Reasons to distrust the results.
        benchmark: The benchmark file, as it was run.
    """

    name: str
    tasks: tuple[ManifestTask, ...]
    methods: tuple[ManifestMethod, ...]
    runs: tuple[ManifestRun, ...]
    failures: tuple[Table, ...] = ()
    schema: Literal[1] = 1
    tuning: tuple[ManifestTuning, ...] = ()
    skipped: tuple[Table, ...] = ()
    advice: tuple[str, ...] = ()
    benchmark: Table | None = None
    others: Table = field(default_factory=dict, metadata=EXTRA)


REPAIR = "Run its command again to write it anew (nothing is trained again), or remove the file."


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest in a file, checked against its seal, if it has one, and :class:`Manifest`, as plain values.

    Raises:
        CorruptFile: When the file is damaged or not a manifest, naming the place and what to do.
    """
    try:
        manifest = read_json(path)
    except CorruptFile as fault:
        raise CorruptFile(f"{fault} {REPAIR}") from fault
    sealed = manifest.pop(SEAL, None) if isinstance(manifest, dict) else None
    if sealed is not None and sealed != identity(manifest):
        raise CorruptFile(f"{path}: its content is not what was written. {REPAIR}")
    try:
        decode(Manifest, manifest)
    except UserError as fault:
        raise CorruptFile(f"{path}: not the manifest of a run: {fault} {REPAIR}") from fault
    checked: dict[str, Any] = manifest
    return checked


def with_defaults(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked manifest with the defaults of the fields that it does not state."""
    filled: dict[str, Any] = encode(decode(Manifest, manifest))
    for task, stated in zip(filled["tasks"], manifest["tasks"], strict=True):
        task["splits"] = stated.get("splits", [])  # whether they state a severity tells versions apart
    return filled
