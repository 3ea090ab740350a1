"""Small slips in options, noise and weights of the rollout."""

from mutants.edit import argument, rename, swap
from mutants.mutant import ROLLOUT, Mutant, mutant

PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"
FORWARD = f"{PIPELINE}.forward"
LORA = f"{PIPELINE}.map_lora_update_to_engine"
INNER = "self.inner.step"
RUN = "output = super().forward(req)"
GUIDED = "extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(ROLLOUT, within, old, new))


MUTANTS = [
    # Options and noise
    slip(
        "noise level of the rollout as a number",
        (7,),
        "211",
        FORWARD,
        'float(extra_args.get("noise_level", 0.0))',
        "0.7",
    ),
    slip("noise level under another key", (7,), "211", FORWARD, '"noise_level"', '"eta"'),
    slip("SDE type as a word", (7,), "211", FORWARD, 'str(extra_args.get("sde_type", "sde"))', '"sde"'),
    mutant(
        "normaliser of the rollout turned",
        (7,),
        "210",
        argument(ROLLOUT, f"{WRAPPER}.step", INNER, "include_logprob_normalizer", "not INCLUDE_LOGPROB_NORMALIZER"),
    ),
    slip(
        "the request's own generator for the noise",
        (16,),
        "311",
        FORWARD,
        'extra_args.get("generator")',
        "params.generator",
    ),
    slip(
        "noise of a constant seed",
        (16,),
        "311",
        FORWARD,
        'extra_args.get("generator")',
        "torch.Generator().manual_seed(42)",
    ),
    slip("seeded before the run", (17,), "310", FORWARD, RUN, f"torch.manual_seed(params.seed)\n{RUN}"),
    slip("Python's generator seeded", (17,), "310", FORWARD, RUN, f"import random\nrandom.seed(params.seed)\n{RUN}"),
    slip(
        "everything seeded",
        (17,),
        "310",
        FORWARD,
        RUN,
        f"from transformers import set_seed\nset_seed(params.seed)\n{RUN}",
    ),
    slip("sample in bf16", (13,), "315", f"{WRAPPER}.step", "sample.float()[None]", "sample.bfloat16()[None]"),
    slip("velocity not promoted", (13,), "315", f"{WRAPPER}.step", "model_output.float()[None]", "model_output[None]"),
    slip(
        "trajectory in half precision",
        (13,),
        "315",
        f"{WRAPPER}.finish",
        "torch.stack(self._latents, dim=1).cpu()",
        "torch.stack(self._latents, dim=1).half().cpu()",
    ),
    slip(
        "recorded in bf16",
        (13,),
        "315",
        f"{WRAPPER}.step",
        "self._latents.append(prev_sample)",
        "self._latents.append(prev_sample.to(torch.bfloat16))",
    ),
    slip("guidance's defaults not filled in", (29,), "316", FORWARD, GUIDED),
    slip(
        "guidance resolved and dropped",
        (29,),
        "316",
        FORWARD,
        GUIDED,
        "resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})",
    ),
    slip(
        "guidance put elsewhere",
        (29,),
        "316",
        FORWARD,
        GUIDED,
        "guidance = resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})",
    ),
    slip("guidance of the wrong names", (29,), "316 205", FORWARD, GUIDED, 'extra_args.update({"cfg_scale": 4.0})'),
    # Weights
    slip(
        "nothing returned by load_weights",
        (24,),
        "313",
        f"{PIPELINE}.load_weights",
        "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
        "super().load_weights(self._checkpoint_names(self._summed(weights)))",
    ),
    slip(
        "empty set returned",
        (24,),
        "313",
        f"{PIPELINE}.load_weights",
        "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
        "super().load_weights(self._checkpoint_names(self._summed(weights)))\nreturn set()",
    ),
    slip(
        "names of all parameters returned",
        (24,),
        "313",
        f"{PIPELINE}.load_weights",
        "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
        "super().load_weights(self._checkpoint_names(self._summed(weights)))\nreturn {name for name, _ in self.named_parameters()}",
    ),
    slip(
        "load errors swallowed",
        (24,),
        "313",
        f"{PIPELINE}.load_weights",
        "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
        "try:\n    return super().load_weights(self._checkpoint_names(self._summed(weights)))\nexcept KeyError:\n    return None",
    ),
    slip(
        "weights under the actor's names",
        (18, 21),
        "318 409 313",
        f"{PIPELINE}._checkpoint_names",
        'if name.startswith("transformer."):\n    name = to_checkpoint_key(_training_name(name))',
    ),
    mutant(
        "renamed the wrong way",
        (21, 18),
        "409",
        swap(
            ROLLOUT,
            f"{PIPELINE}._checkpoint_names",
            "to_checkpoint_key(_training_name(name))",
            "to_training_key(_training_name(name))",
        ),
        swap(
            ROLLOUT,
            "",
            "from .bagel_model import IGNORED_KEYS, open_checkpoint, to_checkpoint_key",
            "from .bagel_model import IGNORED_KEYS, open_checkpoint, to_checkpoint_key, to_training_key",
        ),
    ),
    slip(
        "renamed twice",
        (21,),
        "406 409",
        f"{PIPELINE}._checkpoint_names",
        "to_checkpoint_key(_training_name(name))",
        "to_checkpoint_key(to_checkpoint_key(_training_name(name)))",
    ),
    slip(
        "weights of another prefix renamed",
        (18, 21),
        "409",
        f"{PIPELINE}._checkpoint_names",
        'name.startswith("transformer.")',
        'name.startswith("model.")',
    ),
    mutant(
        "LoRA hook misspelt",
        (18,),
        "318",
        rename(ROLLOUT, PIPELINE, "map_lora_update_to_engine", "map_lora_updates_to_engine"),
    ),
    slip(
        "LoRA folded and not loaded",
        (18,),
        "318",
        LORA,
        'if modules and not super().load_weights(self._checkpoint_names(folded())):\n    raise ValueError(f"the engine took none of the {len(modules)} weights that LoRA was folded into")',
    ),
    slip(
        "LoRA without its scaling",
        (18, 19),
        "134",
        LORA,
        "weight.float().addmm(up, down, alpha=scaling)",
        "weight.float().addmm(up, down)",
    ),
    slip(
        "LoRA's matrices exchanged",
        (18, 19),
        "318",
        LORA,
        "weight.float().addmm(up, down, alpha=scaling)",
        "weight.float().addmm(down, up, alpha=scaling)",
    ),
    slip(
        "LoRA's hook answers with what it got", (18,), "318", LORA, "return placeholder", "return tensors, peft_config"
    ),
]
