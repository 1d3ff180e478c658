"""Adapter: the parts that are not sections yet, in the blocks of sections. It disappears with the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from dubio.reporting.advice import advice
from dubio.reporting.aggregate import Score
from dubio.reporting.away_tables import correlation_grid, elsewhere_grid, elsewhere_summary, every_quantity_grid
from dubio.reporting.capacity_tables import capacities_document, capacity_part
from dubio.reporting.chapters import (
    cost_grid,
    elsewhere,
    promise_grid,
    promise_words,
    referral_grid,
)
from dubio.reporting.fate import fate_grid, fate_words
from dubio.reporting.findings import findings, reading
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.over_tasks import across_tables
from dubio.reporting.promise_limits import needed_words, unpromised_words
from dubio.reporting.results import Results
from dubio.reporting.run_view import RunView
from dubio.reporting.scores import results_of_run
from dubio.reporting.section import (
    Block,
    Card,
    Cards,
    Definitions,
    Example,
    Examples,
    Figure,
    Headline,
    Section,
    Text,
    section,
)
from dubio.reporting.sections.in_domain import FIGURES as CONVERTED
from dubio.reporting.setup import (
    card_rows,
    citation,
    commands,
    environment_words,
    metric_rows,
    resolved_benchmark,
    sources,
)
from dubio.reporting.tables import Column, Row, Table, TableCell, folded, plain_table
from dubio.reporting.wording import counted, draws, listed, sentence, split_role
from dubio.reporting.worth import equivalents
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.document import study_document
from dubio.studies.ensembles.paper_tables import augmentation_tables, sample_tables
from dubio.studies.ensembles.summary import summary_grid
from dubio.studies.ensembles.tables import table_files
from dubio.studies.retina.document import gains_document, subgroups_document
from dubio.studies.retina.gallery import gallery_part, gallery_words
from dubio.studies.retina.subgroups import facts_of, subgroup_grid, subgroup_words
from dubio.studies.retina.tables import gain_grid, nhs_grid, retention_grid
from dubio.studies.text.as_published import mended, mended_grid, mended_words
from dubio.studies.text.claims import claims
from dubio.studies.text.published_figures import SOURCE, agreement_grid, agreement_words


def _plates(results: Results, task: TaskView | None, *chapters: str) -> dict[str, Figure]:
    """Old figures of some chapters: slug → figure."""
    from dubio.reporting.figures.catalogue import plates, plates_across

    drawn = plates_across(results) if task is None else plates(results, task)
    return {
        plate.slug: Figure(
            plate.slug, plate.title, plate.caption, plate.draw, plate.narrow, plate.folded, plate.reading
        )
        for plate in drawn
        if plate.chapter in chapters
    }


@section("findings", part="opening", order=10)
class Findings(Section):
    """What came out."""

    title = "What came out"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Cards of findings."""
        results = results_of_run(run)
        yield Cards(tuple(Card(each.head, each.texts, aside=each.aside) for each in findings(results)))
        yield Text(reading(results), "small")

    def document(self, run: RunView) -> dict[str, Any]:
        """The verdicts of the ranking metric."""
        standing = [
            {
                "task": task.key,
                "metric": RANKED_BY,
                "method": method,
                "place": verdict.place,
                "difference": verdict.difference,
                "resolves": verdict.resolves,
            }
            for task in run.tasks
            for method, verdict in run.scores.verdicts(task, task.in_domain.name, RANKED_BY).items()
        ]
        costs = [
            {"task": task, "method": method}
            | {name: {"mean": cell.mean, "std": cell.std, "runs": cell.n} for name, cell in vars(cost).items()}
            for (task, method), cost in run.costs.items()
        ]
        return {"standing": standing, "costs": costs}


