"""Child process that runs the package's own loader on a checkpoint's headers, without values.

Started by its path, with that of a JSON file, the job.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import traceback
from pathlib import Path
from typing import Any

_PREPARES = re.compile(r"/transformers/.*/?(tokenization|processing|image_processing|feature_extraction)_\w+\.py$")
MEMORY_MEGABYTES = 8192  # for buffers and computed tables; weights take no memory


def main() -> None:
    """Read the job, load, write the outcome."""
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from scaffold.verify.child.job_file import answer

    answer(outcome_of)


def outcome_of(job: dict[str, Any]) -> dict[str, Any]:
    """Return the loader's result; ``error`` if it raised, ``unknown`` if it could not run."""
    from scaffold.verify.child.host import one_line

    try:
        import torch

        torch.set_num_threads(1)
        from scaffold.verify.loading.files import HeaderFiles

        files = HeaderFiles()
        files.install()
        from scaffold.verify.child.imports import prepare
        from scaffold.verify.child.isolation import limit_host

        origins = prepare(job["root"], job["sources"], job["checkout"], job["kit"], None)
        if job["beside"] is not None and origins["vllm_omni"] == "kit":
            importlib.import_module("omni_scaffold_kit.model_finder").install(job["beside"])
        limit_host(MEMORY_MEGABYTES)
        importlib.import_module(job["module"])
    except BaseException as error:
        missing = error.name if isinstance(error, ImportError) else None
        return {"unknown": f"the package cannot be imported: {one_line(error, job['root'])}", "missing": missing}
    module, found = _tried(job)
    found["read"] = files.read()
    if module is not None:
        found |= files.placed(module)
        with contextlib.suppress(Exception):
            found["saved"] = files.saved_by(module, Path(job["logs"], "saved"))
    elif "error" in found:
        from scaffold.verify.loading.causes import unwrapped, wrapper_of

        part = wrapper_of(name for file in files.opened.values() for name in file)
        if part is not None:
            files.renamed = lambda name: unwrapped(name, part)
            found["without"] = {"what": part, "loads": _tried(job)[0] is not None}
    return found


def _tried(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the module that the loader builds, or why there is none."""
    from scaffold.verify.child.host import one_line
    from scaffold.verify.loading.tensor import ValuesNeededError
    from scaffold.verify.measured import NotDrivableError

    try:
        return _load(job), {}
    except ValuesNeededError as error:
        return None, {"unknown": f"its loader reads values of the weights: {error}"}
    except MemoryError:
        return None, {"unknown": f"loading takes more than {MEMORY_MEGABYTES} MB without the weights"}
    except (NotDrivableError, NotImplementedError) as error:
        return None, {"unknown": one_line(error, job["root"])}
    except BaseException as error:
        return None, {"error": one_line(error, job["root"]), "beside": _beside(error)}


def _beside(error: BaseException) -> bool:
    """Whether a loader failed for something other than weights or configuration, such as a tokenizer or a library."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    # A package may look up special tokens itself, and its error then says so.
    prepares = "tokenizer" in str(error).lower() or any(_PREPARES.search(name) for name in frames)
    return isinstance(error, ImportError) or prepares


def _load(job: dict[str, Any]) -> Any:
    """Return the module that the training adapter builds from the checkpoint, called as by the engine.

    Raises:
        NotDrivableError: the package has no training adapter, or it builds no module itself.
    """
    import torch

    from scaffold.verify.loading.tensor import on_meta
    from scaffold.verify.measured import NotDrivableError
    from scaffold.verify.subject.discovery import flow_grpo_adapters
    from scaffold.verify.subject.settings import Settings

    key, training, _ = flow_grpo_adapters(job["module"])
    algo = {"noise_level": 0.7, "sde_type": "sde", "sde_window_size": None, "sde_window_range": None}
    pipeline: dict[str, Any] = {"height": 512, "width": 512, "num_inference_steps": 6}
    pipeline |= {"num_frames": 1, "max_sequence_length": 512, "true_cfg_scale": 1.0, "guidance_scale": None}
    values = {
        "architecture": key[0],
        "algorithm": key[1],
        "external_lib": None,
        "local_path": job["location"],
        "path": job["location"],
        "lora_rank": 0,
        "lora_alpha": 64,
        "target_modules": job["targets"],
        "pipeline": Settings(pipeline),
        "algo": Settings(algo),
    }
    with on_meta():
        module = training.build_module(Settings(values), torch.bfloat16)
    if module is None:
        raise NotDrivableError("build_module returns None: diffusers loads this module")
    return module


if __name__ == "__main__":
    main()
