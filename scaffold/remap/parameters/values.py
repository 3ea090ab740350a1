"""What an expression of a module's constructor can be, apart from plain Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scaffold.bounded import Budget
from scaffold.source.classes import ClassInfo

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorValue:
    """A tensor of known shape; ``parameter`` says that it is an ``nn.Parameter``."""

    shape: Shape
    parameter: bool = False


@dataclass
class Record:
    """An instance of a plain class, such as the configuration: its fields."""

    cls: ClassInfo
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModuleValue:
    """An ``nn.Module``: parameters, persistent buffers and submodules in the order of definition, other attributes."""

    tensors: dict[str, Shape] = field(default_factory=dict)
    children: dict[str, ModuleValue] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    cls: ClassInfo | None = None

    def put(self, name: str, value: Any) -> None:
        """Assign an attribute as ``nn.Module`` does."""
        for table in (self.tensors, self.children, self.attributes):
            table.pop(name, None)
        if isinstance(value, ModuleValue):
            self.children[name] = value
        elif isinstance(value, TensorValue) and value.parameter:
            self.tensors[name] = value.shape
        else:
            self.attributes[name] = value

    def has(self, name: str) -> bool:
        """Whether an attribute was assigned."""
        return name in self.children or name in self.tensors or name in self.attributes

    def get(self, name: str) -> Any:
        """Return an attribute that was assigned."""
        if name in self.children:
            return self.children[name]
        if name in self.tensors:
            return TensorValue(self.tensors[name], parameter=True)
        return self.attributes[name]

    def shapes(self, budget: Budget, prefix: str = "") -> dict[str, Shape]:
        """Return every entry of the module's state dict."""
        budget.spend(1 + len(self.tensors) + len(prefix) // 64)
        found = {f"{prefix}{name}": shape for name, shape in self.tensors.items()}
        for name, child in self.children.items():
            found |= child.shapes(budget, f"{prefix}{name}.")
        return found
