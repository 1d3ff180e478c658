"""The page makes no request but to its own server, and its policy allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re

from dubio.serving.queue_page import headers, html


def test_the_policy_allows_this_script_and_style_alone():
    policy = headers()["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_the_page_names_no_other_address_and_parses_no_markup():
    assert not re.findall(r"https?://|//[a-z]+\.", html())
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in html()
