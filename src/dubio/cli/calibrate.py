"""``dubio calibrate``: fit a recalibration on a validation file and apply it to new predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions

app = typer.Typer(help="Fit a recalibration on a validation file; apply it to new predictions.", no_args_is_help=True)

Given = Annotated[
    Literal["probs", "log_probs", "logits"] | None,
    typer.Option("--values", help="What the numbers are, where their names do not say it."),
]
Labels = Annotated[Path | None, typer.Option(help="A file of labels, where the predictions have none.")]
Predicted = Annotated[Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="What is predicted.")]


@app.command("fit")
def fit(
    validation: Annotated[Path, typer.Argument(help="A file of labelled predictions that scoring will not see.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the recalibration, as JSON.")],
    method: Annotated[
        Literal["temperature", "vector", "isotonic"],
        typer.Option(help="One temperature; a weight and a bias a class; or a monotone map a class."),
    ] = "temperature",
    values: Given = None,
    labels: Labels = None,
    target: Predicted = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fit a recalibration on a validation file and write it as JSON."""
    from dubio.calibration.recalibration import fit_recalibration, recalibration_to_json, write_recalibration
    from dubio.formats import read_predictions

    found = fit_recalibration(read_predictions(validation, values=values, labels=labels, target=target), method)
    write_recalibration(output, found)
    if json:
        print_json(recalibration_to_json(found))
        return
    told = f"temperature {found.parameters:.4g}" if isinstance(found.parameters, float) else method
    typer.echo(f"{told}, fitted on {found.rows} rows: nll {found.nll_before:.4f} → {found.nll_after:.4f} on those rows")
    if isinstance(found.parameters, float) and (found.parameters <= 0.01 or found.parameters >= 100.0):
        say("caution: the temperature lies at an end of the allowed range (0.01 to 100); "
            "these rows have no optimum inside it.")  # fmt: skip
    say(f"written: {output}")


@app.command("apply")
def apply(
    recalibration: Annotated[Path, typer.Argument(help="What dubio calibrate fit wrote.")],
    predictions: Annotated[Path, typer.Argument(help="A file of predictions, with or without labels.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write: .npz with probs, or dubio's own .safetensors.")
    ],
    values: Given = None,
    labels: Labels = None,
    target: Predicted = None,
) -> None:
    """Apply a recalibration to new predictions and write them."""
    from dubio.calibration.recalibration import apply_recalibration, fitted_on, read_recalibration
    from dubio.formats import read_predictions, write_predictions

    if output.suffix.lower() not in (".npz", ".safetensors"):
        raise UserError(f"--output must end in .npz or .safetensors; given {str(output)!r}.")
    found = read_recalibration(recalibration)
    given = read_predictions(predictions, values=values, labels=labels, target=target)
    if fitted_on(found, given):
        say("caution: it was fitted on these very predictions; scores of what is written will be too good.")
    made = apply_recalibration(found, given)
    if output.suffix.lower() == ".safetensors":
        write_predictions(output, made)
    else:
        _write_npz(output, made)
    say(f"written: {output}")


def _write_npz(path: Path, predictions: Predictions) -> None:
    """Pooled probabilities and everything beside them that a row has."""
    import numpy as np

    columns = {name: getattr(predictions, name) for name in ("ids", "group", "ood")}
    if predictions.target == "multilabel" or (predictions.labels >= 0).any():
        columns["labels"] = predictions.labels
    if predictions.classes is not None:
        columns["classes"] = np.array(predictions.classes, dtype=np.str_)
    with path.open("wb") as handle:
        np.savez(handle, probs=predictions.probs, **{key: value for key, value in columns.items() if value is not None})
