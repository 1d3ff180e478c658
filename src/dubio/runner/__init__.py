"""The runner: benchmarks, plans, and the processes that carry them out."""
