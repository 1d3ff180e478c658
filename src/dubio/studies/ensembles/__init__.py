"""The ensembling study (P): every method against its number of samples, measured in independently trained networks."""

from dubio.studies.ensembles import overview

__all__ = ["overview"]
