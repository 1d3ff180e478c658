"""Figures are shown where their data are, say what is seen, and keep names as text."""

from __future__ import annotations

from xml.etree import ElementTree

from dubio.reporting.figures.catalogue import plates, plates_across

from dubio.reporting.canvas import inline_svg
from dubio.reporting.results import Results
from dubio.reporting.scores import score_run
from tests.reporting.text_world import make_text_world

NEW = ("diversity", "size", "rates", "spectral", "epochs", "ridges-elsewhere", "correlation-elsewhere", "transfer")


EVIL = '<script>alert("x")</script>&$\\frac{$'


def test_figures_appear_only_where_their_data_are(results: Results, scored: Results) -> None:
    drawn = {task.key: {plate.slug for plate in plates(scored, task)} for task in scored.manifest.tasks}
    bare = {task.key: {plate.slug for plate in plates(results, task)} for task in results.manifest.tasks}
    assert {"rates", "epochs"} <= drawn["digits"]
    assert not {"rates", "epochs", "spectral"} & bare["digits"]
    assert "spectral" in drawn["reviews (textcnn)"]
    assert "spectral" not in drawn["digits"]
    assert not {"transfer", "correlation-novel", "ridges-novel"} & drawn["screening"]
    assert {"correlation-novel", "ridges-novel", "transfer"} <= drawn["digits"]
    assert not {"size", "diversity"} & drawn["reviews (bert)"]
    across = {plate.slug for plate in plates_across(scored)}
    assert {"networks-reviews", "likelihood", "transfer", "correlation", "rates", "epochs"} <= across
    assert not {"networks-reviews", "rates", "epochs"} & {plate.slug for plate in plates_across(results)}


def test_every_new_figure_is_drawn_and_says_what_is_seen(scored: Results) -> None:
    new = ("diversity", "size", "rates", "spectral", "epochs", "ridges", "correlation", "transfer", "density")
    shown = [plate for task in scored.manifest.tasks for plate in plates(scored, task) if plate.slug.startswith(new)]
    shown += list(plates_across(scored))
    assert {plate.slug.partition("-")[0] for plate in shown} >= {*new, "networks", "likelihood", "ranks"}
    for plate in shown:
        assert plate.reading.endswith(".")
        assert "nan" not in plate.reading
    one_each = {plate.slug.partition("-")[0]: plate for plate in shown}
    for plate in one_each.values():
        assert len(list(ElementTree.fromstring(inline_svg(plate.draw())).iter())) > 50


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
    found = score_run(store, manifest)
    first = [plate for plate in plates(found, found.manifest.tasks[0]) if plate.slug in NEW]
    across = list(plates_across(found))
    assert {plate.slug for plate in first} == set(NEW)
    assert {"likelihood", "correlation"} <= {plate.slug for plate in across}
    for plate in (*first, *across):
        drawn = ElementTree.fromstring(inline_svg(plate.draw()))
        assert "script" not in {element.tag.rpartition("}")[2] for element in drawn.iter()}
        assert any("<script>" in text for text in drawn.itertext())
