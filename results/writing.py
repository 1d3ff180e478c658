"""Write a page from stores: commands, scores, sentences by the rules for verdicts, seeds, cost, version."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from PIL import Image

import dubio
from dubio.core.errors import UserError, check_known, plural
from dubio.core.files import file_name, write_file
from dubio.reporting.charts import drawn, save
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Cards, Headline, Text
from dubio.reporting.sections.findings import how_to_read, task_findings
from dubio.reporting.stored_run import Run, open_run
from dubio.reporting.tables import Table
from dubio.reporting.wording import counted, listed
from results.pages import ROOT, Across, Page, Study
from results.tables import markdown_table, score_table, severity_table

MARK = "<!-- made by `make results PAGE={name}`; edit results/, not this file -->"

NOT_RUN = ("Not run yet.",)

MOST_COLUMNS = 20
"""Columns of a table that a page of text can show."""

SPREADS = (
    "Spreads are standard deviations over the seeds of a section, of single fits over all members trained; with one "
    "seed an ensemble has no spread."
)

MOST_EVIDENCE = 3
"""Pieces of evidence for a claim that a page shows whatever they say; of more, those alone that decide something."""

DIGITS = (
    "The same commit gives the same digits on the same machine with the same versions of its packages. Another "
    "processor adds numbers in another order, and the differences in rounding grow over many epochs"
)

CLINC_DIGITS = (
    ". With AVX2 instead of AVX-512 instructions, three trainings of TextCNN (its version 3) on CLINC differ by "
    "at most 0.0011 in accuracy, 0.0006 in calibrated NLL and 0.0005 in AUROC; over seeds their standard deviations "
    "are 0.002, 0.006 and 0.005. Other networks were not compared."
)
"""Measured with ATEN_CPU_CAPABILITY=avx2, MKL_ENABLE_INSTRUCTIONS=AVX2 and ONEDNN_MAX_CPU_ISA=AVX2."""


def write_page(page: Page, runs: Mapping[Study, Run]) -> tuple[str, ...]:
    """Write a page; sections of studies without a run, and one on several of which one has none, stay as they are.

    Args:
        page: The page.
        runs: The runs of its studies.

    Returns:
        The headings of earlier sections that the page no longer has.
    """
    earlier = sections_of(page.path.read_text(encoding="utf-8")) if page.path.is_file() else {}
    write_file(page.path, "\n".join(_lines(page, runs, earlier)) + "\n")
    headings = [study.heading for study in page.studies] + ([page.across.heading] if page.across else [])
    return tuple(heading for heading in earlier if heading not in headings)


def sections_of(text: str) -> dict[str, list[str]]:
    """Return the lines of every section of a page by its heading, without the heading."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            lines = sections.setdefault(line.removeprefix("## "), [])
        else:
            lines.append(line)
    return sections


def _lines(page: Page, runs: Mapping[Study, Run], earlier: Mapping[str, Sequence[str]]) -> Iterator[str]:
    sections = dict(_sections(page, runs, earlier))
    yield f"# {page.title}"
    yield from ("", MARK.format(name=page.name), "", digits_sentence(page))
    yield from ("", page.scope) if page.scope else ()
    yield from summary_lines(sections)
    yield from reading_lines(runs.values())
    for heading, lines in sections.items():
        yield from ("", f"## {heading}", *lines)


def digits_sentence(page: Page) -> str:
    """Return where digits change from machine to machine; by how much, on the page of what was measured."""
    return f"{DIGITS}{CLINC_DIGITS if page.name == 'text' else ' ([measured for TextCNN](text.md)).'}"


