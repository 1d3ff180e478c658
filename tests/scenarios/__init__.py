"""Tests that lead through the whole system: several packages, whole runs, every registered name, or other libraries."""
