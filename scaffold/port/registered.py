"""Configuration classes that a module makes known to transformers when it is imported: a port has them itself.

Registering them a second time, from the port, would stop vllm-omni where both are imported.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.source.modules import ModuleInfo
    from scaffold.upstream import UpstreamSource

# What makes a configuration by the name of its type.
ASKED = "transformers.AutoConfig.for_model"
_LOOKUP = """\
def registered_configuration(model_type, *args, **kwargs):
    from transformers import CONFIG_MAPPING

    registered = {{{entries}}}
    made = registered.get(model_type) or CONFIG_MAPPING[model_type]
    return made(*args, **kwargs)
"""


def lookup_of(source: UpstreamSource, info: ModuleInfo) -> str | None:
    """Return a function that does what ``AutoConfig.for_model`` does once a module is imported.

    Args:
        source: the version of vllm-omni.
        info: the module; the function sees its names.

    Returns:
        The text; None where the module registers no class of its own, or one in another way.
    """
    calls = [
        statement.value
        for statement in source.tree(info.file).body
        if isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("AutoConfig.register(")
    ]
    entries = []
    for call in calls:
        assert isinstance(call, ast.Call)
        if len(call.args) != 2 or not isinstance(call.args[1], ast.Name) or call.args[1].id not in info.definitions:
            return None
        entries.append(": ".join(map(ast.unparse, call.args)))
    return _LOOKUP.format(entries=", ".join(entries)) if entries else None
