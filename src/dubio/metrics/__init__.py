"""Metrics: pure functions of predictions, one file a family.

Every metric is registered under its name with :func:`dubio.core.registry.metric`; the modules here are imported
when a name is first looked up. :mod:`dubio.metrics.metric` runs many of them on one set of predictions.
"""
