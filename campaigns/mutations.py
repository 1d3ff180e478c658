"""Mutations of Python source: one small change of meaning at a time, as a programmer might slip.

Text (messages, docstrings), annotations and what a ``raise`` or an ``assert`` says are left alone: a changed sentence
is no changed result. Every mutation names the function it is in, and what stood there before and stands there after.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
BUILT_IN = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
ATTRIBUTES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any",
    "floor": "ceil", "ceil": "floor", "argmin": "argmax", "argmax": "argmin", "log": "log1p", "log1p": "log",
    "mean": "sum", "sum": "mean", "isnan": "isfinite", "isinf": "isnan",
}  # fmt: skip
"""Of arrays and of numpy."""
WORDS = {"left": "right", "right": "left", "lower": "higher", "higher": "lower"}
"""Texts that are arguments of numpy: sides and interpolations."""
DECLARATIVE = ("strict", "frozen", "eq", "slots")
"""Keywords that guard against misuse and change no result."""


@dataclass(frozen=True, eq=False)
class Mutation:
    """One change.

    Attributes:
        path: The file.
        line: Where the change is.
        function: The qualified name of the outermost function, or "" for a change that takes effect on import.
        before: The expression as it stands.
        after: The expression that replaces it.
        occurrence: Its number among equal changes of one function, from 0.
        slot: The parent node, its field, and the index in that field.
        replacement: The node that replaces it.
    """

    path: Path
    line: int
    function: str
    before: str
    after: str
    occurrence: int
    slot: tuple[ast.AST, str, int | None]
    replacement: ast.AST

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the replacement into the tree for a while."""
        parent, name, index = self.slot
        original = getattr(parent, name) if index is None else getattr(parent, name)[index]
        _put(self.slot, self.replacement)
        try:
            yield
        finally:
            _put(self.slot, original)

    def key(self, root: Path) -> str:
        """Return a name that survives edits elsewhere in the file."""
        number = f" #{self.occurrence}" if self.occurrence else ""
        place = f"{self.path.relative_to(root).as_posix()} {self.function or '<module>'}"
        return f"{place}: {self.before} → {self.after}{number}"


def mutations(path: Path) -> tuple[ast.Module, list[Mutation]]:
    """Return the tree of a file and every mutation of it."""
    tree = ast.parse(path.read_text("utf-8"))
    seen: dict[tuple[str, str, str], int] = {}
    result = []
    for slot, node, function in _walk(tree, "", False):
        before = _text(node)
        for replacement in _replacements(node):
            ast.copy_location(replacement, node)
            ast.fix_missing_locations(replacement)
            change = (function, before, _text(replacement))
            occurrence = seen.setdefault(change, 0)
            seen[change] += 1
            result.append(Mutation(path, node.lineno, *change, occurrence, slot, replacement))  # type: ignore[attr-defined]
    return tree, result


def _put(slot: tuple[ast.AST, str, int | None], node: ast.AST) -> None:
    parent, name, index = slot
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _text(node: ast.AST) -> str:
    """Return the node as source; of a compound statement its first line."""
    return ast.unparse(node).split("\n")[0]


Place = tuple[tuple[ast.AST, str, int | None], ast.AST, str]


def _walk(node: ast.AST, prefix: str, inside: bool) -> Iterator[Place]:
    """Yield every expression and simple statement that is code, with the outermost function whose body it is in."""
    for name, value in ast.iter_fields(node):
        if _is_text(node, name):
            continue
        within, entered = prefix, inside
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and name == "body" and not inside:
            within, entered = f"{prefix}.{node.name}".lstrip("."), isinstance(node, ast.FunctionDef)
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _is_for_type_checkers(child):
                if hasattr(child, "lineno"):
                    yield (node, name, index if isinstance(value, list) else None), child, within if entered else ""
                yield from _walk(child, within, entered)


def _is_text(node: ast.AST, name: str) -> bool:
    """Whether a field says something to a reader or a type checker, and nothing to the machine."""
    if name in ("annotation", "returns", "type_comment"):
        return True
    if isinstance(node, ast.Raise | ast.Assert) and name in ("exc", "msg", "cause"):
        return True
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in DECLARATIVE):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for index, operator in enumerate(ops):
                yield _with(node, ops=[*ops[:index], COMPARISONS[type(operator)](), *ops[index + 1 :]])
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            if not (isinstance(node, ast.BinOp) and _is_string(node)):
                yield _with(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=connective):
            yield _with(node, op=ast.Or() if isinstance(connective, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield copy.copy(operand)
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
        case ast.Constant(value=str() as word) if word in WORDS:
            yield ast.Constant(WORDS[word])
        case ast.Name(id=name, ctx=ast.Load()) if name in BUILT_IN:
            yield _with(node, id=BUILT_IN[name])
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in ATTRIBUTES:
            yield _with(node, attr=ATTRIBUTES[name])
        case ast.Raise() | ast.Continue() | ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """Return a copy of a node with other fields; it shares the rest with the original."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_string(node: ast.BinOp) -> bool:
    """Whether an operand is plainly text: its sum is a sentence."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )
