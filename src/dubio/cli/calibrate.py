"""``dubio calibrate``: fit a recalibration on validation predictions and apply it to new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dubio.cli.options import EmptyDecisionOption, JsonOption, LabelsOption, TargetOption, ValuesOption
from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

app = typer.Typer(help="Fit a recalibration on validation predictions; apply it to new ones.", no_args_is_help=True)


@app.command("fit")
def fit(
    validation: Annotated[Path, typer.Argument(help="Labelled predictions that are not used for scoring.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the recalibration, as JSON.")],
    method: Annotated[
        Literal["temperature", "vector", "isotonic"],
        typer.Option(help="One temperature; a weight and a bias per class; or a monotone map per class."),
    ] = "temperature",
    values: ValuesOption = None,
    labels: LabelsOption = None,
    target: TargetOption = None,
    json: JsonOption = False,
) -> None:
    """Fit a recalibration on validation predictions and write it as JSON."""
    from dubio.calibration.recalibration import recalibration_to_json, write_recalibration
    from dubio.calibration.temperature import HIGHEST, LOWEST
    from dubio.evaluation import calibrate

    fitted = calibrate(validation, labels, method=method, values=values, target=target)
    write_recalibration(output, fitted)
    if json:
        print_json(recalibration_to_json(fitted))
        return
    temperature, source = getattr(fitted.parameters, "temperature", None), fitted.fitted_on
    name = method if temperature is None else f"temperature {temperature:.4g}"
    change = f"nll {source.nll_before:.4f} → {source.nll_after:.4f}"
    typer.echo(f"{name}, fitted on {source.rows} rows: {change} on those rows")
    if temperature is not None and not LOWEST < temperature < HIGHEST:
        say(f"caution: the temperature lies at an end of the allowed range ({LOWEST:g} to {HIGHEST:g}); "
            "these rows have no optimum inside it.")  # fmt: skip
    say(f"written: {output}")


@app.command("apply")
def apply(
    recalibration: Annotated[Path, typer.Argument(help="A recalibration written by dubio calibrate fit.")],
    predictions: Annotated[Path, typer.Argument(help="A file of predictions, with or without labels.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write: .npz with probs, or dubio's own .safetensors.")
    ],
    values: ValuesOption = None,
    labels: LabelsOption = None,
    target: TargetOption = None,
    empty_decision: EmptyDecisionOption = None,
) -> None:
    """Apply a recalibration to new predictions and write them."""
    from dubio.calibration.recalibration import apply_recalibration, fitted_on, read_recalibration
    from dubio.formats import read_predictions, write_predictions

    if output.suffix.lower() not in (".npz", ".safetensors"):
        raise UserError(f"--output must end in .npz or .safetensors; given {str(output)!r}.")
    fitted = read_recalibration(recalibration)
    new = read_predictions(predictions, values=values, labels=labels, target=target)
    if empty_decision is not None:
        new = new.with_checked(empty_decision=empty_decision)
    if fitted_on(fitted, new):
        say("caution: it was fitted on these predictions; scores of the output will be too good.")
    write_predictions(output, apply_recalibration(fitted, new))
    say(f"written: {output}")
