# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The training module of a pipeline's denoiser."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from .checkpoint import Checkpoint, DenoiserSource, read_checkpoint, write_weights
from .layers import ExactArguments, WideInputs, WideParameters
from .lora_files import LoraFiles
from .model import Common
from .replay import DenoiserCalls


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
    """

    _common: ClassVar[Any]
    _source: ClassVar[DenoiserSource]
    _state: ClassVar[tuple[tuple[type, str, Any], ...]] = ()
    _tables_of: ClassVar[Callable[[Any], dict[str, Any]] | None] = None
    _checkpointed: ClassVar[type | None] = None

    # How to write the weights back under the checkpoint's names; `from_pretrained` sets it.
    _checkpoint: Checkpoint | None = None

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
        ExactArguments.of(module, module._no_split_modules)
        WideInputs.of(module)
        checkpoint = read_checkpoint(module, model_path, sources, cls._source, config)
        for name, buffer in module.named_buffers():
            checkpoint.state.setdefault(name, buffer)  # the checkpoint may leave out what the module computes
        checkpoint.tie(module)
        module.load_state_dict({name: checkpoint.state[name] for name in module.state_dict()}, assign=True)
        checkpoint.state, checkpoint.given = {}, (None, "", "")
        module._checkpoint = checkpoint
        present = {type(layer).__name__ for layer in module.modules()}
        # Some configurations leave a part out, and not every release of verl wraps with a name that no layer has.
        module._no_split_modules = [name for name in module._no_split_modules if name in present]
        for parameter in module.parameters():
            parameter.data = parameter.data.to(torch_dtype)
        return module

    def forward(self: Any, calls: DenoiserCalls | None = None, **inputs: Any) -> tuple[torch.Tensor]:
        """Predict the velocity d x / d sigma.

        Args:
            calls: one call for each sample, as ``prepare_model_inputs`` of the training adapter returns them.
            inputs: or the arguments of one call of the denoiser.

        Returns:
            ``(velocity,)`` in the shape of the latents.
        """
        common: Common = self._common
        if calls is not None:
            dtype = next(self.parameters()).dtype
            return (common.to_velocity(calls.evaluate(self._predict, dtype, self._constant_tables())),)
        output = self._predict(**inputs)
        if common.CALLS.output is not None:
            output = output[common.CALLS.output]
        output = output[0] if isinstance(output, tuple) else getattr(output, "sample", output)
        if not isinstance(output, torch.Tensor):
            kind = type(output).__name__
            raise TypeError(f"{type(self).__name__} returned a {kind}, of which the latents' part is not known")
        return (common.to_velocity(output),)

    def _predict(self: Any, **inputs: Any) -> Any:
        """Call the denoiser as if it had never been called before, and keep nothing of it behind the backward pass."""
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
        """Forget what a call left behind once its backward pass is over, in which layers may be computed again."""
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
        found: dict[str, Any] = self.__dict__["_tables"]
        return found

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
        """Add LoRA, on layers of wide inputs, too."""
        super().add_adapter(adapter_config, adapter_name)  # type: ignore[misc]
        WideInputs.of(self)

    def enable_gradient_checkpointing(self: Any, gradient_checkpointing_func: Callable[..., Any] | None = None) -> None:
        """Compute layers again in the backward pass, those of modules inside of this one, too."""
        super().enable_gradient_checkpointing(gradient_checkpointing_func)  # type: ignore[misc]
        for module in self.modules() if self._checkpointed is not None else ():
            if isinstance(module, self._checkpointed) and module is not self:
                module.gradient_checkpointing = True
                module._gradient_checkpointing_func = self._gradient_checkpointing_func

    def save_pretrained(self: Any, save_directory: str, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration and weights as the checkpoint has them: its files, its keys.

        Adapters are not part of it: the base weights are saved, as they are without any adapter.

        Raises:
            ValueError: something else than safetensors is asked for, or the module was not loaded from a checkpoint.
        """
        if not safe_serialization:
            raise ValueError(f"{type(self).__name__} saves safetensors only")
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
