"""Metrics: pure functions of predictions and weights, one file per family.

Every metric is registered under its name with :func:`dubio.metrics.metric.metric`; the modules here are imported when a
name is first looked up.
"""
