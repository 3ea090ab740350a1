"""The rollout adapter around a small pipeline: requests, weights, LoRA, and loops in other places."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from flow_grpo_runtime import results
from flow_grpo_runtime.calls import COLUMN
from flow_grpo_runtime.checkpoint import DenoiserSource
from flow_grpo_runtime.diffusers_module import DiffusersRollout, DiffusersSource
from flow_grpo_runtime.guidance import settings_of
from flow_grpo_runtime.lora_updates import add_spare_linear
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.recording import SchedulerInPlace, UpdateInPlace
from flow_grpo_runtime.records import read_record
from flow_grpo_runtime.rollout import (
    FollowedScheduler,
    LoopOfFile,
    LoopOfModule,
    RecordedRollout,
    RolloutPlan,
)
from flow_grpo_runtime.stepped import SteppedRollout, returned

LEVELS = [1.0, 0.7, 0.3, 0.0]


class LinearBase(nn.Linear):
    """The engine's layer."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size, bias=False)
        self.input_size = self.output_size = size


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = LinearBase(4)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return self.out(x) + text


@dataclass(frozen=True)
class Output:
    """The engine's."""

    output: Any
    custom_output: dict[str, Any] | None = None


class Euler:
    def __init__(self, levels: list[float] = LEVELS) -> None:
        self.levels, self.begin_index = levels, 0

    def set_begin_index(self, index: int) -> None:
        self.begin_index = index

    def step(self, velocity: torch.Tensor, _: Any, x: torch.Tensor, return_dict: bool = True) -> tuple[torch.Tensor]:
        return (x + (self.levels[self.begin_index + 1] - self.levels[self.begin_index]) * velocity,)


