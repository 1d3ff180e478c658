"""The card of a model: what it predicts, from what data, how well, and what nobody has measured; as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dubio.core.errors import listing, plural

if TYPE_CHECKING:
    from dubio.deployment.folder import ModelSource
    from dubio.deployment.model import Model

SEALED = (
    "Every file of this folder is sealed by its SHA-256: damage is noticed when the model is loaded. The seal is no "
    "signature; it does not protect against someone who can write the folder."
)


def model_card(model: Model, source: ModelSource) -> str:
    """Return the card of a model."""
    return (
        "\n".join([*_head(model), *_data(source), *_scores(source), *_decisions(model), *_limits(model, source)]) + "\n"
    )


def _head(model: Model) -> Iterator[str]:
    names, fits = model.names, len(model.fits)
    samples = model.fits[0].prediction["samples"]
    yield f"# {names.title} on {names.task}"
    yield ""
    yield f"- identity: `{model.identity}`"
    yield f"- method: {names.method}, network {names.network}, seed {names.seed}, of the run {names.run}"
    noise = f"{samples} noise draws per fit and row" if samples else "no noise draws"
    yield f"- {fits} {plural('fit', fits)}; {noise}"
    yield f"- inputs: {model.inputs}; fields of a row: {listing(model.columns)}"
    if model.form.shape:
        height, width, channels = model.form.shape
        other = "images of another size are stretched" if model.form.stretch else "images of another size are refused"
        yield f"- images: {height}×{width} pixels, {channels} {plural('channel', channels)}; {other}"
    yield f"- classes ({len(model.classes)}): {listing(model.classes)}"


def _data(source: ModelSource) -> Iterator[str]:
    card = source.task.get("card", {})
    yield from ("", "## Data", "")
    if card:
        yield f"Source: {card.get('source', '')} ({card.get('revision', '')}); licence: {card.get('licence', '')}."
        yield ""
    yield "| split | kind | rows | fingerprint |"
    yield "|---|---|---|---|"
    for split in source.splits:
        yield f"| {_cell(split.name)} | {split.kind} | {split.examples:,} | `{split.fingerprint[:16]}` |"


def _scores(source: ModelSource) -> Iterator[str]:
    yield from ("", "## Scores on the in-domain test split", "")
    if not source.scores:
        yield "The run has no in-domain test split."
        return
    yield "| metric | value |"
    yield "|---|---|"
    for name, value in source.scores.items():
        yield f"| {name} | {'undefined' if value is None else f'{value:.4f}'} |"


def _decisions(model: Model) -> Iterator[str]:
    yield from ("", "## Calibration and decisions", "")
    recalibration, policy = model.recalibration, model.policy
    if recalibration is None:
        yield "Probabilities are as the method gives them; no temperature or map was fitted."
    else:
        before, after = recalibration.fitted_on.nll_before, recalibration.fitted_on.nll_after
        yield (f"Probabilities are recalibrated ({recalibration.method}), fitted on {recalibration.fitted_on.rows:,} "
               f"validation rows: NLL there {before:.4f} before, {after:.4f} after.")  # fmt: skip
    yield ""
    if policy is None:
        yield "No referral policy: the model answers every row."
        return
    yield f"{policy.guarantee} Rule: {policy.rule}."
    for note in policy.notes:
        yield f"Note: {note}"


def _limits(model: Model, source: ModelSource) -> Iterator[str]:
    yield from ("", "## Limits", "")
    yield "- Scores and guarantees are about rows like those of the run's data."
    if model.training is None:
        yield "- The run's data were not available at export: rows that look unlike them go unnoticed."
    for caution in source.cautions:
        yield f"- {caution}"
    yield f"- {SEALED}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
