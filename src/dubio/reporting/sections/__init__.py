"""The sections of the report, one per file; each registers itself."""
