"""``dubio refer``: fit a referral policy with a guarantee, and apply it to new predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.commands import CommandGroup
from dubio.cli.options import (
    EmptyDecisionOption,
    JsonOption,
    RawCsvOption,
    ReadingOptions,
    named_files,
    with_reading_options,
)
from dubio.cli.output import FAILED, check_output, print_result, say
from dubio.core.errors import UserError, one_of

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.referral import Policy, PolicyGrid
    from dubio.referral.assessment import Subgroups

CASES = ("violated", "undecided", "shift")
"""The cases in which applying a policy can be made to fail: outcomes of its guarantee, and a shift."""

OTHER_FORMATS = (".tsv", ".json", ".jsonl", ".ndjson", ".npz", ".xlsx", ".xls", ".feather", ".gz", ".zip")
"""Endings of files that are not written here: the name would say one format and the content be another."""

SUBGROUP_NOTE = (
    "The guarantee is about all rows together: nothing is guaranteed for a single subgroup, and each interval of a "
    "subgroup holds on its own."
)

FITTED_NOTE = f"{SUBGROUP_NOTE} These rows have chosen the threshold: on others the errors may be higher."

app = CommandGroup(help="Decide which predictions to retain and which to refer to an expert.", no_args_is_help=True)

SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws: parts of groups, one row of each group.")]
SheetOption = Annotated[
    Path | None, typer.Option(help="Also write the policy's sheet here, one page to print, such as sheet.html.")
]


@app.command("fit")
@with_reading_options()
def fit(
    reading: ReadingOptions,
    predictions: list[str],
    output: Annotated[Path, typer.Option("--output", "-o")],
    max_risk: float | None = None,
    targets: str | None = None,
    capacity: float | None = None,
    sensitivity: float | None = None,
    specificity: float | None = None,
    positive: str | None = None,
    confidence: float = 0.95,
    quantity: str = "confidence",
    force: bool = False,
    empty_decision: EmptyDecisionOption = None,
    seed: SeedOption = 0,
    report: SheetOption = None,
    json: JsonOption = False,
) -> None:
    """Fit a referral policy: a bounded error of the retained, a capacity, or sensitivity and specificity.

    Args:
        predictions: Predictions on a calibration split, PATH or NAME=PATH; with --targets of several systems.
        output: Write the policy here, as JSON; with --targets a new folder of policies.
        max_risk: Retain as much as possible with an error of the retained below this.
        targets: The same for several bounds, fixed beforehand, such as 0.01,0.05,0.1 (or default:
            0.01,0.02,0.05,0.1,0.2): a policy for each bound and system, whose guarantees hold all at once.
        capacity: Refer at most this share of rows, on average.
        sensitivity: Two classes: retain as much as possible with a sensitivity above this.
        specificity: The same for specificity; both may be given.
        positive: Number or name of the positive class, for screening; 1 unless given.
        confidence: Probability with which the guarantee holds.
        quantity: The uncertainty to refer by.
        force: Accept a split that training or selection has used; voids the guarantee.
    """
    from dubio import referral
    from dubio.core.files import check_new_folder

    screening = specificity if sensitivity is None else sensitivity
    goals = {"--max-risk": max_risk, "--targets": targets, "--capacity": capacity}
    goals["--sensitivity/--specificity"] = screening
    stated = [name for name, goal in goals.items() if goal is not None]
    if len(stated) != 1:
        raise UserError(f"give one goal: {', '.join(goals)}; given {', '.join(stated) or 'none'}.")
    if positive is not None and screening is None:
        raise UserError(f"--positive {positive} is for --sensitivity and --specificity; given {stated[0]}.")
    named = named_files(predictions)
    own = quantity.removeprefix("score.")  # the column of a system's own uncertainty, which its name stands for
    common: dict[str, Any] = {"confidence": confidence, "quantity": own, "seed": seed, "allow_selected": force}
    if targets is not None:
        if report is not None:
            raise UserError(f"--report is the sheet of one policy; given --targets {targets}. Choose one of the folder "
                            "and write its sheet with dubio refer apply --report.")  # fmt: skip
        bounds = _bounds(targets, len(named))
        check_new_folder(output)
        _fit_targets(_calibration_sets(reading, named, empty_decision), bounds, output, reading.by or (), common, json)
        return
    if len(named) > 1:
        raise UserError(f"{stated[0]} is for one system; given {len(named)} files. For several: --targets.")
    inputs = *map(Path, named.values()), reading.labels
    check_output(output, *inputs)
    _check_sheet(report, output, *inputs)
    (calibration,) = _calibration_sets(reading, named, empty_decision).values()
    if max_risk is not None:
        policy = _risk_policy(calibration, max_risk, common)
    elif capacity is not None:
        policy = referral.fit_capacity_policy(calibration, capacity=capacity, **common)
    else:
        policy = referral.fit_screening_policy(
            calibration, sensitivity=sensitivity, specificity=specificity, positive=positive or "1", **common
        )
    (path,) = named.values()
    _write_policy(policy, calibration, output, report, json, {"by": reading.by or (), "file": Path(path).name})


def _calibration_sets(
    reading: ReadingOptions, named: Mapping[str, str], empty_decision: Literal["argmax", "empty"] | None
) -> dict[str, Predictions]:
    systems = {name: reading.read(path, labels=reading.labels) for name, path in named.items()}
    if empty_decision is None:
        return systems
    return {name: own.with_checked(empty_decision=empty_decision) for name, own in systems.items()}


def _check_sheet(report: Path | None, output: Path, *inputs: Path | None) -> None:
    """Refuse a sheet that cannot be written, or that would replace a file that the command reads or writes."""
    if report is None:
        return
    from dubio.reporting.sheet import check_sheet_path

    check_sheet_path(report, "--report")
    check_output(report, *inputs, option="--report")
    if report.resolve() == output.resolve():
        raise UserError(f"--report {str(report)!r} is the file of --output; name another file.")


def _write_policy(
    policy: Policy, calibration: Predictions, output: Path, report: Path | None, json: bool, options: Mapping[str, Any]
) -> None:
    """Write one policy, and its sheet, and print it, with the decisions on subgroups of its calibration set."""
    from dubio.referral import apply_policy
    from dubio.referral.assessment import plain_subgroups

    by = options["by"]
    subgroups = apply_policy(policy, calibration, by=by).subgroups if by else {}
    paths = _write({output: policy.to_json()}, report, policy, calibration, options)
    shown = {name: value for name, value in policy.as_dict().items() if name != "seen"}
    document = {**shown, "rule": policy.rule, "subgroups": plain_subgroups(subgroups), **paths}
    print_result(json, document, [*str(policy).splitlines(), *_subgroup_lines(subgroups)], output=output)
    notes = [*policy.notes, *([FITTED_NOTE] if by else ())]
    written = [f"policy: {output}", *([f"report: {report}"] if report else ())]
    for text in () if json else (*(f"note: {note}" for note in notes), *written):
        say(text)


def _write(
    files: dict[Path, str | bytes],
    report: Path | None,
    policy: Policy,
    predictions: Predictions,
    options: Mapping[str, Any],
) -> dict[str, str]:
    """Write a file and, where a path for it is given, the policy's sheet; return their paths for the JSON document."""
    from dubio.core.files import write_file

    if report is not None:
        from dubio.reporting.sheet import policy_sheet

        files[report] = policy_sheet(policy, predictions, **options).to_html()
    written = [str(write_file(path, content)) for path, content in files.items()]
    return dict(zip(("path", "report"), written, strict=False))


