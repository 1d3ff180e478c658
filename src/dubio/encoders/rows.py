"""The contracts of encodings and encoders, and encoded examples: rows of tokens, or rows of one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import LazyRows
from dubio.core.specs import describe, restore
from dubio.core.types import Examples, IntArray


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Texts as token indices, one after another without padding.

    Attributes:
        tokens: int32, the tokens of all rows.
        offsets: int64 ``[N + 1]``; row i is ``tokens[offsets[i]:offsets[i + 1]]``, never empty.
    """

    tokens: NDArray[np.int32]
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """Tokens per row, ``[N]``."""
        return np.diff(self.offsets)

    def row(self, index: int) -> NDArray[np.int32]:
        """Return the tokens of one row."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: NDArray[Any]) -> TokenRows:
        """Return rows in this order; an index array or a mask."""
        indices = np.flatnonzero(rows) if rows.dtype == bool else rows
        lengths = self.lengths[indices]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenRows(self.tokens[np.repeat(self.offsets[:-1][indices], lengths) + within], offsets)


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Images or table rows as float32 ``[N, …]``."""

    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[Any]) -> ArrayRows:
        """Return rows in this order; an index array or a mask."""
        return ArrayRows(self.values[rows])

    def at(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return the values of rows."""
        values: NDArray[np.float32] = self.values[rows]
        return values


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Images that become float32 ``[N, C, H, W]`` batch by batch, because all of them would not fit in memory.

    Attributes:
        images: uint8 ``[N, H, W, C]``.
        table: float32 ``[C, 256]``: the value of each grey level of each channel.
    """

    images: NDArray[np.uint8] | LazyRows
    table: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[Any]) -> ImageRows:
        """Return rows in this order; an index array or a mask."""
        images = self.images.take(rows) if isinstance(self.images, LazyRows) else self.images[rows]
        return ImageRows(images, self.table)

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Announce the batches of rows that will be read, in order."""
        if isinstance(self.images, LazyRows):
            self.images.expect(batches)

    def at(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return the values of rows."""
        return standardise(self.images[rows], self.table)


def standardise(images: NDArray[np.uint8], table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return uint8 ``[N, H, W, C]`` as float32 ``[N, C, H, W]``, by one look-up in the table of each channel."""
    return np.stack([table[c][images[..., c]] for c in range(len(table))], axis=1)


Encoded = TokenRows | ArrayRows | ImageRows


class Encoding:
    """How examples are encoded; part of a fit's identity."""

    @property
    def learns_from_all(self) -> bool:
        """Whether the encoder is fitted on all in-domain splits instead of the training split, which is a mistake."""
        return False

    def check(self) -> None:
        """Refuse settings that do not fit the network's encoder; by default all are accepted.

        Raises:
            UserError: With the reason.
        """
        return

    def fit(self, train: Examples) -> Encoder:
        """Return the encoder fitted on training examples."""
        raise NotImplementedError


class Encoder(Protocol):
    """A fitted encoding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an encoded example, or the size of the vocabulary."""
        ...

    def encode(self, examples: Examples) -> Encoded:
        """Return encoded examples."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return everything needed to restore this encoder."""
        ...


class JsonFields:
    """The JSON form of an encoder that is a dataclass of its encoding and of tuples.

    Attributes:
        kind: The name of the encoder in its JSON form.
    """

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return everything needed to restore this encoder."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        form = {name: list(value) if isinstance(value, tuple) else describe(value) for name, value in values.items()}
        return {"encoder": self.kind, **form}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Return the encoder that :meth:`to_json` wrote."""
        values = {field.name: saved[field.name] for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{n: tuple(v) if isinstance(v, list) else restore(v) for n, v in values.items()})
