"""All methods of the shipped benchmark in one study: augmented pairs, styles, and methods of one sample."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from dubio.reporting.manifest_view import MethodView, read_manifest, tta_pairs
from dubio.reporting.style import styles_of
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.curve_figures import study_styles
from dubio.studies.ensembles.equivalents import averaged_equivalents, equivalents_figure
from dubio.studies.ensembles.study import Study
from tests.reporting.stored_runs import FakeStore


@pytest.fixture(scope="module")
def methods() -> list[MethodView]:
    """The methods of ensembles.toml as a manifest of them reads."""
    table = tomllib.loads((files("dubio.studies.ensembles") / "benchmark.toml").read_text(encoding="utf-8"))
    rows = []
    for name in table["methods"]:
        own = dict(table["variant"].get(name, {}))
        method, title = own.pop("method", name), own.pop("title", name)
        pooled = name.endswith("-ensemble") and name != "snapshot-ensemble"
        family = "deterministic" if name == "deep-ensemble" else name.removesuffix("-ensemble") if pooled else name
        rows.append({"name": name, "title": title, "members": 3 if pooled else 1, "samples": 20, "family": family,
                     "method": method, "arguments": own})  # fmt: skip
    manifest = {"schema": 1, "name": "x", "tasks": [], "methods": rows, "runs": []}
    return list(read_manifest(manifest).methods)


def test_every_augmented_method_has_its_own_pair(methods: list[MethodView]) -> None:
    augmented = [method.name for method in methods if method.views]
    assert "laplace-last-tta" in augmented
    assert tta_pairs(methods) == {name: name.removesuffix("-tta") for name in augmented}


def lab(colour: str) -> np.ndarray:
    """CIE L*a*b* of an sRGB colour under D65."""
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    mixed = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = mixed @ linear / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_ways_to_an_ensemble_differ_in_colour_and_in_marker(methods: list[MethodView]) -> None:
    styles = styles_of(methods)
    ways = {method.family: styles[method.name] for method in methods if not method.views}
    assert {"swa", "laplace-last", "csghmc"} < set(ways)
    for one, other in combinations(ways.values(), 2):
        assert one.marker != other.marker
        assert np.linalg.norm(lab(one.colour) - lab(other.colour)) > 20
    assert styles["laplace-last-tta"].colour == styles["laplace-last"].colour != styles["laplace"].colour


def test_mean_weights_are_one_sample_everywhere(study: Study, study_world: tuple[FakeStore, dict]) -> None:  # type: ignore[type-arg]
    swa = study.by_name["swa"]
    assert (swa.role, swa.sizes, swa.title) == ("method", (1,), "SWA (1 sample)")
    assert study.by_name["swa-ensemble"].sizes == (1, 2)
    assert study.by_name["swa-ensemble"].title == "Ensemble of SWA"
    styles = study_styles(read_manifest(study_world[1]).methods, study)
    panels = [(score, averaged_equivalents([study], [swa], score)) for score in ("nll", "error", "brier", "aurc")]
    figure = equivalents_figure(panels, styles, len(study.growth))  # type: ignore[arg-type]
    (point,) = [each for each in figure.axes[0].lines if each.get_color() == styles["swa"].colour]
    assert len(point.get_xdata()) == 1
    growing = {"P Fig. 3, §5", "P Fig. 3, §4.2", "P §4.2", "P §4.3", "P Tables 7 and 8, §4.3"}
    for claim in conclusions([study]):
        if claim.where in growing:
            assert not any("SWA " in each.text or "SWA," in each.text for each in claim.evidence)


def test_last_layer_laplace_counts_as_noise_on_one_set_of_weights(study: Study) -> None:
    claims = {claim.where: claim for claim in conclusions([study])}
    assert any("(Laplace, last layer)" in each.text for each in claims["P §4.2"].evidence)
    assert any("Laplace, last layer, augmented" in each.text for each in claims["P §4.3"].evidence)
