"""Deployment: predict new rows with a method of a run, export it as a folder, and load it again."""
