"""What `scaffold.toml` records, and files that say otherwise."""

from mutants.edit import text
from mutants.mutant import COMMON, DATA, E2E, LAUNCH, MODEL, PATCH, ROLLOUT, TRAINING, mutant

_HUNK = """diff --git a/tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh b/tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh
--- a/tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh
+++ b/tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh
@@ -42,2 +42,6 @@
~
+run_test 7 "Bagel FlowGRPO trainer e2e" \\
+    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\
+    bash tests/special_e2e/run_flowgrpo_bagel.sh "${diffusion_trainer_args[@]}"
+
 gpu_smoke_summary
""".replace("~", " ")

MUTANTS = [
    mutant("runner's hunk left out", ("S2", 37), "701", text(PATCH, _HUNK, "")),
    mutant(
        "runner's hunk in another file",
        ("S2", 37),
        "701",
        text(PATCH, "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh", "tests/gpu_smoke/README.md", 4),
    ),
    mutant(
        "channels read under the down-sampling's key",
        ("M1", 36),
        "132",
        text(MODEL, '"vae_config.z_channels", 16', '"vae_config.downsample", 16'),
    ),
    mutant(
        "channels read under a key that the release has not",
        ("M1", 36),
        "132",
        text(MODEL, '"vae_config.z_channels", 16', '"vae_config.channels", 16'),
    ),
    mutant(
        "patch read under the table's key",
        ("M1", 36),
        "132",
        text(MODEL, '_lookup(root, "latent_patch_size", 2)', '_lookup(root, "vae_config.patch_size", 2)'),
    ),
    mutant(
        "width read under the language model's other key",
        ("M1", 36),
        "132",
        text(
            MODEL,
            'intermediate_size=_required(text, "intermediate_size"',
            'intermediate_size=_required(text, "max_position_embeddings"',
        ),
    ),
    mutant(
        "default of the channels is another",
        ("M1", 36),
        "132 113 114",
        text(MODEL, '"vae_config.z_channels", 16', '"vae_config.z_channels", 4'),
    ),
    mutant(
        "token of the start is another",
        ("M9",),
        "132 123 122",
        text(MODEL, 'model_path, "<|vision_start|>", root', 'model_path, "<|im_start|>", root'),
    ),
    mutant(
        "rotary base written down",
        ("M1", 36),
        "114 132 113",
        text(MODEL, 'rope_theta=_required(text, "rope_theta", "llm_config.json"),', "rope_theta=10000.0,"),
    ),
    mutant(
        "projection of the queries without a bias",
        (22,),
        "403 408",
        text(
            MODEL,
            "self.q_proj = nn.Linear(hidden, q_size, bias=True)",
            "self.q_proj = nn.Linear(hidden, q_size, bias=False)",
        ),
    ),
    mutant(
        "shift of the schedule is another",
        ("T3",),
        "223 204",
        text(COMMON, "SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 1.0"),
    ),
    mutant(
        "cosines behind sines",
        ("M7",),
        "139",
        text(
            MODEL,
            "torch.cat((angles.cos(), angles.sin()), dim=-1)",
            "torch.cat((angles.sin(), angles.cos()), dim=-1)",
        ),
    ),
    mutant(
        "another period of the timestep's features",
        ("M7",),
        "139",
        text(MODEL, "math.log(10000.0)", "math.log(1000.0)"),
    ),
    mutant(
        "timestep scaled by a thousand",
        ("M7", "T4"),
        "139 124",
        text(MODEL, "timestep.float()[:, None] * frequencies", "1000.0 * timestep.float()[:, None] * frequencies"),
    ),
    mutant(
        "renorm may amplify",
        ("T5",),
        "228",
        text(TRAINING, ".clamp(min=minimum, max=1.0)", ".clamp(min=minimum)"),
    ),
    mutant(
        "another guard against division by zero",
        ("T5",),
        "228",
        text(TRAINING, "1e-08", "1e-2"),
    ),
    mutant(
        "a renorm that the pipeline has not got",
        ("T5",),
        "228 316",
        text(COMMON, '"cfg_renorm_type": "global"', '"cfg_renorm_type": "sample"'),
        text(
            COMMON, 'RENORMS = ("text_channel", "global", "channel")', 'RENORMS = ("text_channel", "sample", "channel")'
        ),
        text(TRAINING, 'if renorm == "global"', 'if renorm == "sample"'),
    ),
    mutant(
        "guidance under a name that the pipeline does not read",
        ("T5", 29),
        "316 205 228",
        text(COMMON, '"cfg_text_scale": 4.0,', '"guidance_scale": 4.0,'),
        text(TRAINING, 'guidance["cfg_text_scale"] * (', 'guidance["guidance_scale"] * ('),
        text(TRAINING, 'if guidance["cfg_text_scale"] > 1.0', 'if guidance["guidance_scale"] > 1.0'),
    ),
    mutant(
        "begin token is another",
        ("D2",),
        "603",
        text(DATA, 'BEGIN_TOKEN = "<|im_start|>"', 'BEGIN_TOKEN = "<|endoftext|>"'),
    ),
    mutant(
        "column of the ids under another name",
        ("D2", 28),
        "207",
        text(DATA, '"prompt_token_ids": prompt_token_ids,', '"input_ids": prompt_token_ids,'),
    ),
    mutant(
        "text goes to a key that the pipeline does not read",
        ("R5",),
        "305",
        text(ROLLOUT, 'prompt["prompt"] = self._decode_prompt', 'prompt["text"] = self._decode_prompt'),
    ),
    mutant(
        "architecture of the smoke test is the checkpoint's",
        ("W5", 26),
        "506",
        text(E2E, "architecture=OmniBagelForConditionalGeneration", "architecture=BagelForConditionalGeneration"),
    ),
    mutant(
        "algorithm of the launch script is another",
        ("W3",),
        "509",
        text(LAUNCH, "actor_rollout_ref.model.algorithm=flow_grpo", "actor_rollout_ref.model.algorithm=dance_grpo"),
    ),
]