def _bounds(targets: str, systems: int) -> tuple[float, ...]:
    """Return the bounds on the error from the option, or the default grid."""
    from dubio.referral import TARGETS

    if targets == "default":
        return TARGETS
    try:
        bounds = tuple(float(word) for word in targets.split(","))
    except ValueError as fault:
        raise UserError("--targets must be numbers between 0 and 1, separated by commas, or default; given "
                        f"{targets!r}.") from fault  # fmt: skip
    if len(bounds) == systems == 1:
        raise UserError(f"--targets needs at least two targets for one system; for one: --max-risk {targets}.")
    return bounds


def _fit_targets(
    systems: Mapping[str, Predictions], targets: tuple[float, ...], output: Path, by: Sequence[str],
    common: Mapping[str, Any], json: bool,
) -> None:  # fmt: skip
    """Fit a policy for every target and system, write those that there are, and print all."""
    from dubio.referral import NoGuarantee, apply_policy, fit_risk_policies
    from dubio.referral.assessment import plain_subgroups

    try:
        grid = fit_risk_policies(systems, targets=targets, **common)
    except NoGuarantee as refusal:
        share = (1.0 - common["confidence"]) / len(targets) / len(systems)
        needs = _needed(systems, dict.fromkeys(systems, max(targets)), 1.0 - share, common["quantity"])
        raise NoGuarantee(" ".join((str(refusal), *needs)), refusal.upper, refusal.coverage) from refusal
    grid.write(output)
    document, lines = {**grid.as_dict(), "path": str(output)}, [*_grid_lines(grid)]
    plain_stops = [stop for own in document["systems"] for stop in own["stops"]]
    for stop, plain in zip(grid.stops, plain_stops, strict=True):
        if by and stop.policy is not None:
            subgroups = apply_policy(stop.policy, systems[stop.system], by=by).subgroups
            plain["subgroups"] = plain_subgroups(subgroups)
            lines += ["", f"{stop.system}, target {stop.target:g}", *_subgroup_lines(subgroups)]
    print_result(json, document, lines)
    if not json:
        unmet = {stop.system: stop.target for stop in grid.stops if stop.policy is None}
        notes = dict.fromkeys(note for policy in grid.policies for note in policy.notes)
        needs = _needed(systems, unmet, grid.policies[0].confidence, common["quantity"])
        for note in (*notes, *needs, *([FITTED_NOTE] if by else ())):
            say(f"note: {note}")
        say(f"policies: {output}")