@section("advice", part="opening", order=20)
class Advising(Section):
    """Which method?"""

    title = "Which method for your problem?"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Cards of advice."""
        cards = tuple(
            Card(each.circumstance, (each.conclusion,), each.evidence) for each in advice(results_of_run(run))
        )
        if cards:
            yield Text(
                "What these results advise, by circumstance. Every sentence is computed from the tables below, by the "
                "same verdicts: where two methods cannot be told apart, that is said, and the cheaper is as good a "
                "choice."
            )
            yield Cards(cards)

    def document(self, run: RunView) -> dict[str, Any]:
        """The same as JSON."""
        results = results_of_run(run)
        return {"advice": [vars(each) for each in advice(results)]}


@section("ensembles-of-task", order=20)
class EnsemblesOfTask(Section):
    """Figures of ensembles and trainings."""

    title = "Ensembles and training"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Figures alone."""
        if task is not None:
            drawn = _plates(results_of_run(run), task, "in_domain")
            yield from (figure for name, figure in drawn.items() if name not in CONVERTED)

    def document(self, run: RunView) -> dict[str, Any]:
        """Deep-ensemble equivalents."""
        found = []
        for task in run.tasks:
            curve = run.growth.get(task.key)
            if curve is None:
                continue
            cells = run.scores.row(task, task.in_domain.name, RANKED_BY)
            for method, worth in equivalents(curve, cells).items():
                bounds = {part: getattr(worth, part) for part in ("lower", "central", "upper")}
                told = {part: str(bound) if bound.beyond else bound.size for part, bound in bounds.items()}
                found.append({"task": task.key, "method": method, "longest": len(curve), **told})
        return {"deep_ensemble_equivalents": found}


@section("referral", order=30)
class Referral(Section):
    """Referral."""

    title = "Referral"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Tables and curves."""
        results = results_of_run(run)
        if task is None:
            return
        yield Text(
            "Send the most uncertain examples to someone who knows, and answer only the rest: how right is the rest? "
            "Referring at random would change nothing; what lies above it is what the uncertainty is worth."
        )
        if not task.screened:
            yield referral_grid(results, task, "referral_accuracy")
        yield from _plates(results, task, "referral").values()
        yield from self._screening(results, task)

    def _screening(self, results: Results, task: TaskView) -> Iterator[Block]:
        from dubio.studies.retina.parts import gain_words
        from dubio.studies.retina.plates import on_split

        found = results.screening.get(task.key)
        if found is None:
            return
        drawn = _plates(results, task, "screening")
        if found.gains:
            yield Headline("What referral is worth")
            yield gain_grid(results, task)
            yield from (Text(words, "small") for words in gain_words(results, task))
        for split in found.splits:
            why = found.undefined(split)
            home = split == task.in_domain.name
            yield Headline(f"In-domain, “{split}”" if home else f"Away from home, “{split}”")
            if why:
                yield Text(f"No AUC and no ROC curve is defined on “{split}”: {why}.", "note")
            shown = ("referral_accuracy",) if why else ("referral_accuracy", "referral_auc")
            yield from (retention_grid(results, task, split, metric) for metric in shown)
            nhs = nhs_grid(results, task, split)
            if nhs is not None:
                yield nhs
            slugs = [on_split(kind, split) for kind in ("referral", "roc", "certainty")]
            yield from (drawn[slug] for slug in slugs if slug in drawn)
        facts = facts_of(results, task)
        if facts:
            yield Headline("Subgroups")
            yield Text(
                "Is the classifier as right as it says for everyone? Calibration by what is known of the examples."
            )
            yield Text(subgroup_words(results, task), "small")
            for fact in facts:
                yield subgroup_grid(results, task, fact, "ece")
                yield from (drawn[slug] for slug in [on_split("subgroups", fact)] if slug in drawn)
                yield folded(subgroup_grid(results, task, fact, "accuracy"), f"Accuracy by {fact}")

    def document(self, run: RunView) -> dict[str, Any]:
        """Gains and subgroups."""
        results = results_of_run(run)
        return {"referral_gains": gains_document(results), "subgroups": subgroups_document(results)}


@section("policies", order=40)
class Policies(Section):
    """Policies."""

    title = "A promise"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Tables."""
        results = results_of_run(run)
        if task is None:
            return
        unpromised = unpromised_words(results, task)
        if unpromised:
            yield Text(unpromised, "note")
        promise, capacity = promise_grid(results, task), capacity_part(results, task)
        if promise or capacity:
            yield Text(
                "A curve shows what a threshold would have done; a policy has to be chosen before. On examples kept "
                "aside each method looks for the threshold that keeps most and still guarantees the error among the "
                "kept. Away from home nothing is guaranteed, and a test of the uncertainties should say so."
            )
        if promise:
            yield Text(promise_words(results, task), "small")
            yield promise
            needed = needed_words(results, task)
            if needed:
                yield Text(needed, "note")
            fate = fate_grid(results, task)
            if fate:
                yield fate
                yield from (Text(words, "small") for words in fate_words(results, task))
            yield from _plates(results, task, "promise").values()
        if capacity:
            yield Headline("A promise on how much is referred")
            yield Text(capacity["words"], "small")
            for place in capacity["places"]:
                yield place.table
                yield Text(place.words, "small")

    def document(self, run: RunView) -> dict[str, Any]:
        """The referral policy of every method and what became of it."""
        results = results_of_run(run)
        promises = [
            {
                "task": task,
                "method": method,
                "target": promise.target,
                "threshold": None if promise.policy is None else promise.policy.threshold,
                "best_bound": promise.best,
                "needed": None if promise.needed is None else asdict(promise.needed),
                "home": None if promise.home is None else asdict(promise.home),
                "away": [asdict(seen) for seen in promise.away],
            }
            for task, promises in results.promises.items()
            for method, promise in promises.items()
        ]
        return {"promises": promises, "capacities": capacities_document(results)}


