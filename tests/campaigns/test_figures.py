from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from campaigns.figures import TABLES, main, with_figures

FIGURES = {
    "kills": {
        "kills": {"parent": 3, "group": 1}, "of_two": 2, "in_fit": 4, "with_checkpoint": 3, "torch_kills": 1,
        "series": {"the same bits": 1}, "trainings": {"begin": 1200, "end": 9}, "problems": [],
    },
    "system calls": {
        "calls": {"write a fit": 55, "a whole run": 453}, "faults": {"write a fit": 206, "a whole run": 1768},
        "folders": {"write a fit": 9, "a whole run": 700},
        "problems": ["a whole run, call 7: EIO (open): damaged", "a whole run, call 8: EIO (open): lost"],
    },
    "hostile files": {
        name: {"cases": 2000, "read": 500, "refused": 1499, "failed": 1, "seconds": 7.25, "megabytes": 538}
        for name in ("npz", "all")
    },
    "store machine": {"series": 60, "endings": {"done": 1090, "died": 195, "busy": 3}},
    "mutants": [{"package": "referral", "killed": 90, "hangs": 2, "survived": 7, "not reached": 1, "explained": 3,
                 "share_killed": 92 / 97}],
}  # fmt: skip


def test_tables_stand_where_the_page_has_them_and_all_else_stays():
    page = "# A\n\n<!-- kills -->\nold\n<!-- end -->\n\ntext\n\n<!-- system calls -->\n<!-- end -->\nend\n"
    figures = {name: FIGURES[name] for name in ("kills", "system calls")}
    written = with_figures(page, figures)
    assert "old" not in written
    assert "| kills of the parent / of one worker / of both | 3 / 0 / 1 |" in written
    assert "| trainings begun / resumed / ended | 1,200 / 0 / 9 |" in written
    assert "| a whole run | 453 | 1,768 | 700 | 2 |" in written
    assert "| **all** | 508 | 1,974 | 709 | 2 |" in written
    assert re.sub(r"(?s)-->.*?<!--", "", written) == re.sub(r"(?s)-->.*?<!--", "", page)
    assert with_figures(written, figures) == written


def test_a_page_without_a_place_for_a_table_is_refused():
    with pytest.raises(ValueError, match="kills"):
        with_figures("# A\n", FIGURES)


def test_the_page_of_the_documentation_has_a_place_for_every_table(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    assert all(f"<!-- {name} -->" in page.read_text() for name in TABLES)
    copy, source = tmp_path / "page.md", tmp_path / "faults.json"
    copy.write_text(page.read_text())
    source.write_text(json.dumps(FIGURES))
    monkeypatch.setattr(sys, "argv", ["figures", str(source), str(copy)])
    main()
    assert "| write a fit | 55 | 206 | 9 | 0 |" in copy.read_text()
    assert "| **all** | 2,000 | 500 | 1,499 | 1 | 7.25 | 538 |" in copy.read_text()
    assert "| 60 | 1,090 | 195 | 0 | 0 | 0 |" in copy.read_text()
    assert "| `referral/` | 100 | 92 | 3 | 5 | 94.8% |" in copy.read_text()
