"""The register of a server: its decisions and labels, as its log holds them, and the queue that follows from them.

A folder holds two logs. ``decisions.log`` has every decision and every label, and nothing of the rows but a SHA-256 of
their content. ``rows.log`` has the content of referred rows, which experts need to label them; it is not written where
rows are not kept, and may be deleted while no server runs. Entries of ``decisions.log``:

=============  =====================================================================================================
``start``      a server was started: version, identity of the model, SHA-256 of the policy
``decision``   ``id``, ``content`` (SHA-256), ``at``, and the ``decision`` as it was answered
``label``      ``id``, ``at`` and the ``label`` of an expert; null withdraws the last one
``cut``        a torn tail was cut off: ``offset`` and ``bytes``
``stop``       the server was stopped in good order
=============  =====================================================================================================

In memory are ids and positions alone; decisions are read from the file. The state is a function of the entries: a
server that is started again has the state of the one before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dubio.core.errors import UserError
from dubio.core.files import make_directories
from dubio.referral.application import DECISIONS
from dubio.serving.log_file import Entry, LogFile, Position
from dubio.store.locks import drop, storing, try_lock

KeepRows = Literal["referred", "none"]
Label = str | list[str]
_REFER = DECISIONS[False]


@dataclass
class State:
    """The state that follows from a log, without the contents of decisions.

    Attributes:
        decisions: Id → where the decision stands.
        counts: Decision → number of rows.
        labels: Id → label, of those that have one.
        urgency: Id → its place in the queue, of every referred row: most uncertain first, then in order of arrival.
        waiting: The places and ids of referred rows without a label, in order.
    """

    decisions: dict[str, Position] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    labels: dict[str, Label] = field(default_factory=dict)
    urgency: dict[str, tuple[float, int]] = field(default_factory=dict)
    waiting: list[tuple[float, int, str]] = field(default_factory=list)

    def apply(self, entry: Entry, position: Position) -> None:
        """Add an entry of the log.

        Raises:
            ValueError: When it is none that a server writes.
        """
        match entry:
            case {"entry": "decision", "id": str(name), "content": str(), "at": str(),
                  "decision": {"decision": "refer" | "retain", "uncertainty": float() | int()} as own}:  # fmt: skip
                self._decide(name, own, position)
            case {"entry": "label", "id": str(name), "label": None | str() | list() as label} if name in self.decisions:
                self._label(name, label)
            case {"entry": "start" | "stop" | "cut"}:
                pass
            case _:
                raise ValueError("an entry of another form")

    def _decide(self, name: str, decision: Mapping[str, Any], position: Position) -> None:
        self.decisions[name] = position
        self.counts[decision["decision"]] += 1
        if decision["decision"] == _REFER:
            self.urgency[name] = (-decision["uncertainty"], len(self.decisions))
            insort(self.waiting, (*self.urgency[name], name))

    def _label(self, name: str, label: Label | None) -> None:
        labelled = name in self.labels
        if label is None:
            self.labels.pop(name, None)
        else:
            self.labels[name] = label
        if name in self.urgency and labelled != (label is not None):
            item = (*self.urgency[name], name)
            if label is None:
                insort(self.waiting, item)
            else:
                del self.waiting[bisect_left(self.waiting, item)]

    @property
    def labelled_referrals(self) -> int:
        """The number of referred rows that have a label."""
        return len(self.urgency) - len(self.waiting)


class Register:
    """The logs of one folder, owned by this process until it is closed.

    Attributes:
        state: What the log says.
        notes: Sentences for whoever starts the server.
    """

    def __init__(self, folder: Path, *, keep_rows: KeepRows = "referred") -> None:
        """Take the folder and read its logs.

        Args:
            folder: The folder; it is made where it does not exist.
            keep_rows: Whether the content of referred rows is kept for the queue.

        Raises:
            UserError: When another server owns it, or it cannot be written.
            CorruptFile: When a log is damaged.
        """
        with storing(folder):
            make_directories(folder)
        lock = try_lock(folder / "owner.lock")
        if lock is None:
            raise UserError(f"--log {str(folder)!r} belongs to a server that is running; stop it, or name another "
                            "folder.")  # fmt: skip
        self._lock, self.folder, self.state = lock, folder, State()
        self._row_positions: dict[str, Position] = {}
        self._rows: LogFile | None = None
        try:
            self.log = LogFile(folder / "decisions.log", "decision log", self.state.apply)
            if keep_rows == "referred":
                self._rows = LogFile(folder / "rows.log", "row log", self._index_row)
        except BaseException:
            drop(lock)
            raise
        self.notes = [log.cut.sentence(log.path) for log in (self.log, self._rows) if log is not None and log.cut]
        if self.log.cut is not None:
            self.log.append([{"entry": "cut", "at": now(), "offset": self.log.cut.offset, "bytes": self.log.cut.size}])

    def _index_row(self, entry: Entry, position: Position) -> None:
        match entry:
            case {"id": str(name), "row": dict()}:
                self._row_positions[name] = position
            case _:
                raise ValueError("an entry of another form")

    @property
    def keeps_rows(self) -> bool:
        """Whether the content of referred rows is kept."""
        return self._rows is not None

    def write(self, entries: Sequence[Entry]) -> list[Position]:
        """Append entries to the log and flush it; the state is unchanged until :meth:`apply`. Any one thread may."""
        return self.log.append(entries)

    def write_rows(self, rows: Sequence[Entry]) -> list[Position]:
        """Append contents of referred rows, each with ``id`` and ``row``, and flush them; any one thread may."""
        return [] if self._rows is None else self._rows.append(rows)

    def apply(self, entries: Sequence[Entry], positions: Sequence[Position]) -> None:
        """Add entries that were written to the state."""
        for entry, position in zip(entries, positions, strict=True):
            self.state.apply(entry, position)

    def apply_rows(self, rows: Sequence[Entry], positions: Sequence[Position]) -> None:
        """Remember where contents of rows were written."""
        for entry, position in zip(rows, positions, strict=False):  # none where rows are not kept
            self._index_row(entry, position)

    def decision(self, name: str) -> Entry | None:
        """Return the entry of a decision, or None where the id is new."""
        position = self.state.decisions.get(name)
        return None if position is None else self.log.read(position)

    def has_row(self, name: str) -> bool:
        """Return whether the content of a row is kept."""
        return name in self._row_positions

    def queue(self, limit: int) -> Iterator[tuple[Entry, Mapping[str, Any] | None]]:
        """Yield the decisions that wait for a label, most uncertain first, with the row where it is kept."""
        for *_, name in self.state.waiting[:limit]:
            entry = self.decision(name)
            if entry is not None:
                yield entry, self.row(name)

    def row(self, name: str) -> Mapping[str, Any] | None:
        """Return the content of a referred row, where it is kept."""
        position = self._row_positions.get(name)
        return None if position is None or self._rows is None else dict(self._rows.read(position)["row"])

    def close(self) -> None:
        """Release the folder."""
        self.log.close()
        if self._rows is not None:
            self._rows.close()
        drop(self._lock)


def now() -> str:
    """Return the time in UTC, as entries hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