@section("shift", order=50)
class Away(Section):
    """Shifted and novel."""

    title = "Away from home"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Tables, then figures, then folds."""
        results = results_of_run(run)
        if task is None or not elsewhere(task):
            return
        yield Text(
            "Examples that are not like those of training: novel classes, other sources, spoilt inputs. A classifier "
            "that knows its limits is less certain here. Marks of accuracy and of AUROC by confidence weigh the spread "
            "over runs and over examples; all others go by the spread over runs alone."
        )
        places = elsewhere(task)
        summary = replace(elsewhere_summary(results, task), terminal=f"{task.key}, away from home")
        yield summary if len(places) > 1 else elsewhere_grid(results, task, places[0])
        drawn = _plates(results, task, "elsewhere").values()
        yield from (figure for figure in drawn if not figure.folded)
        yield from (figure for figure in drawn if figure.folded)
        for place in places:
            if len(places) > 1:
                yield folded(elsewhere_grid(results, task, place), f"Detection of {place.title}")
            yield folded(correlation_grid(results, task, place), f"Correlation of every uncertainty with {place.title}")
            yield folded(
                every_quantity_grid(results, task, place), f"AUPR and FPR95 of {place.title} by every uncertainty"
            )


@section("gallery", order=60)
class Gallery(Section):
    """Gallery."""

    title = "Gallery"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Pictures."""
        parts = [] if task is None else gallery_part(results_of_run(run), task)
        if parts:
            yield Text(gallery_words(), "small")
        for part in parts:
            yield Headline(f"“{part['split']}”, {part['method']}")
            yield Examples(
                {
                    row["title"]: tuple(Example(item["source"], item["words"], item["id"]) for item in row["shown"])
                    for row in part["rows"]
                }
            )


@section("cost", order=70)
class Costs(Section):
    """Cost."""

    title = "Cost"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """A table and figures."""
        if task is not None:
            yield cost_grid(results_of_run(run), task)
            yield from _plates(results_of_run(run), task, "cost").values()