class Pipeline(nn.Module):
    """Guides with the negative text where the scale is above 1."""

    def __init__(self, *, od_config: Any) -> None:
        super().__init__()
        self.transformer = Denoiser()
        self.weights_sources = ("transformer",)
        self.scheduler: Any = Euler()
        self.asked: dict[str, Any] = {}

    def load_weights(self, weights: Any) -> set[str]:
        return {name for name, tensor in weights if self.get_parameter(name).data.copy_(tensor) is not None}

    def predict(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        made = self.transformer(x, torch.ones(4))
        other = self.transformer(x, torch.zeros(4)) if scale > 1.0 else made
        return other + scale * (made - other)

    def forward(self, req: Any) -> Any:
        params = req.sampling_params
        self.asked = {**params.extra_args, "output_type": params.output_type, "seed": params.seed}
        x = torch.ones(1, 2, 4)
        if params.num_inference_steps == 1:
            self.scheduler = Euler([1.0, 0.0])
        for level in LEVELS[: params.num_inference_steps]:
            x = self.scheduler.step(self.predict(x, params.guidance_scale), level, x)[0]
        return Output({"payload": {"image": x}, "metadata": {"size": 4}}, {"own": 1})


COMMON: Any = SimpleNamespace(
    CFG_DEFAULTS={"guidance_scale": 3.0},
    CFG_OTHER_NAMES={"guidance_scale": ("true_cfg_scale",)},
    CALLS=CallPlan(stacked=True),
    resolve_guidance=settings_of({"guidance_scale": 3.0}, {"guidance_scale": ("true_cfg_scale",)}),
)


def build(config: Any) -> tuple[nn.Module, Any]:
    return Denoiser(), [(None, "", None)]


PLAN = RolloutPlan(
    common=COMMON,
    result=results.in_custom_output,
    recorder=SchedulerInPlace,
    denoiser=Denoiser,
    source=DenoiserSource(build),
    attribute="transformer",
    default_seed=42,
    steps_in_extra_args=True,
)


def adapter(model: str = "", base: type = Pipeline, plan: RolloutPlan = PLAN) -> Any:
    names = {"rollout_plan": plan, "scheduler": FollowedScheduler()} if plan.loop is None else {"rollout_plan": plan}
    return type("Rollout", (RecordedRollout, base), names)(od_config=SimpleNamespace(model=model))


def request(*, steps: int | None = 3, **given: Any) -> Any:
    params = {"seed": None, "output_type": "image", "guidance_scale": 0.0, "guidance_scale_provided": False, **given}
    extra_args = params.pop("extra_args", {"noise_level": 0.7, "sde_window_size": 2, "logprobs": True})
    params = SimpleNamespace(num_inference_steps=steps, extra_args=extra_args, **params)
    return SimpleNamespace(prompts=[{"prompt": "a cat"}], sampling_params=params, request_id="one")


def recorded(carried: dict[str, Any]) -> Any:
    return read_record(torch.frombuffer(bytearray(carried[COLUMN]), dtype=torch.uint8))


@pytest.fixture(autouse=True)
def as_the_engine_runs() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_a_request_is_sampled_and_its_window_recorded() -> None:
    rollout = adapter()
    made = rollout(request())
    carried = made.custom_output
    assert carried["own"] == 1
    assert carried["size"] == 4
    assert carried["all_latents"].shape == (1, 3, 2, 4)
    assert carried["all_log_probs"].shape == (1, 2)
    record = recorded(carried)
    assert torch.allclose(record["levels"], torch.tensor(LEVELS))
    assert record["guidance"] == {"guidance_scale": 3.0}
    assert rollout.asked["output_type"] is None
    assert rollout.asked["num_inference_steps"] == 3
    assert rollout.asked["true_cfg_scale"] == 3.0  # the pipeline may read it under another name
    assert isinstance(rollout.asked["seed"], int)
    again = rollout(request(extra_args={"noise_level": 0.7, "true_cfg_scale": 1.0}))
    assert recorded(again.custom_output)["guidance"] == {"guidance_scale": 1.0}


class Remembering(Denoiser):
    """Knows a text by its place in memory, where another may lie later, and is not told of new weights."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, torch.Tensor] = {}

    def forget(self) -> None:
        self.kept.clear()

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return self.out(x) + self.kept.setdefault(text.data_ptr(), self.out(text))


class OnePlace(Pipeline):
    """Every text lies where that of the request before lay."""

    def __init__(self, *, od_config: Any) -> None:
        super().__init__(od_config=od_config)
        self.transformer, self.text = Remembering(), torch.ones(4)

    def predict(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        made: torch.Tensor = self.transformer(x, self.text)
        return made


@pytest.mark.parametrize(("clears", "exact"), [("forget", True), ("", False)])
def test_what_a_denoiser_keeps_by_place_is_dropped_before_each_call(clears: str, exact: bool) -> None:
    plan = replace(PLAN, denoiser=Remembering, source=DiffusersSource(clears=clears))
    names = {"rollout_plan": plan, "scheduler": FollowedScheduler()}
    rollout: Any = type("Rollout", (DiffusersRollout, OnePlace), names)(od_config=SimpleNamespace(model=""))

    def velocity() -> torch.Tensor:
        rollout(request(steps=1, seed=3, extra_args={}))
        made: torch.Tensor = rollout.predict(torch.ones(1, 2, 4), 1.0)
        return made

    def own() -> torch.Tensor:
        out = rollout.transformer.out
        made: torch.Tensor = out(torch.ones(1, 2, 4)) + out(rollout.text)
        return made

    assert torch.equal(velocity(), own())
    rollout.text.data.mul_(-2.0)  # the next request's
    assert torch.equal(velocity(), own()) == exact
    rollout.transformer.out.weight.mul_(3.0)  # the actor's weights
    assert torch.equal(velocity(), own()) == exact


def test_validation_and_warm_up_record_nothing() -> None:
    for asked in (request(extra_args=None), request(steps=1, extra_args={})):
        made = adapter()(asked)
        assert COLUMN not in made.custom_output
        assert made.custom_output["all_latents"] is None
        assert made.output.shape == (1, 2, 4)


class Drawing(Pipeline):
    """Draws with torch's own generator, as an autoencoder does that samples what it makes of a reference."""

    def forward(self, req: Any) -> Any:
        made = super().forward(req)
        made.output["payload"]["image"] = made.output["payload"]["image"] + torch.randn(1, 2, 4)
        return made


def test_what_a_pipeline_draws_besides_follows_the_seed_and_leaves_other_numbers_alone() -> None:
    rollout = adapter(base=Drawing)
    torch.manual_seed(5)
    undisturbed = torch.randn(3)
    torch.manual_seed(5)
    first, second, other = (rollout(request(seed=seed)).output for seed in (11, 11, 12))
    assert torch.equal(torch.randn(3), undisturbed)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    unseeded = [rollout(request()).output for _ in range(2)]
    assert not torch.equal(*unseeded)


def test_a_request_that_does_not_say_its_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="a rollout request needs num_inference_steps"):
        adapter()(request(steps=None))


