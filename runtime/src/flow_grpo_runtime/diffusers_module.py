"""A denoiser that diffusers loads: trained as it is, and followed by the engine's own copy of it.

Nothing of the class is known here. Training loads it as VeRL-Omni does by default; the engine's own loader takes the
names that diffusers gives parameters, since checkpoints have them.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch.backends import cuda as attention

from .checkpoint import DenoiserSource, parameters_on_meta
from .engine_weights import local_checkpoint, sent_name
from .export import Piece
from .fused import plain_name
from .layers import ExactArguments, computed_in, exact_tables, name_parameters, unwrapped
from .lora_updates import LoraFold
from .model import CallPlan
from .replay import DenoiserCalls, each_alone
from .rollout import RecordedRollout
from .training import RecordedTraining

FOLDER = "transformer"  # of the denoiser, where an adapter names no other


class DiffusersTraining(RecordedTraining):
    """Recomputes log-probs with the module that VeRL-Omni loads through ``diffusers.AutoModel``.

    Attributes:
        component: of the diffusers pipeline that the module is.
    """

    component = FOLDER

    @classmethod
    def build_module(cls, model_config: Any, torch_dtype: torch.dtype) -> Any:
        """Leave loading to VeRL-Omni.

        Raises:
            NotImplementedError: LoRA is asked for, and cannot reach the rollout.
            RuntimeError: the installed peft is too new for LoRA.
        """
        cls.require_lora(model_config)
        path, beside = (getattr(model_config, name, None) or "" for name in ("local_path", "config_path"))
        name_layers(beside or os.path.join(path, getattr(model_config, "transformer_subfolder", FOLDER)))
        return None

    @classmethod
    def adopt(cls, module: torch.nn.Module) -> None:
        """Make ``forward`` accept recorded calls, and keep what the rollout keeps exact.

        FSDP2 would round the arguments of layers, VeRL-Omni's loading rounds the tables of positions that the class
        has computed, and FSDP1 leaves layers no parameter that they could ask for its dtype.

        cuDNN's attention is switched off in this process: torch keeps a plan of its backward pass by the shapes and
        strides of queries, keys and values, and takes any gradient to lie as that of the first call did, where one
        kind of blocks may hand back a slice and another a whole one.
        """
        attention.enable_cudnn_sdp(False)
        take_calls(module, cls.common.CALLS)
        ExactArguments.of(module, getattr(module, "_no_split_modules", None) or ())
        exact_tables(module, _built_again)
        name_parameters(module)

    @classmethod
    def released_pieces(cls, model_path: str) -> dict[tuple[str, str], list[Piece]]:
        """Each tensor of a release is one parameter, by its own name; as :meth:`ReleasedModule.released_pieces`."""
        return {
            (os.path.join(cls.component, file), key): [Piece(key)]
            for key, file in _files_of(model_path, cls.component).items()
        }

    @classmethod
    def unplaced_parameters(cls, model_path: str, names: Collection[str]) -> set[str]:
        """Those of a module's parameters that a release has no tensor for."""
        return set(names) - _files_of(model_path, cls.component).keys()


def name_layers(folder: str) -> None:
    """Let VeRL-Omni shard a class layer by layer that says which it repeats, and not which FSDP may wrap.

    Without ``_no_split_modules`` FSDP2 fails there, and FSDP1 gathers the module as a whole.

    Args:
        folder: of a denoiser's configuration, which names the class of diffusers.
    """
    path = os.path.join(folder, "config.json")
    if not os.path.isfile(path):
        return  # whoever loads it says so
    with open(path, encoding="utf-8") as file:
        name = str(json.load(file).get("_class_name"))
    kind = getattr(importlib.import_module("diffusers"), name, None)
    repeated = getattr(kind, "_repeated_blocks", None)
    if kind is not None and repeated and not getattr(kind, "_no_split_modules", None):
        kind._no_split_modules = list(repeated)


