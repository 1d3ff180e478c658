"""The pages of `docs/results`, remade by commands: `python -m results`, or `make results`."""
