"""Fitting a figure into the page: unique ids, no namespaces, colours and letters that follow the page's scheme."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"(?<=url\(#)")
_FONT = re.compile(r"font-family: [^;]*")
_DROPPED = ("metadata", "style")


def themed(colour: str) -> str:
    """A colour that the page may exchange in its dark scheme: ``var(--f-0072b2, #0072b2)``."""
    return f"var(--f-{colour[1:]}, {colour})"


def for_page(svg: str, name: str) -> str:
    """An SVG document as an element of an HTML page.

    Only attributes are rewritten; text stays as it is, escaped.

    Args:
        svg: As matplotlib writes it.
        name: Put before every id, so that no two figures of a page share one.
    """
    root = ElementTree.fromstring(svg)
    for element in list(root.iter()):
        # HTML needs no namespaces, and without them nothing in the page looks like an address.
        element.tag = _local(element.tag)
        for child in [child for child in element if _local(child.tag) in _DROPPED]:
            element.remove(child)
        attributes = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _attribute(key, value, name) for key, value in attributes.items()})
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("aria-hidden", "true")
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = _REFERENCE.sub(f"{name}-", value)
    if key in ("style", "fill", "stroke"):
        value = _COLOUR.sub(lambda match: themed(match[0]), value)
        value = _FONT.sub("font-family: var(--figure)", value)
    return value


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
