"""The critical-difference diagram: repeatable files, names that do not overlap, refusals."""

import sys

import pytest

from dubio.core.errors import MissingExtra, UserError
from dubio.reporting.canvas import write_figure
from dubio.reporting.cd_diagram import draw_cd_diagram

RANKS = {f"a method with a rather long name {i}": 1 + 0.9 * i for i in range(18)}
CLIQUES = [tuple(RANKS)[:9], tuple(RANKS)[5:]]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_diagram_files_repeat_byte_for_byte(tmp_path, ending, magic):
    pytest.importorskip("matplotlib")
    written = [
        write_figure(draw_cd_diagram(RANKS, 4.0, CLIQUES, title="t"), tmp_path / f"{i}.{ending}", "--d").read_bytes()
        for i in range(2)
    ]
    assert written[0].startswith(magic)
    assert written[0] == written[1]


def test_no_two_names_of_a_diagram_overlap():
    pytest.importorskip("matplotlib")
    figure = draw_cd_diagram(RANKS, 4.0, CLIQUES, title="title", note="note")
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    assert len(boxes) > 36
    assert not any(one.overlaps(two) for i, one in enumerate(boxes) for two in boxes[i + 1 :])
    edges = figure.bbox
    assert all(edges.x0 <= box.x0 and box.x1 <= edges.x1 and box.y1 <= edges.y1 for box in boxes)


def test_diagram_refusals(monkeypatch):
    with pytest.raises(UserError, match="two methods"):
        draw_cd_diagram({"a": 1.0}, 1.0, [])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="report"):
        draw_cd_diagram({"a": 1.0, "b": 2.0}, 1.0, [])
