"""The quick benchmark: small tasks and methods that finish in minutes on a laptop."""
