"""Child process that exports a trained checkpoint with the package's own knowledge of its release.

Started by its path, with that of a JSON file, the job.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Read the job, export, write the outcome."""
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from scaffold.verify.child.job_file import answer

    answer(outcome_of)


def outcome_of(job: dict[str, Any]) -> dict[str, Any]:
    """What the runtime's ``export.run`` says; ``error``, one line, where it cannot be done."""
    from scaffold.verify.child.host import one_line

    try:
        from scaffold.verify.child.imports import prepare
        from scaffold.verify.rollout.engine_side.tiny import constants

        origins = prepare(job["root"], job["sources"], job["checkout"], job["kit"], None)
        if job["beside"] is not None and origins["vllm_omni"] == "kit":
            importlib.import_module("omni_scaffold_kit.model_finder").install(job["beside"])
        export = importlib.import_module(job["export"])
        importlib.import_module(job["module"])
        # A tiny checkpoint of ours, which level train exports, has other sizes than constants of the source say.
        constants.replace(Path(job["base"]))
    except ModuleNotFoundError as error:
        if error.name == job["export"]:
            return {
                "error": "the runtime beside the package cannot export yet: `omni-scaffold update` brings a newer one"
            }
        return {"error": f"the package cannot be imported: {one_line(error, job['root'])}"}
    except BaseException as error:
        return {"error": f"the package cannot be imported: {one_line(error, job['root'])}"}
    try:
        found: dict[str, Any] = export.run(job["module"], job["source"], job["base"], job["out"], job["adapter"])
        return {"told": found, "lines": list(export.lines(found))}
    except (OSError, ValueError, NotImplementedError) as error:
        return {"error": " ".join(str(error).split())}
    except BaseException as error:
        return {"error": one_line(error, job["root"])}


if __name__ == "__main__":
    main()
