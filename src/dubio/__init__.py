"""dubio: does a classifier know when it does not know, and which uncertainty method makes it know best?

The names below are loaded when they are first used, so that ``import dubio`` costs nothing and never loads torch.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The one list of public names: type checkers and editors read it, and _home parses it at run time.
    from dubio.calibration.recalibration import Recalibration as Recalibration
    from dubio.calibration.recalibration import apply_recalibration as apply_recalibration
    from dubio.core.errors import BadFile as BadFile
    from dubio.core.errors import DubioError as DubioError
    from dubio.core.errors import MissingExtra as MissingExtra
    from dubio.core.errors import StoreError as StoreError
    from dubio.core.errors import UnknownName as UnknownName
    from dubio.core.errors import UserError as UserError
    from dubio.core.predictions import Predictions as Predictions
    from dubio.core.predictions import join as join
    from dubio.core.predictions import pool_members as pool_members
    from dubio.core.registry import load_plugin as load_plugin
    from dubio.core.registry import method as method
    from dubio.core.registry import network as network
    from dubio.core.registry import task as task
    from dubio.core.types import Examples as Examples
    from dubio.core.types import Metric as Metric
    from dubio.core.types import SourceCard as SourceCard
    from dubio.core.types import Split as Split
    from dubio.core.types import Task as Task
    from dubio.deployment.folder import load as load
    from dubio.deployment.model import Model as Model
    from dubio.deployment.run_models import model_of_run as model_of_run
    from dubio.estimators import benchmark as benchmark
    from dubio.evaluation import calibrate as calibrate
    from dubio.evaluation import compare as compare
    from dubio.evaluation import evaluate as evaluate
    from dubio.evaluation.gates import RequirementResults as RequirementResults
    from dubio.evaluation.results import Evaluation as Evaluation
    from dubio.evaluation.results import SystemComparison as SystemComparison
    from dubio.formats import read_predictions as read_predictions
    from dubio.formats import write_predictions as write_predictions
    from dubio.metrics.metric import metric as metric
    from dubio.referral import Policy as Policy
    from dubio.referral import PolicyGrid as PolicyGrid
    from dubio.referral import apply_policy as apply_policy
    from dubio.referral import fit_capacity_policy as fit_capacity_policy
    from dubio.referral import fit_risk_policies as fit_risk_policies
    from dubio.referral import fit_risk_policy as fit_risk_policy
    from dubio.referral import fit_screening_policy as fit_screening_policy
    from dubio.referral import operating_points as operating_points
    from dubio.referral import shift_test as shift_test
    from dubio.reporting.ensemble_curves import curves_of_run as curves_of_run
    from dubio.reporting.ensemble_curves import curves_of_systems as curves_of_systems
    from dubio.reporting.method_ranks import rank_methods as rank_methods
    from dubio.reporting.reported import WrittenReport as WrittenReport
    from dubio.reporting.sheet import PolicySheet as PolicySheet
    from dubio.reporting.sheet import policy_sheet as policy_sheet
    from dubio.reporting.stored_run import Run as Run
    from dubio.reporting.stored_run import open_run as open_run
    from dubio.reporting.stored_run import report as report
    from dubio.runner.benchmark_run import run as run
    from dubio.serving import serve as serve
    from dubio.statistics.result_table import Columns as Columns
    from dubio.store import Store as Store
    from dubio.store import open_store as open_store
    from dubio.torch_module import FittedModule as FittedModule
    from dubio.torch_module import fit as fit
    from dubio.torch_module import load_fit as load_fit

__version__ = "0.1.0"


@lru_cache(maxsize=1)
def _homes() -> dict[str, str]:
    """Return name → module of the imports above."""
    import ast
    import inspect
    import sys

    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    listed = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module) for node in listed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name == "__all__":
        return [*_homes(), "__version__"]
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'dubio' has no attribute {name!r}")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return every public name, loaded or not."""
    return sorted({*globals(), *_homes()})
