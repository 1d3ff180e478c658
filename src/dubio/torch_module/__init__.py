"""The methods on a user's own PyTorch module and data: ``dubio.fit``, and reading back what it saved."""

from dubio.core.errors import MissingExtra

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtra("dubio.fit", "train") from missing

from dubio.torch_module.fitted import FittedModule
from dubio.torch_module.fitting import fit
from dubio.torch_module.stored import load_fit

__all__ = ["FittedModule", "fit", "load_fit"]
