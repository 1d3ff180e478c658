"""Studies: everything that belongs to one paper, apart from the core.

A study has its benchmark (``benchmark.toml``), published numbers, claims, tables and figures in one folder.
"""
