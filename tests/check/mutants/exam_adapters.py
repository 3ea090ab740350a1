"""One step further than the plain mistake: a copy, a filter, an end, an option of the neighbouring method."""

from mutants.edit import text
from mutants.mutant import DATA, ROLLOUT, TRAINING, mutant

_UPDATE = "        extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))\n"
_TIMES = "timestep_features(timesteps[:, step])"
_SAVE = ".from_list(rows).to_parquet("
_WEIGHTS = "        return super().load_weights(self._checkpoint_names(self._summed(weights)))\n"
_APPEND = "            self._latents.append(prev_sample)\n"
_BACK = "        return _StepOutput("
_RUN = "        output = super().forward(req)\n"

MUTANTS = [
    mutant("noise levels in the type of ids", (33,), "124", text(TRAINING, _TIMES, _TIMES[:-1] + ".to(ids))")),
    mutant("noise levels typed as ids", (33,), "124", text(TRAINING, _TIMES, _TIMES[:-1] + ".type_as(ids))")),
    mutant(
        "the filter asks for the end of a name",
        ("T2", 18),
        "218",
        text(TRAINING, '"moe_gen" in name', 'name.endswith("moe_gen")'),
    ),
    mutant(
        "training walks the schedule",
        ("T5",),
        "234",
        text(TRAINING, "scheduler.sample_previous_step(", "scheduler.step("),
    ),
    mutant(
        "the rollout looks a step up",
        ("R3",),
        "234",
        text(ROLLOUT, "self.inner.step(", "self.inner.sample_previous_step("),
    ),
    mutant(
        "the end marker stays",
        ("R5", 31),
        "603",
        text(ROLLOUT, '.removesuffix("<|im_end|>")', ""),
    ),
    mutant(
        "the begin marker stays",
        ("R5", 31),
        "603",
        text(ROLLOUT, '.removeprefix("<|im_start|>")', ""),
    ),
    mutant(
        "latents of all later steps",
        ("R6",),
        "321",
        text(ROLLOUT, _APPEND, ""),
        text(ROLLOUT, _BACK, "        if self._latents:\n" + _APPEND + _BACK),
    ),
    mutant(
        "latents of all steps",
        ("R6",),
        "321",
        text(ROLLOUT, _APPEND, ""),
        text(ROLLOUT, _BACK, _APPEND.replace("    self", "self", 1) + _BACK),
    ),
    mutant(
        "the names that were sent",
        (24,),
        "313",
        text(
            ROLLOUT,
            _WEIGHTS,
            "        weights = list(weights)\n"
            "        super().load_weights(self._checkpoint_names(self._summed(weights)))\n"
            "        return {name for name, _ in weights}\n",
        ),
    ),
    mutant(
        "rounded on its way back",
        (13,),
        "315",
        text(ROLLOUT, "_StepOutput(prev_sample[0]", "_StepOutput(prev_sample[0].to(model_output.dtype)"),
    ),
    mutant(
        "halved on its way back",
        (13,),
        "315",
        text(ROLLOUT, "_StepOutput(prev_sample[0]", "_StepOutput(prev_sample[0].bfloat16()"),
    ),
    mutant(
        "guidance in a new dictionary",
        (29,),
        "316",
        text(
            ROLLOUT,
            _UPDATE,
            "        guidance = resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})\n"
            "        extra_args = {**extra_args, **guidance}\n",
        ),
    ),
    mutant(
        "guidance in a copy",
        (29,),
        "316",
        text(ROLLOUT, "        extra_args = params.extra_args\n", "        extra_args = dict(params.extra_args)\n"),
    ),
    mutant(
        "the column is taken out",
        ("D2", 28),
        "207",
        text(DATA, _SAVE, '.from_list(rows).remove_columns(["prompt_token_ids"]).to_parquet('),
    ),
    mutant(
        "other columns are kept",
        ("D2", 28),
        "207",
        text(DATA, _SAVE, '.from_list(rows).select_columns(["data_source", "prompt", "reward_model"]).to_parquet('),
    ),
    mutant(
        "announced after the pipeline ran",
        ("R3",),
        "324",
        text(ROLLOUT, _RUN, ""),
        text(ROLLOUT, "        self.scheduler.begin(", _RUN + "        self.scheduler.begin("),
    ),
]
