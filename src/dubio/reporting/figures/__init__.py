"""Figures: one function each, returning a matplotlib figure, without global state."""
