"""Write a page from stores: commands, scores, sentences by the rules for verdicts, seeds, cost, version."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

import dubio
from dubio.core.errors import UserError, check_known
from dubio.core.files import file_name, write_file
from dubio.reporting.charts import drawn, save
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Headline
from dubio.reporting.sections.findings import how_to_read, task_findings
from dubio.reporting.stored_run import Run
from dubio.reporting.tables import Table
from results.pages import ROOT, Page, Study
from results.tables import markdown_table, score_table

MARK = "<!-- made by `make results PAGE={name}`; edit results/, not this file -->"

DIGITS = (
    "The same command gives the same digits on the same machine with the same versions. Another processor adds in "
    "another order, which many epochs enlarge; by how much scores then differ was not measured."
)


def write_page(page: Page, runs: Mapping[Study, Run]) -> Path:
    """Write a page whose studies are complete, and return its path."""
    write_file(page.path, "\n".join(_lines(page, runs)) + "\n")
    return page.path


def _lines(page: Page, runs: Mapping[Study, Run]) -> Iterator[str]:
    yield f"# {page.title}"
    yield from ("", MARK.format(name=page.name), "", version_sentence(), "", DIGITS)
    yield from ("", page.scope) if page.scope else ()
    for study, run in runs.items():
        yield from ("", f"## {study.heading}", "", "```sh", f"dubio run {study.command.format(data='DATA')}", "```", "")
        yield from study_lines(study, run)
        yield from figure_lines(study, run, page.path.parent / "figures")


def figure_lines(study: Study, run: Run, folder: Path) -> Iterator[str]:
    """Draw the figures of a study that its page shows, and yield the lines that show them.

    Raises:
        UnknownName: For a figure that the report does not have.
    """
    drawings = {file_name(name): figure for name, figure in run.built.figures()} if study.figures else {}
    check_known("figure of a study", study.figures, drawings)
    for name in study.figures:
        figure = drawings[name]
        write_file(folder / f"{name}.png", few_colours(save(drawn(figure.chart), "png")))
        yield from ("", f"![{figure.title}](figures/{name}.png)", "", f"{figure.caption} {figure.reading}".strip())


def study_lines(study: Study, run: Run) -> Iterator[str]:
    """Yield seeds, trainings and cost of a study, then the table and the findings of each of its tasks."""
    view = run.built.run
    yield cost_sentence(study, view)
    for task in view.tasks:
        yield from ("", f"### {task.key}", "") if len(view.tasks) > 1 else ("",)
        yield score_table(score for score in run.results.scores if score.task == task.key)
        yield ""
        yield from (f"- {sentence}" for sentence in task_findings(view, task))
        yield from section_lines(run, task, study.sections)
    yield from ("", how_to_read(view))


def few_colours(image: bytes) -> bytes:
    """Return a PNG in 256 colours: a tenth of the bytes, and no difference to the eye in a figure of lines."""
    target = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(256).save(target, "png", optimize=True)
    return target.getvalue()


def section_lines(run: Run, task: TaskView, names: Sequence[str]) -> Iterator[str]:
    """Yield the headings and tables that sections of the report have on a task.

    Raises:
        UnknownName: For a section that there is not.
    """
    placed = {section.name: section for section in run.built.sections}
    check_known("section of a study", names, placed)
    for block in (block for name in names for block in run.built.blocks(placed[name], task)):
        if isinstance(block, Headline):
            yield from ("", f"#### {block.text}")
        elif isinstance(block, Table):
            head = [block.first, *(" ".join(filter(None, (column.title, column.sub))) for column in block.columns)]
            rows = ([row.title, *(cell.plain for cell in row.cells)] for row in block.rows)
            yield from ("", f"{block.title or block.caption}", "", markdown_table(head, rows))


def cost_sentence(study: Study, view: RunView) -> str:
    """Return the seeds, the trainings and their measured cost.

    Raises:
        UserError: When the run has another number of trainings than the page is to state.
    """
    trainings = trainings_of(view)
    if len(trainings) != study.trainings:
        stated = f"pages.toml states {study.trainings}"
        raise UserError(f"{study.heading}: the run has {len(trainings)} trainings, {stated}; correct the number.")
    seeds = ", ".join(map(str, view.manifest.seeds))
    seconds = sum(float(view.records[fit].get("seconds", 0.0)) for fit in trainings if fit in view.records)
    made_of = f" ({study.made_of})" if study.made_of else ""
    counted = f"{study.trainings} trainings{made_of}"
    return f"Seeds {seeds}; {counted} whose weights predict, {seconds / 60:.0f} minutes of one core in all."


def trainings_of(view: RunView) -> set[str]:
    """Return the ids of all fits that predict, and of those that they continue."""
    collected: set[str] = set()
    following = [fit for run in view.manifest.runs for fit in run.fits]
    while following:
        fit = following.pop()
        if fit not in collected:
            collected.add(fit)
            start = view.source.spec("fits", fit).get("start")
            following += [start] if start else []
    return collected


def version_sentence() -> str:
    """Return the version and the commit that made a page."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=9"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"Made with dubio {dubio.__version__}, commit {commit}. Trainings that the store had before may be older."