def _built_again(module: torch.nn.Module) -> torch.nn.Module:
    """A module of the same class and configuration, its parameters without memory."""
    kind: Any = next(kind for kind in type(module).__mro__ if "__init__" in vars(kind))  # FSDP2 makes one without
    with parameters_on_meta(), torch.random.fork_rng(devices=[]):
        built: torch.nn.Module = kind.from_config(module.config)
    return built


def take_calls(module: torch.nn.Module, plan: CallPlan | None = None) -> None:
    """Let a module take recorded calls in place of arguments, which mixed precision would cast one by one.

    Args:
        module: of diffusers, perhaps sharded.
        plan: says which arguments of the engine's class diffusers' does without or calls otherwise.
    """
    inner: Any = unwrapped(module)  # a stand-in of a test may be no module
    if isinstance(inner, torch.nn.Module) and "forward" not in vars(inner):
        vars(inner)["_plan"] = plan or CallPlan()
        vars(inner)["forward"] = types.MethodType(_forward, inner)


def _forward(self: Any, *args: Any, calls: DenoiserCalls | None = None, **inputs: Any) -> Any:
    own = type(self).forward
    if calls is None:
        return own(self, *args, **inputs)
    accepted = inspect.signature(own).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())

    plan: CallPlan = self._plan

    def predict(**given: Any) -> Any:
        arguments = {plan.renamed.get(name, name): value for name, value in given.items()}
        unknown = [] if open_ended else [name for name in arguments if name not in accepted]
        needed = [name for name in unknown if arguments[name] is not None and not _spared(plan, name, arguments[name])]
        if needed:
            at = f" other than {plan.fixed[needed[0]]!r}" if needed[0] in plan.fixed else ""
            raise TypeError(
                f"the engine gives {needed[0]!r}, which {type(self).__name__} of the installed diffusers does not"
                f" take{at}: name it in CallPlan(left_out=…) if the prediction does not hang on it"
            )
        return own(self, **{name: value for name, value in arguments.items() if name not in unknown})

    return (calls.evaluate(predict, computed_in(self)),)


def _spared(plan: CallPlan, name: str, value: Any) -> bool:
    """Whether the prediction is the same without an argument."""
    return name in plan.left_out or (name in plan.fixed and bool(value == plan.fixed[name]))


@dataclass(frozen=True)
class DiffusersSource(DenoiserSource):
    """Where the weights of a denoiser lie; diffusers builds it.

    Attributes:
        folder: below the checkpoint.
        alone: the engine calls the denoiser for each sample of a batch alone, see :func:`each_alone`.
        clears: method of the engine's denoiser that drops what it kept of earlier calls, made before each one; for a
            class that knows an argument by its place in memory, where another may lie later, or by weights since gone.
    """

    build: Callable[[Any], Any] | None = None
    folder: str = FOLDER
    alone: bool = False
    clears: str = ""

    def weights(self, model_path: str) -> dict[str, torch.Tensor]:
        """Tensors of the checkpoint by diffusers' names, mapped from its files.

        Raises:
            FileNotFoundError: there are none.
        """
        files = _files_of(model_path, self.folder)
        weights: dict[str, torch.Tensor] = {}
        for name in sorted(set(files.values())):
            with safe_open(os.path.join(model_path, self.folder, name), framework="pt", device="cpu") as tensors:
                weights |= {key: tensors.get_tensor(key) for key in tensors.keys()}
        return weights


