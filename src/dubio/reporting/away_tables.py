"""The tables of places away from home: novel classes and other domains, told apart by every uncertainty quantity."""

from __future__ import annotations

from dubio.reporting.aggregate import Cell, average_over
from dubio.reporting.chapters import Elsewhere, elsewhere
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import DETECTED_BY, GAP, HEADLINE, detection_name
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column
from dubio.reporting.wording import term
from dubio.statistics.verdicts import against_best

DETECTION = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95")
SIDES = {"ood_aupr": "foreign positive", "id_aupr": "in-domain positive"}
"""Which side an average precision counts as found."""


def elsewhere_summary(results: Results, task: TaskView) -> Table:
    """One detection column a place away from home, and accuracy where there are labels."""
    name = detection_name("ood_auroc", HEADLINE)
    places = elsewhere(task)
    columns = [
        _column(results, task, place, name, Column("AUROC", place.title, "↑", term("ood_auroc").note))
        for place in places
    ]
    for metric, title, arrow in (("accuracy", "Accuracy", "↑"), (GAP, "Gap", "↓")):
        heads = [Column(title, place.title, arrow, term(metric).note, metric == GAP) for place in places]
        columns += [
            _column(results, task, place, metric, head)
            for place, head in zip(places, heads, strict=True)
            if place.kind == "shift"
        ]
    graded = "; mean over the severities of a corruption" if task.severities else ""
    caption = f"Detection by {HEADLINE} (0.5 is a coin), accuracy under shift and what is lost of it{graded}"
    return method_table(results.methods_of(task), columns, styles_of(results.manifest.methods), caption=caption)


def elsewhere_grid(results: Results, task: TaskView, place: Elsewhere) -> Table:
    """One place away from home: accuracy there, and detection by confidence."""
    columns = []
    if place.kind == "shift":
        columns.append(_column(results, task, place, "accuracy", Column("Accuracy", "", "↑")))
        columns.append(_column(results, task, place, GAP, Column("Gap", "not ranked", "↓", term(GAP).note, True)))
        columns.append(_column(results, task, place, "nll", Column("NLL", "not ranked", "↓", unranked=True)))
    columns += [_detected(results, task, place, metric, HEADLINE) for metric in DETECTION]
    columns += [_detected(results, task, place, "ood_auroc", other) for other in DETECTED_BY if other != HEADLINE]
    return method_table(
        results.methods_of(task), columns, styles_of(results.manifest.methods), caption=_caption(task, place)
    )


def correlation_grid(results: Results, task: TaskView, place: Elsewhere) -> Table:
    """Signed point-biserial correlation of every quantity with being foreign."""
    columns = []
    for quantity in DETECTED_BY:
        name = detection_name("ood_correlation", quantity)
        head = Column(_spoken(quantity), "", ARROWS[results.better[name]], term("ood_correlation").note)
        columns.append(_column(results, task, place, name, head))
    caption = (
        f"Correlation of each quantity with being “{place.title}”, signed: confidence should fall there, every other "
        "quantity rise"
    )
    return method_table(results.methods_of(task), columns, styles_of(results.manifest.methods), caption=caption)


def every_quantity_grid(results: Results, task: TaskView, place: Elsewhere) -> Table:
    """Both average precisions and FPR95 by every quantity."""
    columns = [
        _detected(results, task, place, metric, quantity) for metric in DETECTION[1:] for quantity in DETECTED_BY
    ]
    return method_table(
        results.methods_of(task), columns, styles_of(results.manifest.methods), caption=_caption(task, place)
    )


def _detected(results: Results, task: TaskView, place: Elsewhere, metric: str, quantity: str) -> FilledColumn:
    name = detection_name(metric, quantity)
    title = "AUPR" if metric in SIDES else term(metric).title
    sub = f"{_spoken(quantity)}, {SIDES[metric]}" if metric in SIDES else _spoken(quantity)
    head = Column(title, sub, ARROWS[results.better[name]], term(metric).note)
    return _column(results, task, place, name, head)


def _spoken(quantity: str) -> str:
    return quantity.replace("_", " ")


def _caption(task: TaskView, place: Elsewhere) -> str:
    home = task.of_kind("id")[0].examples
    sizes = {split.name: split.examples for split in task.splits}
    foreign = sizes[place.splits[0]]
    many = f"{place.title}: mean over {len(place.splits)} severities, each" if len(place.splits) > 1 else place.title
    share = foreign / (home + foreign)
    return (
        f"{many} {foreign:,} examples against {home:,} in-domain ones; prevalence, the floor of AUPR: {share:.2f} with "
        f"foreign examples positive, {1 - share:.2f} with in-domain ones"
    )


def _column(results: Results, task: TaskView, place: Elsewhere, metric: str, head: Column) -> FilledColumn:
    averaged = {
        m.name: average_over(results.cells, task.key, place.splits, m.name, metric) for m in results.methods_of(task)
    }
    cells: dict[str, Cell] = {name: cell for name, cell in averaged.items() if cell is not None}
    losses = results.losses_of(task, place.splits[0], metric) if len(place.splits) == 1 else {}
    ranked = metric not in results.not_ranked
    verdicts = against_best(cells, results.better[metric], losses or None, results.kin) if ranked else None
    return score_column(head, cells, verdicts, places=3)
