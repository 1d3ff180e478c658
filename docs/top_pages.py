"""A hook of mkdocs: SECURITY.md, at the top of the repository, is a page too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PAGE, LINK = "security.md", "](../SECURITY.md"


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page; its links lead from the folder of the documentation."""
    text = (Path(config.config_file_path).parent / "SECURITY.md").read_text("utf-8")
    files.append(File.generated(config, PAGE, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the file lead to the page."""
    return markdown.replace(LINK, f"]({PAGE}")
