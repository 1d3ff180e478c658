"""The study of diabetic-retinopathy screening (R): its benchmark and conclusions; its figures are generic sections."""

from dubio.studies.retina import conclusions

__all__ = ["conclusions"]
