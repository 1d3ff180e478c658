"""Recalibration: temperature, vector and isotonic scaling, test-time cross-validation, conformal sets."""
