"""The page of the expert's queue: one HTML document whose only requests are those to its own server.

Its content security policy allows this very script and style by their hashes and nothing else. The document holds no
data: the script asks for the queue, with the token where one is needed.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files


def _source(name: str) -> str:
    return (files("dubio.serving") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


@lru_cache(maxsize=1)
def html() -> str:
    """Return the document, with its style and script in it."""
    return _source("queue.html").replace("/*style*/", _source("queue.css")).replace("/*script*/", _source("queue.js"))


@lru_cache(maxsize=1)
def headers() -> dict[str, str]:
    """Return the headers of the document."""
    policy = {
        "default-src": "'none'",
        "script-src": f"'{_hash(_source('queue.js'))}'",
        "style-src": f"'{_hash(_source('queue.css'))}'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
