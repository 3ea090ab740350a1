"""The training module of a pipeline's denoiser."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from peft import LoraConfig
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

from .checkpoint import Checkpoint, DenoiserSource, pieces_of, read_checkpoint, write_weights
from .export import Piece
from .layers import CheckpointedLayer, ExactArguments, WideInputs, WideParameters
from .lora_files import LoraFiles
from .replay import DenoiserCalls
from .saved_config import config_values, refuse_sharded, saved_config
from .upstream_layers import Linear, LoraOfPair


class TrainedDenoiser(LoraFiles):
    """Goes before a denoiser's class and ``NonDiffusersModelBase``: a velocity predictor for FlowGRPO training.

    The names of its parameters are those of the denoiser, with layers apart that the rollout engine fuses.

    Attributes:
        _common: what rollout and training share.
        _source: where the pipeline gets its denoiser from.
        _state: what a call leaves behind for the next one: class, attribute, and what that was before the first call.
            Calls of training belong to many trajectories.
        _tables_of: makes, of the denoiser, what the pipeline computes of its configuration and gives to every call.
        _checkpointed: class of inner modules that compute layers again in the backward pass.
        _checkpointed_layers: names of layers' classes that are computed again, of an imported denoiser.
        checkpointed_layers: how many of these layers are, from the first on; None for all.
    """

    _common: ClassVar[Any]
    _source: ClassVar[DenoiserSource]
    _state: ClassVar[tuple[tuple[type, str, Any], ...]] = ()
    _tables_of: ClassVar[Callable[[Any], dict[str, Any]] | None] = None
    _checkpointed: ClassVar[type | None] = None
    _checkpointed_layers: ClassVar[tuple[str, ...]] = ()
    checkpointed_layers: int | None = None

    # How to write the weights back under the checkpoint's names; `from_pretrained` sets it.
    _checkpoint: Checkpoint | None = None

    @property
    def config(self: Any) -> Any:
        """The denoiser's configuration, which the trainer saves with every checkpoint."""
        return self.__dict__["config"] if "config" in self.__dict__ else super().config  # type: ignore[misc]

    @config.setter
    def config(self, value: Any) -> None:
        self.__dict__["config"] = value

    # The pipeline's own may keep some parameters in float32, but FSDP1 shards a layer whose parameters have one dtype.
    to = torch.nn.Module.to

    @classmethod
    def from_pretrained(cls, model_path: str, torch_dtype: torch.dtype = torch.bfloat16, **kwargs: Any) -> Any:
        """Load a checkpoint without allocating it twice.

        The pipeline's own code builds the denoiser, its parameters on the meta device, and says where the weights
        belong; the memory-mapped tensors become the parameters. Only a change of dtype copies.

        Args:
            model_path: the checkpoint's folder, or its one file.
            torch_dtype: dtype of the parameters.
            kwargs: not used.

        Raises:
            FileNotFoundError, KeyError, ValueError: the checkpoint does not fit; the message names the tensors.
        """
        module: Any
        module, sources, config = cls._source.built(model_path, torch_dtype)
        kept = WideParameters.kept(module)
        module.__class__ = cls  # the same module: this class adds what training needs, and no state
        WideParameters.of(module, kept)
        CheckpointedLayer.of(module, cls._checkpointed_layers)
        ExactArguments.of(module, module._no_split_modules)
        WideInputs.of(module)
        checkpoint = read_checkpoint(module, model_path, sources, cls._source, config)
        for name, buffer in module.named_buffers():
            checkpoint.state.setdefault(name, buffer)  # the checkpoint may leave out what the module computes
        checkpoint.tie(module)
        module.load_state_dict({name: checkpoint.state[name] for name in module.state_dict()}, assign=True)
        checkpoint.state, checkpoint.loading = {}, (None, "", "")
        module._checkpoint = checkpoint
        own = getattr(module, "config", None)
        place = os.path.dirname(next((path for path, _ in checkpoint.keys.values()), ""))
        module.config = saved_config(own, config_values(cls, own, checkpoint.texts, place), checkpoint.texts)
        present = {type(layer).__name__ for layer in module.modules()}
        # Some configurations leave a part out, and not every release of verl wraps with a name that no layer has.
        module._no_split_modules = [name for name in module._no_split_modules if name in present]
        for parameter in module.parameters():
            parameter.data = parameter.data.to(torch_dtype)
        return module

    @classmethod
    def released_pieces(cls, model_path: str) -> dict[tuple[str, str], list[Piece]]:
        """Which parameters, and which of their rows, each tensor of a release is made of, by its file and key."""
        return pieces_of(cls._mapped(model_path)[1])

    @classmethod
    def unplaced_parameters(cls, model_path: str, names: Collection[str]) -> set[str]:
        """Those of a module's parameters that a release has in another form, so that none of its tensors takes them."""
        module, checkpoint = cls._mapped(model_path)
        shared: dict[int, set[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            shared.setdefault(id(parameter), set()).add(name)  # one parameter under several names has one place
        placed = checkpoint.keys.keys() | checkpoint.cut.keys()
        return {name for group in shared.values() if not group & placed for name in group} & set(names)

    @classmethod
    def _mapped(cls, model_path: str) -> tuple[Any, Checkpoint]:
        module, sources, config = cls._source.built(model_path, torch.float32)
        return module, read_checkpoint(module, model_path, sources, cls._source, config)

    def forward(self: Any, calls: DenoiserCalls | None = None, **inputs: Any) -> tuple[torch.Tensor]:
        """Predict what the denoiser returns.

        Args:
            calls: one call for each sample, as ``prepare_model_inputs`` of the training adapter returns them.
            inputs: or the arguments of one call of the denoiser.

        Returns:
            ``(prediction,)`` in the shape of the latents.
        """
        if calls is not None:
            return (calls.evaluate(self._predict, next(self.parameters()).dtype, self._constant_tables()),)
        output, key = self._predict(**inputs), self._common.CALLS.output
        if key is not None:
            output = output[key]
        output = output[0] if isinstance(output, tuple) else getattr(output, "sample", output)
        if not isinstance(output, torch.Tensor):
            kind = type(output).__name__
            raise TypeError(f"{type(self).__name__} returned a {kind}, of which the latents' part is not known")
        return (output,)

    def _predict(self: Any, **inputs: Any) -> Any:
        """Call the denoiser from its initial state, and drop its caches after the backward pass."""
        self._forget()
        method = self._common.CALLS.method
        output = super().forward(**inputs) if method == "forward" else getattr(super(), method)(**inputs)  # type: ignore[misc]
        if self._state:
            self._forget_behind(output)
        return output

    def _forget(self: Any) -> None:
        for module in self.modules() if self._state else ():
            for owner, name, first in self._state:
                if isinstance(module, owner):
                    setattr(module, name, first)

    def _forget_behind(self: Any, output: Any) -> None:
        """Drop the caches of a call after its backward pass, which may recompute layers."""
        output = getattr(output, "sample", output)
        tensors = output if isinstance(output, tuple | list) else (output,)
        graded: Any = next((v for v in tensors if isinstance(v, torch.Tensor) and v.requires_grad), None)
        if graded is None:
            self._forget()
        else:
            engine = torch.autograd.Variable._execution_engine
            graded.register_hook(lambda gradient: engine.queue_callback(self._forget))

    def _constant_tables(self) -> dict[str, Any] | None:
        make = type(self)._tables_of
        if make is None:
            return None
        if "_tables" not in self.__dict__:
            with torch.inference_mode(False):  # what is kept of it serves the backward pass, too
                self.__dict__["_tables"] = make(self)
        tables: dict[str, Any] = self.__dict__["_tables"]
        return tables

    def _apply(self: Any, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Keep complex tables (of rotary positions) complex: a cast to a real dtype would lose half of them."""
        tables = [
            (module, name, buffer)
            for module in self.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.is_complex() and not buffer.is_meta
        ]
        super()._apply(fn, recurse)  # type: ignore[misc]
        for module, name, table in tables:
            module._buffers[name] = table.to(module._buffers[name].device)
        return self

    def add_adapter(self: Any, adapter_config: Any, adapter_name: str = "default") -> None:
        """Add LoRA, on layers of wide inputs, too, and on those that return a pair."""
        if isinstance(adapter_config, LoraConfig):
            # PEFT's way to bring one's own layer for a module type; private by name, kept out of the saved config.
            adapter_config._register_custom_module({Linear: LoraOfPair})
        super().add_adapter(adapter_config, adapter_name)  # type: ignore[misc]
        WideInputs.of(self)

    def enable_gradient_checkpointing(self: Any, gradient_checkpointing_func: Callable[..., Any] | None = None) -> None:
        """Recompute layers in the backward pass, those of submodules included."""
        # A class of diffusers' below this one has a way of its own, which takes other functions.
        NonDiffusersModelBase.enable_gradient_checkpointing(self, gradient_checkpointing_func)
        inner = [module for module in self.modules() if self._checkpointed and isinstance(module, self._checkpointed)]
        layers = [module for module in self.modules() if isinstance(module, CheckpointedLayer)]
        for module in (*inner, *layers[: self.checkpointed_layers]):
            if module is not self:
                module.gradient_checkpointing = True
                module._gradient_checkpointing_func = self._gradient_checkpointing_func

    def save_pretrained(self: Any, save_directory: str, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration and weights as the checkpoint has them: its files, its keys.

        Adapters are not part of it: the base weights are saved, as they are without any adapter, and a warning says so.

        Raises:
            ValueError: something else than safetensors is asked for, the module was not loaded from a checkpoint, or
                it is sharded.
        """
        if not safe_serialization:
            raise ValueError(f"{type(self).__name__} saves safetensors only")
        refuse_sharded(self)
        self._warn_of_adapters()
        if self._checkpoint is None:
            raise ValueError(f"{type(self).__name__} saves what from_pretrained has loaded")
        self._save_config(save_directory)
        parameters = {name for name, _ in self.named_parameters()}
        base = (
            (name.replace(".base_layer.", "."), tensor)
            for name, tensor in self.state_dict().items()
            if ".lora_" not in name and (name in parameters or name in self._checkpoint.keys)
        )
        write_weights(save_directory, base, self._checkpoint)

    def _save_config(self, save_directory: str) -> None:
        """Write the checkpoint's configuration files as they were read."""
        for path, text in self._checkpoint.texts.items() if self._checkpoint is not None else ():
            target = os.path.join(save_directory, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
