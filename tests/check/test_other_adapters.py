"""Rollout adapters of other builds: step by step, a loop of their own in `diffuse`, a module without a pipeline.

Each is sound, and nothing is found in it; with one mistake put in, that one is.
"""

from __future__ import annotations

import pytest

from scaffold.check.example import FILES, base_tree, check_files

HEAD = '''"""Rollout side."""

from __future__ import annotations

import torch
from vllm_omni.diffusion.models.toy.pipeline_toy import ToyPipeline

from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.model_base import VllmOmniPipelineBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .common import CFG_DEFAULTS, INCLUDE_LOGPROB_NORMALIZER, pick_sde_window, resolve_guidance, setup_toy_sigmas
from .toy_model import to_checkpoint_key


def guide(extra_args):
    extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))


def window_of(extra_args, count):
    if not float(extra_args.get("noise_level", 0.0)):
        return 0, 0
    step = extra_args.get("global_steps")
    size, span = extra_args.get("sde_window_size"), extra_args.get("sde_window_range")
    return pick_sde_window(size, span, step) or (0, count)


class Hooks:
    def load_weights(self, weights) -> set[str]:
        return super().load_weights(self._renamed(weights))

    @staticmethod
    def _renamed(weights):
        for name, tensor in weights:
            if name.startswith("transformer."):
                name = to_checkpoint_key(name.removeprefix("transformer."))
            yield name, tensor

    def map_lora_update_to_engine(self, tensors, peft_config):
        return {to_checkpoint_key(n.removeprefix("transformer.")): t for n, t in tensors.items()}, peft_config

    def _words(self, ids) -> str:
        decoded = self.tokenizer.decode(ids, skip_special_tokens=False)
        if self.tokenizer.encode(decoded, add_special_tokens=False) != list(ids):
            raise ValueError(f"{decoded!r} is not encoded to the ids that it was decoded from")
        return decoded


'''
REGISTERED = '@VllmOmniPipelineBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")\n'
STEPS = f"""{HEAD}{REGISTERED}class ToyPipelineWithLogProb(Hooks, ToyPipeline):
    def __init__(self, *, od_config, prefix: str = ""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = FlowMatchSDEDiscreteScheduler()

    def prepare_encode(self, state, **kwargs):
        prompt, asked = state.prompts[0], state.sampling.extra_args
        if not prompt.get("prompt"):
            prompt["prompt"] = self._words(prompt["prompt_token_ids"])
        guide(asked)
        state = super().prepare_encode(state, **kwargs)
        state.count = len(setup_toy_sigmas(state.scheduler, state.total_steps))
        state.window = window_of(asked, state.count)
        state.noise_level, state.sde_type = float(asked.get("noise_level", 0.0)), asked.get("sde_type", "sde")
        state.log_probs_asked = bool(asked.get("logprobs", True))
        state.kept, state.scored = [], []
        return state

    def step_scheduler(self, state, noise_pred, **kwargs):
        begin, end = state.window
        inside = begin <= state.step_index < end
        before = state.latents.float()
        after, log_prob, _, _ = state.scheduler.step(
            noise_pred.float()[None],
            state.scheduler.timesteps[state.step_index],
            before[None],
            noise_level=state.noise_level if inside else 0.0,
            sde_type=state.sde_type,
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
            return_logprobs=state.log_probs_asked and inside,
            return_dict=False,
        )
        if inside:
            state.kept += [before, after[0]] if not state.kept else [after[0]]
            state.scored.append(log_prob)
        state.latents = after[0]
        state.step_index += 1

    def post_decode(self, state, **kwargs):
        output = super().post_decode(state, **kwargs)
        if not state.kept:
            return output
        begin, end = state.window
        return rollout_output(
            media=output.output,
            trajectory_latents=torch.stack(state.kept)[None],
            trajectory_timesteps=state.scheduler.timesteps[begin:end][None],
            trajectory_log_probs=torch.stack(state.scored, dim=1),
        )

    def forward(self, req):
        return super().forward(req)
"""
LOOP = """        scheduler, asked = FlowMatchSDEDiscreteScheduler(), self._asked
        count = len(setup_toy_sigmas(scheduler, steps))
        begin, end = window_of(asked, count)
        kept, scored = [latents.float()] if begin == 0 else [], []
        for i, t in enumerate(scheduler.timesteps):
            inside = begin <= i < end
            latents, log_prob, _, _ = scheduler.step(
                self._guided(latents, t, embeds).float(),
                t,
                latents.float(),
                noise_level=float(asked.get("noise_level", 0.0)) if inside else 0.0,
                sde_type=asked.get("sde_type", "sde"),
                include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
                return_logprobs=bool(asked.get("logprobs", True)) and inside,
                return_dict=False,
            )
            if inside or i + 1 == begin:
                kept.append(latents)
            if inside:
                scored.append(log_prob)
        self._seen = kept, scored, scheduler.timesteps[begin:end]
        return latents
"""
RESULT = """        kept, scored, timesteps = self._seen
        return rollout_output(
            media=media,
            trajectory_latents=torch.stack(kept, dim=1),
            trajectory_timesteps=timesteps[None],
            trajectory_log_probs=torch.stack(scored, dim=1) if scored else None,
        )
"""
DIFFUSE = f"""{HEAD}{REGISTERED}class ToyPipelineWithLogProb(Hooks, ToyPipeline):
    def diffuse(self, latents, embeds, steps):
{LOOP}
    def _guided(self, latents, t, embeds):
        return self.predict(latents, t, embeds, self._asked["cfg_text_scale"])

    def forward(self, req):
        prompt = req.prompts[0]
        prompt.setdefault("prompt", self._words(prompt["prompt_token_ids"]))
        self._asked = req.sampling_params.extra_args
        guide(self._asked)
        media = super().forward(req).output
{RESULT}"""
MODULE = f"""{HEAD}from vllm_omni.diffusion.models.toy.toy_transformer import ToyTransformer


{REGISTERED}class ToyPipelineWithLogProb(Hooks, torch.nn.Module, VllmOmniPipelineBase):
    def __init__(self, *, od_config, prefix: str = ""):
        super().__init__()
        self.transformer = ToyTransformer(od_config)

    def sample(self, latents, embeds, steps):
{LOOP}
    def _guided(self, latents, t, embeds):
        with_prompt, without = self.transformer(latents, t, embeds), self.transformer(latents, t, None)
        return without + self._asked["cfg_text_scale"] * (with_prompt - without)

    def forward(self, req):
        params, ids = req.sampling_params, req.prompts[0]["prompt_token_ids"]
        self._asked = params.extra_args
        guide(self._asked)
        noise = torch.randn(1, 16, 8, generator=torch.Generator().manual_seed(params.seed))
        media = self.sample(noise, self.transformer.embed(ids), params.num_inference_steps)
{RESULT}"""
OTHERS = {"step by step": STEPS, "a loop in diffuse": DIFFUSE, "a module of its own": MODULE}
OF_PROMPT = """        prompt = req.prompts[0]
        prompt.setdefault("prompt", self._words(prompt["prompt_token_ids"]))
"""
OF_STEP = '    step = extra_args.get("global_steps")\n'
MISTAKES = (
    *((name, OF_STEP, OF_STEP.replace('"global_steps"', '"seed"'), "OSC308") for name in OTHERS),
    ("step by step", "            trajectory_log_probs=torch.stack(state.scored, dim=1),\n", "", "OSC314"),
    ("a loop in diffuse", "            trajectory_latents=torch.stack(kept, dim=1),\n", "", "OSC314"),
    ("a module of its own", "            trajectory_timesteps=timesteps[None],\n", "", "OSC314"),
    ("a loop in diffuse", OF_PROMPT, "", "OSC305"),
    ("a loop in diffuse", "Hooks, ToyPipeline", "Hooks", "OSC302"),
    (
        "step by step",
        'to_checkpoint_key(n.removeprefix("transformer.")): t for n, t in tensors.items()}, peft_config',
        "n: t for n, t in tensors.items()}, peft_config",
        "OSC318",
    ),
    ("a module of its own", 'algorithm="flow_grpo"', 'algorithm="grpo"', "OSC501"),
)


def found(adapter: str) -> list[str]:
    files = {**base_tree("non_diffusers"), FILES["rollout"]: adapter}
    compile(adapter, "adapter.py", "exec")
    return [f"{hit.rule} {hit.message}" for hit in check_files(files)]


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_found_in_a_sound_one(name: str) -> None:
    assert found(OTHERS[name]) == []


@pytest.mark.parametrize(("name", "old", "new", "rule"), MISTAKES)
def test_a_mistake_in_it_is_found(name: str, old: str, new: str, rule: str) -> None:
    assert OTHERS[name].count(old) == 1
    assert [line[:6] for line in found(OTHERS[name].replace(old, new))] == [rule]