@section("across", order=80)
class Across(Section):
    """All tasks."""

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Tables and figures over tasks."""
        if task is not None:
            return
        results, seen = results_of_run(run), set()
        for table in across_tables(results):
            field = table.title.rpartition(": ")[0]
            if field not in seen:
                yield Headline(table.title)
                yield table.table
            else:
                yield folded(table.table, table.title)
            yield Text(table.words, "small")
            seen.add(field)
        yield from _plates(results, None, "across").values()


@section("ensembles", part="closing", order=10)
class Ensembles(Section):
    """The ensembling study."""

    title = "Ensembling study"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Everything."""
        from dubio.studies.ensembles.panels import study_looks
        from dubio.studies.ensembles.part import _words as study_words
        from dubio.studies.ensembles.plates import averaged_plates, study_plates
        from dubio.studies.ensembles.published_tables import CONDITION, published_part
        from dubio.studies.ensembles.published_tables import SOURCE as P_SOURCE

        results = results_of_run(run)
        studies = list(results.studies.values())
        if not studies:
            return
        yield Text(
            "Every way to an ensemble with 1, 2, … samples (of snapshots the latest), scored at the best temperature "
            "and measured in independently trained networks: the deep-ensemble equivalent says how many of them score "
            "as well."
        )
        yield Headline("What came out")
        drawn = {study.task.key: study_looks(results.manifest.methods, study) for study in studies}
        for study in studies:
            yield Text(study_words(study))
            yield summary_grid(study, drawn[study.task.key])
        yield from _claims(
            conclusions(studies),
            "The conclusions of “Pitfalls of in-domain uncertainty estimation and ensembling” (P), tested here",
        )
        published = published_part(studies, drawn)
        if published:
            yield Headline("Beside the published numbers")
            yield Text(f"{P_SOURCE}. {CONDITION}", "small")
            for item in published:
                yield Headline(item["title"])
                if item["numbers"]:
                    yield item["numbers"]
                if item["words"]:
                    yield Text(item["words"], "small")
                if item["order"]:
                    yield item["order"]
                    yield Text(item["order_words"], "small")
        for plate in averaged_plates(results.manifest, studies):
            slug = f"ensembles-{plate.slug}"
            yield Figure(slug, plate.title, plate.caption, plate.draw, reading=plate.reading)
        for study in studies:
            yield Headline(f"{study.task.key}, against the number of samples")
            for plate in study_plates(results.manifest, study):
                slug = f"{study.task.key}-ensembles-{plate.slug}"
                yield Figure(slug, plate.title, plate.caption, plate.draw, plate.narrow, plate.folded, plate.reading)
        yield Headline("Tables in the paper's layout")
        yield Text(
            "The same tables, and every curve behind them, are in the folder “tables” beside this page.", "small"
        )
        for tables in (sample_tables(studies), augmentation_tables(studies)):
            for place, table in enumerate(tables):
                yield folded(table.grid, table.title, shown=place == 1)

    def document(self, run: RunView) -> dict[str, Any]:
        """The study."""
        return {"ensembling_study": study_document(results_of_run(run))}

    def files(self, run: RunView) -> dict[str, str]:
        """Its tables."""
        found = table_files(list(results_of_run(run).studies.values()))
        return {f"tables/{name}": content for name, content in found.items()}


def _claims(tested: Any, title: str) -> Iterator[Block]:
    cards = tuple(
        Card(
            claim.statement,
            (f"{claim.outcome.capitalize()} ({claim.tally}).",),
            tuple(f"{each.text} ({each.outcome})" for each in claim.evidence),
            claim.where,
        )
        for claim in tested
        if claim.evidence
    )
    if cards:
        yield Headline(title)
        yield Cards(cards, "list")
    silent = [f"“{claim.statement}”" for claim in tested if not claim.evidence]
    if silent:
        yield Text(f"These runs have no data on: {', '.join(silent)}", "small")


def text_tasks(results: Results) -> tuple[TaskView, ...]:
    """The tasks of texts with results."""
    return tuple(each for each in results.manifest.tasks if each.inputs == "text" and results.methods_of(each))


def claims_on_texts(results: Results) -> tuple[Any, ...]:
    """The paper's claims on these tasks; none without a task of texts."""
    tasks = text_tasks(results)
    return tuple(claims(replace(results, manifest=replace(results.manifest, tasks=tasks)))) if tasks else ()


@section("paper", part="closing", order=20)
class Paper(Section):
    """The paper."""

    title = "Agreement with the paper"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Numbers and claims."""
        results = results_of_run(run)
        tested = claims_on_texts(results)
        if not tested:
            return
        yield Text(f"{SOURCE}.", "small")
        for each in text_tasks(results):
            table = agreement_grid(results, each)
            if table is not None:
                yield Headline(f"{each.key}: ours and published")
                yield table
                yield Text(agreement_words(results, each), "small")
        yield from _claims(tested, "Its conclusions, put to the test here")


@section("as-published", part="closing", order=30)
class AsPublished(Section):
    """Published definitions."""

    title = "As published"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Pairs of definitions."""
        results = results_of_run(run)
        if not results.as_published:
            return
        yield Text(
            "Some published definitions, or the code behind them, are mistaken. Here each is computed again beside the "
            "right one, so that published numbers can be traced. Nothing in this part ranks methods."
        )
        for each in results.manifest.tasks:
            pairs = mended(results, each)
            if pairs:
                yield Headline(each.key)
                for split in dict.fromkeys(pair.split for pair in pairs):
                    table = mended_grid(results, each, split)
                    if table is not None:
                        yield table
                words = tuple(text for pair in pairs if (text := mended_words(results, pair)))
                yield Text(words, "small", title="What mending changed")

    def document(self, run: RunView) -> dict[str, Any]:
        """Its scores."""
        return {"as_published": [vars(score) for score in self.scores(run)]}

    def scores(self, run: RunView) -> tuple[Score, ...]:
        """Scores under published definitions that are mistaken."""
        return results_of_run(run).as_published


