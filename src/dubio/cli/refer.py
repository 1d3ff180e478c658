"""``dubio refer``: fit a referral policy with a guarantee, and apply it to new predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import EmptyDecisionOption, JsonOption, ReadingOptions, with_reading_options
from dubio.cli.output import print_result, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.referral import Policy

app = typer.Typer(help="Decide which predictions to retain and which to refer to an expert.", no_args_is_help=True)

SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws: parts of groups, one row of each group.")]


@app.command("fit")
@with_reading_options("by")
def fit(
    reading: ReadingOptions,
    predictions: Annotated[Path, typer.Argument(help="Predictions on a calibration split.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the policy here, as JSON.")],
    max_risk: Annotated[
        float | None, typer.Option(help="Retain as much as possible with an error of the retained below this.")
    ] = None,
    capacity: Annotated[float | None, typer.Option(help="Refer at most this share of rows, on average.")] = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="Two classes: retain as much as possible with a sensitivity above this.")
    ] = None,
    specificity: Annotated[float | None, typer.Option(help="The same for specificity; both may be given.")] = None,
    positive: Annotated[str, typer.Option(help="Number or name of the positive class, for screening.")] = "1",
    confidence: Annotated[float, typer.Option(help="Probability with which the guarantee holds.")] = 0.95,
    quantity: Annotated[str, typer.Option(help="The uncertainty to refer by.")] = "confidence",
    force: Annotated[
        bool, typer.Option("--force", help="Accept a split that training or selection has used; voids the guarantee.")
    ] = False,
    empty_decision: EmptyDecisionOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Fit a referral policy: a bounded error of the retained, a capacity, or sensitivity and specificity."""
    from dubio import referral
    from dubio.core.files import write_file

    screening = specificity if sensitivity is None else sensitivity
    goals = {"--max-risk": max_risk, "--capacity": capacity, "--sensitivity/--specificity": screening}
    stated = [name for name, goal in goals.items() if goal is not None]
    if len(stated) != 1:
        raise UserError(f"give one goal: {', '.join(goals)}; given {', '.join(stated) or 'none'}.")
    calibration = reading.read(predictions, labels=reading.labels)
    if empty_decision is not None:
        calibration = calibration.with_checked(empty_decision=empty_decision)
    common: dict[str, Any] = {"confidence": confidence, "quantity": quantity, "seed": seed, "allow_selected": force}
    if max_risk is not None:
        policy = _risk_policy(calibration, max_risk, common)
    elif capacity is not None:
        policy = referral.fit_capacity_policy(calibration, capacity=capacity, **common)
    else:
        policy = referral.fit_screening_policy(
            calibration, sensitivity=sensitivity, specificity=specificity, positive=positive, **common
        )
    write_file(output, policy.to_json())
    shown = {name: value for name, value in policy.as_dict().items() if name != "seen"}
    print_result(json, {**shown, "path": str(output)}, str(policy).splitlines())
    for text in () if json else (*(f"note: {note}" for note in policy.notes), f"policy: {output}"):
        say(text)


@app.command("apply")
@with_reading_options("target")
def apply(
    reading: ReadingOptions,
    policy: Annotated[Path, typer.Argument(help="A policy written by dubio refer fit.")],
    predictions: Annotated[Path, typer.Argument(help="New predictions of the same system; labels are optional.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write a decision for each row here, as CSV.")],
    shift_level: Annotated[float, typer.Option(help="Warn of shifted uncertainties below this p-value.")] = 0.01,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Decide for each row of new predictions whether it is retained or referred, with the reason."""
    from dubio.core.files import write_file
    from dubio.core.validate import read_json
    from dubio.referral import Policy, apply_policy

    rule = read_json(Policy, policy)
    # Arrays do not name their target or how empty rows are decided, the policy does; another target is refused.
    new = reading.read(predictions, labels=reading.labels, target=rule.target)
    new = new.with_checked(empty_decision=rule.empty_decision)
    applied = apply_policy(rule, new, shift_level=shift_level, seed=seed)
    write_file(output, applied.to_csv())
    for warning in applied.warnings:
        say(f"warning: {warning}")
    goal = {"guarantee": rule.guarantee, "threshold": rule.threshold, "quantity": rule.quantity}
    print_result(json, {**applied.as_dict(), **goal, "path": str(output)}, [str(applied)])
    if not json:
        say(f"decisions: {output}")


def _risk_policy(calibration: Predictions, max_risk: float, common: dict[str, Any]) -> Policy:
    """Return the policy of a bounded error, or refuse and estimate how much calibration data it would take."""
    from dubio.referral import NoGuarantee, fit_risk_policy
    from dubio.referral.sample_size import sample_size_sentence

    try:
        return fit_risk_policy(calibration, max_risk=max_risk, **common)
    except NoGuarantee as refusal:
        goal = {name: common[name] for name in ("confidence", "quantity")}
        sentence = sample_size_sentence(calibration, max_risk=max_risk, **goal)
        raise NoGuarantee(f"{refusal} {sentence}", refusal.upper, refusal.coverage) from refusal