def _grid_lines(grid: PolicyGrid) -> Iterator[str]:
    """Yield the table of all stops, and how the confidence is shared."""
    from dubio.formats.text_tables import text_table

    names = grid.file_names()
    rows = [["system", "target", "retained", "guaranteed", "rule", "file"]]
    rows += [
        [stop.system, f"{stop.target:g}", f"{stop.coverage:.1%}", "yes" if stop.guaranteed else "no", stop.rule,
         names.get((stop.system, stop.target), "–")]
        for stop in grid.stops
    ]  # fmt: skip
    yield from (*text_table(rows), "", grid.sentence)


def _needed(
    systems: Mapping[str, Predictions], targets: Mapping[str, float], confidence: float, quantity: str
) -> Iterator[str]:
    """Yield for each system how much calibration data a target that it does not meet would take."""
    from dubio.referral.sample_size import sample_size_sentence

    for name, target in targets.items():
        sentence = sample_size_sentence(systems[name], max_risk=target, confidence=confidence, quantity=quantity)
        yield f"{name}, target {target:g}: {sentence}"


@app.command("apply")
@with_reading_options("target")
def apply(
    reading: ReadingOptions,
    policy: Path,
    predictions: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    shift_level: float = 0.01,
    per: Literal["row", "group"] = "row",
    fail_on: str = "",
    force: bool = False,
    seed: SeedOption = 0,
    report: SheetOption = None,
    raw_csv: RawCsvOption = False,
    json: JsonOption = False,
) -> None:
    """Decide for each row of new predictions whether it is retained or referred, with the reason.

    Where the predictions have labels, it says whether the guarantee of the policy is met.

    Args:
        policy: A policy written by dubio refer fit.
        predictions: New predictions of the same system; labels are optional.
        output: Write each row's decision here: .csv or .parquet.
        shift_level: Warn of shifted uncertainties below this p-value.
        per: group: also decide per group, retained if all its rows are.
        fail_on: Exit with code 3 in these cases, separated by commas: violated, undecided, shift.
        force: Accept a policy of another model, or that only one of policy and predictions names its classes.
    """
    from dubio.core.validate import read_json
    from dubio.referral import Policy, apply_policy
    from dubio.referral.shift import lacks_score, missing_score

    cases = [one_of("--fail-on", word.strip(), CASES) for word in fail_on.split(",") if word.strip()]
    check_output(output, policy, predictions, reading.labels)
    _check_decisions(output)
    _check_sheet(report, output, policy, predictions, reading.labels)
    rule = read_json(Policy, policy)
    # Arrays do not name their target or how empty rows are decided, the policy does; another target is refused.
    new = reading.read(predictions, labels=reading.labels, target=rule.target)
    new = new.with_checked(empty_decision=rule.empty_decision)
    if lacks_score(rule, new):
        raise UserError(f"{str(policy)!r}: the predictions of {str(predictions)!r} {missing_score(rule.quantity)}")
    options: dict[str, Any] = {"shift_level": shift_level, "seed": seed, "by": reading.by or (), "allow_unnamed": force}
    options["allow_other"] = force
    applied = apply_policy(rule, new, per=per, **options)
    if applied.outcome is None and {"violated", "undecided"} & set(cases):
        raise UserError(f"--fail-on {fail_on} needs labels: without them the guarantee cannot be checked.")
    decisions = applied.to_parquet() if output.suffix.lower() == ".parquet" else applied.to_csv(raw=raw_csv)
    paths = _write({output: decisions}, report, rule, new, {**options, "file": predictions.name})
    for warning in applied.warnings:
        say(f"warning: {warning}")
    goal = {"guarantee": rule.guarantee, "threshold": rule.threshold, "quantity": rule.quantity}
    lines = [*applied.lines, *_subgroup_lines(applied.subgroups)]
    print_result(json, {**applied.as_dict(), **goal, **paths}, lines, output=output)
    notes = [*applied.notes, *([SUBGROUP_NOTE] if reading.by else ())]
    written = [f"decisions: {output}", *([f"report: {report}"] if report else ())]
    for text in () if json else (*(f"note: {note}" for note in notes), *written):
        say(text)
    failures = [case for case in cases if case == applied.outcome or (case == "shift" and applied.shift.significant)]
    if failures:
        say(f"failed on: {', '.join(failures)}")
        raise typer.Exit(FAILED)


def _check_decisions(output: Path) -> None:
    """Refuse a name that announces another format than the ones that are written."""
    if output.suffix.lower() in OTHER_FORMATS:
        raise UserError(f"--output must end in .csv or .parquet; given {str(output)!r}.")


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
