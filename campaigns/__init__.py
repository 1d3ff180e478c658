"""Campaigns against dubio, each a command of its own; docs/reliability.md has their figures."""
