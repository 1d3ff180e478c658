"""Files: predictions in and out (safetensors, npz, npy and tables) and long tables of results."""

from dubio.formats.arrays import predictions_from_arrays
from dubio.formats.predictions import read_predictions, write_predictions
from dubio.formats.safetensors import read_tensors, write_tensors

__all__ = ["predictions_from_arrays", "read_predictions", "read_tensors", "write_predictions", "write_tensors"]
