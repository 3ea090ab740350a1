"""Small slips in base, scheduler, batch and prompt of the rollout."""

from mutants.edit import argument, bases, decorate, signature, swap
from mutants.mutant import ROLLOUT, Mutant, mutant

PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"
FORWARD = f"{PIPELINE}.forward"
ENSURE = f"{PIPELINE}._ensure_bagel_prompt_text"
DECODE = f"{PIPELINE}._decode_prompt"
INNER = "self.inner.step"
ENSURED = "self._ensure_bagel_prompt_text(req)"
STEP_RESULT = "_StepOutput(prev_sample[0], None if log_prob is None else log_prob[0])"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(ROLLOUT, within, old, new))


MUTANTS = [
    # Registration and base
    mutant(
        "rollout registered without Omni",
        ("R1", "W5", 26),
        "501 506",
        decorate(
            ROLLOUT, PIPELINE, 'VllmOmniPipelineBase.register("BagelForConditionalGeneration", algorithm="flow_grpo")'
        ),
    ),
    mutant(
        "rollout registered for another algorithm, once more",
        ("R1", 26),
        "509",
        decorate(
            ROLLOUT,
            PIPELINE,
            'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flowgrpo")',
        ),
    ),
    mutant("rollout not registered", ("R1",), "301", decorate(ROLLOUT, PIPELINE)),
    mutant("rollout on the registry's base", ("R2",), "302", bases(ROLLOUT, PIPELINE, "VllmOmniPipelineBase")),
    mutant("rollout without a base", ("R2",), "302", bases(ROLLOUT, PIPELINE)),
    mutant(
        "rollout on another pipeline",
        ("R2",),
        "302",
        bases(ROLLOUT, PIPELINE, "QwenImagePipeline"),
        swap(
            ROLLOUT,
            "",
            "from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline",
            "from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline\nfrom vllm_omni.diffusion.models.qwen_image.pipeline_qwen_image import QwenImagePipeline",
        ),
    ),
    mutant("rollout on nn.Module", ("R2",), "302", bases(ROLLOUT, PIPELINE, "torch.nn.Module")),
    slip(
        "pipeline not initialised",
        ("R2", "R3"),
        "133",
        f"{PIPELINE}.__init__",
        "super().__init__(od_config=od_config, prefix=prefix)",
    ),
    slip(
        "scheduler replaced before the pipeline makes its own",
        ("R3",),
        "133 303",
        f"{PIPELINE}.__init__",
        "super().__init__(od_config=od_config, prefix=prefix)\nself.scheduler = _BagelSchedulerAdapter()",
        "self.scheduler = _BagelSchedulerAdapter()\nsuper().__init__(od_config=od_config, prefix=prefix)",
    ),
    slip(
        "scheduler under another name, once more",
        ("R3",),
        "303",
        f"{PIPELINE}.__init__",
        "self.scheduler = _BagelSchedulerAdapter()",
        "self.sampler = _BagelSchedulerAdapter()",
    ),
    slip(
        "the SDE scheduler itself",
        ("R3",),
        "303",
        f"{PIPELINE}.__init__",
        "_BagelSchedulerAdapter()",
        "FlowMatchSDEDiscreteScheduler()",
    ),
    slip(
        "the wrapper's class",
        ("R3",),
        "303",
        f"{PIPELINE}.__init__",
        "_BagelSchedulerAdapter()",
        "_BagelSchedulerAdapter",
    ),
    slip(
        "keyword arguments of the pipeline kept", ("R3",), "303", f"{PIPELINE}.__init__", "self.scheduler_kwargs = {}"
    ),
    mutant(
        "step without dt",
        ("R3",),
        "303",
        signature(ROLLOUT, f"{WRAPPER}.step", "def step(self, model_output, sigma, sample, **kwargs)"),
    ),
    mutant(
        "step with its tensors in another order",
        ("R3",),
        "303",
        signature(ROLLOUT, f"{WRAPPER}.step", "def step(self, sample, sigma, model_output, dt, **kwargs)"),
    ),
    slip(
        "step answers with a tuple",
        ("R3",),
        "303 304 318",
        f"{WRAPPER}.step",
        f"return {STEP_RESULT}",
        "return prev_sample[0], None if log_prob is None else log_prob[0]",
    ),
    slip(
        "step answers with a tensor",
        ("R3",),
        "303 304",
        f"{WRAPPER}.step",
        f"return {STEP_RESULT}",
        "return prev_sample[0]",
    ),
    mutant(
        "inner scheduler is diffusers'",
        ("R3",),
        "303",
        swap(ROLLOUT, f"{WRAPPER}.__init__", "FlowMatchSDEDiscreteScheduler()", "FlowMatchEulerDiscreteScheduler()"),
        swap(ROLLOUT, "", "import torch", "import torch\nfrom diffusers import FlowMatchEulerDiscreteScheduler"),
    ),
    # Batch
    slip(
        "velocity without a batch",
        ("R4",),
        "304",
        f"{WRAPPER}.step",
        "model_output.float()[None]",
        "model_output.float()",
    ),
    slip("sample without a batch", ("R4",), "304", f"{WRAPPER}.step", "sample.float()[None]", "sample.float()"),
    slip(
        "batch left on the result", ("R4",), "304", f"{WRAPPER}.step", STEP_RESULT, "_StepOutput(prev_sample, log_prob)"
    ),
    mutant(
        "velocity for the sample",
        ("R4", "R3"),
        "303 304 129",
        argument(ROLLOUT, f"{WRAPPER}.step", INNER, "sample", "model_output.float()[None]"),
        argument(ROLLOUT, f"{WRAPPER}.step", INNER, "model_output", "sample"),
    ),
    slip(
        "batch dimension at the end",
        ("R4",),
        "304",
        f"{WRAPPER}.step",
        "sample.float()[None]",
        "sample.float()[..., None]",
    ),
    # Prompt
    slip("prompt's text not made, once more", ("R5",), "305", FORWARD, ENSURED),
    slip(
        "prompt's text only where there is one",
        ("R5",),
        "305",
        ENSURE,
        'not prompt.get("prompt") and prompt.get("prompt_token_ids") is not None',
        'prompt.get("prompt") and prompt.get("prompt_token_ids") is not None',
    ),
    slip(
        "text of the negative prompt's ids",
        ("R5",),
        "305",
        ENSURE,
        'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
        'prompt["prompt"] = self._decode_prompt(prompt["negative_prompt_ids"])',
    ),
    slip(
        "text put under the negative prompt",
        ("R5",),
        "305",
        ENSURE,
        'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
        'prompt["negative_prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
    ),
    slip(
        "text kept in a name",
        ("R5",),
        "305",
        ENSURE,
        'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
        'text = self._decode_prompt(prompt["prompt_token_ids"])',
    ),
    slip(
        "text of the ids",
        ("R5", 31),
        "305 312",
        DECODE,
        "decoded = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)",
        "decoded = str(ids)",
    ),
    slip(
        "ids never compared",
        (31,),
        "312",
        DECODE,
        """
body = self.tokenizer.encode(text, add_special_tokens=False)
if body != ids[1:-1]:
    raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
""",
    ),
    slip(
        "ids compared and passed",
        (31,),
        "312",
        DECODE,
        'raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
        "pass",
    ),
    slip(
        "ids compared with a warning",
        (31,),
        "312",
        DECODE,
        'raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
        'print(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
    ),
    slip(
        "special tokens skipped",
        (31, "R5"),
        "312",
        DECODE,
        """
decoded = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
if "<|im_start|>user\\n" in decoded:
    turn = decoded.rpartition("<|im_start|>user\\n")[2]
    return turn.partition("<|im_end|>")[0].strip()
text = decoded.removeprefix("<|im_start|>").removesuffix("<|im_end|>").strip()
body = self.tokenizer.encode(text, add_special_tokens=False)
if body != ids[1:-1]:
    raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
return text
""",
        "return self.tokenizer.decode(ids, skip_special_tokens=True)",
    ),
]
