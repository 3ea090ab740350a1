"""Checkpoints on the Hub: headers by range request, configs through the Hub's own cache.

``huggingface_hub`` lists, authenticates and caches; its settings hold (``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_CACHE``,
``HF_HUB_OFFLINE``, ``HF_HUB_DOWNLOAD_TIMEOUT``). The range requests are made here, because a server that ignores the
range must not send tens of gigabytes: of any answer no more is read than the header needs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.checkpoint.configs import MAX_CONFIG_BYTES, collect
from scaffold.checkpoint.folder import open_regular
from scaffold.checkpoint.headers import CheckpointHeaders, TensorHeader
from scaffold.checkpoint.index import MAX_INDEX_BYTES, SUFFIX, parse_index
from scaffold.checkpoint.layout import WEIGHTS, assemble, check_inside, no_weights, placed, weight_names
from scaffold.checkpoint.local import Progress, read_file, read_local
from scaffold.checkpoint.quoting import quoted
from scaffold.checkpoint.safetensors_header import LENGTH_BYTES, header_length, parse_header
from scaffold.errors import ScaffoldError
from scaffold.reading import read_up_to

# Enough for the header of most files, so that one request does.
_FIRST_BYTES = 1 << 17
_PARALLEL = 8
_TOTAL_SECONDS = 120.0


def read_hub(location: str, progress: Progress | None = None) -> CheckpointHeaders:
    """Read the headers of ``owner/name`` or ``owner/name@revision``.

    Args:
        location: repository id; the revision is a branch, tag or commit.
        progress: called with files read and files in all.

    Raises:
        ScaffoldError: no such repository or revision, no access, no connection, or damaged or hostile files.
    """
    from huggingface_hub import constants

    repository, _, revision = location.partition("@")
    if constants.HF_HUB_OFFLINE:
        return read_local(_cached_snapshot(repository, revision or None), progress, source=location)
    repo = _Repository.find(repository, revision or None)
    weights = weight_names(repo.sizes)
    if not weights:
        raise no_weights(location, repo.sizes)
    indexes = {}
    for name in weights:
        if name.endswith(SUFFIX):
            indexes[name] = placed(name, parse_index(repo.small(name, MAX_INDEX_BYTES), repo.label(name)))
            for shard in sorted(set(indexes[name].values()) - repo.sizes.keys()):
                raise ScaffoldError(f"{repo.label(name)} names the file {quoted(shard)}, which is not there")
    shards = {shard for weight_map in indexes.values() for shard in weight_map.values()}
    files = sorted(shards | {name for name in weights if name.endswith(WEIGHTS)})
    read: dict[str, tuple[list[TensorHeader], int]] = {}
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for name, result in zip(files, pool.map(repo.header, files), strict=True):
            if progress is not None:
                progress(len(read), len(files))
            read[name] = result
    if progress is not None:
        progress(len(files), len(files))
    depth = max(name.count("/") for name in weights)
    beside = sorted(name for name in repo.sizes if name.count("/") <= depth)
    configs, skipped = collect(beside, lambda name: repo.small(name, MAX_CONFIG_BYTES), repo.label)
    return assemble(location, read, indexes, configs, skipped, {name: repo.label(name) for name in indexes})


@dataclass(frozen=True)
class _Repository:
    """A repository at one commit, and the size of each of its files where the server tells it."""

    name: str
    commit: str
    sizes: Mapping[str, int | None]
    endpoint: str | None

    @classmethod
    def find(cls, name: str, revision: str | None) -> _Repository:
        from huggingface_hub import HfApi

        endpoint = os.environ.get("HF_ENDPOINT") or None
        try:
            with _explained(name, revision):
                info = HfApi(endpoint=endpoint).model_info(
                    name, revision=revision, files_metadata=True, timeout=_timeout()
                )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ScaffoldError(f"cannot read {name} from the Hub: the answer is no description of it") from None
        files = {str(file.rfilename): file.size for file in info.siblings or ()}
        commit = str(info.sha)
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise ScaffoldError(f"the Hub gave {quoted(commit)} as the commit of {name}")
        for file in files:
            check_inside(file, f"{name} has")
        return cls(name, commit, files, endpoint)

    def label(self, file: str) -> str:
        """Return how errors name a file."""
        return f"{self.name}/{file}"

    def small(self, file: str, limit: int) -> bytes:
        """Return the content of a file through the Hub's cache."""
        from huggingface_hub import hf_hub_download

        size = self.sizes[file]
        if size is None or size > limit:
            told = "has no known size" if size is None else f"is larger than {limit} bytes"
            raise ScaffoldError(f"{self.label(file)} {told}")
        with _explained(self.name, None, file), _quiet():
            path = hf_hub_download(
                self.name, file, revision=self.commit, endpoint=self.endpoint, etag_timeout=_timeout()
            )
        with open_regular(Path(path), self.label(file)) as (stream, _):
            raw = read_up_to(stream, limit + 1)
        if len(raw) > limit:
            raise ScaffoldError(f"{self.label(file)} is larger than {limit} bytes")
        return raw

    def header(self, file: str) -> tuple[list[TensorHeader], int]:
        """Return a weight file's tensors and data bytes, from the Hub's cache when the whole file is there."""
        from huggingface_hub import try_to_load_from_cache

        label = self.label(file)
        cached = try_to_load_from_cache(self.name, file, revision=self.commit)
        if isinstance(cached, str):
            return read_file(Path(cached), label, file)
        raw, size = self._prefix(file, _FIRST_BYTES)
        length = header_length(raw[:LENGTH_BYTES], size, label)
        if len(raw) < LENGTH_BYTES + length:
            raw, again = self._prefix(file, LENGTH_BYTES + length)
            if again != size or int.from_bytes(raw[:LENGTH_BYTES], "little") != length:
                raise ScaffoldError(f"{label} changed while it was read")
        if len(raw) < LENGTH_BYTES + length:
            raise ScaffoldError(f"{label}: the connection ended {LENGTH_BYTES + length - len(raw)} bytes too early")
        data_bytes = size - LENGTH_BYTES - length
        return parse_header(raw[LENGTH_BYTES : LENGTH_BYTES + length], data_bytes, label, file), data_bytes

    def _prefix(self, file: str, count: int) -> tuple[bytes, int]:
        """Return the first bytes of a file, fewer when it is shorter, and its size."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        label = self.label(file)
        url = hf_hub_url(self.name, file, revision=self.commit, endpoint=self.endpoint)
        headers = {**build_hf_headers(), "Range": f"bytes=0-{count - 1}", "Accept-Encoding": "identity"}
        end = time.monotonic() + _TOTAL_SECONDS
        with _explained(self.name, None, file), _streamed(url, headers) as (status, answer, parts):
            if status not in (200, 206):
                raise _refused(status, self.name, file)
            if answer.get("content-encoding", "identity") != "identity":
                raise ScaffoldError(f"{label}: the server compresses what was asked for as it is")
            raw = b""
            for part in parts:
                raw += part
                if len(raw) >= count:
                    break
                if time.monotonic() > end:
                    raise ScaffoldError(f"{label}: the server took over {_TOTAL_SECONDS:.0f} s for {len(raw)} bytes")
        told = re.fullmatch(r"bytes 0-\d+/(\d+)", answer.get("content-range", "")) if status == 206 else None
        if status == 206 and told is None:
            raise ScaffoldError(f"{label}: the server answered with another range than the one asked for")
        size = int(told.group(1)) if told else int(answer.get("content-length") or self.sizes[file] or 0)
        known = self.sizes[file]
        if known is not None and known != size:
            raise ScaffoldError(f"{label} has {size} bytes, in the repository's list {known}")
        return raw[:count], size


@contextmanager
def _streamed(url: str, headers: dict[str, str]) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
    """Open a request: status, headers and the undecoded body in parts; closing it ends the transfer."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    session: Any = get_session()
    if callable(getattr(session, "stream", None)):
        with session.stream("GET", url, headers=headers, timeout=_timeout(), follow_redirects=True) as response:
            yield response.status_code, response.headers, response.iter_raw(1 << 16)
    else:  # huggingface_hub before 1.0 has a session of requests
        with session.get(url, headers=headers, timeout=_timeout(), stream=True) as response:
            yield response.status_code, response.headers, response.raw.stream(1 << 16, decode_content=False)


