"""Writes the tiny checkpoint of a package with a ported denoiser while the engine loads it for the first time."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from scaffold.files.reading import OutsideError, below, read_text
from scaffold.verify.rollout.engine_side.sources import MODELS, Adapters
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.engine_side.tiny.asked import noting, taken_by
from scaffold.verify.rollout.engine_side.tiny.components import Components, NoTinyModelError, hold_places, randomised
from scaffold.verify.rollout.engine_side.tiny.denoiser import PortedModule
from scaffold.verify.rollout.engine_side.tiny.diffusers_denoiser import FOLDER, DiffusersModule, component_classes
from scaffold.verify.rollout.engine_side.tiny.read_files import refused_part
from scaffold.verify.rollout.engine_side.tiny.shrink import ENCODER, TEXT, shrunk

# Other parts of a pipeline whose weights lie in the denoiser's files, and the configuration of one that is its own.

FILE = "other_parts.safetensors"
_MISSING, _NONE = "were not initialized from checkpoint", "model weights"
SCALE = 0.05


def write_other_parts(error: Exception, folder: Path, dtype: torch.dtype) -> bool:
    """Write what the engine misses of the pipeline's own parameters, beside the denoiser's; tells whether it did."""
    model = _model(error)
    if model is None or _MISSING not in str(error) or (folder / FILE).exists():
        return False
    from safetensors.torch import save_file

    modules, made = dict(model.named_modules()), {}
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if f"'{name}'" not in str(error):
            continue
        owner, _, kind = name.rpartition(".")
        for key, rows in _in_files(owner, modules[owner]):
            shape = parameter.shape if rows is None else (rows, *parameter.shape[1:])
            values = torch.randn(shape, generator=generator) * SCALE
            norm = parameter.ndim == 1 and kind == "weight"
            made[f"{key}.{kind}"] = (values + norm).to(dtype)
    save_file(made, folder / FILE)
    return bool(made)


def know_configuration(pipeline: Any, settings: dict[str, Any]) -> None:
    """Make transformers know the kind of configuration that a released checkpoint brings the code of.

    It is read by the class that the pipeline names, of which the checkpoint's own is another copy.
    """
    library: Any = importlib.import_module("transformers")
    kind, own = settings.get("model_type"), getattr(pipeline, "config_class", None)
    if own is None or kind is None or kind in library.CONFIG_MAPPING:
        return

    def construct(self: Any, **values: Any) -> None:
        own.__init__(self, **values)

    library.AutoConfig.register(kind, type(own.__name__, (own,), {"model_type": kind, "__init__": construct}))


def _in_files(owner: str, module: Any) -> list[tuple[str, int | None]]:
    """Names of a layer in files, which have its parts where the engine fuses them, with their rows."""
    if type(module).__name__ != "QKVParallelLinear":
        return [(owner, None)]
    path, _, _ = owner.rpartition(".")
    widths = [module.num_heads * module.head_size, *[module.num_kv_heads * module.head_size] * 2]
    return [(f"{path}.{letter}_proj", width) for letter, width in zip("qkv", widths, strict=True)]


def _model(error: Exception) -> Any:
    """The pipeline whose weights were being loaded."""
    trace, found = error.__traceback__, None
    while trace is not None:
        held = trace.tb_frame.f_locals.get("model")
        found = held if isinstance(held, torch.nn.Module) else found
        trace = trace.tb_next
    return found


# Files that a pipeline reads by itself, as ``[verify.files]`` of ``scaffold.toml`` describes them.

WEIGHTS = ".safetensors"


def write_files(folder: Path, given: Mapping[str, Mapping[str, Any]], dtype: torch.dtype) -> None:
    """Write each file below a checkpoint's folder; one that is there stays.

    Args:
        folder: the checkpoint.
        given: by path; the content of a JSON file, or the shape of each tensor of a file of weights.
        dtype: of the weights.

    Raises:
        ValueError: a path leads out of the folder.
    """
    from safetensors.torch import save_file

    for name, content in given.items():
        try:
            path = below(folder, name)
        except OutsideError as error:
            raise ValueError(f"[verify.files]: {error}") from None
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(WEIGHTS):
            save_file({key: _weight(shape, seed).to(dtype) for seed, (key, shape) in enumerate(content.items())}, path)
        else:
            path.write_text(json.dumps(content), encoding="utf-8")


def _weight(shape: list[int], seed: int) -> torch.Tensor:
    """Seeded values that matter; a vector stays near one, as the scale of a norm does."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return 1 + 0.1 * noise if len(shape) < 2 else noise * shape[-1] ** -0.5


_CHANNELS = ("out_channels", "in_channels", "out_dim", "in_dim", "latent_channels", "latent_dim")
_SUBFOLDER = re.compile(r"""subfolder=["'](\w+)["']""")