def test_an_error_in_the_pipeline_leaves_nothing_recorded() -> None:
    class Failing(Pipeline):
        def predict(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            super().predict(x, scale)
            raise OSError("the device is gone")

    rollout = adapter(base=Failing)
    with pytest.raises(OSError, match="the device is gone"):
        rollout(request())
    assert torch._C._len_torch_function_stack() == 0
    assert rollout.sde_scheduler.calls.finish({}) is None


def test_two_denoisers_are_refused() -> None:
    class Two(Pipeline):
        def __init__(self, *, od_config: Any) -> None:
            super().__init__(od_config=od_config)
            self.second = Denoiser()

    with pytest.raises(RuntimeError, match="holds 2 modules Denoiser, training has one"):
        adapter(base=Two)(request())


@pytest.fixture
def checkpoint(tmp_path: Path) -> dict[str, torch.Tensor]:
    weights = {"out.weight": torch.randn(4, 4)}
    save_file(weights, tmp_path / "model.safetensors")
    return weights


def test_the_checkpoints_weights_come_first_and_then_the_actors(
    checkpoint: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    rollout = adapter(str(tmp_path))
    assert rollout.load_weights((f"transformer.{n}", t) for n, t in checkpoint.items()) == {"transformer.out.weight"}
    pushed = [("transformer.out.weight", checkpoint["out.weight"].clone())]
    assert rollout.load_weights(iter(pushed)) == {"transformer.out.weight"}
    update = {f"transformer.out.lora_{side}.weight": torch.randn(*s) for side, s in (("A", (2, 4)), ("B", (4, 2)))}
    left, config = rollout.map_lora_update_to_engine(update, {"r": 2, "lora_alpha": 4})
    up, down = update["transformer.out.lora_B.weight"], update["transformer.out.lora_A.weight"]
    assert torch.allclose(rollout.transformer.out.weight, checkpoint["out.weight"] + 2 * up @ down, atol=1e-6)
    assert config["target_modules"] == ["lora_spare.linear"]
    assert all(not tensor.any() for tensor in left.values())
    assert rollout._lora_components == ["lora_spare"]


def test_a_pipeline_without_the_engines_layers_gets_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class ReplicatedLinear(LinearBase):
        def __init__(self, width: int, height: int, *, bias: bool, params_dtype: torch.dtype) -> None:
            super().__init__(width)
            self.to(params_dtype)

    module = ModuleType("vllm.model_executor.layers.linear")
    vars(module)["ReplicatedLinear"] = ReplicatedLinear
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Plain(Pipeline):
        def __init__(self, *, od_config: Any) -> None:
            super().__init__(od_config=od_config)
            self.transformer.out = nn.Linear(4, 4, bias=False)  # type: ignore[assignment]

    rollout = adapter(base=Plain, plan=RolloutPlan(**{**vars(PLAN), "spare_at_start": True}))
    assert [name for name, _ in rollout.named_parameters()] == ["transformer.out.weight"]
    assert rollout.lora_spare["linear"].weight.shape == (8, 8)
    before = rollout.lora_spare
    add_spare_linear(rollout)
    assert rollout.lora_spare is before


def stepped(self: Any, req: Any, scheduler: Any) -> Any:
    """The loop of a pipeline that updates latents by itself, with the step in it."""
    x = torch.ones(1, 2, 4)
    for level, following in pairwise(LEVELS):
        made = self.predict(x, req.sampling_params.guidance_scale)
        x = scheduler.update(lambda a, v, change=following - level: a + change * v, x, made)
    return Output({"video": x})


def in_forward(self: Any, req: Any) -> Any:
    return stepped(self, req, self.sde_scheduler)


class Loop(nn.Module):
    """A module inside of a pipeline whose method is the loop."""

    def run(self, pipeline: Any, req: Any) -> Any:
        raise AssertionError("the copy takes its place")


def in_module(self: Any, pipeline: Any, req: Any) -> Any:
    return stepped(pipeline, req, self.sde_scheduler)


in_module.__name__ = "run"
FILE = SimpleNamespace(run=lambda pipeline, req: pytest.fail("the copy takes its place"))


class ByModule(Pipeline):
    def __init__(self, *, od_config: Any) -> None:
        super().__init__(od_config=od_config)
        self.holder = SimpleNamespace(loop=Loop())

    def forward(self, req: Any) -> Any:
        return self.holder.loop.run(self, req)


class ByFile(Pipeline):
    def forward(self, req: Any) -> Any:
        return FILE.run(self, req)


def in_file(pipeline: Any, req: Any, *, sde_scheduler: Any) -> Any:
    return stepped(pipeline, req, sde_scheduler)


@pytest.mark.parametrize(
    ("base", "loop"),
    [(Pipeline, in_forward), (ByModule, LoopOfModule(Loop, in_module)), (ByFile, LoopOfFile(FILE, "run", in_file))],
    ids=["forward", "module", "file"],
)
def test_a_loop_is_replaced_where_it_stands(base: type, loop: Any) -> None:
    plan = RolloutPlan(**{**vars(PLAN), "recorder": UpdateInPlace, "loop": loop, "media_key": "video"})
    own = FILE.run
    rollout = adapter(base=base, plan=plan)
    for _ in range(2):
        carried = rollout(request()).custom_output
        assert carried["all_latents"].shape == (1, 3, 2, 4)
    assert FILE.run is own


def test_a_loop_that_is_not_alone_is_refused() -> None:
    class Two(ByModule):
        def __init__(self, *, od_config: Any) -> None:
            super().__init__(od_config=od_config)
            self.second = Loop()

    plan = RolloutPlan(**{**vars(PLAN), "recorder": UpdateInPlace, "loop": LoopOfModule(Loop, in_module)})
    with pytest.raises(RuntimeError, match="holds 2 modules Loop, of which one with its own loop is known"):
        adapter(base=Two, plan=plan)(request())


def test_a_checkpoint_of_one_file_is_found_in_its_folder(checkpoint: Any, tmp_path: Path) -> None:
    plan = RolloutPlan(**{**vars(PLAN), "source": DenoiserSource(build, file=True)})
    assert adapter(str(tmp_path), plan=plan).od_config.model == str(tmp_path / "model.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "second.safetensors")
    with pytest.raises(FileNotFoundError, match=r"or have one \*.safetensors; it has 2"):
        adapter(str(tmp_path), plan=plan)


@pytest.mark.parametrize(
    ("output", "key"),
    [({"payload": {"audio": 1}}, "audio"), ({"other": 1}, "image"), ({"a": 0, "image": 1}, "image"), (1, "image")],
)
def test_media_are_found_under_any_name(output: Any, key: str) -> None:
    rollout = type("Rollout", (SteppedRollout,), {"rollout_plan": PLAN})()
    assert rollout._media(output)[:2] == (key, 1)


def test_a_video_beside_an_empty_output_is_the_result() -> None:
    beside = SimpleNamespace(video=SimpleNamespace(tensor=1))
    assert returned(SimpleNamespace(output=None, media=beside)) == {"video": 1}
    assert returned(SimpleNamespace(output=2, media=beside)) == 2
    assert returned(SimpleNamespace(output=None)) is None


def test_results_go_into_the_envelope_and_come_out_of_it() -> None:
    made = results.enveloped(
        None,
        media=torch.zeros(1),
        media_key="image",
        metadata={"size": 4},
        trajectory={"trajectory_latents": torch.ones(1)},
        columns={COLUMN: torch.ones(2)},
    )
    assert made.output["metadata"]["rl"][COLUMN].shape == (2,)
    file = SimpleNamespace(make=lambda config: lambda media: {"image": (config, media.shape)})
    results.wrap_post_processor(file, "make")
    opened: Callable[..., Any] = file.make("settings")
    assert opened(made.output)["payload"]["image"] == ("settings", torch.Size([1]))


def test_an_image_with_transparency_is_laid_over_white_in_a_rollout() -> None:
    images = pytest.importorskip("PIL.Image")
    clear, red = images.new("RGBA", (1, 1), (0, 0, 0, 0)), images.new("RGBA", (1, 1), (255, 0, 0, 255))
    file = SimpleNamespace(make=lambda config: lambda media: [clear, red])
    results.wrap_post_processor(file, "make")
    process = file.make(None)
    made = results.enveloped(None, media=torch.zeros(1), media_key="image", metadata={}, trajectory={}, columns={})
    image = process(made.output)["payload"]["image"]
    assert [(one.mode, one.getpixel((0, 0))) for one in image] == [("RGB", (255, 255, 255)), ("RGB", (255, 0, 0))]
    assert process(torch.zeros(1)) == [clear, red]


def test_a_film_is_asked_for_in_upstream_s_words_and_comes_with_its_channels_behind_the_frames() -> None:
    asked: list[Any] = []

    def processed(media: torch.Tensor, sampling_params: Any = None) -> Any:
        asked.append(sampling_params.output_type)
        return media.numpy()

    file = SimpleNamespace(make=lambda config: processed)
    results.wrap_post_processor(file, "make")
    film = torch.rand(1, 5, 4, 6, 3)
    made = results.enveloped(None, media=film, media_key="video", metadata={}, trajectory={}, columns={})
    params = SimpleNamespace(output_type="image", seed=3)
    found = file.make(None)(made.output, sampling_params=params)["payload"]["video"]
    assert (asked, params.output_type) == ([None], "image")
    assert torch.equal(found, film.permute(0, 1, 4, 2, 3))


@pytest.mark.parametrize(("made", "taken"), [((1, 3, 8, 8), (3, 8, 8)), ((5, 3, 8, 8), (5, 3, 8, 8)), ((3, 8), (3, 8))])
def test_an_image_that_no_post_processor_takes_comes_without_its_batch_of_one(
    made: tuple[int, ...], taken: tuple[int, ...]
) -> None:
    media = torch.zeros(made)
    output = results.enveloped_image(None, media=media, media_key="image", metadata={}, trajectory={}, columns={})
    assert output.output["payload"]["image"].shape == taken


def together(rollout: Any, *requests: Any) -> list[Any]:
    class Batch(SimpleNamespace):
        """The engine's: of one request it has that one's own attributes."""

        def __init__(self, requests: list[Any]) -> None:
            super().__init__(requests=requests, **(vars(requests[0]) if len(requests) == 1 else {}))

    made: list[Any] = rollout(Batch(requests=list(requests)))
    return made


class Counting(Pipeline):
    """Starts from the noise of its request's seed."""

    def __init__(self, *, od_config: Any) -> None:
        super().__init__(od_config=od_config)
        self.called: list[int] = []

        def count(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.called.append(len(args[0] if args else kwargs["x"]))

        self.transformer.register_forward_pre_hook(count, with_kwargs=True)

    def forward(self, req: Any) -> Any:
        x = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(req.sampling_params.seed))
        for level in LEVELS[: req.sampling_params.num_inference_steps]:
            x = self.scheduler.step(self.predict(x, req.sampling_params.guidance_scale), level, x)[0]
        return Output({"payload": {"image": x}, "metadata": {"size": 4}}, {"own": 1})


def seeded(seed: int, scale: float = 3.0, **given: Any) -> Any:
    extra_args = {"noise_level": 0.7, "sde_window_size": 2, "logprobs": True, "guidance_scale": scale}
    return request(seed=seed, guidance_scale=scale, guidance_scale_provided=True, extra_args=extra_args, **given)


@pytest.fixture
def counting() -> Any:
    torch.manual_seed(0)
    return adapter(base=Counting)


def test_requests_of_a_batch_share_calls_and_each_gets_what_it_gets_alone(counting: Any) -> None:
    asked = ((1, 3.0), (2, 3.0), (3, 3.0), (4, 1.0))  # the last has no second branch
    alone = [counting(seeded(*one)) for one in asked]
    counting.called.clear()
    made = together(counting, *(seeded(*one) for one in asked))
    assert counting.one_by_one == ""
    # The last has one call a step, and is one step ahead of the others for a turn.
    assert sorted(counting.called) == [1, 3, 3, 3, 3, 4, 4]
    for one, other in zip(alone, made, strict=True):
        assert torch.allclose(one.output, other.output, atol=1e-6)
        for name in ("all_latents", "all_log_probs", "all_timesteps"):
            assert torch.allclose(one.custom_output[name], other.custom_output[name], atol=1e-6)
        first, second = recorded(one.custom_output), recorded(other.custom_output)
        assert first["guidance"] == second["guidance"]
        assert torch.equal(first["levels"], second["levels"])


def test_a_bound_on_a_call_is_kept(counting: Any) -> None:
    counting.od_config.additional_config = {"images_per_pass": 2}
    together(counting, *(seeded(number, 1.0) for number in range(3)))
    assert counting.called == [2, 1, 2, 1, 2, 1]


def test_a_request_that_fails_fails_alone(counting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow_grpo_runtime.rollout.failed", lambda error: SimpleNamespace(error=str(error)))
    made = together(counting, seeded(1), seeded(2, steps=None), seeded(3))
    assert made[1].error == "a rollout request needs num_inference_steps"
    for seed, other in ((1, made[0]), (3, made[2])):
        assert torch.allclose(counting(seeded(seed)).output, other.output, atol=1e-6)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"common": SimpleNamespace(**{**vars(COMMON), "CALLS": CallPlan()})}, "has not been shown"),
        ({"attribute": "inner.transformer"}, "not an attribute"),
    ],
)
def test_where_calls_cannot_be_one_requests_are_made_one_by_one(
    plan: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow_grpo_runtime.rollout.failed", lambda error: SimpleNamespace(error=str(error)))
    rollout = adapter(base=Counting, plan=replace(PLAN, **plan))
    made = together(rollout, seeded(1), seeded(2, steps=None), seeded(3))
    assert reason in rollout.one_by_one
    assert set(rollout.called) == {1}
    assert made[1].error == "a rollout request needs num_inference_steps"
    assert torch.equal(rollout(seeded(3)).output, made[2].output)
