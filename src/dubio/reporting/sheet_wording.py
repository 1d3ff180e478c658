"""Word the sheet of a policy: its guarantee, whom it is about, and what is not guaranteed, by the policy's kind."""

from __future__ import annotations

from math import inf

from dubio.core.errors import plural
from dubio.referral.policy import Policy
from dubio.referral.threshold import shown_quantity
from dubio.reporting.wording import listed

Terms = tuple[tuple[str, str], ...]
"""Terms with their explanations."""

LONGEST_NAME = 60
"""Characters of a name from a user."""

MOST_CLASSES = 6
"""Classes that are named."""

SPLITS = {
    None: "of unknown origin", "cal": "a calibration split", "id": "a test split", "train": "a training split",
    "val": "a validation split", "shift": "a shifted split", "ood": "an out-of-distribution split",
}  # fmt: skip


def short(name: str) -> str:
    """Return a name, cut where it is too long for a sheet."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def per_cent(share: float, digits: str = ".4g") -> str:
    """Return a share in per cent, by default with up to four digits."""
    return f"{100 * share:{digits}}\N{NO-BREAK SPACE}%"


def by_groups(policy: Policy) -> bool:
    """Return whether the guarantee is a mean over groups; groups of one row each are rows."""
    return policy.grouped and policy.evidence.get("units") != policy.evidence.get("rows")


def goal(policy: Policy) -> str:
    """Return what a policy was fitted for."""
    goals = policy.goals
    if policy.kind == "risk":
        return f"error among the retained below {goals.get('max_risk', 1.0):.4g}"
    if policy.kind == "capacity":
        return f"at most {goals.get('capacity', 1.0):.4g} referred on average"
    return listed([f"{name} above {value:.4g}" for name, value in goals.items()]) + " among the retained"


def sheet_title(policy: Policy) -> str:
    """Return the heading of a policy's sheet."""
    return f"Referral policy{' without a guarantee, fitted for' if policy.void else ''}: {goal(policy)}"


def rule_terms(policy: Policy, rule: str) -> Terms:
    """Return which rows are retained and which are referred, and by what; the rule is that of the policy, in words."""
    name = "1 − confidence" if policy.quantity == "confidence" else short(shown_quantity(policy.quantity))
    names = [short(own) for own in policy.classes or ()]
    few = f" ({', '.join(names)})" if names and len(names) <= MOST_CLASSES else ""
    system = [f"{policy.class_count} {plural('class', policy.class_count)}{few}"]
    if policy.family is not None:
        system.insert(0, short(policy.family.system))
    system += [f"{policy.samples} samples per row, pooled"] if policy.samples > 1 else []
    system += [f"temperature {policy.temperature:.4g}"] if policy.temperature != 1.0 else []
    clause = rule.removeprefix("retained ").replace("the answer has", "the system gives its answer")
    retained = f"{clause[:1].upper()}{clause[1:]}.".replace(" %", "\N{NO-BREAK SPACE}%")
    compared = f"{name} with the threshold {policy.threshold:.6g}; rows of equal uncertainty are decided alike."
    terms: Terms = (("Referred", "Every other row, one case each: an expert decides."), ("Compared", compared))
    if not 0 <= policy.threshold < inf:
        terms = (("Referred", "Every row: an expert decides." if policy.threshold < 0 else "No row."),)
    return (("Retained", retained), *terms, ("System", "; ".join(system)))


def guarantee_terms(policy: Policy) -> Terms:
    """Return the guarantee, its confidence, its units and the data it rests on."""
    calibration = ("Rests on", _calibration(policy))
    if policy.void:
        return (("Guarantee", policy.guarantee), calibration)
    guarantee, shared = policy.guarantee, []
    if (family := policy.family) is not None:
        guarantee = guarantee.removesuffix(family.sentence).rstrip()
        level = f"The level 1 − {family.confidence:.4g} is shared equally: each alone has {policy.confidence:.4g}."
        shared = [("Level", f"{family.sentence} {level}")]
    terms = (("Guarantee", guarantee), ("Confidence", _confidence(policy)), *shared)
    return (*terms, ("Over", _units(policy)), calibration)


def _confidence(policy: Policy) -> str:
    if policy.kind == "capacity":
        return (f"The average is over calibration sets and new rows and needs none; the upper limits hold for "
                f"{per_cent(policy.confidence)} of calibration sets.")  # fmt: skip
    return (f"Of all calibration sets drawn like this one, at least {per_cent(policy.confidence)} give a policy "
            "that keeps the guarantee.")  # fmt: skip


def _units(policy: Policy) -> str:
    right = " A row is wrong unless all its labels are right." if policy.target == "multilabel" else ""
    if not by_groups(policy):
        one_each = " (one in each group)" if policy.grouped else ""
        return f"Rows{one_each}, taken as independent of each other.{right}"
    means = {
        "risk": "the share of a group's retained rows that are wrong, averaged over groups that retain any",
        "capacity": "the share of a group's rows that is referred, averaged over groups",
        "screening": "each rate is one of a group's retained rows of that class, averaged over groups that have any",
    }
    return f"Groups, taken as independent of each other: {means[policy.kind]}.{right}"


