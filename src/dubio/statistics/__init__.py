"""Comparing methods: ranks, tests over datasets, paired tests over examples, bootstrap, deep-ensemble equivalent."""
