"""The denoiser's configuration and weights: derived from its constructor, proven by the package's own loader."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.rollout.engine_side.tiny.components import NotGrownError, randomised
from scaffold.verify.rollout.engine_side.tiny.shrink import DENOISER, shrunk

WEIGHTS = "diffusion_pytorch_model.safetensors"


class PortedModule:
    """The modules of a package with a ported denoiser.

    Args:
        package: its dotted name; it is imported.
        facts: ``model`` is the model's name, ``entry`` the denoiser's class, ``renames`` the loader's table.
    """

    def __init__(self, package: str, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.weights: Any = importlib.import_module(f"{package}.{facts['model']}_weights")
        denoiser = importlib.import_module(f"{package}.{facts['model']}_denoiser")
        self.entry: Any = getattr(denoiser, facts["entry"])
        self.build: Any = denoiser.build_denoiser
        self.fitted: dict[str, Any] = {}

    def fit(self, error: Exception, channels: int | None) -> bool:
        """Switch on a part of the denoiser that a pipeline uses and the constructor's defaults leave out.

        The constructor says under which condition it makes the part: a flag, or a width that is not nothing.

        Returns:
            Whether a setting was changed.
        """
        missing = re.search(rf"'{self.entry.__name__}' object has no attribute '(\w+)'", str(error))
        if missing is None:
            return False
        defaults = {n: p.default for n, p in inspect.signature(self.entry.__init__).parameters.items()}
        found: dict[str, Any] = {}
        for name in _conditions(self.entry, missing[1]) & defaults.keys() - self.fitted.keys():
            if defaults[name] is False:
                found[name] = True
            elif defaults[name] == 0 and channels:
                found[name] = channels
        self.fitted |= found
        return bool(found)

    def settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """A tiny configuration under the names of the constructor's arguments.

        Args:
            given: values from ``scaffold.toml``, which stand as they are.

        Raises:
            NotGrownError: an argument has neither a default nor a value.
        """
        found: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self.entry.__init__).parameters.items())[1:]:
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in given:
                continue
            if parameter.default is not parameter.empty:
                found[name] = parameter.default
            else:
                raise NotGrownError(f"{self.entry.__name__}({name}=…) has no default: [verify.denoiser] {name} = …")
        # What is nothing by default is no setting of a configuration: the engine's own arguments are of that kind.
        stated = {name: value for name, value in found.items() if value not in (None, "") and _plain(value)}
        return {**shrunk(stated, DENOISER), **given}

    def write(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Write configuration and weights where the package's loader looks for them; returns the configuration."""
        from safetensors.torch import save_file

        settings = self.settings({**self.fitted, **given})
        (folder / "model_index.json").write_text(json.dumps({"_class_name": self.facts["pipeline"]}), encoding="utf-8")
        place = folder / "transformer"
        place.mkdir(parents=True, exist_ok=True)
        named = {"_class_name": self.entry.__name__, **settings}
        (place / "config.json").write_text(json.dumps(named), encoding="utf-8")
        try:
            module, sources = self.build(self.weights.EngineConfig(str(folder), dtype))
        except Exception as error:
            line = " ".join(str(error).split())[:300]
            raise NotGrownError(
                f"{self.entry.__name__} cannot be built of {json.dumps(settings)}: {type(error).__name__}: {line};"
                " set values in [verify.denoiser] of scaffold.toml"
            ) from error
        randomised(module)
        keys = self._keys(module, sources)
        subfolder = sources[0][0]
        save_file(
            {keys[name]: value.detach().to(dtype, copy=True).contiguous() for name, value in module.named_parameters()},
            (folder / subfolder if subfolder else folder) / WEIGHTS,
        )
        return settings

    def _keys(self, module: Any, sources: Any) -> dict[str, str]:
        """A key for each parameter that the loader takes to it."""
        found: dict[str, str] = {}
        for name, parameter in module.named_parameters():
            for key in self._candidates(name):
                if self._taken(module, key, parameter) == {name}:
                    found[name] = key
                    break
            else:
                raise NotGrownError(f"under which key the loader finds {name!r} is not known")
        return found

    def _candidates(self, name: str) -> list[str]:
        keys = [name]
        for saved, own in self.facts["renames"]:
            keys += [key.replace(own, saved) for key in keys if own in key]
        return keys

    def _taken(self, module: Any, key: str, tensor: Any) -> set[str]:
        """Names of the parameters to which the loader takes one tensor."""
        checkpoint = self.weights.Checkpoint()
        try:
            self.weights._place(module, iter([(key, tensor.detach(), WEIGHTS, key)]), checkpoint)
        except Exception:
            return set()
        return set(checkpoint.keys)


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_plain(item) for item in value.values())
    return value is None or isinstance(value, bool | int | float | str)


def _conditions(owner: Any, attribute: str) -> set[str]:
    """Names in the conditions under which a constructor sets an attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner.__init__)))
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        stored = {t.attr for part in node.body for t in ast.walk(part) if isinstance(t, ast.Attribute)}
        if attribute in stored:
            found |= {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
    return found
