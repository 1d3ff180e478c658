"""``dubio calibrate``: fit a recalibration on validation predictions and apply it to new ones."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dubio.cli.commands import CommandGroup
from dubio.cli.options import EmptyDecisionOption, JsonOption, ReadingOptions, with_reading_options
from dubio.cli.output import check_output, print_result, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.calibration.recalibration import Recalibration
    from dubio.core.predictions import Predictions

app = CommandGroup(help="Fit a recalibration on validation predictions; apply it to new ones.", no_args_is_help=True)


@app.command("fit")
@with_reading_options()
def fit(
    reading: ReadingOptions,
    validation: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    method: Literal["temperature", "vector", "isotonic"] = "temperature",
    json: JsonOption = False,
) -> None:
    """Fit a recalibration on validation predictions and write it as JSON.

    Args:
        validation: Labelled predictions that are not used for scoring.
        output: Where to write the recalibration, as JSON.
        method: One temperature; a weight and a bias per class; or a monotone map per class.
    """
    from dubio.calibration.recalibration import fit_recalibration, recalibration_to_json, write_recalibration
    from dubio.calibration.temperature import HIGHEST, LOWEST
    from dubio.formats.text_tables import number_text

    check_output(output, validation, reading.labels)
    rows = reading.read(validation, labels=reading.labels)
    fitted = fit_recalibration(rows, method)
    subgroups = {column: _subgroups(fitted, rows, column) for column in reading.by or ()}
    write_recalibration(output, fitted)
    temperature, source = getattr(fitted.parameters, "temperature", None), fitted.fitted_on
    notes = list(rows.notes)
    if isinf(source.nll_after):
        notes.append("The likelihood stays infinite: the true class has probability zero in some rows, and this "
                     "recalibration leaves it at zero.")  # fmt: skip
    name = method if temperature is None else f"temperature {temperature:.4g}"
    change = f"nll {number_text(source.nll_before)} → {number_text(source.nll_after)}"
    lines = [f"{name}, fitted on {source.rows} rows: {change} on those rows"]
    for column, values in subgroups.items():
        for value, own in values.items():
            lines.append("  {}, {rows} rows: nll {nll_before:.4f} → {nll_after:.4f}".format(f"{column} {value}", **own))
    document = {**recalibration_to_json(fitted), "notes": notes, "subgroups": subgroups}
    print_result(json, document, lines, output=output)
    if json:
        return
    if temperature is not None and not LOWEST < temperature < HIGHEST:
        say(f"caution: the temperature lies at an end of the allowed range ({LOWEST:g} to {HIGHEST:g}); "
            "these rows have no optimum inside it.")  # fmt: skip
    say(*(f"note: {note}" for note in notes), f"written: {output}")


def _subgroups(fitted: Recalibration, predictions: Predictions, column: str) -> dict[str, dict[str, float]]:
    """Return the values of a column with the likelihood of their labelled rows before and after a recalibration."""
    from dubio.metrics.scoring import nll
    from dubio.statistics.subgroups import parts_of

    rows = predictions.labelled
    parts = {value: rows.take(chosen) for value, chosen in parts_of(rows.columns[column]).items()}
    return {
        value: {"rows": len(own), "nll_before": nll(own), "nll_after": nll(fitted.parameters.apply(own))}
        for value, own in parts.items()
    }


@app.command("apply")
@with_reading_options()
def apply(
    reading: ReadingOptions,
    recalibration: Path,
    predictions: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    empty_decision: EmptyDecisionOption = None,
) -> None:
    """Apply a recalibration to new predictions and write them.

    Args:
        recalibration: A recalibration written by dubio calibrate fit.
        predictions: A file of predictions, with or without labels.
        output: Where to write: .npz with probs, or dubio's own .safetensors.
    """
    from dubio.calibration.recalibration import apply_recalibration, fitted_on, read_recalibration
    from dubio.core.files import make_directories, writing
    from dubio.formats import write_predictions

    if output.suffix.lower() not in (".npz", ".safetensors"):
        raise UserError(f"--output must end in .npz or .safetensors; given {str(output)!r}.")
    check_output(output, recalibration, predictions, reading.labels)
    fitted = read_recalibration(recalibration)
    new = reading.read(predictions, labels=reading.labels)
    if empty_decision is not None:
        new = new.with_checked(empty_decision=empty_decision)
    say(*(f"note: {note}" for note in new.notes))
    if fitted_on(fitted, new):
        say("caution: it was fitted on these predictions; scores of the output will be too good.")
    recalibrated = apply_recalibration(fitted, new)
    with writing(output):
        make_directories(output.parent)
        write_predictions(output, recalibrated)
    say(f"written: {output}")
