"""The work of a method on a task, in one place for whoever runs it: specifications, fitting, predicting, cost.

Everything here takes and gives plain data (JSON, arrays, predictions), so that a runner needs to know nothing of
networks.
"""

from __future__ import annotations

from dubio.methods.building import NetworkSpec
from dubio.methods.checking import check
from dubio.methods.encoded import encode_split
from dubio.methods.estimate import estimate
from dubio.methods.fitting import FitContext, Fitted, fit, fit_recipe
from dubio.methods.predicting import predict, predict_with, predictor
from dubio.methods.specs import fit_spec, pred_spec

__all__ = [
    "FitContext",
    "Fitted",
    "NetworkSpec",
    "check",
    "encode_split",
    "estimate",
    "fit",
    "fit_recipe",
    "fit_spec",
    "pred_spec",
    "predict",
    "predict_with",
    "predictor",
]
