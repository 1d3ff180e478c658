"""The methods on a user's own PyTorch module and data: ``dubio.fit``, and reading back what it saved."""

from dubio.errors import MissingExtra

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtra("dubio.fit", "train") from missing

from dubio.modules.fitted import FittedModule
from dubio.modules.fitting import fit
from dubio.modules.stored import load_fit

__all__ = ["FittedModule", "fit", "load_fit"]