@section("setup", part="closing", order=40)
class Setup(Section):
    """What was run."""

    title = "What was run"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Methods, tasks, commands, metrics."""
        manifest = run.manifest
        yield Headline("Methods")
        yield Table(
            (Column("What it does", words=True), Column("Pools")),
            tuple(
                Row(m.title, (TableCell(sentence(m)), TableCell(draws(m))), run.styles[m.name])
                for m in manifest.methods
            ),
        )
        if manifest.cautions:
            yield Text(manifest.cautions, "note")
        dotted = any(style.augmented for style in run.styles.values())
        extra = " Dotted: with test-time augmentation, in the colour of the method without it." if dotted else ""
        yield Text(
            "Dashed and hollow: a single fit. Solid and filled: an ensemble, in the colour of the fits it is made of."
            f"{extra}",
            "small",
        )
        yield Headline("Tasks")
        for each in manifest.tasks:
            yield Headline(each.key)
            yield Definitions(tuple((row["name"], row["value"]) for row in card_rows(each)))
            rows = {s.name: (split_role(s), f"{s.examples:,}", s.fingerprint[:12]) for s in each.splits}
            heads = (Column("What for", words=True), Column("Examples"), Column("Fingerprint"))
            table = plain_table("Split", heads, rows)
            yield folded(table, counted(len(each.splits), "split").capitalize())
        if manifest.parts:
            yield Headline("Runs reported together")
            yield Text(
                tuple(
                    f"{part.name}: {f'preset {part.preset}' if part.preset else 'no preset'}, "
                    f"{counted(part.methods, 'method')} on {listed(list(part.tasks))}, "
                    f"{counted(len(part.seeds), 'seed')} ({', '.join(map(str, part.seeds))})."
                    for part in manifest.parts
                ),
                "small",
            )
        yield Headline("Again, from nothing")
        yield Text(commands(manifest), "code")
        yield Text(
            resolved_benchmark(manifest),
            "code",
            "The resolved benchmark, with everything that was filled in or changed",
        )
        ran = f" Ran on {environment_words(run.environment)}." if run.environment else ""
        seeds = f"{counted(len(manifest.seeds), 'seed')} ({', '.join(map(str, manifest.seeds))})"
        yield Text(f"Run {manifest.name}, {seeds}.{ran}", "small")
        yield Headline("Metrics")
        yield Definitions(tuple((row["title"], row["note"]) for row in metric_rows(results_of_run(run))))


@section("failures", part="closing", order=50)
class Failures(Section):
    """What failed."""

    title = "What failed"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """A table of failures, and one of tasks that were not run."""
        if not run.failures:
            yield Text("Nothing: every run of the plan is in this report.")
        else:
            yield Text("A failure is a record, never a result: what is listed is missing from tables and figures.")
            heads = (Column("Task", words=True), Column("Method", words=True), Column("Why", words=True))
            rows = tuple(
                Row(each.what, (TableCell(each.task), TableCell(each.method), TableCell(each.error)))
                for each in run.failures
            )
            yield Table(heads, rows, first="What")
        if run.manifest.skipped:
            yield Headline("Not run")
            skipped = tuple(
                Row(each.task, (TableCell(each.network), TableCell(each.reason))) for each in run.manifest.skipped
            )
            yield Table((Column("Network", words=True), Column("Why", words=True)), skipped, first="Task")


@section("cite", part="closing", order=60)
class Cite(Section):
    """How to cite."""

    title = "How to cite"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """dubio and the data."""
        from dubio import __version__

        yield Text(citation(__version__))
        yield Text(tuple(sources(run.manifest)), "small")
