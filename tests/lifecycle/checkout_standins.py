"""Small checkouts in the shapes of three releases of verl-omni, written for the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

NEW = ("new", "toy", "--pipeline", "BagelPipeline")
PACKAGE = "verl_omni/pipelines/toy_flow_grpo"
RELEASES = {"v0.1.0": "0.22.0", "v0.2.0": "0.24.0", "main": "0.27.0rc1"}
HOOKS = {
    "v0.1.0": ["build_module", "configure_train_mode"],
    "v0.2.0": ["build_module", "configure_train_mode", "configure_trainable_params"],
    "main": [
        *("build_module", "configure_train_mode", "configure_trainable_params"),
        *("peek_class", "validate_lora_config"),
    ],
}
REGISTRY = "verl_omni/pipelines/__init__.py"
DOCS_INDEX = "docs/index.md"
RUNNERS = {
    "v0.1.0": "tests/gpu_smoke/run_gpu_smoke_tests.sh",
    "v0.2.0": "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh",
    "main": "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh",
}
REGISTRY_TEXT = '''"""Pipelines that are here."""

from . import (
    alpha_flow_grpo,  # the first
    omega_flow_grpo,
)
from .alpha_flow_grpo import *  # noqa: F401, F403
from .omega_flow_grpo import *  # noqa: F401, F403

__all__ = list(alpha_flow_grpo.__all__)
__all__ += list(omega_flow_grpo.__all__)
'''
OLD_RUNNER = """#!/usr/bin/env bash
set -euo pipefail
declare -A RUN_TEST=(
    [0]=1 [1]=1
)
run_selected_test() { :; }
# ── Test 0: alpha ────────────────────────────────────────────────────────────
run_selected_test 0 "alpha" \\
    bash tests/special_e2e/run_alpha.sh

# ── Test 1: omega ────────────────────────────────────────────────────────────
run_selected_test 1 "omega" \\
    bash tests/special_e2e/run_omega.sh

# ══════════════════════════════════════════════════════════════════════════════
echo done
"""
NEW_RUNNER = """#!/usr/bin/env bash
set -euo pipefail
diffusion_trainer_args=()
run_test() { :; }
run_test 0 "alpha" \\
    bash tests/special_e2e/run_alpha.sh "${diffusion_trainer_args[@]}"

gpu_smoke_summary
"""
INDEX_TEXT = """# Pages

```{toctree}
:maxdepth: 2
:caption: Examples

examples/alpha/flowgrpo_trainer_alpha.md
```

Last updated: 01/01/2026.
"""


def write_standin(root: Path, release: str, *, git: bool = False) -> Path:
    """Write a checkout of a release; with ``git`` it is a repository with one commit."""
    methods = "".join(f"    @classmethod\n    def {hook}(cls, *args): ...\n\n" for hook in HOOKS[release])
    batch = "            subclass.supports_request_batch = False\n" if release != "v0.1.0" else ""
    files = {
        REGISTRY: REGISTRY_TEXT,
        "verl_omni/__init__.py": "",
        "verl_omni/pipelines/model_base.py": (
            f"class DiffusionModelBase:\n{methods}\nclass VllmOmniPipelineBase:\n    @classmethod\n"
            f"    def register(cls, name, algorithm):\n        def decorate(subclass):\n{batch}"
            "            return subclass\n\n        return decorate\n"
        ),
        "verl_omni/pipelines/non_diffusers_model_base.py": "class NonDiffusersModelBase: ...\n",
        "verl_omni/pipelines/alpha_flow_grpo/__init__.py": "__all__ = []\n",
        "verl_omni/pipelines/omega_flow_grpo/__init__.py": "__all__ = []\n",
        "pyproject.toml": f'[project.optional-dependencies]\nx = ["vllm-omni=={RELEASES[release]}"]\n',
        "examples/flowgrpo_trainer/alpha/README.md": "# Alpha\n",
        "tests/special_e2e/run_alpha.sh": "#!/usr/bin/env bash\n",
        "verl_omni/utils/reward_score/genrm_ocr.py": "async def compute_score_ocr(**fields): ...\n",
        RUNNERS[release]: OLD_RUNNER if release == "v0.1.0" else NEW_RUNNER,
    }
    if release == "main":
        files["verl_omni/pipelines/diffusion_rollout_output.py"] = "def rollout_output(*, media): ...\n"
        files["verl_omni/utils/sync.py"] = 'HOOK = getattr(None, "map_lora_update_to_engine", None)\n'
        files["tests/special_sanity/check_example_docs_symlinks.py"] = ""
    if release != "v0.1.0":
        files[DOCS_INDEX] = INDEX_TEXT
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    (root / RUNNERS[release]).chmod(0o755)
    if release != "v0.1.0":
        link = root / "docs/examples/alpha/flowgrpo_trainer_alpha.md"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../../examples/flowgrpo_trainer/alpha/README.md")
    # Folders that a checkout may have empty must stay.
    (root / "tests/pipelines").mkdir(parents=True)
    if git:
        commit(root, "start")
    return root


def run_git(root: Path, *arguments: str) -> str:
    """Return the output of a git command."""
    command = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def commit(root: Path, message: str) -> None:
    """Commit everything."""
    if not (root / ".git").exists():
        run_git(root, "init", "--quiet")
    run_git(root, "add", "--all")
    run_git(root, "commit", "--quiet", "--message", message)


def snapshot(root: Path) -> dict[str, object]:
    """Return kind, permissions and content of everything below a folder, git's own apart."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == ".git" or name.startswith(".git/"):
            continue
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.stat().st_mode & 0o777, path.read_bytes())
    return found
