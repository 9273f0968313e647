"""Reads the functions of our sources and follows what comes from vLLM through names, attributes and calls."""

from __future__ import annotations

import ast
from collections import deque

from surface.known import (
    Classes,
    Foreign,
    Known,
    Many,
    Method,
    Ours,
    Several,
    annotation,
    bases_in_vllm,
    item_of,
    own_attribute,
)
from surface.sources import Source

BUILTIN = {name for kind in (dict, list, set, str, deque, tuple, int) for name in dir(kind)} - {"__init__"}
"""Methods of containers and numbers: nothing of vLLM is meant by them."""
SAME = {"list", "sorted", "reversed", "iter", "set", "tuple", "deque"}
WHOLE = {"values", "copy"}
ITEM = {"get", "pop", "popleft", "setdefault"}
FIRST = {"next", "max", "min", "cast", "copy"}


class Reader:
    """Walks a file and notes every attribute and keyword that is vLLM's.

    found: (symbol, how, file, line)
    """

    def __init__(self, classes: Classes) -> None:
        self.classes = dict(classes)
        self.found: set[tuple[str, str, str, int]] = set()
        self._file = ""
        self._scope: dict[str, Known] = {}
        self._texts: dict[str, set[str]] = {}
        self._returned: dict[str, set[str]] = {}
        self._held: dict[str, set[str]] = {}
        self._own: str | None = None

    def read(self, source: Source) -> None:
        self._file, self._scope, self._own = source.path, dict(source.names), None
        self._texts = {}
        for node in source.tree.body:
            self._statement(node)

    # Statements

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.ClassDef():
                self._class(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.Assign(targets=targets, value=value):
                known = self._expression(value)
                for target in targets:
                    self._bind(target, known, value)
            case ast.AnnAssign(target=target, annotation=note, value=value):
                known = self._expression(value) if value is not None else None
                self._bind(target, annotation(note, self._scope) or known, value)
            case ast.For(target=target, iter=iterated):
                self._bind(target, item_of(self._expression(iterated)), None)
                self._texts_of_loop(target, iterated)
                self._children(node.body + node.orelse)
            case ast.With(items=items):
                for item in items:
                    known = self._expression(item.context_expr)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, known, None)
                self._children(node.body)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expression(child)
                    else:
                        self._statement(child)

    def _children(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self._statement(node)

    def _class(self, node: ast.ClassDef) -> None:
        outer = self._own
        module = next((n for n in self.classes if n.endswith(f":{node.name}") and self._mine(n)), None)
        self._own = module
        for each in node.body:
            if isinstance(each, ast.AnnAssign | ast.Assign) and module is not None:
                targets = [each.target] if isinstance(each, ast.AnnAssign) else each.targets
                note = annotation(each.annotation, self._scope) if isinstance(each, ast.AnnAssign) else None
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.classes[module].attributes[target.id] = note
                if each.value is not None:
                    self._expression(each.value)
            else:
                self._statement(each)
        self._own = outer

    def _mine(self, name: str) -> bool:
        module = name.partition(":")[0].replace(".", "/")
        return self._file.endswith((f"{module}.py", f"{module}/__init__.py"))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, texts = self._scope, self._texts
        self._scope, self._texts = dict(outer), dict(texts)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            known = annotation(argument.annotation, outer)
            if known is not None:
                self._scope[argument.arg] = known
        if self._own is not None and arguments and arguments[0].arg in ("self", "cls"):
            self._scope[arguments[0].arg] = Ours(self._own)
        if self._own is not None:
            result = annotation(node.returns, outer)
            is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
            self.classes[self._own].attributes[node.name] = result if is_property else Method(result)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self._expression(default)
        self._children(node.body)
        returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None]
        self._returned[node.name] = set[str]().union(*map(self._text, returned)) if returned else set()
        self._scope, self._texts = outer, texts

    def _bind(self, target: ast.expr, known: Known | None, value: ast.expr | None) -> None:
        match target:
            case ast.Name(id=name):
                if known is not None:
                    self._scope[name] = known
                else:
                    self._scope.pop(name, None)
                if value is not None and (texts := self._text(value)):
                    self._texts[name] = texts
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for i, element in enumerate(elements):
                    item = known.items[i] if isinstance(known, Several) and i < len(known.items) else None
                    self._bind(element, item, None)
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if self._own is not None:
                self._own_attribute(attribute, known)
                if value is not None and (texts := self._text(value)):
                    self._held[f"{self._own}.{attribute}"] = texts
            case ast.Attribute(value=owner, attr=attribute):
                self._attribute(self._expression(owner), attribute, "write", target.lineno)
            case _:
                self._expression(target)

    def _own_attribute(self, attribute: str, known: Known | None) -> None:
        """`self.x = ...`: an attribute of ours, or one of vLLM's that we write."""
        own = self.classes[self._own or ""]
        own.attributes[attribute] = own.attributes.get(attribute) or known

    # Expressions

    def _expression(self, node: ast.expr) -> Known | None:
        match node:
            case ast.Name(id=name):
                return self._scope.get(name)
            case ast.Attribute(value=value, attr=attribute):
                return self._attribute(self._expression(value), attribute, "attribute", node.lineno)
            case ast.Call():
                return self._call(node)
            case ast.Subscript(value=value, slice=index):
                self._expression(index)
                known = self._expression(value)
                return known if isinstance(index, ast.Slice) else self._item(known, index)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._comprehension(node.generators, node.elt)
            case ast.DictComp(key=key, value=value):
                return self._comprehension(node.generators, value, key)
            case ast.BoolOp(values=values):
                return next(filter(None, [self._expression(each) for each in values]), None)
            case ast.IfExp(test=test, body=body, orelse=other):
                self._expression(test)
                return next(filter(None, [self._expression(body), self._expression(other)]), None)
            case ast.NamedExpr(target=target, value=value):
                known = self._expression(value)
                self._bind(target, known, value)
                return known
            case ast.Tuple(elts=elements):
                return Several(tuple(self._expression(each) for each in elements))
            case ast.List(elts=elements):
                items = [self._expression(each) for each in elements]
                return Many(items[0]) if items and items[0] is not None else None
            case ast.Compare(
                left=ast.Constant(value=str(text)),
                ops=[ast.In()],
                comparators=[ast.Attribute(value=ast.Attribute(value=function, attr="__code__"), attr="co_names")],
            ):
                asked = self._expression(function)
                if isinstance(asked, Foreign):
                    self._note(f"{asked.path}.__mentions__.{text}", "optional", node.lineno)
                return None
            case ast.Lambda(args=arguments, body=body):
                for argument, default in zip(arguments.args[::-1], arguments.defaults[::-1], strict=False):
                    self._bind(ast.Name(argument.arg), self._expression(default), None)
                return self._expression(body)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expression(child)
                return None

    def _item(self, known: Known | None, index: ast.expr) -> Known | None:
        match known, index:
            case Several(items=items), ast.Constant(value=int(i)):
                return items[i] if i < len(items) else None
            case _:
                return item_of(known)

    def _comprehension(
        self, generators: list[ast.comprehension], element: ast.expr, key: ast.expr | None = None
    ) -> Known | None:
        outer, texts = self._scope, self._texts
        self._scope, self._texts = dict(outer), dict(texts)
        for generator in generators:
            self._bind(generator.target, item_of(self._expression(generator.iter)), None)
            self._texts_of_loop(generator.target, generator.iter)
            for condition in generator.ifs:
                self._expression(condition)
        if key is not None:
            self._expression(key)
        known = self._expression(element)
        self._scope, self._texts = outer, texts
        return Many(known) if known is not None else None

    def _attribute(self, owner: Known | None, attribute: str, how: str, line: int) -> Known | None:
        match owner:
            case Foreign(path=path):
                if attribute in BUILTIN or (attribute.startswith("__") and attribute != "__init__"):
                    return None
                symbol = f"{path}{attribute}" if path.endswith(":") else f"{path}.{attribute}"
                self._note(symbol, how, line)
                return Foreign(symbol)
            case Ours(name=name):
                has, known = own_attribute(name, attribute, self.classes)
                if has:
                    return known
                for base in bases_in_vllm(name, self.classes):
                    return self._attribute(Foreign(base), attribute, how, line)
                return None
            case _:
                return None

    def _note(self, symbol: str, how: str, line: int) -> None:
        self.found.add((symbol, how, self._file, line))

    def _call(self, node: ast.Call) -> Known | None:
        arguments = [self._expression(each) for each in node.args]
        for keyword in node.keywords:
            self._expression(keyword.value)
        match node.func:
            case ast.Name(id="getattr" | "hasattr" | "setattr" as name) if len(node.args) >= 2:
                return self._by_name(name, arguments[0], node)
            case ast.Name(id="_field") if len(node.args) == 2:
                section, attribute = (next(iter(self._text(each)), "") for each in node.args)
                self._note(f"vllm.config:VllmConfig.{section}.{attribute}", "attribute", node.lineno)
                return None
            case ast.Name(id="super"):
                return Foreign(bases[0]) if self._own and (bases := bases_in_vllm(self._own, self.classes)) else None
            case ast.Name(id="type") if len(arguments) == 1:
                return Foreign(arguments[0].path) if isinstance(arguments[0], Foreign) else arguments[0]
            case ast.Name(id="enumerate"):
                item = item_of(arguments[0])
                return Many(Several((None, item)))
            case ast.Name(id="zip"):
                return Many(Several(tuple(item_of(each) for each in arguments)))
            case ast.Name(id=name) if name in SAME and arguments:
                return arguments[0]
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in FIRST and arguments:
                last = arguments[-1] if name == "cast" else arguments[0]
                return item_of(last) if name in ("next", "max", "min") and isinstance(last, Many) else last
            case ast.Attribute(value=value, attr="items"):
                owner = self._expression(value)
                return Many(Several((None, item_of(owner)))) if owner is not None else None
            case ast.Attribute(value=value, attr=method) if method in ITEM or method in WHOLE:
                owner = self._expression(value)
                if isinstance(owner, Ours):
                    return self._attribute(owner, method, "attribute", node.lineno)
                return item_of(owner) if method in ITEM else owner
            case _:
                return self._result(self._expression(node.func), node)

    def _result(self, called: Known | None, node: ast.Call) -> Known | None:
        match called:
            case Foreign(path=path) if called.is_class:
                for keyword in node.keywords:
                    if keyword.arg is not None:
                        self._note(f"{path}.{keyword.arg}", "keyword", node.lineno)
                return Foreign(path, instance=True)
            case Foreign(path=path, instance=True):
                self._note(f"{path}.__call__", "attribute", node.lineno)
                return Foreign(f"{path}.__call__()")
            case Foreign(path=path):
                return Foreign(f"{path}()")
            case Method(result=result):
                return result
            case _:
                return called

    def _by_name(self, function: str, owner: Known | None, node: ast.Call) -> Known | None:
        """`getattr(x, "name", default)` and its relatives. One name without a default must be there."""
        texts = sorted(self._text(node.args[1]))
        how = "write" if function == "setattr" else "attribute"
        if len(texts) > 1:
            how = "choice"
        elif function == "hasattr" or (function == "getattr" and len(node.args) == 3):
            how = "optional"
        result: Known | None = None
        for text in texts:
            result = self._attribute(owner, text, how, node.lineno)
        return result

    # Texts

    def _text(self, node: ast.expr) -> set[str]:
        """The texts that an expression can be: a constant, a choice of constants, a name for them."""
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.IfExp(body=body, orelse=other):
                return self._text(body) | self._text(other)
            case ast.Name(id=name):
                return self._texts.get(name, set())
            case ast.Tuple(elts=elements):
                return set[str]().union(*map(self._text, elements))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self._returned.get(name, set())
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._held.get(f"{self._own}.{name}", set())
            case _:
                return set()

    def _texts_of_loop(self, target: ast.expr, iterated: ast.expr) -> None:
        if isinstance(target, ast.Name) and (texts := self._text(iterated)):
            self._texts[target.id] = texts
