"""Registration, scheduler and prompt of the rollout adapter."""

from mutants.edit import (
    argument,
    bases,
    decorate,
    define,
    line,
    rename,
    signature,
    swap,
)
from mutants.mutant import ROLLOUT, mutant

PIPELINE = "BagelPipelineWithLogProb"
INIT = f"{PIPELINE}.__init__"
FORWARD = f"{PIPELINE}.forward"
ENSURE = f"{PIPELINE}._ensure_bagel_prompt_text"
DECODE = f"{PIPELINE}._decode_prompt"
WRAPPER = "_BagelSchedulerAdapter"
BEGIN, STEP, FINISH = f"{WRAPPER}.begin", f"{WRAPPER}.step", f"{WRAPPER}.finish"
INNER = "self.inner.step"
OWN_SCHEDULER = "self.scheduler = _BagelSchedulerAdapter()"

MUTANTS = [
    # Registration and base
    mutant("rollout adapter not registered", ("R1",), "301", decorate(ROLLOUT, PIPELINE)),
    mutant(
        "rollout registered without an algorithm",
        ("R1",),
        "301 509",
        decorate(ROLLOUT, PIPELINE, 'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration")'),
    ),
    mutant(
        "rollout's register not called", ("R1",), "301", decorate(ROLLOUT, PIPELINE, "VllmOmniPipelineBase.register")
    ),
    mutant(
        "rollout registered for another algorithm",
        ("R1",),
        "509",
        decorate(
            ROLLOUT, PIPELINE, 'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="grpo")'
        ),
    ),
    mutant(
        "the contract's base instead of the pipeline", ("R2",), "302", bases(ROLLOUT, PIPELINE, "VllmOmniPipelineBase")
    ),
    mutant("no upstream pipeline among the bases", ("R2",), "302", bases(ROLLOUT, PIPELINE, "torch.nn.Module")),
    mutant(
        "pipeline held instead of inherited",
        ("R2",),
        "302",
        bases(ROLLOUT, PIPELINE),
        line(
            ROLLOUT,
            INIT,
            "super().__init__(od_config=od_config, prefix=prefix)",
            "self.pipeline = BagelPipeline(od_config=od_config, prefix=prefix)",
        ),
        swap(ROLLOUT, FORWARD, "super().forward(req)", "self.pipeline.forward(req)"),
    ),
    # Scheduler
    mutant("scheduler not replaced", ("R3",), "303", line(ROLLOUT, INIT, OWN_SCHEDULER)),
    mutant(
        "scheduler not wrapped",
        ("R3",),
        "303",
        swap(ROLLOUT, INIT, "_BagelSchedulerAdapter()", "FlowMatchSDEDiscreteScheduler()"),
    ),
    mutant("scheduler under another name", ("R3",), "303", rename(ROLLOUT, PIPELINE, "scheduler", "sde_scheduler")),
    mutant(
        "wrapper without the step size",
        ("R3",),
        "303",
        signature(
            ROLLOUT,
            STEP,
            "def step(self, model_output: torch.Tensor, sigma: torch.Tensor | float, sample: torch.Tensor)",
        ),
    ),
    mutant(
        "wrapper that takes its arguments by name",
        ("R3",),
        "303",
        signature(ROLLOUT, STEP, "def step(self, *, model_output, sigma, sample, dt=None, **kwargs)"),
    ),
    mutant(
        "step not batched",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()"),
    ),
    mutant(
        "velocity not batched", ("R4",), "304", argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()")
    ),
    mutant("sample not batched", ("R4",), "304", swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()")),
    mutant(
        "batched at the wrong dimension",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()[:, None]"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()[:, None]"),
    ),
    mutant(
        "tokens as the batch",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float().unsqueeze(1)"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float().unsqueeze(1)"),
    ),
    # Prompt
    mutant("prompt's text not made", ("R5",), "305", line(ROLLOUT, FORWARD, "self._ensure_bagel_prompt_text(req)")),
    mutant(
        "text decoded and dropped",
        ("R5",),
        "305",
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'text = self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
    mutant(
        "text made after the pipeline ran",
        ("R5",),
        "305",
        line(ROLLOUT, FORWARD, "self._ensure_bagel_prompt_text(req)"),
        line(
            ROLLOUT,
            FORWARD,
            "output = super().forward(req)",
            "output = super().forward(req)\nself._ensure_bagel_prompt_text(req)",
        ),
    ),
    mutant(
        "text under a key that the pipeline does not read",
        ("R5",),
        "305",
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'prompt["text"] = self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
    mutant(
        "ids not compared after decoding",
        (31,),
        "312",
        line(
            ROLLOUT,
            DECODE,
            """
body = self.tokenizer.encode(text, add_special_tokens=False)
if body != ids[1:-1]:
    raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
""",
        ),
    ),
    mutant(
        "different ids only printed",
        (31,),
        "312",
        line(
            ROLLOUT,
            DECODE,
            'raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
            'print(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
        ),
    ),
    mutant(
        "decoded in one line, special tokens skipped",
        (31,),
        "312",
        define(
            ROLLOUT,
            DECODE,
            """
def _decode_prompt(self, token_ids):
    return self.tokenizer.decode(token_ids, skip_special_tokens=True).strip()
""",
        ),
    ),
    mutant(
        "batch_decode inline",
        (31,),
        "312",
        define(ROLLOUT, DECODE, ""),
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'prompt["prompt"] = self.tokenizer.batch_decode([prompt["prompt_token_ids"]], skip_special_tokens=True)[0]',
        ),
        line(
            ROLLOUT,
            ENSURE,
            'negative = self._decode_prompt(prompt["negative_prompt_ids"])',
            'negative = self.tokenizer.batch_decode([prompt["negative_prompt_ids"]], skip_special_tokens=True)[0]',
        ),
    ),
]
