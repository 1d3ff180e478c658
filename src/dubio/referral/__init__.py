"""Referral with a guarantee: choose which predictions to retain, and apply the policy to new predictions."""

from dubio.referral.application import Applied, OperatingPoint, Shift, apply_policy, operating_point, shift_test
from dubio.referral.capacity import fit_capacity_policy
from dubio.referral.policy import Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.screening import fit_screening_policy

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
