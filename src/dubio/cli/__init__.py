"""The command line: one file per command, which parses, calls and prints.

At the top of these files only typer, the standard library and the errors are imported: ``dubio --help`` must not wait
for numpy or torch.
"""
