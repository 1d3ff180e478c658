"""Colours and markers of methods."""

from __future__ import annotations

import json
from pathlib import Path

from dubio.core.registry import METHODS
from dubio.reporting.build import Report
from dubio.reporting.manifest_view import MethodView, read_manifest
from dubio.reporting.style import OUTLINES, PALETTE, SPARE, styles_of


def test_an_ensemble_shares_its_familys_colour_and_is_drawn_otherwise(report: Report) -> None:
    found = styles_of(report.run.manifest.methods)
    single, ensemble = found["mc-dropout"], found["mc-dropout-ensemble"]
    assert (single.colour, single.marker) == (ensemble.colour, ensemble.marker)
    assert single.dash != ensemble.dash


def test_families_differ_in_colour_and_marker_and_have_an_outline() -> None:
    first, others, last = PALETTE[:9], PALETTE[9:20], PALETTE[20:]
    assert not {colour for colour, _ in last} & {colour for colour, _ in (*first, *others, *SPARE)}
    for together in ([*first, *SPARE], [*others, first[0], first[2]], [*last, first[0], first[2]]):
        assert len({colour for colour, _ in together}) == len({marker for _, marker in together}) == len(together)
        assert {marker for _, marker in together} <= set(OUTLINES)


def test_a_method_has_the_colour_of_its_registration_and_a_variant_a_spare_one() -> None:
    methods = [
        MethodView("a", family="a", facts={"colour": 4}),
        MethodView("a-ensemble", family="a", members=5, facts={"colour": 4}),
        MethodView("a-small", method="a", family="a-small", facts={"colour": 4}),
        MethodView("b", family="b"),
    ]
    colours = {name: style.colour for name, style in styles_of(methods).items()}
    assert colours == {"a": PALETTE[4][0], "a-ensemble": PALETTE[4][0], "a-small": SPARE[0][0], "b": SPARE[1][0]}


def test_families_never_share_colour_and_marker_also_where_all_methods_are_in_a_run() -> None:
    names = [entry.name for entry in METHODS.entries() if "ensemble_of" not in entry.facts]
    methods = [MethodView(name, family=name, facts=dict(METHODS.entry(name).facts)) for name in names]
    styles = styles_of([*methods, *(MethodView(f"own-{i}", family=f"own-{i}") for i in range(20))])
    registered = [styles[name] for name in names if "colour" in METHODS.entry(name).facts]
    numbers = [METHODS.entry(name).facts.get("colour") for name in names]
    assert max(number for number in numbers if number is not None) < len(PALETTE)
    others = [style for name, style in styles.items() if styles[name] not in registered]
    pairs = {(style.colour, style.marker) for style in others}
    assert len(pairs) == len(others)
    assert not pairs & {(style.colour, style.marker) for style in registered}


def test_methods_of_version_0_1_have_the_colours_of_their_registration() -> None:
    """Their manifests state no facts; a method that dubio never had takes a spare colour."""
    path = Path(__file__).parents[1] / "store" / "data" / "store-0.1" / "store" / "runs" / "quick-a4f56c7a.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["methods"].append({"name": "mine"})
    view = read_manifest(manifest)
    assert all(not method.get("facts") for method in manifest["methods"])
    facts = {entry.name: entry.facts for entry in METHODS.entries()}
    styles = styles_of(view.methods)
    for method in view.methods[:-1]:
        assert styles[method.name].colour == PALETTE[facts[method.name]["colour"]][0]
    assert styles["mine"].colour == SPARE[0][0]
    assert view.network_methods == {"deterministic"}
