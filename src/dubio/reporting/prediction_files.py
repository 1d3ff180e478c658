"""Report systems that are known by their predictions: files of any framework, or predictions in memory.

Every system is a row of the page, as methods are in the report of a run, and stands for itself: of the training behind
it nothing is known, so that trained systems are compared, not methods, and sections on cost, seeds and trainings are
empty. A test set is one set of examples, the same for all systems.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import UserError, plural
from dubio.core.predictions import Predictions
from dubio.core.types import EmptyDecision, Kind, StrArray
from dubio.evaluation import LEVEL, NO_LABELS, REPLICATES
from dubio.evaluation.preparation import as_predictions, impossible_rows, with_empty_decision
from dubio.evaluation.results import Evaluation, SystemComparison, named_rows
from dubio.formats.columns import unused_note
from dubio.metrics.quantities import QUANTITIES
from dubio.referral.policy import SELECTED
from dubio.reporting.example_rows import rows_to_store
from dubio.reporting.manifest_view import printable
from dubio.reporting.reported import Reported
from dubio.reporting.wording import RANDOM, listed
from dubio.statistics.paired import align, in_domain_rows
from dubio.store.examples import Content
from dubio.store.records import EntryKind

SystemFile = Predictions | str | Path
"""One system's predictions, or the file that has them."""

SystemFiles = SystemFile | Mapping[str, SystemFile]
"""The predictions of one system, or those of several by the system's name."""

TITLE = "predictions"
"""What the page calls the data, unless it is told."""

IN_DOMAIN, CALIBRATION, NOVEL = "test", "calibration", "ood"
"""Names of test sets that have no name of their own."""

RESERVED = (RANDOM, "correct", "incorrect")
"""Names that the page gives to controls and to parts of the in-domain test set."""

_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True, eq=False)
class SplitOfSystems:
    """One set of examples with every system's predictions on it, in the same order."""

    name: str
    kind: Kind
    systems: Mapping[str, Predictions]

    @property
    def first(self) -> Predictions:
        """The first system's predictions; labels, groups and columns of the examples are taken from it."""
        return next(iter(self.systems.values()))


@dataclass(frozen=True, eq=False)
class InMemory:
    """A source of predictions that are in memory: system → split → its predictions."""

    systems: Mapping[str, Mapping[str, Predictions]]

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        """Return the predictions of a system on a split."""
        return self.systems[pred_id][split_name]

    def record(self, identifier: str) -> dict[str, Any]:
        """Return nothing: neither time nor place of the predictions is known."""
        return {}

    def spec(self, kind: EntryKind, identifier: str) -> dict[str, Any]:
        """Return nothing: what was fitted is not known."""
        return {}

    def read_examples(self, fingerprint: str) -> dict[int, Content]:
        """Return ids and columns of the rows that say most about the systems, and of a random sample."""
        splits = {name for own in self.systems.values() for name in own}
        for split in sorted(splits):
            systems = [own[split] for own in self.systems.values() if split in own]
            if _fingerprint(systems[0]) == fingerprint:
                rows = rows_to_store(systems, systems[0].labels, fingerprint)
                return {row: _cells(systems[0], row) for row in rows}
        return {}


@dataclass(frozen=True, eq=False)
class Systems(Reported):
    """Systems on the same examples. They print as tables in a terminal and in a notebook.

    Attributes:
        manifest: The systems as methods of one task, in the form of a run's manifest.
        predictions: Their predictions.
        notes: What a reader must know of them, and every input that is not used.
        progress: Called with a sentence before each long step of scoring and of the report.
    """

    manifest: Mapping[str, Any]
    predictions: InMemory
    notes: tuple[str, ...] = ()
    progress: Callable[[str], None] = field(default=lambda text: None, repr=False)

    @property
    def source(self) -> InMemory:
        """The predictions."""
        return self.predictions

    def __repr__(self) -> str:
        names = [method["name"] for method in self.manifest["methods"]]
        return f"<systems {', '.join(map(repr, names))}>"


