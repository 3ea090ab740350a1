"""What the rollout makes of requests, results and LoRA updates, and what scripts and READMEs say of them."""

from mutants.edit import text
from mutants.mutant import DEPLOY, LAUNCH, ROLLOUT, mutant

_SCALING = 'peft_config["lora_alpha"] / (rank**0.5 if peft_config.get("use_rslora") else rank)'
_DECODE = "clean_up_tokenization_spaces=False"
_TARGETS = (
    '"q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen", "mlp_moe_gen.gate_proj",'
    ' "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"'
)
_RESULT = """        return rollout_output(
            media=media,
            trajectory_latents=latents,
            trajectory_timesteps=timesteps,
            trajectory_log_probs=log_probs,
            metadata=metadata,
            to_cpu=False,
        )
"""
_README = "examples/flowgrpo_trainer/bagel/README.md"

MUTANTS = [
    mutant("alpha for the scale", (18,), "322", text(ROLLOUT, _SCALING, 'float(peft_config["lora_alpha"])')),
    mutant("scale upside down", (18,), "322", text(ROLLOUT, _SCALING, 'rank / peft_config["lora_alpha"]')),
    mutant(
        "stabilised where it is not asked for",
        (18,),
        "322",
        text(ROLLOUT, "(rank**0.5 if peft_config", "(rank if peft_config"),
        text(ROLLOUT, " else rank)\n        modules", " else rank**0.5)\n        modules"),
    ),
    mutant("folded without a scale", (18,), "322", text(ROLLOUT, "addmm(up, down, alpha=scaling)", "addmm(up, down)")),
    mutant(
        "scaled once more where it is folded",
        (18,),
        "322",
        text(ROLLOUT, "addmm(up, down, alpha=scaling)", "addmm(up * scaling, down, alpha=scaling)"),
    ),
    mutant(
        "ids of the prompt under a short name",
        ("R5", 28),
        "323 305",
        text(ROLLOUT, 'prompt.get("prompt_token_ids")', 'prompt.get("prompt_ids")'),
        text(ROLLOUT, '_decode_prompt(prompt["prompt_token_ids"])', '_decode_prompt(prompt["prompt_ids"])'),
    ),
    mutant(
        "negative ids under a long name",
        ("R5", 28),
        "323",
        text(ROLLOUT, '"negative_prompt_ids"', '"negative_prompt_token_ids"', 2),
    ),
    mutant("log-probs in two words", ("R5",), "323", text(ROLLOUT, 'get("logprobs"', 'get("log_probs"')),
    mutant(
        "blanks cleaned up on the way",
        ("R5", 31),
        "312",
        text(ROLLOUT, _DECODE, "clean_up_tokenization_spaces=True"),
    ),
    mutant(
        "blanks cleaned up by a setting",
        ("R5", 31),
        "312",
        text(
            ROLLOUT,
            "        decoded = self.tokenizer.decode(",
            "        self.tokenizer.clean_up_tokenization_spaces = True\n        decoded = self.tokenizer.decode(",
        ),
        text(ROLLOUT, f", {_DECODE}", ""),
    ),
    mutant(
        "trajectory in custom_output",
        ("R6",),
        "314",
        text(
            ROLLOUT,
            _RESULT,
            "        parts = dict(all_latents=latents, all_timesteps=timesteps, all_log_probs=log_probs)\n"
            "        return DiffusionOutput(output=media, custom_output=parts)\n",
        ),
    ),
    mutant(
        "trajectory put on the pipeline's result",
        ("R6",),
        "314",
        text(
            ROLLOUT,
            _RESULT,
            '        output.custom_output = {"all_latents": latents, "all_timesteps": timesteps}\n'
            '        output.custom_output["all_log_probs"] = log_probs\n'
            "        return output\n",
        ),
    ),
    mutant(
        "adapters on the text's pathway",
        ("W3", 18),
        "507",
        text(
            LAUNCH, _TARGETS, '"q_proj", "k_proj", "v_proj", "o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"'
        ),
    ),
    mutant(
        "one adapter on the text's pathway", ("W3", 18), "507", text(LAUNCH, '"v_proj_moe_gen"', '"self_attn.v_proj"')
    ),
    mutant(
        "old name of the script in the README",
        ("W3",),
        "521 510",
        text(
            _README,
            "bash examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh",
            "bash examples/flowgrpo_trainer/bagel/run_bagel_lora.sh",
        ),
    ),
    mutant(
        "old name of a file in the deploy configuration",
        ("W4",),
        "521",
        text(DEPLOY, "pipeline: ", "# Used by examples/flowgrpo_trainer/bagel/run_bagel_full.sh\npipeline: "),
    ),
]