def _sections(
    page: Page, runs: Mapping[Study, Run], earlier: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield headings with their lines: of the runs at hand, of others as the page has them."""
    figures = page.path.parent / "figures"
    for study in page.studies:
        if study in runs:
            command = ("", "```sh", f"dubio run {study.command.format(data='DATA')}", "```", "")
            shown = figure_lines(study.figures, runs[study], figures, study.prefix)
            yield study.heading, [*command, *study_lines(study, runs[study]), *shown]
        else:
            yield study.heading, ["", *kept(earlier.get(study.heading, NOT_RUN))]
    if page.across:
        by_heading = {study.heading: run for study, run in runs.items()}
        if by_heading.keys() >= {*page.across.studies}:
            chosen = {heading: by_heading[heading] for heading in page.across.studies}
            yield page.across.heading, list(across_lines(page.across, chosen, figures))
        else:
            yield page.across.heading, ["", *kept(earlier.get(page.across.heading, NOT_RUN))]


def summary_lines(sections: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the first finding on every task of every section, for readers who want no tables."""
    findings = []
    for heading, lines in sections.items():
        where, told = heading, False
        for line in lines:
            if line.startswith("### "):
                where, told = f"{heading}, {line.removeprefix('### ')}", False
            elif line.startswith("- ") and not line.startswith("- **") and not told:  # those are claims of a paper
                findings.append(f"- **{where}**: {line.removeprefix('- ')}")
                told = True
    if findings:
        yield from ("", "In short, with the first finding on every task:", "", *findings)


def kept(lines: Sequence[str]) -> Sequence[str]:
    """Return lines from the first to the last that is not empty."""
    full = [i for i, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []


def reading_lines(runs: Iterable[Run]) -> Iterator[str]:
    """Yield once how significance and spreads are computed, in words that hold for any number of seeds."""
    texts = (how_to_read(run.built.run).partition("Spreads are ")[0] for run in runs)
    for text in dict.fromkeys(texts):
        yield from ("", f"{text}{SPREADS}")


def across_lines(across: Across, runs: Mapping[str, Run], folder: Path) -> Iterator[str]:
    """Yield what the common report of several runs of one store, by heading, says."""
    run = open_run(*(own.name for own in runs.values()), store=next(iter(runs.values())).store)
    seeds = {heading: counted(len(own.built.run.manifest.seeds), "seed") for heading, own in runs.items()}
    studies = "; ".join(f"{heading} ({count})" for heading, count in seeds.items())
    yield from ("", f"{version_sentence()} The sections together: {studies}.")
    yield from section_lines(run, None, across)
    yield from figure_lines(across.figures, run, folder)


def figure_lines(names: Sequence[str], run: Run, folder: Path, prefix: str = "") -> Iterator[str]:
    """Draw figures of a report that its page shows, and yield the lines that show them.

    Args:
        names: The names of their files in the report.
        run: The run.
        folder: Where they are written.
        prefix: The beginning of their names there.

    Raises:
        UnknownName: For a figure that the report does not have.
    """
    drawings = {file_name(name): figure for name, figure in run.built.figures()} if names else {}
    check_known("figure of a study", names, drawings)
    for name in names:
        figure, file = drawings[name], f"{prefix}{name}.png"
        write_file(folder / file, few_colours(save(drawn(figure.chart), "png")))
        yield from ("", f"![{figure.title}](figures/{file})", "", f"{figure.caption} {figure.reading}".strip())


def study_lines(study: Study, run: Run) -> Iterator[str]:
    """Yield version, seeds and cost of a study, the table and the findings of each task, and what spans tasks."""
    view = run.built.run
    yield f"{version_sentence()} {cost_sentence(study, view)}"
    for task in view.tasks:
        yield from ("", f"### {task.key}", "") if len(view.tasks) > 1 else ("",)
        own = (score for score in run.results.scores if score.task == task.key)
        yield severity_table(run.results, task) if task.many_corruptions else score_table(own)
        yield ""
        yield from (f"- {sentence}" for sentence in task_findings(view, task))
        yield from ("", tested_sentence(task))
        yield from section_lines(run, task, study)
    yield from section_lines(run, None, study)


def tested_sentence(task: TaskView) -> str:
    """Return the numbers of examples to train on and to test on; the severities of a corruption are one test set."""
    sizes = {split.name: split.examples for split in task.splits}
    trained = " and ".join(f"{split.examples:,}" for split in task.of_kind("train"))
    others = [f"“{own.title}” {sizes[own.splits[0]]:,}" for own in task.test_sets]
    further = f"; of {listed(others)}" if others else ""
    return f"Examples: {trained} to train on, {task.in_domain.examples:,} to test on in-domain{further}."


def few_colours(image: bytes) -> bytes:
    """Return a PNG in 256 colours: a tenth of the bytes, and no difference to the eye in a figure of lines."""
    target = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(256).save(target, "png", optimize=True)
    return target.getvalue()


def section_lines(run: Run, task: TaskView | None, shown: Study | Across) -> Iterator[str]:
    """Yield what sections of the report show of a task, or with None of the whole run; figures are named one by one.

    Raises:
        UnknownName: For a section that there is not.
    """
    placed = {section.name: section for section in run.built.sections}
    check_known("section of a study", shown.sections, placed)
    for section in (placed[name] for name in shown.sections if task is None or placed[name].part == "task"):
        yield from blocks_lines(without_headings(run.built.blocks(section, task), shown.without))


def without_headings(blocks: Iterable[Block], endings: tuple[str, ...]) -> Iterator[Block]:
    """Yield blocks without those headings that have one of these endings, and without what stands below them."""
    left_out = False
    for block in blocks:
        if isinstance(block, Headline):
            left_out = block.text.endswith(endings)
        if not left_out:
            yield block


def blocks_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks as Markdown: headings where something follows, and of folded tables their titles alone.

    A text that follows a folded table is about it, and means nothing without it.
    """
    heading: list[str] = []
    further = []
    after_folded = False
    for block in blocks:
        if isinstance(block, Text) and after_folded:
            continue
        after_folded = False
        if isinstance(block, Headline):
            heading = ["", f"#### {block.text}"]
        elif isinstance(block, Table) and block.title and not block.shown:
            further.append(block.title)
            after_folded = True
        elif lines := list(block_lines(block)):
            yield from (*heading, *lines)
            heading = []
    if further:
        yield from ("", f"The report that the command writes has further tables: {'; '.join(further)}.")


def block_lines(block: Block) -> Iterator[str]:
    """Yield a table, a text or claims as Markdown; nothing of what is drawn, interactive or folded."""
    if isinstance(block, Table):
        title = block.title or block.caption
        if len(block.columns) > MOST_COLUMNS:
            yield from ("", f"{title}: {len(block.columns)} columns, which the report of the run shows.")
            return
        head = [block.first, *(" ".join(filter(None, (column.title, column.sub))) for column in block.columns)]
        rows = ([row.title, *(cell.plain for cell in row.cells)] for row in block.rows)
        yield from ("", title, "", markdown_table(head, rows))
    elif isinstance(block, Text) and not block.title:
        yield from ("", block.text) if isinstance(block.text, str) else ("", *(f"- {text}" for text in block.text))
    elif isinstance(block, Cards):
        yield ""
        for card in block.cards:
            source = f" ({card.source})" if card.source else ""
            yield f"- **{card.title.rstrip('.')}**{source}: {' '.join(card.texts)}"
            decided = [text for text in card.evidence if not text.endswith("(undecided)")]
            shown = card.evidence if len(card.evidence) <= MOST_EVIDENCE else decided
            yield from (f"    - {text}" for text in shown)


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
    minutes = f"{seconds / 60:.0f} {plural('minute', round(seconds / 60))}"
    alone = "each counted as if it were alone"  # features of frozen layers are computed once per process
    return f"Seeds {seeds}; {study.trainings} trainings{made_of}, {minutes} of one core in all, {alone}."


def trainings_of(view: RunView) -> set[str]:
    """Return the ids of all fits that predict, and of those that they continue."""
    return {fit for run in view.manifest.runs for own in run.fits for fit in view.lineage(own)}


@cache
def version_sentence() -> str:
    """Return the version and the commit that made a page; changed documents do not make it another one."""
    commit = _git("describe", "--always", "--abbrev=9")
    changed = "-dirty" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs") else ""
    made = f"Made with dubio {dubio.__version__}, commit {commit}{changed}."
    return f"{made} Trainings that were already in the store may be older."


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