def open_systems(
    systems: SystemFiles,
    *,
    cal: SystemFiles | None = None,
    shift: Mapping[str, SystemFiles] | None = None,
    ood: Mapping[str, SystemFiles] | None = None,
    title: str = TITLE,
    empty_decision: EmptyDecision | None = None,
    ignored: Iterable[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Systems:
    """Open systems by their predictions.

    Args:
        systems: Predictions on the in-domain test set, by system; rows flagged ``ood`` are a test set of their own.
        cal: The same systems on a calibration set.
        shift: Name of a shifted test set → the same systems on it.
        ood: Name of an out-of-distribution test set → the same systems on it.
        title: What the page calls the data.
        empty_decision: How multi-label rows without a label above one half are decided; as predictions say by default.
        ignored: Sentences about further inputs that the page does not use.
        progress: Called with a sentence before each long step.

    Raises:
        UserError: For a test set that lacks a system, systems on different examples, or nothing to score.
    """
    sets: list[tuple[str, Kind, SystemFiles]] = [(IN_DOMAIN, "id", systems)]
    sets += [(CALIBRATION, "cal", cal)] if cal is not None else []
    sets += [(name, "shift", own) for name, own in (shift or {}).items()]
    sets += [(name, "ood", own) for name, own in (ood or {}).items()]
    names = list(systems) if isinstance(systems, Mapping) else [_name_of(systems)]
    read = [SplitOfSystems(name, kind, _read(own, names, name, empty_decision)) for name, kind, own in sets]
    _check_alike(read)
    splits, notes = _separate(read)
    _check_scores(splits)
    notes = [*notes, *_unused(splits), *ignored]
    keys = dict(zip(names, unique_names(names, RESERVED), strict=True))
    renamed = unique_names([split.name for split in splits], RESERVED)
    source = InMemory({
        key: {name: split.systems[system] for name, split in zip(renamed, splits, strict=True)}
        for system, key in keys.items()
    })  # fmt: skip
    return Systems(_manifest(splits, renamed, keys, title or TITLE, notes), source, tuple(notes), progress)


def open_evaluation(result: Evaluation | SystemComparison, **options: Any) -> Systems:
    """Open the predictions that ``dubio.evaluate`` or ``dubio.compare`` scored; options as of :func:`open_systems`."""
    evaluations = {TITLE: result} if isinstance(result, Evaluation) else result.evaluations
    first = next(iter(evaluations.values()))
    ignored = list(options.pop("ignored", ()))
    if (first.replicates, first.level, first.seed) != (REPLICATES, LEVEL, 0):
        ignored.append(f"Intervals here are {LEVEL:.0%} bootstrap intervals of {REPLICATES} replicates, seed 0, "
                       "whatever the evaluation was asked for.")  # fmt: skip
    if first.floor is not None:
        ignored.append(f"The floor of probabilities, {first.floor:g}, is not used here: likelihoods are those of the "
                       "predictions as they are.")  # fmt: skip
    return open_systems({name: own.predictions for name, own in evaluations.items()}, ignored=ignored, **options)


def _name_of(system: SystemFile) -> str:
    return TITLE if isinstance(system, Predictions) else Path(system).stem


def _read(
    files: SystemFiles, names: Sequence[str], test_set: str, decision: EmptyDecision | None
) -> dict[str, Predictions]:
    """Return every system's predictions on the same examples, in the order of the systems."""
    own = files if isinstance(files, Mapping) else {names[0]: files}
    if own.keys() != set(names):
        raise UserError(f"{test_set}: every system is needed once: {', '.join(names)}; given {', '.join(own)}.")
    sources = ((name, own[name]) for name in names)
    read = {name: p if isinstance(p, Predictions) else as_predictions(p, None, None, None) for name, p in sources}
    return align({name: with_empty_decision(predictions, decision) for name, predictions in read.items()})


def _check_alike(splits: Sequence[SplitOfSystems]) -> None:
    """Refuse test sets of other classes, and systems that decide rows without a label in different ways."""
    first = splits[0].first
    for split in splits:
        for fact, title in (("target", "target"), ("class_count", "number of classes")):
            one, other = getattr(first, fact), getattr(split.first, fact)
            if one != other:
                raise UserError(f"{split.name}: the {title} is {other}, and {one} in the in-domain test set.")
        if first.classes is not None and split.first.classes not in (None, first.classes):
            raise UserError(f"{split.name}: it names other classes than the in-domain test set, or in another order.")
        decisions = {name: own.empty_decision for name, own in split.systems.items()}
        if set(decisions.values()) != {first.empty_decision}:
            texts = ", ".join(f"{name}: {decision}" for name, decision in decisions.items())
            raise UserError(
                f"{split.name}: rows without a label above one half are decided in different ways ({texts}); state "
                "one with empty_decision (--empty-decision)."
            )


def _separate(splits: Sequence[SplitOfSystems]) -> tuple[list[SplitOfSystems], list[str]]:
    """Return splits of one kind of rows each, and notes on rows that are flagged as out of distribution."""
    separate, notes = [], []
    for split in splits:
        flagged = split.first.ood
        mixed = split.kind in ("id", "cal") and flagged.any() and not flagged.all()
        own = {name: in_domain_rows(one) for name, one in split.systems.items()} if mixed else split.systems
        separate.append(SplitOfSystems(split.name, split.kind, own))
        count = int(flagged.sum())
        if mixed and split.kind == "id":
            separate.append(SplitOfSystems(NOVEL, "ood", {n: one.take(flagged) for n, one in split.systems.items()}))
        elif mixed:
            notes.append(f"{split.name}: {count} {plural('row', count)} flagged as out of distribution left out.")
    return separate, notes


def _check_scores(splits: Sequence[SplitOfSystems]) -> None:
    """Refuse predictions of which nothing can be scored: without labels, and without another test set to detect."""
    tests = [split for split in splits if split.kind != "cal"]
    first = splits[0].first
    if len(tests) == 1 and first.target != "multilabel" and not (first.labels >= 0).any():
        raise UserError(NO_LABELS)


def _unused(splits: Sequence[SplitOfSystems]) -> Iterator[str]:
    """Yield a sentence for what readers noted, for rows without labels, and for every input that the page lacks."""
    notes = {name: list(_system_notes(splits, name)) for name in splits[0].systems}
    for note in dict.fromkeys(note for own in notes.values() for note in own):
        names = [name for name, own in notes.items() if note in own]
        yield note if len(names) == len(notes) else f"{listed(names)}: {note}"
    for split in (split for split in splits if split.first.target != "multilabel"):
        count = int(np.count_nonzero(split.first.labels < 0))
        if count and split.kind in ("id", "cal"):
            yield f"{split.name}: {count} unlabelled {plural('row', count)} left out of everything that needs labels."
    if splits[0].first.target == "multilabel" and splits[0].first.columns:
        columns = listed(list(splits[0].first.columns))
        yield f"Columns {columns}: not used, because subgroups are defined for one label per row."
    for kind in (split.first.kind for split in splits if split.kind == "cal"):
        if kind in SELECTED:
            yield f"Calibration set: its kind is {kind!r}, which training or selection has used; no policy is fitted."
    yield from _shared_rows(splits)


def _system_notes(splits: Sequence[SplitOfSystems], name: str) -> Iterator[str]:
    """Yield what readers noted of one system's files, its own uncertainties, and why its likelihood is infinite."""
    files = [split.systems[name] for split in splits]
    used = {unused_note(list(own.columns)) for own in files}  # the page shows every column as subgroups
    yield from dict.fromkeys(note for own in files for note in own.notes if note not in used)
    for score in dict.fromkeys(score for own in files for score in own.scores):
        lacking = [split.name for split in splits if score not in split.systems[name].scores]
        if score in QUANTITIES:
            yield f"Own uncertainty {score}: not used, because dubio computes a quantity of this name; rename it."
        elif lacking:
            yield f"Own uncertainty {score}: not used where it needs {listed(lacking)}, which does not have it."
    if rows := impossible_rows(files[0]):
        yield (
            f"NLL is infinite, because the truth has probability zero in {len(rows)} of {len(files[0])} "
            f"{plural('row', len(files[0]))} of {splits[0].name} ({named_rows(rows, files[0])}). By NLL it is not "
            "compared with other systems; compare accuracy, Brier score and AURC. dubio evaluate --floor 1e-6 raises "
            "such probabilities."
        )


def _shared_rows(splits: Sequence[SplitOfSystems]) -> Iterator[str]:
    """Yield a caution where rows of the calibration set are test rows too: then no outcome of a policy is a check."""
    test = splits[0].first.ids
    for ids in (split.first.ids for split in splits if split.kind == "cal"):
        count = 0 if ids is None or test is None else int(np.isin(ids, test).sum())
        if count:
            yield (
                f"Caution: {count} {plural('row', count)} of the calibration set are in the test set too; outcomes of "
                "policies on the test set are then no check of their guarantees."
            )


def unique_names(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return names that differ as they are printed: the second of a name, or of a reserved one, is numbered."""
    unique: list[str] = []
    for name in names:
        used, text = {*reserved, *unique}, printable(name)
        candidates = [text, *(f"{text} ({number})" for number in range(2, len(used) + 3))]
        unique.append(next(candidate for candidate in candidates if candidate not in used))
    return unique


def name_of_files(paths: Sequence[str | Path], default: str) -> str:
    """Return what a test set is called: the words that the names of all its files share, else a default."""
    stems = [Path(path).name.partition(".")[0] for path in paths]
    parts = [_WORDS.findall(stem) for stem in stems]
    shared = [word for word in parts[0] if all(word in own for own in parts)]
    return stems[0] if len(set(stems)) == 1 and stems[0] else "-".join(shared) or default


def _manifest(
    splits: Sequence[SplitOfSystems], names: Sequence[str], keys: Mapping[str, str], title: str, notes: Sequence[str]
) -> dict[str, Any]:
    """Return the systems in the form of a run's manifest: one task, every system a method with one run."""
    first = splits[0].first
    classes = first.classes or tuple(map(str, range(first.class_count)))
    task = {
        "name": title, "target": first.target, "classes": list(classes), "empty_decision": first.empty_decision,
        "notes": list(notes),
        "splits": [
            {"name": name, "kind": split.kind, "fingerprint": _fingerprint(split.first), "examples": len(split.first),
             "family": None, "severity": None}
            for name, split in zip(names, splits, strict=True)
        ],
        "facts": {
            name: {column: _column(values) for column, values in split.first.columns.items()}
            for name, split in zip(names, splits, strict=True)
        },
    }  # fmt: skip
    methods = [{"name": key, "facts": {"role": "system"}, **_pool(splits[0].systems[own])} for own, key in keys.items()]
    runs = [{"id": key, "fits": [], "spec": {}, "task": title, "method": key, "seed": 0} for key in keys.values()]
    shared = {"failures": [], "skipped": [], "advice": [], "benchmark": {}, "question": "systems"}
    return {"name": title, "tasks": [task], "methods": methods, "runs": runs, **shared}


def _pool(predictions: Predictions) -> dict[str, Any]:
    """Return what a system pools for one answer, and a sentence about it."""
    members, samples = len(np.unique(predictions.member)), predictions.samples
    text = f"{samples} {plural('sample', samples)} per example"
    summary = f"{text} from {members} independent trainings." if members > 1 else f"{text}."
    return {"members": members, "samples": samples // members if samples > members else 0, "summary": summary}


def _column(values: StrArray) -> dict[str, Any]:
    unique, rows = np.unique(values, return_inverse=True)
    return {"values": unique.tolist(), "rows": " ".join(map(str, rows.tolist()))}


def _cells(predictions: Predictions, row: int) -> dict[str, str]:
    """Return what predictions know of a row: its id, or its number, and its columns."""
    name = str(row) if predictions.ids is None else str(predictions.ids[row])
    cells = {"id": name} | {column: str(values[row]) for column, values in predictions.columns.items()}
    return {printable(key): printable(value) for key, value in cells.items()}


def _fingerprint(predictions: Predictions) -> str:
    """Return a hash of the examples as far as they are known: their labels and ids."""
    digest = hashlib.sha256(np.ascontiguousarray(predictions.labels).tobytes())
    if predictions.ids is not None:
        digest.update("\0".join(predictions.ids.tolist()).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
