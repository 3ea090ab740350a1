"""Launch script, deploy configuration and smoke test."""

from mutants.edit import add, decorate, delete, line, move, text
from mutants.mutant import DEPLOY, DUMMY, E2E, LAUNCH, PATCH, ROLLOUT, TRAINING, mutant

ARCHITECTURE = "OmniBagelForConditionalGeneration"
OVERRIDE = f"    +actor_rollout_ref.model.architecture={ARCHITECTURE}\n"
DEPLOY_OVERRIDE = '    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"\n'
RUNNER = """+run_test 7 "Bagel FlowGRPO trainer e2e" \\
+    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\
+    bash tests/special_e2e/run_flowgrpo_bagel.sh "${diffusion_trainer_args[@]}"
+
"""
TARGETS = (
    '["q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen", "mlp_moe_gen.gate_proj",'
    ' "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"]'
)
RUN_TOKENISER = """command = [sys.executable, str(PREPROCESSOR), "--input_dir", raw]
command += ["--output_dir", os.path.expanduser(args.local_save_dir), "--data_source", args.data_source]
command += ["--model_path", os.path.expanduser(args.model_path)]
command += ["--max_prompt_length", str(args.max_prompt_length)]
subprocess.run(command, check=True)"""


def dummy(row: str, name: str, items: tuple, rules: str):
    """Return a mutant whose smoke test writes rows of its own."""
    return mutant(
        name,
        items,
        rules,
        line(
            DUMMY,
            "main",
            RUN_TOKENISER,
            f"""
import datasets
rows = [{row} for text in captions(count)]
datasets.Dataset.from_list(rows).to_parquet(os.path.join(os.path.expanduser(args.local_save_dir), f"{{split}}.parquet"))
""",
        ),
    )


MUTANTS = [
    # Scripts and configs
    mutant("no launch script", ("W3",), "504", delete(LAUNCH)),
    mutant(
        "launch script for another model",
        ("W3", "W5"),
        "504 506",
        text(LAUNCH, ARCHITECTURE, "OmniHunyuanForConditionalGeneration"),
    ),
    mutant(
        "launch script is a text file",
        ("W3",),
        "504",
        move(LAUNCH, "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.txt"),
    ),
    mutant("no deploy config", ("W4",), "505 510", delete(DEPLOY)),
    mutant(
        "script names a deploy config that is not there",
        ("W4",),
        "505 510",
        text(LAUNCH, "/bagel_deploy_config.yaml", "/bagel_stage_config.yaml"),
    ),
    mutant(
        "deploy config renamed, scripts not", ("W4",), "505 510", move(DEPLOY, DEPLOY.replace("bagel_deploy", "deploy"))
    ),
    mutant("script without a deploy config", ("W4",), "505", text(LAUNCH, DEPLOY_OVERRIDE, "")),
    mutant(
        "the two architectures differ",
        ("W5", 26),
        "501",
        decorate(
            ROLLOUT,
            "BagelPipelineWithLogProb",
            'VllmOmniPipelineBase.register("OmniBagelPipeline", algorithm="flow_grpo")',
        ),
    ),
    mutant(
        "architectures differ by a letter",
        ("W5", 26),
        "501 506",
        decorate(
            TRAINING,
            "BagelDiffusion",
            'DiffusionModelBase.register("OmniBagelForConditionalGenerations", algorithm="flow_grpo")',
        ),
    ),
    mutant(
        "architecture from constants that differ",
        ("W5", 26),
        "501",
        add(TRAINING, "", 'ARCHITECTURE = "OmniBAGELForConditionalGeneration"', first=True),
        decorate(TRAINING, "BagelDiffusion", 'DiffusionModelBase.register(ARCHITECTURE, algorithm="flow_grpo")'),
    ),
    mutant("launch script names no architecture", ("W5", 26), "506", text(LAUNCH, OVERRIDE, "")),
    mutant("architecture without its plus", ("W5", 26), "506", text(LAUNCH, OVERRIDE, OVERRIDE.replace("+", ""))),
    mutant(
        "launch script names the pipeline",
        ("W5", 26),
        "506",
        text(LAUNCH, OVERRIDE, OVERRIDE.replace(ARCHITECTURE, "BagelPipeline")),
    ),
    mutant(
        "script names another algorithm",
        ("W5",),
        "509",
        text(LAUNCH, "model.algorithm=flow_grpo", "model.algorithm=dance_grpo"),
    ),
    mutant("LoRA on names of another model", (18,), "507", text(LAUNCH, TARGETS, '["to_q", "to_k", "to_v"]')),
    mutant("one LoRA target misspelt", (18,), "507", text(LAUNCH, '"mlp_moe_gen.up_proj"', '"mlp_moe_gen.upproj"')),
    mutant(
        "LoRA on the whole module path of the checkpoint",
        (18,),
        "507",
        text(LAUNCH, '"q_proj_moe_gen"', '"language_model.model.layers.0.self_attn.q_proj_moe_gen"'),
    ),
    mutant(
        "layer prefixes of the checkpoint",
        (18, "W3"),
        "508",
        text(LAUNCH, """'["layers."]'""", """'["language_model.model.layers."]'"""),
    ),
    mutant("window beyond the steps", ("R6",), "511", text(LAUNCH, "'[0, 7]'", "'[0, 20]'")),
    mutant("window larger than its range", ("R6",), "511", text(LAUNCH, "sde_window_size=2", "sde_window_size=9")),
    mutant(
        "reward file that is not there",
        ("W3",),
        "510",
        text(E2E, "create_dummy_bagel_data.py", "create_bagel_dummy_data.py"),
    ),
    # Smoke test
    mutant("no smoke test", ("S1",), "702", delete(E2E)),
    mutant("smoke test without the architecture", ("S1",), "506", text(E2E, OVERRIDE, "")),
    mutant(
        "smoke test with another architecture",
        ("S1", 26),
        "506",
        text(E2E, OVERRIDE, OVERRIDE.replace(ARCHITECTURE, "BagelForConditionalGeneration")),
    ),
    mutant("smoke test's data made by nobody", ("S1",), "510", delete(DUMMY)),
    dummy('{"data_source": args.data_source, "text": text}', "dummy data without a prompt", ("S1",), "704 601"),
    dummy('{"data_source": args.data_source, "prompt": text}', "dummy prompts as text", ("S1", "D1"), "704 601"),
    dummy(
        "dict(data_source=args.data_source, caption=text)", "dummy data by keyword without a prompt", ("S1",), "704 601"
    ),
    mutant(
        "no runner calls the smoke test",
        ("S2", 37),
        "701",
        text(PATCH, "@@ -42,2 +42,6 @@\n \n" + RUNNER, "@@ -42,2 +42,2 @@\n \n"),
    ),
    mutant(
        "runner calls another script",
        ("S2", 37),
        "701",
        text(
            PATCH, "bash tests/special_e2e/run_flowgrpo_bagel.sh", "bash tests/special_e2e/run_flowgrpo_qwen_image.sh"
        ),
    ),
    mutant(
        "smoke test renamed, runner not",
        ("S2", 37),
        "701",
        move(E2E, E2E.replace("run_flowgrpo_bagel", "run_flow_grpo_bagel")),
    ),
    mutant(
        "call in the runner commented out",
        ("S2", 37),
        "701",
        text(PATCH, RUNNER, RUNNER.replace("\n+", "\n+# ").replace("+run", "+# run")),
    ),
]