@dataclass
class Growing:
    """A checkpoint that is being made.

    Attributes:
        folder: where it lies; what is in it stays.
        module: the package's denoiser.
        components: everything else.
        given: settings of the denoiser from ``scaffold.toml``.
        dtype: of all weights: a library may load them as they were saved.
        asked: tables of the pipeline's own configuration that it asked for.
        filled: those that parts beside the denoiser got.
        areas: see :func:`constants.write`.
    """

    folder: Path
    module: PortedModule | DiffusersModule
    components: Components
    given: dict[str, Any]
    dtype: torch.dtype
    asked: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    areas: dict[str, str] = field(default_factory=dict)

    def write_denoiser(self) -> None:
        """Write the denoiser's configuration and weights; its channels are those of the latents."""
        settings = self.module.write(self.folder, self.given, self.dtype)
        if self.module.replaced or self.areas:
            classes = self.module.classes if self.module.replaced else {}
            either = isinstance(self.module, DiffusersModule)
            constants.write(self.folder, classes, self.module.replaced, either=either, areas=self.areas)
            constants.replace(self.folder)
        named = (settings.get(name) for name in _CHANNELS)
        self.components.channels = next((value for value in named if isinstance(value, int)), None)

    def fit(self, error: Exception) -> bool:
        """Change what failed, where the error says what that is; returns whether anything was changed."""
        if (
            bool(hold_places(self.folder, error, self.components.released))
            or self._fit_part(error)
            or self.components.fit(error)
        ):
            return True
        if (self.module.own or self.module.shared) and write_other_parts(error, self.folder, self.dtype):
            return True
        if self.module.fit(error, self.components.channels):
            self.write_denoiser()
            return True
        return False

    def _fit_part(self, error: Exception) -> bool:
        """Make the part small that the pipeline reads from the denoiser's file, then put its weights there."""
        part, layout = refused_part(error), self.module.layout
        if part is None or layout is None:
            return False
        unset = self.asked - self.module.sections - self.filled
        if len(unset) == 1:
            values = shrunk(taken_by(type(part)), replace(ENCODER, widest=TEXT))
            words = len(self.components.tokenizer())
            values |= {name: words for name in values if name.endswith("vocab_size")}
            for path in self.module.configurations:
                path.write_text(json.dumps({**json.loads(read_text(path)), **dict.fromkeys(unset, values)}))
            self.filled |= unset
            return True
        if layout.parts:
            return False
        tensors = randomised(part, seed=1).state_dict()
        layout.parts = {name: tensor.to(self.dtype, copy=True).contiguous() for name, tensor in tensors.items()}
        self.write_denoiser()
        return True


def subfolders(source: str) -> set[str]:
    """Folders of components that a class names, as an argument, or to a method of its own that takes one."""
    methods = re.findall(r"def (\w+)\([^)]*\bsubfolder\b", source)
    named = (re.findall(rf"""\.{name}\([^()"']*["'](\w+)["']""", source) for name in methods)
    return {*_SUBFOLDER.findall(source), *(name for names in named for name in names)}


@contextlib.contextmanager
def growing(
    folder: Path, package: str, adapters: Adapters, facts: dict[str, Any], dtype: torch.dtype
) -> Iterator[Growing]:
    """Write the denoiser; inside the block, whatever else the pipeline loads is written when it is asked for.

    Args:
        folder: the checkpoint.
        package: dotted name of the package.
        adapters: its adapters.
        facts: of the ported denoiser, see ``ported_facts``.
        dtype: of all weights.
    """
    pipeline: Any = adapters.upstream
    source = inspect.getsource(importlib.import_module(pipeline.__module__))
    folder.mkdir(parents=True, exist_ok=True)
    for name in subfolders(inspect.getsource(pipeline)):
        # A pipeline may tell a layout by the folders that are there; a second denoiser is none that training has.
        if not (facts["loaded"] and name.startswith(f"{FOLDER}_")):
            (folder / name).mkdir(exist_ok=True)
    given = facts["given"]
    write_files(folder, given["files"], dtype)
    components = Components(folder, [source, *facts["tokens"]], given["components"], dtype, given["released"])
    module = DiffusersModule(facts) if facts["loaded"] else PortedModule(package, facts)
    # A subclass has the text encoder of what it inherits from.
    above = {base.__module__ for base in pipeline.__mro__[1:] if base.__module__.startswith(MODELS)}
    components.inherited = [
        inspect.getsource(importlib.import_module(name)) for name in sorted(above - {pipeline.__module__})
    ]
    components.classes = component_classes(str(facts["pipeline"])) if facts["loaded"] else {}
    area = facts.get("area")
    if area and not hasattr(importlib.import_module(pipeline.__module__), area):
        raise NoTinyModelError(f"{pipeline.__module__} has no function {area!r}: see [verify] area of scaffold.toml")
    areas = {pipeline.__module__: area} if area else {}
    made = Growing(folder, module, components, given["denoiser"], dtype, areas=areas)
    made.write_denoiser()
    if facts["own"]:
        know_configuration(pipeline, given["denoiser"])
    names = vars(importlib.import_module(pipeline.__module__))
    with components.answering(), noting(names, {}, made.asked):
        yield made
