"""Expressions: calls about the surroundings become their answers, layers of the engine's plain ones."""

from __future__ import annotations

import libcst as cst

from scaffold.port.blocks import code
from scaffold.port.layer_expressions import LayerExpressions
from scaffold.port.layers import ENGINES, class_of, kind_of
from scaffold.port.names import Defined, External, dotted
from scaffold.port.one_device import attributes_of, methods_of, names, table
from scaffold.port.registered import ASKED as REGISTRY
from scaffold.port.registered import lookup_of

_ACCELERATOR = "cuda"
_OF_ALL_PARTS = ("dtype", "device")  # of the weight of a fused layer, whose parts have the same


class Expressions(LayerExpressions):
    """Rewrites expressions of one function."""

    # Names and attributes

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._bare = True

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        self._bare = False
        return updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._named(original_node)

    def stored(self, node: cst.BaseAssignTargetExpression) -> cst.BaseAssignTargetExpression:
        """Return the target of an assignment as it stands in the port."""
        found = cst.AssignTarget(node).visit(self)
        assert isinstance(found, cst.AssignTarget)
        return found.target

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return False

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        origin, rest = self.scope.path(original_node)
        if isinstance(origin, External) and origin.path.partition(".")[0] in ENGINES:
            return self._engine_value(origin.path, original_node)
        if isinstance(origin, Defined):
            if not self.engine.followed(origin):
                return self._engine_value(".".join((*origin, *rest)), original_node)
            lacking = self.engine.without(origin)
            if lacking is not None:
                self.problems.append(lacking)
                return original_node
            node: cst.BaseExpression = cst.Name(self.engine.reference(origin))
            for name in rest:
                node = cst.Attribute(node, cst.Name(name))
            return node
        answered = self._answered(original_node)
        if answered is not None:
            return answered
        held = self._held(original_node.value)
        if held is not None:
            return self._layer_attribute(original_node, held)
        if original_node.attr.value in _OF_ALL_PARTS and (first := self._first_weight(original_node.value)) is not None:
            return cst.Attribute(first, original_node.attr)
        fixed = self._fixed(original_node, "")
        if fixed is not None:
            return fixed
        itself = None if self._bare else self._held(original_node)
        if itself is not None and itself.built.pairs and not itself.built.fused:
            return self._pairing(self._part(original_node, itself, None))
        name = original_node.attr.value
        if dotted(original_node.value) == "self" and self.owner and self.engine.mixed_dict(self.owner, name):
            self.problems.append(f"the layers of {name}, not one by its name")
        return updated_node.with_changes(value=self.rewrite(original_node.value))

    def _named(self, node: cst.Name) -> cst.BaseExpression:
        if node.value in self.lost:
            self.problems.append(f"{node.value}, whose value is not carried over")
            return node
        origin = self.scope.origin(node.value)
        if origin is None:
            return node
        if isinstance(origin, Defined):
            if not self.engine.followed(origin):
                return self._engine_value(f"{origin.module}.{origin.name}", node)
            literal = self.engine.decided(origin)
            if literal is not None:
                self.decided = True
                return cst.parse_expression(literal)
            lacking = self.engine.without(origin)
            if lacking is not None:
                self.problems.append(lacking)
                return node
            return node.with_changes(value=self.engine.reference(origin))
        if origin.path.partition(".")[0] in ENGINES:
            return self._engine_value(origin.path, node)
        if origin.path.partition(".")[0] in names("ABSENT"):
            self.problems.append(f"kernels of {origin.path}")
            return node
        return node.with_changes(value=self.engine.imported(node.value, self.scope, origin.path))

    def _engine_value(self, path: str, node: cst.BaseExpression) -> cst.BaseExpression:
        last = path.rpartition(".")[2]
        member = ".".join(path.split(".")[-2:])
        literal = table("VALUES").get(last, table("VALUES").get(member))
        if literal is not None:
            self.decided = True
            return cst.parse_expression(literal)
        if last == "device_type":
            return self._device()
        made = class_of(path)
        if made is not None:
            return cst.Name(self.engine.support(*made))
        owner = class_of(path.rpartition(".")[0])
        if owner is not None and last == "__init__":  # its signature
            return cst.parse_expression(f"{self.engine.support(*owner)}.{last}")
        self.problems.append(path)
        return node

    def _answered(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """Return the literal of ``get_group().attribute``, and of an attribute of an attribute of it."""
        asked, inner = node.attr.value, node.value
        while isinstance(inner, cst.Attribute):
            asked, inner = f"{inner.attr.value}.{asked}", inner.value
        if not isinstance(inner, cst.Call):
            return None
        origin, rest = self.scope.path(inner.func)
        if origin is None or rest or (isinstance(origin, Defined) and self.engine.followed(origin)):
            return None
        last = origin.name if isinstance(origin, Defined) else origin.path.rpartition(".")[2]
        literal = attributes_of(last).get(asked)
        if literal is None:
            return None
        self.decided = True
        return cst.parse_expression(literal)

    # Devices: the target names none

    def _device(self) -> cst.BaseExpression:
        return cst.parse_expression(f"{self.engine.library('verl.utils.device', 'get_device_name')}()")

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.BaseExpression:
        return self._device() if original_node.evaluated_value == _ACCELERATOR else updated_node

    def visit_Comparison(self, node: cst.Comparison) -> bool:
        self._bare = True
        return not _asks_for_accelerator(node)

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        self._bare = False
        if not _asks_for_accelerator(original_node):
            return updated_node
        # ``x.device.type == …`` as a question to the tensor itself.
        assert isinstance(original_node.left, cst.Attribute)
        assert isinstance(original_node.left.value, cst.Attribute)
        asked = cst.Attribute(self.rewrite(original_node.left.value.value), cst.Name("is_cuda"))
        if isinstance(original_node.comparisons[0].operator, cst.Equal):
            return asked
        return cst.parse_expression(f"(not {code(asked)})")

    # Calls

    def visit_Call(self, node: cst.Call) -> bool:
        return False

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        origin, rest = self.scope.path(original_node.func)
        if isinstance(origin, Defined) and not rest:
            if not self.engine.followed(origin) or origin.name in table("CALLS"):
                origin = External(f"{origin.module}.{origin.name}")
        elif isinstance(origin, Defined) and len(rest) == 1 and not self.engine.followed(origin):
            method = f"{origin.module}.{origin.name}.{rest[0]}"  # of a class of the engine's
            origin = External(method) if kind_of(method) is not None else origin
        if isinstance(origin, External):
            found = self._library_call(origin.path, original_node)
            if found is not None:
                return found
        fixed = self._fixed(original_node.func, "()")
        if fixed is not None:
            return fixed
        called = self.layer_call(original_node)
        if called is not None:
            call, held = called
            return cst.parse_expression(f"({code(call)}, None)") if held.built.pairs else call
        if (found := self._by_text(original_node)) is not None:
            return found
        if dotted(original_node.func) == "isinstance":  # a question about the layer itself
            self._bare = True
            given = [argument.with_changes(value=self.rewrite(argument.value)) for argument in original_node.args]
            self._bare = False
            return updated_node.with_changes(args=given)
        if isinstance(original_node.func, cst.Attribute) and original_node.func.attr.value == "dispatch_forward":
            return cst.parse_expression("self.forward_native")
        return updated_node.with_changes(
            func=self.rewrite(original_node.func), args=[self._argument(argument) for argument in original_node.args]
        )

    def _library_call(self, path: str, node: cst.Call) -> cst.BaseExpression | None:
        top, last = path.partition(".")[0], path.rpartition(".")[2]
        if path == REGISTRY:
            return self._configuration(node)
        if last == "find_spec" and node.args and code(node.args[0].value).strip("\"'") in names("ABSENT"):
            self.decided = True
            return cst.Name("None")
        if top not in ENGINES:
            return None
        owner = path.rpartition(".")[0].rpartition(".")[2]
        literal = methods_of(owner).get(last, table("CALLS").get(last))
        if literal is not None:
            self.decided = True
            if last in names("ASSUMED"):
                self.assumed.append(last)
            return cst.parse_expression(literal)
        if last in names("FIRST_ARGUMENT") and node.args:
            return self.rewrite(node.args[0].value)
        if last in names("DEVICES"):
            return cst.parse_expression(f"{self.engine.library('torch')}.device({code(self._device())})")
        if last in table("LIBRARY"):
            module, _, made = table("LIBRARY")[last].rpartition(".")
            return cst.parse_expression(f"{self.engine.library(module, made)}()")
        if last in names("LOGGERS"):
            return cst.parse_expression(f"{self.engine.library('logging')}.getLogger(__name__)")
        if kind_of(path) is not None:
            return self._made(path, node)
        self.problems.append(path)
        return node

    def _configuration(self, node: cst.Call) -> cst.BaseExpression | None:
        """Return the call that makes a configuration by the name of its type, of classes that the port has, too."""
        module = self.scope.info
        text = lookup_of(self.engine.graph.source, module)
        if text is None:
            return None
        name = self.engine.reference(Defined(module.name, self.engine.files.add(module.name, text)))
        return node.with_changes(func=cst.Name(name), args=[self._argument(argument) for argument in node.args])


def _asks_for_accelerator(node: cst.Comparison) -> bool:
    """Tell whether this is ``tensor.device.type`` compared with the accelerator's name."""
    target = node.comparisons[0]
    return (
        len(node.comparisons) == 1
        and isinstance(target.operator, (cst.Equal, cst.NotEqual))
        and isinstance(target.comparator, cst.SimpleString)
        and target.comparator.evaluated_value == _ACCELERATOR
        and code(node.left).endswith(".device.type")
    )
