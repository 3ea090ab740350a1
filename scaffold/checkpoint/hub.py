"""Checkpoints on the Hub: `huggingface_hub` fetches configs and headers in a child process, bounded as a whole.

A slow, endless or damaged answer ends with the child; its output is read like a local folder.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from scaffold.checkpoint.headers import CheckpointHeaders
from scaffold.checkpoint.local import Progress, read_local
from scaffold.errors import ScaffoldError
from scaffold.files.resources import install_command
from scaffold.scratch import scratch_folder

TOTAL_SECONDS = 300.0
"""Seconds for a repository, all its files together."""
LARGEST = 1 << 43
"""The largest size of a weight file that is accepted: 8 TiB."""


def read_hub(location: str, progress: Progress | None = None) -> CheckpointHeaders:
    """Read the headers of ``owner/name`` or ``owner/name@revision``.

    Settings of `huggingface_hub` hold: ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``,
    ``HF_HUB_DOWNLOAD_TIMEOUT``.

    Args:
        location: repository id; the revision is a branch, tag or commit.
        progress: called with files read and files in all.

    Raises:
        ScaffoldError: no such repository or revision, no access, no connection, more than the bounds allow, or damaged
            or hostile files.
    """
    from scaffold.limits.child_process import TookTooLong, environment, run

    if importlib.util.find_spec("huggingface_hub") is None:
        raise ScaffoldError(
            f"no such folder here: {location}; asking the Hub needs huggingface_hub",
            hint=install_command("hub"),
        )
    with scratch_folder("hub") as folder:
        command = [sys.executable, "-m", "scaffold.checkpoint.hub_copy", location, str(folder)]
        # With telemetry the library sends further requests, and fails if their answer is damaged.
        quiet = environment(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
        try:
            done = run(command, seconds=TOTAL_SECONDS, variables=quiet)
        except TookTooLong:
            raise ScaffoldError(
                f"{location}: the Hub took over {TOTAL_SECONDS:.0f} s", hint="check the connection and HF_ENDPOINT"
            ) from None
        try:
            answer = json.loads(done.stdout.splitlines()[-1])  # the library prints to stdout, too
        except (IndexError, ValueError):
            why = "more memory or disk than a checkpoint's headers need" if done.returncode else "no answer"
            raise ScaffoldError(f"cannot read {location} from the Hub: {why}") from None
        if "error" in answer:
            raise ScaffoldError(answer["error"], hint=answer["hint"])
        for name, size in answer["sizes"].items():
            if not isinstance(size, int) or not 0 <= size <= LARGEST:
                raise ScaffoldError(f"{location}: the Hub says that {name} has {str(size)[:40]} bytes")
            with (folder / name).open("ab") as stream:
                stream.truncate(size)  # a sparse region replaces the data
        return read_local(Path(answer["folder"]), progress, source=location)
