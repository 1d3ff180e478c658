"""Screening: what referral is worth on two-sided tasks, at home and under shift, for all and for subgroups."""
