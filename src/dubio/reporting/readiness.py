"""Load and start what a report needs before there is anything to report, while a run is trained."""

from __future__ import annotations

from contextlib import suppress

from dubio.reporting.build import registered_sections
from dubio.reporting.charts import chart_of, drawn, save
from dubio.reporting.page import need_report_extra
from dubio.reporting.report_cache import code_digest


def get_ready() -> None:
    """Load the packages that draw, start the one that makes pictures, and hash the code that a report depends on.

    Nothing is returned or said: what goes wrong here goes wrong again in the report, which says so.
    """
    with suppress(Exception):
        code_digest()
        registered_sections()
        need_report_extra("writing the report")
        first_picture()


def first_picture() -> bytes:
    """Return the picture of a point: whatever is drawn, the first one takes longest."""
    import altair

    return save(drawn(lambda: chart_of([{"x": 0}]).mark_point().encode(altair.X("x:Q"))), "svg")
