"""Referral with a guarantee: choosing which predictions to keep, and applying the choice to new predictions."""

from dubio.referral.applying import Applied, apply_policy
from dubio.referral.capacity import fit_capacity_policy
from dubio.referral.operating import OperatingPoint, operating_point
from dubio.referral.policy import Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.screening import fit_screening_policy
from dubio.referral.shift import Shift, shift_test

__all__ = [
    "Applied",
    "NoGuarantee",
    "OperatingPoint",
    "Policy",
    "Shift",
    "apply_policy",
    "fit_capacity_policy",
    "fit_risk_policy",
    "fit_screening_policy",
    "operating_point",
    "shift_test",
]
