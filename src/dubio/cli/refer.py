"""``dubio refer``: fit a referral policy with a guarantee, and apply it to new predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.options import EmptyDecisionOption, JsonOption, RawCsvOption, ReadingOptions, with_reading_options
from dubio.cli.output import check_output, print_result, say
from dubio.core.errors import UserError, one_of

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.referral import Policy
    from dubio.referral.assessment import Subgroups

CASES = ("violated", "undecided", "shift")
"""The cases in which applying a policy can be made to fail: outcomes of its guarantee, and a shift."""

FAILED = 3
"""The exit code then."""

SUBGROUP_NOTE = "The guarantee is about all rows together: nothing is guaranteed for a single subgroup."

app = typer.Typer(help="Decide which predictions to retain and which to refer to an expert.", no_args_is_help=True)

SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws: parts of groups, one row of each group.")]


@app.command("fit")
@with_reading_options()
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
    from dubio.referral.assessment import plain_subgroups

    screening = specificity if sensitivity is None else sensitivity
    goals = {"--max-risk": max_risk, "--capacity": capacity, "--sensitivity/--specificity": screening}
    stated = [name for name, goal in goals.items() if goal is not None]
    if len(stated) != 1:
        raise UserError(f"give one goal: {', '.join(goals)}; given {', '.join(stated) or 'none'}.")
    check_output(output, predictions, reading.labels)
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
    subgroups = referral.apply_policy(policy, calibration, by=reading.by).subgroups if reading.by else {}
    write_file(output, policy.to_json())
    shown = {name: value for name, value in policy.as_dict().items() if name != "seen"}
    document = {**shown, "rule": policy.rule, "subgroups": plain_subgroups(subgroups), "path": str(output)}
    print_result(json, document, [*str(policy).splitlines(), *_subgroup_lines(subgroups)], output=output)
    notes = [*policy.notes, *([SUBGROUP_NOTE] if reading.by else ())]
    for text in () if json else (*(f"note: {note}" for note in notes), f"policy: {output}"):
        say(text)


@app.command("apply")
@with_reading_options("target")
def apply(
    reading: ReadingOptions,
    policy: Annotated[Path, typer.Argument(help="A policy written by dubio refer fit.")],
    predictions: Annotated[Path, typer.Argument(help="New predictions of the same system; labels are optional.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write a decision for each row here, as CSV.")],
    shift_level: Annotated[float, typer.Option(help="Warn of shifted uncertainties below this p-value.")] = 0.01,
    per: Annotated[
        Literal["row", "group"], typer.Option(help="group: also decide per group, retained if all its rows are.")
    ] = "row",
    fail_on: Annotated[
        str, typer.Option(help=f"Exit with code {FAILED} in these cases, separated by commas: {', '.join(CASES)}.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Accept that only one of policy and predictions names its classes.")
    ] = False,
    seed: SeedOption = 0,
    raw_csv: RawCsvOption = False,
    json: JsonOption = False,
) -> None:
    """Decide for each row of new predictions whether it is retained or referred, with the reason.

    Where the predictions have labels, it says whether the guarantee of the policy is met.
    """
    from dubio.core.files import write_file
    from dubio.core.validate import read_json
    from dubio.referral import Policy, apply_policy

    cases = [one_of("--fail-on", word.strip(), CASES) for word in fail_on.split(",") if word.strip()]
    check_output(output, policy, predictions, reading.labels)
    rule = read_json(Policy, policy)
    # Arrays do not name their target or how empty rows are decided, the policy does; another target is refused.
    new = reading.read(predictions, labels=reading.labels, target=rule.target)
    new = new.with_checked(empty_decision=rule.empty_decision)
    applied = apply_policy(
        rule, new, shift_level=shift_level, seed=seed, by=reading.by or (), per=per, allow_unnamed=force
    )
    if applied.outcome is None and {"violated", "undecided"} & set(cases):
        raise UserError(f"--fail-on {fail_on} needs labels: without them the guarantee cannot be checked.")
    write_file(output, applied.to_csv(raw=raw_csv))
    for warning in applied.warnings:
        say(f"warning: {warning}")
    goal = {"guarantee": rule.guarantee, "threshold": rule.threshold, "quantity": rule.quantity}
    lines = [*applied.lines, *_subgroup_lines(applied.subgroups)]
    print_result(json, {**applied.as_dict(), **goal, "path": str(output)}, lines, output=output)
    notes = [*applied.notes, *([SUBGROUP_NOTE] if reading.by else ())]
    for text in () if json else (*(f"note: {note}" for note in notes), f"decisions: {output}"):
        say(text)
    failures = [case for case in cases if case == applied.outcome or (case == "shift" and applied.shift.significant)]
    if failures:
        say(f"failed on: {', '.join(failures)}")
        raise typer.Exit(FAILED)


def _subgroup_lines(subgroups: Subgroups) -> Iterator[str]:
    """Yield a table per column: rows, units, the share referred and the rates of each subgroup."""
    from dubio.formats.text_tables import number_text, text_table

    for column, values in subgroups.items():
        names = dict.fromkeys(rate.name for own in values.values() for rate in own.rates if rate.name != "referred")
        rows = [[column, "rows", "units", "referred", *names]]
        for value, own in values.items():
            observed = {rate.name: rate for rate in own.rates}
            cells = [f"{number_text(r.value)} ({number_text(r.interval[0])}, {number_text(r.interval[1])})"
                     if (r := observed.get(name)) else "–" for name in names]  # fmt: skip
            title = (value or "(empty)") + (" (underpowered)" if own.underpowered else "")
            rows.append([title, str(own.rows), str(own.units), f"{1 - own.retained / own.rows:.1%}", *cells])
        yield from ("", f"decisions by {column}; in brackets 95 % intervals", "", *text_table(rows))


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
