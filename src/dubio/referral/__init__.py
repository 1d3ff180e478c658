"""Referral with a guarantee: choose which predictions to retain, and apply the policy to new predictions."""

from dubio.referral.application import Applied as Applied
from dubio.referral.application import apply_policy as apply_policy
from dubio.referral.capacity import fit_capacity_policy as fit_capacity_policy
from dubio.referral.operating_curve import OperatingPoints as OperatingPoints
from dubio.referral.operating_curve import operating_points as operating_points
from dubio.referral.policy import Policy as Policy
from dubio.referral.risk import NoGuarantee as NoGuarantee
from dubio.referral.risk import fit_risk_policy as fit_risk_policy
from dubio.referral.risk_grid import TARGETS as TARGETS
from dubio.referral.risk_grid import PolicyGrid as PolicyGrid
from dubio.referral.risk_grid import fit_risk_policies as fit_risk_policies
from dubio.referral.screening import fit_screening_policy as fit_screening_policy
from dubio.referral.shift import Shift as Shift
from dubio.referral.shift import shift_test as shift_test
