"""Published definitions beside the corrected ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.metrics.areas import auroc
from dubio.metrics.as_published import mirrored_rows, ood_auroc_as_published
from dubio.metrics.calibration_error import ece
from dubio.reporting import build_report
from dubio.reporting.score_table import aggregate
from dubio.studies.text.as_published import (
    correction_sentence,
    correction_table,
    corrections,
    detection_values,
    in_domain_values,
    in_tested_order,
    kind_of,
)
from tests.reporting.helpers import blocks, part_of_run, without_shift
from tests.reporting.stored_runs import World


def test_published_definitions_are_those_of_the_metrics(world: World) -> None:
    store, manifest = world
    run = next(r for r in manifest["runs"] if r["method"] == "mc-dropout" and r["task"] == "digits")
    inside, outside = (store.predictions[run["id"], split] for split in ("test", "novel"))
    home, there = in_domain_values(inside), detection_values(inside, outside)
    assert home["ece_as_published"] == pytest.approx(ece(inside, bins=100))
    assert home["ece"] == pytest.approx(ece(inside))
    assert home["brier_as_published"] == pytest.approx(home["brier"] / 4)
    both = in_tested_order(inside, outside)
    assert there["ood_auroc_as_published"] == ood_auroc_as_published(both)
    doubt = 1 - both.probs.max(axis=1)
    flag, places = mirrored_rows(both.ood)
    assert there["ood_auroc_as_published"] == pytest.approx(auroc(doubt[places], flag))
    assert there["ood_auroc"] == pytest.approx(auroc(doubt, both.ood))
    assert there["ood_correlation_as_published"] >= 0  # of the entropy, and absolute


def test_rows_go_in_the_order_of_a_common_numbering() -> None:
    def rows(names: list[str], ood: bool) -> Predictions:
        logits = np.arange(len(names) * 2, dtype=np.float32).reshape(1, -1, 2)
        return Predictions(logits, np.zeros(len(names), np.int64), ids=np.array(names), ood=np.full(len(names), ood))

    mixed = in_tested_order(rows(["test/1", "test/10", "test/3"], False), rows(["test/2", "test/4"], True))
    assert mixed.ood.tolist() == [False, True, False, True, False]
    apart = in_tested_order(rows(["books/1", "books/2"], False), rows(["dvd/1"], True))
    assert apart.ood.tolist() == [False, False, True]


def test_kinds_of_methods_are_read_from_predictions(world: World) -> None:
    store, manifest = world
    first = {m: next(r["id"] for r in manifest["runs"] if r["method"] == m) for m in ("mc-dropout", "deep-ensemble")}
    assert kind_of(store.predictions[first["mc-dropout"], "test"]) == "dropout"
    assert kind_of(store.predictions[first["deep-ensemble"], "test"]) == "ensemble"
    noisy = store.predictions[first["mc-dropout"], "test"]
    assert kind_of(replace(noisy, data_variance=np.ones_like(noisy.logits))) == "heteroscedastic"


def test_mending_is_told_with_kendalls_tau(world: World) -> None:
    store, manifest = world
    manifest = without_shift(part_of_run(manifest, "digits"))
    report = build_report(store, manifest, options=("as-published",))
    found = report.run
    (task,) = found.tasks
    pair = next(p for p in corrections(found, task) if (p.split, p.published) == ("novel", "ood_auroc_as_published"))
    cells = aggregate(found.extra_scores)
    names = [m.name for m in found.methods_of(task)]
    values = [[cells[task.key, "novel", n, metric].mean for n in names] for metric in (pair.published, pair.plain)]
    assert pair.agreement == pytest.approx(stats.kendalltau(*values).statistic)
    assert f"τ of the two orders {pair.agreement:.2f}" in correction_sentence(found, pair)
    signed = next(
        p for p in corrections(found, task) if p.published == 'ood_correlation_as_published(quantity="confidence")'
    )
    assert signed.agreement is not None
    assert signed.agreement > 0.9  # absolute against signed: the same order turned round
    table = correction_table(found, task, "novel")
    assert table is not None
    assert all(head.unranked for head in table.columns)
    assert {cell.place for row in table.rows for cell in row.cells} == {"unranked"}
    plain = build_report(store, manifest)
    assert set(found.scores.scores) == set(plain.run.scores.scores)
    assert blocks(report, "as-published")
    assert not blocks(plain, "as-published")
