"""Names that follow from MODEL: package, class prefix, architecture string."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from scaffold.errors import ScaffoldError

MAX_LENGTH = 64
# <model>_sigmas beside shift_sigmas
RESERVED = frozenset({"shift"})

_MODEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Names:
    """What a model's files, package and classes are called."""

    model: str
    package: str
    prefix: str
    architecture: str
    algorithm: str


def derive_names(model: str, algorithm: str = "flow_grpo") -> Names:
    """Derive every name from MODEL.

    Args:
        model: lower-case ASCII identifier of at most ``MAX_LENGTH`` characters, not a Python keyword.
        algorithm: suffix of the package and second key of the registries.

    Raises:
        ScaffoldError: ``model`` cannot be a module name; the message says why in one line.
    """
    validate_model(model)
    prefix = camel_case(model)
    return Names(
        model=model,
        package=f"{model}_{algorithm}",
        prefix=prefix,
        architecture=architecture_of(prefix),
        algorithm=algorithm,
    )


def architecture_of(prefix: str) -> str:
    """Return the registry's string of a class prefix; a model that is called Omni is so once."""
    omni = "" if prefix.lower().startswith("omni") else "Omni"
    return f"{omni}{prefix}ForConditionalGeneration"


def camel_case(name: str) -> str:
    """Return the class prefix of a module name: ``my_model`` gives ``MyModel``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def model_name(key: str) -> str:
    """Return the MODEL that a registry key suggests: ``MyModel2Pipeline`` gives ``my_model2``."""
    name = key.removesuffix("Pipeline")
    return re.sub(r"[^a-z0-9_]", "", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def validate_model(model: str) -> None:
    """Raise `ScaffoldError` unless ``model`` may name files, modules and classes."""
    hint = "give a lower-case identifier such as my_model"
    shown = model if len(model) <= MAX_LENGTH else model[:MAX_LENGTH] + "…"
    if not model:
        raise ScaffoldError("MODEL is empty", hint=hint)
    if "/" in model or "\\" in model or ".." in model:
        raise ScaffoldError(f"MODEL {shown!r} is a path, not a name", hint=hint)
    if len(model) > MAX_LENGTH:
        raise ScaffoldError(f"MODEL {shown!r} is longer than {MAX_LENGTH} characters", hint=hint)
    if not _MODEL.fullmatch(model):
        raise ScaffoldError(f"MODEL {shown!r} is not a lower-case identifier", hint=hint)
    if model in RESERVED:
        raise ScaffoldError(
            f"MODEL {shown!r} is taken by a function of the rendered package", hint="choose another name"
        )
    if keyword.iskeyword(model):
        raise ScaffoldError(f"MODEL {shown!r} is a Python keyword", hint=hint)