def _calibration(policy: Policy) -> str:
    numbers = {name: f"{value:,.0f}" for name, value in policy.evidence.items()}
    size = f"{numbers.get('rows', 'an unknown number of')} rows"
    size += f" in {numbers['units']} groups" if by_groups(policy) and "units" in numbers else ""
    text = f"A calibration set of {size}, {SPLITS[policy.split]}"
    if "design_units" in numbers and "test_units" in numbers:
        unit = "groups" if by_groups(policy) else "rows"
        text += f": {numbers['design_units']} {unit} chose the thresholds, {numbers['test_units']} tested them"
    return f"{text}."


def calibration_figures(policy: Policy) -> str:
    """Return how a policy does on its calibration set, as the policy records it, in a sentence; empty if it does not.

    Where a part of the set chose the thresholds, the figures are those of the other part.
    """
    evidence = policy.evidence
    figures = [f"{per_cent(evidence['coverage'], '.1f')} retained"] if "coverage" in evidence else []
    figures += [f"{per_cent(evidence['referred'], '.1f')} referred"] if "referred" in evidence else []
    rates = [name for name in ("error", "sensitivity", "specificity") if name in evidence]
    figures += [f"{name} {evidence[name]:.4f}" for name in rates]
    if not figures:
        return ""
    return f"On the calibration set, where the threshold was chosen: {listed(figures)}; this is not a validation."


def calibration_warning(policy: Policy) -> str:
    """Return what figures of the calibration set are not."""
    check = "Check the policy on labelled rows that it has not seen, with dubio refer apply --report."
    if policy.kind == "capacity":
        return f"The threshold was chosen on these rows, by their uncertainties: no figure is a validation. {check}"
    return f"The threshold was chosen on these rows: their figures are optimistic, and not a validation. {check}"


def limit_terms(policy: Policy) -> Terms:
    """Return what is not guaranteed."""
    if policy.void:
        used = "which training or selection has used: its rows look easier than new ones"
        return (
            ("Anything", f"The policy was fitted by force on {SPLITS[policy.split]}, {used}."),
            ("What to do", "Fit it again on rows that neither training nor selection has used."),
        )
    kinds = {"risk": _risk_limits, "capacity": _capacity_limits, "screening": _screening_limits}
    units = "groups" if by_groups(policy) else "rows"
    data = (
        "New rows must be drawn like the calibration rows. Under distribution shift, at other sites, with other "
        "devices or in later years nothing is guaranteed. dubio refer apply tests for shifted uncertainties; it "
        "cannot see a shift that leaves them unchanged."
    )
    subgroups = f"The guarantee is about all {units} together; in one site, subgroup or class it may be violated."
    chosen = "After moving the threshold, or retraining or recalibrating the system, fit again. "
    if policy.family is None:
        chosen += "A policy chosen among several by its figures on the calibration set has no guarantee."
    else:
        chosen += "Choose only among policies that were fitted together."
    dependent = (
        "No groups were named: if several rows come from one patient, document or device, rows are not independent "
        "and the guarantee does not hold."
    )
    return (
        *kinds[policy.kind](policy),
        ("Other data", data),
        ("Subgroups", subgroups),
        ("Changes", chosen),
        *([] if policy.grouped else [("Dependence", dependent)]),
    )


def _this_set(policy: Policy) -> tuple[str, str]:
    return ("This set", f"For up to {per_cent(1.0 - policy.confidence)} of calibration sets the guarantee fails; "
                        "the set itself does not show whether it is one of them.")  # fmt: skip


def _risk_limits(policy: Policy) -> Terms:
    mean = ", averaged over groups," if by_groups(policy) else ""
    remain = (f"Up to {policy.goals.get('max_risk', 1.0) * 100:.4g} of 100 retained answers{mean} may be wrong, and "
              "no expert sees them; single answers are not covered.")  # fmt: skip
    two_sided = policy.target != "multilabel" and (policy.class_count == 2 or policy.target == "ordinal")
    sides = "Sensitivity and specificity are not bounded: of few positives, most may be missed."
    return (
        ("Errors", f"{remain} {sides}" if two_sided else remain),
        ("Referred rows", "Neither their number is bounded nor how well experts decide them."),
        _this_set(policy),
    )


def _capacity_limits(policy: Policy) -> Terms:
    upper = policy.evidence.get("upper_referral")
    text = "The share is an average: on some days more is referred"
    if upper is not None:
        text += f", with this calibration set up to {upper:.4g} in the long run, at the stated confidence"
    groups = " Groups count alike: if large ones are more uncertain, more of all rows is referred."
    return (
        ("Errors", "Nothing is guaranteed about errors among the retained, and no expert sees them."),
        ("Single days", f"{text}.{groups if by_groups(policy) else ''}"),
        ("Referred rows", "How well experts decide them is not covered."),
    )


def _screening_limits(policy: Policy) -> Terms:
    missing = [name for name in ("sensitivity", "specificity") if name not in policy.goals]
    alone = f" {missing[0].capitalize()} was not a target and is not bounded." if missing else ""
    referred = "Referred positives do not count as missed: sensitivity is among the retained. Experts must find them."
    return (
        ("Errors", f"Retained answers may be wrong, and no expert sees them. Predictive values depend on the "
                   f"prevalence and are not bounded.{alone}"),
        ("Referred rows", f"{referred} The number referred is not bounded."),
        _this_set(policy),
    )  # fmt: skip
