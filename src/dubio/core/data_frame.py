"""Give results as a pandas data frame; pandas is needed only where one is requested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dubio.core.errors import UserError

if TYPE_CHECKING:
    import pandas


def data_frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return a data frame with one row per mapping.

    Raises:
        UserError: If pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as missing:
        raise UserError("a data frame needs pandas, which dubio does not install: pip install pandas.") from missing
    return pandas.DataFrame([dict(row) for row in rows])
