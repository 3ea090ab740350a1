"""Run as a program by `hub`: writes a repository's configs, indexes and heads of weight files into a folder.

It prints one JSON object: ``folder`` and ``sizes`` of the weight files by name, or ``error`` and ``hint``.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from scaffold.checkpoint.configs import MAX_CONFIG_BYTES, MAX_CONFIGS, is_config
from scaffold.checkpoint.headers import INDEX_SUFFIX, MAX_INDEX_BYTES
from scaffold.checkpoint.layout import WEIGHTS, check_inside, no_weights, weight_names
from scaffold.checkpoint.quoting import quoted
from scaffold.checkpoint.safetensors_header import LENGTH_BYTES, header_length
from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_bytes

MOST_FILES = 2000
"""Weight files of a repository."""
MEMORY_BYTES = 1 << 30
FIRST_BYTES = 1 << 17
"""Enough for the header of most files, so that one request suffices."""
_PARALLEL = 8


def copy(repository: str, revision: str | None, folder: Path) -> tuple[Path, dict[str, int]]:
    """Fetch what describes a checkpoint's tensors; return its folder, and the full size of each partly fetched file.

    Raises:
        ScaffoldError: the listing is not a checkpoint's, or a file of it is damaged or too large.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    if constants.HF_HUB_OFFLINE:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True)), {}
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    info = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=timeout)
    sizes = {file.rfilename: -1 if file.size is None else file.size for file in info.siblings or ()}
    commit = str(info.sha)
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ScaffoldError(f"the Hub gave {quoted(commit)} as the commit of {repository}")
    for name in sizes:
        check_inside(name, f"{repository} has")
    chosen = weight_names(sizes)
    if not chosen:
        raise no_weights(repository, sizes)
    depth = max(name.count("/") for name in chosen)
    beside = sorted(name for name in sizes if name.count("/") <= depth)
    weights = [name for name in beside if name.endswith(WEIGHTS)]
    if len(weights) > MOST_FILES:
        raise ScaffoldError(f"{repository} has {len(weights)} weight files; at most {MOST_FILES} are read")
    small = [name for name in beside if is_config(name)][:MAX_CONFIGS]
    small += [name for name in beside if name.endswith(INDEX_SUFFIX)]
    if len(small) > MOST_FILES:
        raise ScaffoldError(f"{repository} has {len(small)} indexes; at most {MOST_FILES} are read")
    for name in (*small, *weights):
        if sizes[name] < 0:
            raise ScaffoldError(f"{repository}/{name} has no known size")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shown: dict[str, int] = {}
    for name in small:
        if sizes[name] > (MAX_INDEX_BYTES if name.endswith(INDEX_SUFFIX) else MAX_CONFIG_BYTES):
            (folder / name).touch()
            shown[name] = sizes[name]  # reading the folder reports that it is too large
            continue
        path = Path(hf_hub_download(repository, name, revision=commit, etag_timeout=timeout))
        (folder / name).write_bytes(read_bytes(path, MAX_INDEX_BYTES))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        one = partial(_head, repository, commit, folder, timeout)
        for name, head in zip(weights, pool.map(one, weights, [sizes[name] for name in weights]), strict=True):
            (folder / name).write_bytes(head)
            shown[name] = sizes[name]
    return folder, shown


def _head(repository: str, commit: str, folder: Path, timeout: float, name: str, size: int) -> bytes:
    """Return a weight file's bytes up to the end of its header."""
    from huggingface_hub import hf_hub_url

    label = f"{repository}/{name}"
    read = partial(_first, hf_hub_url(repository, name, revision=commit), label, timeout)
    raw = read(min(FIRST_BYTES, size))
    count = LENGTH_BYTES + header_length(raw[:LENGTH_BYTES], size, label)
    if len(raw) < count:
        raw = read(count)
    if len(raw) < count:
        raise ScaffoldError(f"{label}: the connection ended {count - len(raw)} bytes too early")
    return raw[:count]


def _first(url: str, label: str, timeout: float, count: int) -> bytes:
    """Return the first bytes of a file; stop reading if the server ignores the range."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

    headers = {**build_hf_headers(), "Range": f"bytes=0-{count - 1}", "Accept-Encoding": "identity"}
    session: Any = get_session()
    with session.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
        if response.status_code >= 400:
            response.read()
        hf_raise_for_status(response)
        if not response.headers.get("content-range", "bytes 0-").startswith("bytes 0-"):
            raise ScaffoldError(f"{label}: the server answered with another range than the one asked for")
        raw = b""
        for part in response.iter_raw(1 << 16):
            raw += part
            if len(raw) >= count:
                break
    return raw[:count]


def explained(error: Exception, repository: str, revision: str | None) -> tuple[str, str]:
    """Return the error of `huggingface_hub` or the network in one line, and what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return f"the Hub refuses access to {repository}", "accept its conditions on the Hub, log in with hf auth login"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {quoted(str(revision))} on the Hub", ""
    if isinstance(error, errors.LocalEntryNotFoundError):
        what = f"no such folder here: {repository}; it is not in the Hub's cache, and the Hub cannot be reached"
        return what, "check the connection, HF_ENDPOINT and HF_HUB_OFFLINE"
    if isinstance(error, errors.HFValidationError):
        return f"{quoted(repository)} is not a repository id", ""
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403, 404):
            what = f"no such folder here, and the Hub does not show {repository}, or a file of it, to you ({status})"
            return what, "check the name, or log in with hf auth login"
        return f"the Hub answered {status} for {repository}", "try again later"
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    what = f"no such folder here: {repository}; cannot read it from the Hub: {reason}"
    return what, "check the connection and HF_ENDPOINT"


def main(location: str, folder: str) -> dict[str, Any]:
    """Return the text to print."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_INDEX_BYTES, MAX_INDEX_BYTES))
    repository, _, revision = location.partition("@")
    try:
        found, sizes = copy(repository, revision or None, Path(folder))
    except ScaffoldError as error:
        return {"error": error.message, "hint": error.hint}
    except Exception as error:
        what, hint = explained(error, repository, revision or None)
        return {"error": what, "hint": hint or None}
    return {"folder": str(found), "sizes": sizes}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