@contextmanager
def _explained(repository: str, revision: str | None, file: str | None = None) -> Iterator[None]:
    """Turn what ``huggingface_hub`` and the network raise into one line."""
    from huggingface_hub import errors

    try:
        yield
    except ScaffoldError:
        raise
    except errors.GatedRepoError:
        raise _refused(403, repository, file) from None
    except errors.RevisionNotFoundError:
        raise ScaffoldError(f"{repository} has no revision {quoted(revision)} on the Hub") from None
    except errors.LocalEntryNotFoundError:
        what = f"{file} of {repository} is not in the Hub's cache, and the Hub is not asked or cannot be reached"
        raise ScaffoldError(what, hint="check the connection, HF_ENDPOINT and HF_HUB_OFFLINE") from None
    except errors.HfHubHTTPError as error:
        raise _refused(getattr(error.response, "status_code", 0), repository, file) from None
    except errors.HFValidationError:
        raise ScaffoldError(f"{quoted(repository)} is no repository id") from None
    except _network_errors() as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        what = f"{file} of {repository}" if file else repository
        hint = "check the connection and HF_ENDPOINT"
        here = "" if file else f"no such folder here: {repository}; "
        raise ScaffoldError(f"{here}cannot read {what} from the Hub: {reason}", hint=hint) from None


def _network_errors() -> tuple[type[Exception], ...]:
    """Return what a failed connection raises, in the HTTP library that this ``huggingface_hub`` is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    found: list[type[Exception]] = [OSError]
    for base in HfHubHTTPError.__mro__:
        library = sys.modules.get(base.__module__.partition(".")[0])
        for name in ("HTTPError", "InvalidURL", "StreamError"):
            error = getattr(library, name, None)
            if isinstance(error, type) and issubclass(error, Exception):
                found.append(error)
    return tuple(found)


def _refused(status: int, repository: str, file: str | None) -> ScaffoldError:
    what = f"{file} of {repository}" if file else repository
    if status == 401:
        return ScaffoldError(
            f"the Hub has no {what}, or it is private", hint="check the name, or log in with hf auth login"
        )
    if status == 403:
        return ScaffoldError(
            f"the Hub refuses access to {what}", hint="accept its conditions on the Hub and log in with hf auth login"
        )
    if status == 404:
        return ScaffoldError(f"there is no {what}, neither here nor on the Hub")
    return ScaffoldError(f"the Hub answered {status} for {what}", hint="try again later")


def _cached_snapshot(repository: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    with _explained(repository, revision, "no such folder here, and a snapshot"), _quiet():
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))


def _timeout() -> float:
    """Return the seconds to wait for each answer, as ``huggingface_hub`` is told to."""
    try:
        return float(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT", "10"))
    except ValueError:
        return 10.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep ``huggingface_hub`` from drawing a progress bar for each small file."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()
