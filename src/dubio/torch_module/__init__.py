"""The methods on a user's own PyTorch module and data: ``dubio.fit``, and reading back what it saved."""

from dubio.core.errors import MissingExtra

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtra("dubio.fit", "train") from missing

from dubio.torch_module.fit_file import load_fit
from dubio.torch_module.fitted_module import FittedModule
from dubio.torch_module.fitting import fit

__all__ = ["FittedModule", "fit", "load_fit"]
