"""Registry, launch script, deploy config, data and smoke test."""

from mutants.edit import add, decorate, delete, line, move, swap, text
from mutants.mutant import DATA, DEPLOY, DUMMY, E2E, INIT, LAUNCH, PATCH, ROLLOUT, TRAINING, mutant

ARCHITECTURE = "OmniBagelForConditionalGeneration"
OVERRIDE = f"    +actor_rollout_ref.model.architecture={ARCHITECTURE}\n"
DEPLOY_OVERRIDE = '    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"\n'
PACKAGE_INIT = "@@ -15,2 +15,3 @@\n from . import (\n+    bagel_flow_grpo,\n"
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
IDS = "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]"
TOO_LONG = """
if len(ids) > max_length:
    raise PromptTooLongError(f"{len(ids)} tokens where {max_length} are allowed: {text!r}")
"""
TOKENISE = "tokenize_bagel_prompt"
ROW = "build_row"
MESSAGES = '[{"role": "user", "content": text.strip()}]'


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
    # The package
    mutant(
        "adapters not imported by the package",
        ("W1",),
        "503",
        line(
            INIT,
            "",
            "from .diffusers_training_adapter import BagelDiffusion\n"
            "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\n"
            '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]',
            "__all__ = []",
        ),
    ),
    mutant(
        "rollout adapter not imported by the package",
        ("W1",),
        "503",
        line(INIT, "", "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb"),
        swap(INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelDiffusion"]'),
    ),
    mutant(
        "training adapter missing in __all__",
        ("W1",),
        "503",
        swap(INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelPipelineWithLogProb"]'),
    ),
    mutant(
        "wrong name in __all__",
        ("W1",),
        "503",
        swap(
            INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelDiffusion", "BagelPipelineWithLogprob"]'
        ),
    ),
    mutant(
        "no __all__", ("W1", "W2"), "503", line(INIT, "", '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]')
    ),
    # The registry
    mutant(
        "package not in the registry's import",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -15,2 +15,3 @@\n from . import (\n+    bagel_flow_grpo,\n     ltx2_flow_grpo,\n@@ -28,2 +29,3 @@",
            "@@ -28,2 +28,3 @@",
        ),
    ),
    mutant(
        "registry without the star import",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -28,2 +29,3 @@\n )\n+from .bagel_flow_grpo import *  # noqa: F401, F403\n from .ltx2_flow_grpo import *  # noqa: F401, F403\n",
            "",
        ),
    ),
    mutant(
        "registry's __all__ without the package",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -53 +55,2 @@\n __all__ += list(qwen_image_edit_flow_grpo.__all__)\n+__all__ += list(bagel_flow_grpo.__all__)\n",
            "",
        ),
    ),
    mutant(
        "package not in the registry at all",
        ("W2", 25),
        "502",
        text(
            PATCH,
            """diff --git a/verl_omni/pipelines/__init__.py b/verl_omni/pipelines/__init__.py
--- a/verl_omni/pipelines/__init__.py
+++ b/verl_omni/pipelines/__init__.py
@@ -15,2 +15,3 @@
 from . import (
+    bagel_flow_grpo,
     ltx2_flow_grpo,
@@ -28,2 +29,3 @@
 )
+from .bagel_flow_grpo import *  # noqa: F401, F403
 from .ltx2_flow_grpo import *  # noqa: F401, F403
@@ -53 +55,2 @@
 __all__ += list(qwen_image_edit_flow_grpo.__all__)
+__all__ += list(bagel_flow_grpo.__all__)
""",
            "",
        ),
    ),
    mutant(
        "another package's __all__ added",
        ("W2", 25),
        "502",
        text(PATCH, "+__all__ += list(bagel_flow_grpo.__all__)", "+__all__ += list(qwen_image_flow_grpo.__all__)"),
    ),
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
    # Data
    mutant("prompt stored as text", ("D1",), "601", swap(DATA, ROW, MESSAGES, "text.strip()")),
    mutant(
        "messages under another key",
        ("D1",),
        "601",
        line(
            DATA,
            ROW,
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}], "prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
            'return {"data_source": data_source, "messages": [{"role": "user", "content": text.strip()}],'
            '"prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
        ),
    ),
    mutant(
        "one message instead of a list",
        ("D1",),
        "601",
        swap(DATA, ROW, MESSAGES, '{"role": "user", "content": text.strip()}'),
    ),
    mutant("messages without roles", ("D1",), "601", swap(DATA, ROW, MESSAGES, '[{"text": text.strip()}]')),
    mutant(
        "messages as JSON",
        ("D1",),
        "601",
        add(DATA, "", "import json", first=True),
        swap(DATA, ROW, MESSAGES, f"json.dumps({MESSAGES})"),
    ),
    mutant(
        "ids not stored",
        ("D2", 28),
        "207",
        line(
            DATA,
            ROW,
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}], "prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}],'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
        ),
    ),
    mutant(
        "column renamed by the preprocessor",
        ("D2", 28),
        "207",
        swap(DATA, ROW, '"prompt_token_ids"', '"input_ids"'),
    ),
    mutant(
        "ids of the chat",
        ("D2",),
        "603",
        line(
            DATA,
            TOKENISE,
            "ids = tokenizer.encode(text.strip(), add_special_tokens=False)\n" + IDS,
            'ids = tokenizer.apply_chat_template([{"role": "user", "content": text.strip()}], tokenize=True)',
        ),
    ),
    mutant(
        "end token forgotten",
        ("D2",),
        "603",
        line(DATA, TOKENISE, IDS, "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids]"),
    ),
    mutant(
        "other markers around the prompt",
        ("D2",),
        "603",
        line(
            DATA,
            "",
            'BEGIN_TOKEN = "<|im_start|>"\nEND_TOKEN = "<|im_end|>"',
            'BEGIN_TOKEN = "<|vision_start|>"\nEND_TOKEN = "<|vision_end|>"',
        ),
    ),
    mutant(
        "tokenizer's own begin and end",
        ("D2",),
        "603",
        line(DATA, TOKENISE, IDS, "ids = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]"),
    ),
    mutant("ids cut at the maximum length", (43,), "602", line(DATA, TOKENISE, TOO_LONG, "ids = ids[:max_length]")),
    mutant(
        "tokenizer cuts",
        (43,),
        "602",
        swap(
            DATA,
            TOKENISE,
            "tokenizer.encode(text.strip(), add_special_tokens=False)",
            "tokenizer.encode(text.strip(), add_special_tokens=False, truncation=True, max_length=max_length - 2)",
        ),
    ),
    mutant(
        "cut where the row is made",
        (43,),
        "602",
        line(DATA, TOKENISE, TOO_LONG, ""),
        line(
            DATA,
            "read_split",
            "ids = tokenize_bagel_prompt(tokenizer, text, max_length)",
            "ids = tokenize_bagel_prompt(tokenizer, text, max_length)[:max_length]",
        ),
    ),
    mutant(
        "end deleted when too long",
        (43,),
        "602",
        line(DATA, TOKENISE, TOO_LONG, "if len(ids) > max_length:\n    del ids[max_length:]"),
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
