"""The critical-difference diagram: repeatable files, names that do not overlap, refusals."""

from __future__ import annotations

import importlib.util
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from dubio.core.errors import MissingExtra, UserError
from dubio.reporting import charts
from dubio.reporting.cd_diagram import LINE, draw_cd_diagram
from dubio.reporting.charts import write_figure
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import EVIL

pytest.importorskip("altair")
RANKS = {f"a method with a rather long name {i}": 1 + 0.9 * i for i in range(18)}
CLIQUES = [tuple(RANKS)[:9], tuple(RANKS)[5:]]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_diagram_files_repeat_byte_for_byte(tmp_path: Path, ending: str, magic: bytes) -> None:
    written = [
        write_figure(draw_cd_diagram(RANKS, 4.0, CLIQUES, title="t"), tmp_path / f"{i}.{ending}", "--d").read_bytes()
        for i in range(2)
    ]
    assert written[0].startswith(magic)
    assert written[0] == written[1]


def test_methods_bars_and_the_critical_difference_are_at_their_ranks() -> None:
    rows = rows_of_chart(draw_cd_diagram(RANKS, 4.0, CLIQUES), "x")
    pixels = LINE / (17 - 1)  # the line is from 1 to 17, as the ranks are from 1 to 16.3
    hung = {row["method"]: row["x"] for row in rows if "method" in row}
    assert hung == pytest.approx({name: pixels * (rank - 1) for name, rank in RANKS.items()}, abs=1e-3)
    bars = [(row["x"] + 3, row["x2"] - 3) for row in rows if row.get("kind") == "bar"]
    assert bars == [pytest.approx((hung[clique[0]], hung[clique[-1]]), abs=1e-2) for clique in CLIQUES]
    lengths = [row["x2"] - row["x"] for row in rows if row.get("kind") == "difference" and "x2" in row]
    assert max(lengths) == pytest.approx(4 * pixels)


def test_no_two_names_share_a_row_of_a_side_and_no_lines_cross() -> None:
    rows = rows_of_chart(draw_cd_diagram(RANKS, 4.0, CLIQUES), "method")
    lowest = max(row["y"] for row in rows_of_chart(draw_cd_diagram(RANKS, 4.0, CLIQUES), "kind"))
    for side in ("left", "right"):
        own = sorted((row for row in rows if row["side"] == side), key=lambda row: row["y"])
        assert len(own) == 9
        assert all(below["y"] - above["y"] >= 18 for above, below in pairwise(own))
        assert own[0]["y"] > lowest + 8  # below all bars
        for above, below in combinations(own, 2):  # a line that goes out below starts further inside
            assert abs(above["x"] - above["edge"]) < abs(below["x"] - below["edge"])


def test_a_name_is_a_value_and_never_evaluated() -> None:
    chart = draw_cd_diagram({EVIL: 1.0, "b": 2.0}, 0.5, [], title=EVIL)
    assert EVIL in {row["method"] for row in rows_of_chart(chart, "method")}
    assert not [text for text in names_and_expressions(chart) if "script" in text]


def test_diagram_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="two methods"):
        draw_cd_diagram({"a": 1.0}, 1.0, [])
    assert importlib.util.find_spec("altair") is not None
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="report"):
        draw_cd_diagram({"a": 1.0, "b": 2.0}, 1.0, [])
