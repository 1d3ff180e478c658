"""Reports: tables, figures and one self-contained web page, from stored predictions alone.

:func:`build_report` reads every prediction once; the other functions write what it found.
"""

from __future__ import annotations

from dubio.reporting.build import Report, build_report
from dubio.reporting.manifest_view import Source
from dubio.reporting.page import report_texts, write_figures, write_texts
from dubio.reporting.terminal import terminal_table

__all__ = ["Report", "Source", "build_report", "report_texts", "terminal_table", "write_figures", "write_texts"]
