"""The study of text classification (T): its benchmark, published numbers, claims and figures."""

from dubio.studies.text import as_published, correlations, networks, published, scatter, training

__all__ = ["as_published", "correlations", "networks", "published", "scatter", "training"]