def _files_of(model_path: str, folder: str) -> dict[str, str]:
    """Which file of a component holds each tensor.

    Raises:
        FileNotFoundError: there are none.
        ValueError: two files hold one tensor.
    """
    place = os.path.join(model_path, folder)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    indexes = [name for name in names if name.endswith(".safetensors.index.json")]
    files = [name for name in names if name.endswith(".safetensors")]
    if indexes:
        # The shortest name is that of the weights without a variant, which diffusers loads.
        with open(os.path.join(place, min(indexes, key=len)), encoding="utf-8") as file:
            files = sorted({os.path.basename(name) for name in json.load(file)["weight_map"].values()})
    if not files:
        raise FileNotFoundError(f"{place} has no *.safetensors")
    found: dict[str, str] = {}
    for name in files:
        with safe_open(os.path.join(place, name), framework="pt", device="cpu") as tensors:
            twice = next((key for key in tensors.keys() if key in found), None)
            if twice is not None:
                raise ValueError(f"{place}: {found[twice]} and {name} both hold {twice}: leave one variant there")
            found |= dict.fromkeys(tensors.keys(), name)
    return found


class OwnLoader:
    """The engine's loader of a denoiser, which takes names of diffusers and fuses layers by itself.

    Args:
        denoiser: the engine's module.
    """

    def __init__(self, denoiser: Any) -> None:
        self.denoiser = denoiser
        # The adapter manager may have put layers around those that the loader knows.
        self.parameters = {plain_name(name): value for name, value in denoiser.named_parameters()}
        self.buffers = {plain_name(name): value for name, value in denoiser.named_buffers()}

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, set[str]]]:
        """Load one tensor after the other, under the name that the actor sends it by or diffusers'.

        Yields:
            Its name, and those of the engine's parameters that took it.

        Raises:
            KeyError: the loader leaves a tensor out.
        """
        own = vars(self.denoiser)
        own["named_parameters"] = lambda *args, **kwargs: iter(self.parameters.items())
        own["named_buffers"] = lambda *args, **kwargs: iter(self.buffers.items())
        try:
            for sent, tensor in weights:
                name = sent_name(sent)
                with torch.no_grad():
                    taken = set(self.denoiser.load_weights([(name, tensor)]) or ())
                if not taken:
                    raise KeyError(f"the engine's {type(self.denoiser).__name__} has no place for {name!r}")
                yield name, taken
        finally:
            del own["named_parameters"], own["named_buffers"]


def fold_by_loader(
    denoiser: torch.nn.Module, fold: LoraFold, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]
) -> None:
    """Give the weights of a denoiser with a loader of its own an update of the actor's.

    Raises:
        ValueError: as :meth:`LoraFold.folded`.
        KeyError: the loader leaves a weight out.
    """
    like = next(parameter for parameter in denoiser.parameters() if parameter.is_floating_point())
    for _ in OwnLoader(denoiser).load(fold.folded(tensors, peft_config, lambda name: (like.device, like.dtype))):
        pass


class DiffusersRollout(RecordedRollout):
    """Goes before a pipeline of vllm-omni whose denoiser training has from diffusers."""

    def _watch(self) -> None:
        source: Any = self.rollout_plan.source
        if source.alone and not self._watched:
            vars(self._engine_denoiser)["forward"] = each_alone(self._engine_denoiser.forward)
        if source.clears and not self._watched:
            clear = getattr(self._engine_denoiser, source.clears)
            self._engine_denoiser.register_forward_pre_hook(lambda module, args: clear())
        super()._watch()

    def fill_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Put the actor's weights into the denoiser, through its own loader.

        Returns:
            Names of the denoiser's parameters that were filled.

        Raises:
            KeyError: the loader leaves a tensor out.
        """
        if self.rollout_plan.folds_lora:
            weights = self._lora_fold.noting(weights)
        filled: set[str] = set()
        for _, taken in OwnLoader(self._engine_denoiser).load(weights):
            filled |= taken
        return filled

    def _mapped_checkpoint(self) -> dict[str, torch.Tensor]:
        source: Any = self.rollout_plan.source
        weights: dict[str, torch.Tensor] = source.weights(local_checkpoint(self.od_config.model))
        return weights

    def fold_lora(self, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]) -> None:
        """Fold the actor's update into the denoiser's weights, through its own loader."""
        fold_by_loader(self._engine_denoiser, self._lora_fold, tensors, peft_config)
