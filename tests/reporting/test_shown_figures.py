"""Figures are shown where their data are, say what is seen, and keep names as text."""

from __future__ import annotations

from xml.etree import ElementTree

from dubio.reporting import Report, build_report
from dubio.reporting.canvas import inline_svg
from tests.reporting.helpers import figures
from tests.reporting.text_world import make_text_world

NEW = ("diversity", "size", "rates", "spectral", "epochs", "ridges-elsewhere", "correlation-elsewhere", "transfer")


EVIL = '<script>alert("x")</script>&$\\frac{$'


def test_figures_appear_only_where_their_data_are(report: Report, text_report: Report) -> None:
    drawn = {task.key: set(figures(text_report, task)) for task in text_report.tasks}
    bare = {task.key: set(figures(report, task)) for task in report.tasks}
    assert {"rates", "epochs"} <= drawn["digits"]
    assert not {"rates", "epochs", "spectral"} & bare["digits"]
    assert "spectral" in drawn["reviews (textcnn)"]
    assert "spectral" not in drawn["digits"]
    assert not {"transfer", "correlation-novel", "ridges-novel"} & drawn["screening"]
    assert {"correlation-novel", "ridges-novel", "transfer"} <= drawn["digits"]
    assert not {"size", "diversity"} & drawn["reviews (bert)"]
    across = set(figures(text_report))
    assert {"networks-reviews", "likelihood", "transfer", "correlation", "rates", "epochs"} <= across
    assert not {"networks-reviews", "rates", "epochs"} & set(figures(report))


def test_every_new_figure_is_drawn_and_says_what_is_seen(text_report: Report) -> None:
    new = ("diversity", "size", "rates", "spectral", "epochs", "ridges", "correlation", "transfer", "density")
    every = [figure for task in text_report.tasks for figure in figures(text_report, task).values()]
    shown = [figure for figure in every if figure.name.startswith(new)]
    shown += list(figures(text_report).values())
    assert {figure.name.partition("-")[0] for figure in shown} >= {*new, "networks", "likelihood", "ranks"}
    for figure in shown:
        assert figure.reading.endswith(".")
        assert "nan" not in figure.reading
    one_each = {figure.name.partition("-")[0]: figure for figure in shown}
    for figure in one_each.values():
        assert len(list(ElementTree.fromstring(inline_svg(figure.draw())).iter())) > 50


def test_names_stay_text_in_every_new_figure() -> None:
    store, manifest = make_text_world()
    kept = ("deterministic", "mc-concrete-dropout", "deep-ensemble", "bounded-a", "bounded-b")
    manifest["methods"] = [method for method in manifest["methods"] if method["name"] in kept]
    manifest["tasks"] = [task for task in manifest["tasks"] if task["name"] == "reviews"]
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == "reviews" and run["method"] in kept]
    for place, method in enumerate(manifest["methods"]):
        method["title"] = f"{EVIL}{place}"
    for run in manifest["runs"]:
        run["task"], run["network"] = EVIL, f"{run['network']}{EVIL}"
    for task in manifest["tasks"]:
        task["name"], task["network"] = EVIL, f"{task['network']}{EVIL}"
    for record in store.records.values():
        if "rates" in record:
            record["rates"] = {EVIL: 0.3}
    built = build_report(store, manifest)
    first = [figure for name, figure in figures(built, built.tasks[0]).items() if name in NEW]
    across = figures(built)
    assert {figure.name for figure in first} == set(NEW)
    assert {"likelihood", "correlation"} <= set(across)
    for figure in (*first, *across.values()):
        drawn = ElementTree.fromstring(inline_svg(figure.draw()))
        assert "script" not in {element.tag.rpartition("}")[2] for element in drawn.iter()}
        assert any("<script>" in text for text in drawn.itertext())
