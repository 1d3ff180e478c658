"""The documents that the server takes and gives: requests are decoded by them, the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from dubio.core.errors import UserError
from dubio.core.validate import Finite, NonNegative, Share, entries, matching

Id = Annotated[str, matching(r"[^\x00-\x1f\x7f]{1,200}", "of 1 to 200 characters that can be printed")]
Cell = str | int | Finite | None
"""A value of a row: a text, a number, null where it is missing; an image as the base64 of its PNG or JPEG."""
Probabilities = Mapping[str, Share]
DecisionName = Literal["refer", "retain"]


@dataclass(frozen=True)
class RowRequest:
    """A row to decide about.

    Attributes:
        row: Its values by column. Beside ``probabilities`` it is not predicted, but shown to the expert.
        probabilities: Of the classes, by name, where another program predicts; with samples a list of them, one per
            sample. They are those before the temperature of the policy, if it has one.
        id: Its name. The same row sent again under its name gets its first answer; by default the server names it.
    """

    row: Annotated[Mapping[str, Cell], entries(1)] | None = None
    probabilities: Probabilities | Annotated[tuple[Probabilities, ...], entries(1)] | None = None
    id: Id | None = None

    def __post_init__(self) -> None:
        if self.row is None and self.probabilities is None:
            raise UserError("needs the field 'row' or 'probabilities'.")


@dataclass(frozen=True)
class DecideRequest:
    """Rows to decide about.

    Attributes:
        rows: The rows.
    """

    rows: Annotated[tuple[RowRequest, ...], entries(1)]


@dataclass(frozen=True)
class Decision:
    """The decision about a row.

    Attributes:
        id: The name of the row.
        answer: The predicted class; of several labels those predicted, with semicolons.
        probabilities: The pooled probability of each class.
        uncertainty: The value that was compared with the threshold of the policy.
        decision: Whether the answer is retained or referred to a person.
        reason: Why.
    """

    id: str
    answer: str
    probabilities: Mapping[str, float]
    uncertainty: float
    decision: DecisionName
    reason: str


@dataclass(frozen=True)
class DecideResponse:
    """The decisions about the rows of a request, in their order; they are in the log, on the disk.

    Attributes:
        decisions: One per row.
    """

    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class LabelRequest:
    """A person's label of a row.

    Attributes:
        id: The name of a row that was decided about.
        label: Its class; with several labels per row the list of them; null withdraws the label.
    """

    id: Id
    label: str | tuple[str, ...] | None


@dataclass(frozen=True)
class LabelResponse:
    """The state after a label.

    Attributes:
        id: The name of the row.
        label: The label that it has now.
        waiting: Referred rows without a label.
        labelled: Referred rows with a label.
    """

    id: str
    label: str | tuple[str, ...] | None
    waiting: NonNegative
    labelled: NonNegative


@dataclass(frozen=True)
class Column:
    """A column of rows.

    Attributes:
        name: Its name.
        kind: The kind of its values; an image is the base64 of its PNG or JPEG.
    """

    name: str
    kind: Literal["text", "image", "any"]


@dataclass(frozen=True)
class QueueRow:
    """A referred row that waits for a label.

    Attributes:
        at: When it was decided about, in UTC.
        row: Its values, where they are kept.
        decision: The decision.
    """

    at: str
    row: Mapping[str, Any] | None
    decision: Decision


@dataclass(frozen=True)
class QueueResponse:
    """The queue of the expert, most uncertain rows first.

    Attributes:
        waiting: Referred rows without a label, also those that are not listed.
        labelled: Referred rows with a label.
        classes: The labels that can be given.
        several: Whether a row may have several labels, or none.
        columns: The columns of rows.
        rows: The first rows of the queue.
    """

    waiting: NonNegative
    labelled: NonNegative
    classes: tuple[str, ...]
    several: bool
    columns: tuple[Column, ...]
    rows: tuple[QueueRow, ...]


@dataclass(frozen=True)
class Health:
    """The state of the server.

    Attributes:
        status: ``ok``, or why it can decide nothing.
        version: The version of dubio.
        model: The identity of the model; null where the server is given probabilities alone.
        policy: SHA-256 of the policy; null where every row is referred.
        rule: Which rows are retained, in words.
    """

    status: str
    version: str
    model: str | None
    policy: str | None
    rule: str


@dataclass(frozen=True)
class Refusal:
    """The reason why a request was refused.

    Attributes:
        error: One or two sentences.
    """

    error: str
