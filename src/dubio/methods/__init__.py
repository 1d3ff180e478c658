"""Methods: a recipe of slots, one file per family, and the functions that fit and predict.

These functions take and return plain data (JSON, arrays, predictions), so that a runner needs to know nothing of torch:

- :func:`fit_spec` and :func:`pred_spec` write the specification of a fit and of its predictions; the hash of a
  specification is its identity.
- :func:`check` refuses a fit that is certain to fail; :func:`estimate` forecasts its cost. Both precede any training.
- :func:`fit` trains what a specification describes.
- :func:`predictor` reads a stored fit and returns a function that predicts any split.
- :func:`begin_job` and :func:`seconds_saved` say what a fit or a prediction owes to those before it in the process.
- :func:`fit_recipe` and :func:`predict_with` do the same within one process, for methods that are no recipes.
"""

from dubio.methods.cost import estimate
from dubio.methods.encoding_cache import encode_split
from dubio.methods.fitting import FitContext, FitResult, check, check_device, fit, fit_recipe
from dubio.methods.prediction import predict_with, predictor
from dubio.methods.specification import NetworkSpec, encoder_split, fit_spec, pred_spec
from dubio.networks.network import LOOKUPS

begin_job, seconds_saved = LOOKUPS.begin_job, LOOKUPS.seconds_saved

__all__ = [
    "FitContext",
    "FitResult",
    "NetworkSpec",
    "begin_job",
    "check",
    "check_device",
    "encode_split",
    "encoder_split",
    "estimate",
    "fit",
    "fit_recipe",
    "fit_spec",
    "pred_spec",
    "predict_with",
    "predictor",
    "seconds_saved",
]
