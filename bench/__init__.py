"""Benchmarks of dubio itself: ratios of two things measured in one run, one thread unless said."""
