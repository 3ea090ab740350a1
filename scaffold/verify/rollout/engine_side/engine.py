"""vllm-omni's diffusion worker in this process, with the package's rollout adapter as its pipeline."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import torch

from scaffold.attributes import with_attribute
from scaffold.verify.rollout.engine_side import recorder
from scaffold.verify.rollout.engine_side.sample import media
from scaffold.verify.rollout.engine_side.sources import Adapters
from scaffold.verify.rollout.engine_side.stage_inputs import StageInputs
from scaffold.verify.rollout.engine_side.trajectory import Trajectory, read_trajectory
from scaffold.verify.rollout.engine_side.transport import KitTransport, LibraryTransport, Tensors


def draw_once(autoencoder: Any) -> None:
    """Let ``decode`` of an autoencoder decode one image of each shape, and return copies of it afterwards.

    Training has no autoencoder, so its recomputation cannot depend on an image's content.

    Args:
        autoencoder: a module; its method takes latents of any shape and returns a picture, in whatever holds it.
    """
    original = autoencoder.decode
    drawn: dict[object, Any] = {}

    @functools.wraps(original)
    def decode(latents: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = (latents.shape, latents.dtype, repr((args, kwargs)))
        if asked not in drawn:
            with torch.no_grad():  # what has a gradient cannot be copied
                drawn[asked] = original(latents, *args, **kwargs)
        return copy.deepcopy(drawn[asked])

    autoencoder.decode = decode


TINY = 5_000_000  # parameters
TRIALS = 5  # attempts to load a checkpoint that is adjusted on errors
FROM_FILE = 77  # number of an adapter that is loaded from a folder
# What the engine's entry points tell every pipeline beside its own settings, where a user says nothing else.
EXTRAS = {"auxiliary_text_encoder": None, "default_llama_model_id": "meta-llama/Meta-Llama-3.1-8B-Instruct"}
WORKER = "vllm_omni.diffusion.worker.diffusion_worker"


class Engine:
    """One worker on one CPU.

    Args:
        registered: the pipeline's key in the engine's registry; with it the engine also reads the checkpoint's
            configuration files and prepares each request, as its entry points do.
        fit: changes a checkpoint of which the pipeline cannot be built, and says whether it did.
        own_settings: the model's own with which the package's scripts start the engine.
        wide: whether the autoencoder computes in float32 also where it is small: a pipeline that decodes in another
            half precision than its weights' needs kernels for both at once, which CPUs lack.
    """

    def __init__(
        self,
        adapters: Adapters,
        checkpoint: str,
        dtype: torch.dtype,
        transport: KitTransport | LibraryTransport,
        registered: str | None = None,
        fit: Callable[[Exception], bool] | None = None,
        own_settings: dict[str, Any] | None = None,
        wide: bool = False,
    ) -> None:
        data: Any = importlib.import_module("vllm_omni.diffusion.data")
        self.transport = transport
        known = {entry.name for entry in dataclasses.fields(data.OmniDiffusionConfig)}
        self.config = data.OmniDiffusionConfig.from_kwargs(
            model=checkpoint,
            model_class_name=registered or adapters.upstream.__name__,
            dtype=dtype,
            enforce_eager=True,
            num_gpus=1,
            master_port=_free_port(),
            **({"additional_config": own_settings} if own_settings else {}),
            **({"extras": dict(EXTRAS)} if "extras" in known else {}),
        )
        self.media: tuple[str, ...] = ()
        self.negative: list[int] | None = None  # ids of the negative prompt of later requests
        self._negative: list[int] | None = None  # of all, in its place
        self.picture = 1  # height of a request's image over the requested height
        self.bring: Callable[[dict[str, Any], tuple[int, int]], dict[str, Any]] | None = None
        self._folder = Path(checkpoint) if Path(checkpoint).is_dir() else Path(checkpoint).parent
        self.stage_inputs: StageInputs | None = None
        self.prepare: Any = None
        self._registered = registered
        self._fit, self._wide = fit, wide
        worker_class: Any = transport.worker_class()
        with contextlib.ExitStack() as stack:
            # Disable changes meant for a separate worker process: some releases rename it and prefix its output.
            for name in ("decorate_logs", "set_process_title"):
                stack.enter_context(with_attribute(importlib.import_module(WORKER), name, _nothing, create=True))
            if isinstance(transport, LibraryTransport):
                stack.enter_context(
                    with_attribute(importlib.import_module(transport.UTILS), "set_death_signal", _nothing)
                )
            self.worker = worker_class(local_rank=0, rank=0, od_config=self.config, skip_load_model=True)
        self._path = adapters.rollout_path
        self.load()
        if registered is not None:
            registry: Any = importlib.import_module("vllm_omni.diffusion.registry")
            self.prepare = registry.get_diffusion_pre_process_func(self.config)

    def load(self) -> None:
        """Build the pipeline and load its checkpoint, again if it was loaded before."""
        # When loading again, the worker frees accelerator memory, which does not exist here.
        with with_attribute(torch.accelerator, "empty_cache", _nothing, create=True):
            for trial in range(TRIALS):
                if self._registered is not None:
                    self.config.enrich_config()
                compiled = getattr(getattr(self.worker, "vllm_config", None), "compilation_config", None)
                if compiled is not None:
                    compiled.static_forward_context.clear()  # layers that an earlier trial registered
                try:
                    self.worker.re_init_pipeline({"pipeline_class": self._path})
                    break
                except Exception as error:
                    if self._fit is None or trial + 1 == TRIALS or not self._fit(error):
                        raise
        dtype, autoencoder = self.config.dtype, getattr(self.pipeline, "vae", None)
        if isinstance(autoencoder, torch.nn.Module):
            released = sum(parameter.numel() for parameter in autoencoder.parameters()) > TINY
            # Convolutions in half precision take minutes on a CPU. A tiny one stays: some pipelines take its dtype.
            if dtype != torch.float32 and (self._wide or released):
                autoencoder.float()
            if released and hasattr(autoencoder, "decode"):
                draw_once(autoencoder)

    @property
    def pipeline(self) -> Any:
        """The rollout adapter."""
        return self.worker.model_runner.pipeline

    def without_media(self) -> contextlib.AbstractContextManager[Any]:
        """Inside the block requests have no media."""
        return with_attribute(self, "media", ())

    def negative_prompt(self, ids: list[int]) -> contextlib.AbstractContextManager[Any]:
        """Inside the block every request has this negative prompt."""
        return with_attribute(self, "_negative", ids)

    def picture_of(self, times: int) -> contextlib.AbstractContextManager[Any]:
        """Inside the block a request's image has this multiple of the requested height."""
        return with_attribute(self, "picture", times)

    def brought_by(
        self, bring: Callable[[dict[str, Any], tuple[int, int]], dict[str, Any]]
    ) -> contextlib.AbstractContextManager[Any]:
        """Inside the block ``bring`` makes a request's media from files and the requested width and height."""
        return with_attribute(self, "bring", bring)

    def generate(
        self, request_ids: list[int], sampling: dict[str, Any], token_ids: list[int], lora: bool = False
    ) -> Trajectory:
        """Run one training request.

        Args:
            request_ids: ids that the agent loop sends.
            sampling: flat settings; what the sampling type does not declare goes to its ``extra_args``.
            token_ids: ids that the data set gives to training.
            lora: whether the request names the adapter.
        """
        with recorder.steps() as taken, recorder.shifts() as shifts:
            output = self.answer(request_ids, sampling, lora)
        found = read_trajectory(output, token_ids)
        steps = [
            recorder.step_of(taken, float(t), sample) for t, sample in zip(found.timesteps, found.latents, strict=False)
        ]
        found.velocities = [None if step is None else step.velocity for step in steps]
        found.sigmas = [None if step is None else step.sigma for step in steps]
        found.means = [None if step is None else step.mean for step in steps]
        found.walked = len(taken)
        found.shift = shifts[-1] if shifts else None
        return found

    def answer(
        self, request_ids: list[int], sampling: dict[str, Any], lora: bool = False, *, text: str | None = None
    ) -> Any:
        """Run one request and return the engine's output unchanged; ``text`` is sent in place of ids."""
        return self.worker.execute_model(self._request(request_ids, sampling, lora, text), self.config)

    @property
    def batches(self) -> bool:
        """Whether the engine would hand several requests to the adapter at once."""
        return bool(getattr(type(self.pipeline), "supports_request_batch", False))

    def together(self, asked: Sequence[tuple[list[int], dict[str, Any]]], lora: bool = False) -> list[Any]:
        """Run requests in one batch, as the engine's scheduler hands them on; the outputs in order."""
        interface: Any = importlib.import_module("vllm_omni.diffusion.sched.interface")
        requests = [self._request(ids, sampling, lora) for ids, sampling in asked]
        new = [interface.NewRequestData(request_id=request.request_id, req=request) for request in requests]
        found = self.worker.execute_model_batch(SimpleNamespace(scheduled_new_reqs=new), self.config)
        results = {output.request_id: output.result for output in found.runner_outputs}
        return [results[request.request_id] for request in requests]

    def _request(
        self, request_ids: list[int], sampling: dict[str, Any], lora: bool = False, text: str | None = None
    ) -> Any:
        inputs: Any = importlib.import_module("vllm_omni.inputs.data")
        requests: Any = importlib.import_module("vllm_omni.diffusion.request")
        params_class = inputs.OmniDiffusionSamplingParams
        if self.stage_inputs is not None:
            sampling = {**sampling, **self.stage_inputs.sampling(request_ids)}
        declared = {entry.name for entry in dataclasses.fields(params_class)}
        known = {name: value for name, value in sampling.items() if name in declared}
        # The generator of a step's noise has the name of another one that the engine declares.
        own = {name: value for name, value in sampling.items() if name not in declared or name == "generator"}
        known["extra_args"] = own
        known.pop("generator", None)
        if lora:
            known["lora_request"] = self.transport.lora_request()
        prompt: dict[str, Any] = {"prompt_token_ids": list(request_ids)}
        negative = self.negative if self._negative is None else self._negative
        if negative is not None:
            prompt["negative_prompt_ids"] = list(negative)
        if text is not None:
            prompt = {"prompt": text, "negative_prompt": ""}
        if self.media:
            height, width = sampling["height"], sampling["width"]
            brought = media(self.media, self._folder, self.picture * height, width)
            prompt["multi_modal_data"] = brought if self.bring is None else self.bring(brought, (width, height))
        # One prompt per request, or the older form with several.
        several = "prompts" in {entry.name for entry in dataclasses.fields(requests.OmniDiffusionRequest)}
        request = requests.OmniDiffusionRequest(
            **({"prompts": [prompt]} if several else {"prompt": prompt}),
            sampling_params=params_class(**known),
            request_id=uuid4().hex,
        )
        if self.prepare is not None:
            request = self.prepare(request)
        return request

    def warm_up(self, height: int, width: int, num_frames: int | None) -> Any:
        """Run the engine's warm-up request; return its output, or None.

        The engine's own code makes the request; its threads and processes are left out, and its size is a smaller one.
        """
        engines: Any = importlib.import_module("vllm_omni.diffusion.diffusion_engine")
        outputs: list[Any] = []

        def run(_: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            params = request.sampling_params
            params.height, params.width, params.num_frames = height, width, num_frames or params.num_frames
            for prompt in getattr(request, "prompts", None) or [getattr(request, "prompt", None)]:
                _resize(prompt, width, height)
            prepared = request if self.prepare is None else self.prepare(request)
            outputs.append(self.worker.execute_model(prepared, self.config))
            return outputs[-1]

        quiet = type("_Quiet", (engines.DiffusionEngine,), {"add_req_and_wait_for_response": run})
        engine: Any = object.__new__(quiet)
        engine.od_config = self.config
        engine._dummy_run()
        return outputs[0] if outputs else None

    def finished(self, output: Any) -> Any:
        """Return the output after the post-processing function that the registry names."""
        registry: Any = importlib.import_module("vllm_omni.diffusion.registry")
        function = registry.get_diffusion_post_process_func(self.config)
        return output.output if function is None else function(output.output)

    def sync(self, tensors: Tensors) -> None:
        """Send base weights as the actor does."""
        self.transport.sync(self.worker, tensors)

    def push_lora(self, tensors: Tensors, peft_config: dict[str, Any]) -> None:
        """Send an adapter as the actor does."""
        self.transport.push_lora(self.worker, tensors, peft_config)

    @contextlib.contextmanager
    def adapter_of(self, folder: str) -> Iterator[None]:
        """Inside the block requests with an adapter name the one in a folder, which the engine's manager loads."""
        manager: Any = self.worker.lora_manager
        request: Any = importlib.import_module("vllm_omni.lora.request")
        named = request.LoRARequest(lora_name="exported", lora_int_id=FROM_FILE, lora_path=folder)
        vars(manager).pop("_load_adapter", None)  # of one that was pushed
        try:
            with with_attribute(self.transport, "lora_request", lambda: named):
                yield
        finally:
            manager.set_active_adapter(None)


def _resize(prompt: Any, width: int, height: int) -> None:
    """Bring the images of a request to the size that it asks for, as those of the engine's own request have it."""
    of_prompt: dict[str, Any] = (prompt.get("multi_modal_data") if isinstance(prompt, dict) else None) or {}
    brought = of_prompt.get("image")
    if brought is not None:
        several = brought if isinstance(brought, list) else [brought]
        resized = [one.resize((width, height)) if hasattr(one, "resize") else one for one in several]
        of_prompt["image"] = resized if isinstance(brought, list) else resized[0]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _nothing(*_: Any, **__: Any) -> None:
    """A no-op for functions that need a separate process or an accelerator."""
