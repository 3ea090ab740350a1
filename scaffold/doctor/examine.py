"""Examines the machine without importing what it examines; the only network request is to the Hub."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from scaffold.errors import ScaffoldError
from scaffold.files import git
from scaffold.files.reading import read_text
from scaffold.files.resources import install_command
from scaffold.limits import child_process
from scaffold.terminal.console import report_console, said
from scaffold.upstream import cache_root
from scaffold.upstream.at_hand import at_hand, damaged
from scaffold.upstream.builds import is_own
from scaffold.upstream.locate import DEFAULT_VERSION
from scaffold.upstream.versions import fits
from scaffold.verify.rollout.environment import Environment, build_command, environment_folder, find_environment
from scaffold.verify.rollout.pins import known_versions
from scaffold.verify.train.sources import verl_checkout
from scaffold.version_text import is_version

if TYPE_CHECKING:
    from scaffold.target import Checkout

SCHEMA = 1
EXTRA = "verify"
"""The extra of pyproject.toml that lists the libraries, with versions, needed to run a package."""
HUB = "https://huggingface.co"
HUB_SECONDS = 5.0
ENVIRONMENT_BYTES = 4_000_000_000  # 3 GB when built, plus what pip unpacks meanwhile
CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
CLONE = "git clone https://github.com/verl-project/verl-omni"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CUDA = re.compile(r"^cuda\b[^=\n]*= (?:None|'([\d.]+)')", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """One thing that commands need.

    Attributes:
        name: what it is, the same in every run.
        needed_for: the commands that need it.
        found: what is present; None for nothing.
        problem: what is wrong with it; None if nothing is.
        mend: the command that fixes it; None if there is none.
    """

    name: str
    needed_for: str
    found: str | None = None
    problem: str | None = None
    mend: str | None = None

    @property
    def state(self) -> str:
        """``ok``, ``absent``, or ``wrong`` for something present that does not fit."""
        return "ok" if self.problem is None else "absent" if self.found is None else "wrong"


def examine(checkout: Checkout | None) -> list[Finding]:
    """Look at everything that a command may need.

    Args:
        checkout: verl-omni whose pins count; None for what holds without one.
    """
    pin = checkout.vllm_omni_pin if checkout is not None else None
    return [
        _python(),
        *_libraries(checkout),
        *_vllm_omni(checkout.asked if checkout is not None else None, pin or DEFAULT_VERSION),
        _verl_omni(checkout),
        _verl(checkout),
        *(_environment(version) for version in versions_needed(checkout)),
        _cache(),
        _hub(),
        _git(),
        _browser(),
    ]


def to_json(findings: list[Finding]) -> dict[str, Any]:
    """Return the stable answer of ``doctor --format json``."""
    return {"schema": SCHEMA, "findings": [{**asdict(finding), "state": finding.state} for finding in findings]}


def versions_needed(checkout: Checkout | None) -> list[str]:
    """Return the versions of vllm-omni that need an environment: the checkout's pin, else all known ones."""
    pin = checkout.vllm_omni_pin if checkout is not None else None
    return known_versions() if pin is None else [pin]


def buildable_versions(checkout: Checkout | None) -> list[str]:
    """Return the versions that `versions_needed` has, whose environments may be built: those with pins, and own builds.

    Raises:
        ScaffoldError: the checkout names another one; only a person does, on the command line.
    """
    versions = versions_needed(checkout)
    for version in versions:
        if checkout is None or is_own(version) or version in known_versions():
            continue
        where = f"{checkout.root} pins vllm-omni {version}"
        if not is_version(version):
            raise ScaffoldError(f"{where}, which is not a version", hint="name one: --vllm-omni 0.30.0")
        raise ScaffoldError(
            f"{where}, and no libraries are recorded for it", hint=f"`{build_command(version)}` finds and records them"
        )
    return versions


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Finding:
    from packaging.specifiers import SpecifierSet

    version, name, needed = platform.python_version(), "python", "everything"
    try:
        wanted = metadata.metadata("omni-scaffold")["Requires-Python"]
    except metadata.PackageNotFoundError:
        return Finding(name, needed, version, "omni-scaffold is not installed here, only found", "pip install .")
    fits = SpecifierSet(wanted).contains(version, prereleases=True)
    return Finding(name, needed, version, None if fits else f"omni-scaffold is for Python {wanted}")


def _libraries(checkout: Checkout | None) -> Iterator[Finding]:
    """The libraries `EXTRA` requires, with those versions that a checkout's trainer requires."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    needed = "verify; remap; new --checkpoint"
    try:
        listed = [Requirement(text) for text in metadata.requires("omni-scaffold") or ()]
    except metadata.PackageNotFoundError:
        return
    for wanted in listed:
        if wanted.marker is None or not wanted.marker.evaluate({"extra": EXTRA}) or wanted.marker.evaluate():
            continue
        below = checkout.profile.peft_below if checkout is not None and wanted.name == "peft" else None
        allowed = wanted.specifier & SpecifierSet(f"<{below}" if below else "")
        version = _installed(wanted.name)
        if version is None and wanted.name == "torch" and not _has_gpu():
            problem = "is not installed; without a GPU its CPU build is enough"
            yield Finding(wanted.name, needed, None, problem, CPU_BUILD)
        elif version is None:
            yield Finding(wanted.name, needed, None, "is not installed", install_command(EXTRA))
        elif not allowed.contains(version, prereleases=True):
            command = f"pip install '{wanted.name}{allowed}'"
            yield Finding(wanted.name, needed, version, f"has to be {allowed}", command)
        else:
            yield Finding(wanted.name, needed, _build(version) if wanted.name == "torch" else version)


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists()


def _build(version: str) -> str:
    """Return torch's version and the platform it was built for, read from its own files."""
    try:
        text = read_text(Path(str(metadata.distribution("torch").locate_file("torch/version.py"))))
    except OSError:
        return version
    built = _CUDA.search(text)
    return version if built is None else f"{version}, built for {f'CUDA {built[1]}' if built[1] else 'CPU'}"


def _vllm_omni(asked: str | None, read: str) -> Iterator[Finding]:
    version, needed = _installed("vllm-omni"), "training; nothing of omni-scaffold imports it"
    command = f"pip install vllm-omni=={read}"
    if version is None:
        yield Finding("vllm-omni", needed, None, "is not installed", command)
    elif asked is not None and not fits(asked, version):
        wants = "pins" if asked[0].isdigit() else "asks for"
        yield Finding("vllm-omni", needed, version, f"the checkout {wants} {asked}", command)
    else:
        yield Finding("vllm-omni", needed, version)
    name, needed = "vllm-omni-source", "inspect, new, list and drift, which fetch it once"
    command = f"omni-scaffold list --vllm-omni {read}"
    broken = damaged(read)
    if broken is not None:
        yield Finding(name, needed, read, broken, command)
    elif at_hand(read) is not None:
        yield Finding(name, needed, read)
    else:
        yield Finding(name, needed, None, f"the wheel of {read} is not in the cache", command)


def _verl_omni(checkout: Checkout | None) -> Finding:
    name, needed = "verl-omni", "new --verl-omni, update, verify --level train"
    if checkout is None:
        return Finding(name, needed, None, "no checkout is named, nor above this folder, nor in $VERL_OMNI_SRC", CLONE)
    pin, asks = checkout.vllm_omni_pin, f"asks for vllm-omni {checkout.asked}" if checkout.asked else "without a pin"
    return Finding(name, needed, f"{checkout.title}, {f'pins vllm-omni {pin}' if pin else asks}")


def _verl(checkout: Checkout | None) -> Finding:
    """verl in ``$VERL_SRC``, compared with the pin, else the verl of an environment."""
    name, needed = "verl", "verify --level train"
    try:
        source = verl_checkout(checkout)
    except ScaffoldError as error:
        return Finding(name, needed, str(os.environ.get("VERL_SRC")), error.message, "unset VERL_SRC")
    if source is not None:
        return Finding(name, needed, source[1])
    for version in versions_needed(checkout):
        for found in sorted(environment_folder(version).glob("lib/python3.*/site-packages/verl-*.dist-info")):
            release = found.name.removeprefix("verl-").removesuffix(".dist-info")
            return Finding(name, needed, f"{release}, in the environment of vllm-omni {version}")
    return Finding(name, needed, None, "comes with an environment", "omni-scaffold env train")


def _environment(version: str) -> Finding:
    name, needed = f"environment-{version}", "verify --level rollout and --level train"
    if not is_version(version):
        return Finding(name, needed, None, f"the checkout pins {version!r}, which is not a version")
    found = find_environment(version)
    if isinstance(found, Environment):
        return _extension(Finding(name, needed, str(found.folder)), found.folder)
    folder = environment_folder(version)
    there = str(folder) if folder.exists() else None
    return Finding(name, needed, there, found.partition("; run:")[0], build_command(version))


def _extension(finding: Finding, folder: Path) -> Finding:
    """Add which of the environment's vllm builds this processor uses, or that there is none for it."""
    flags = processor_flags()
    places = sorted(folder.glob("lib/python3.*/site-packages/vllm"))
    if flags is None or not places:
        return finding
    name = taken_extension(flags)
    if name is None:
        return replace(finding, problem="vllm is built for processors with AVX2, which this one has not")
    if not list(places[0].glob(f"{name}.*")):
        return replace(finding, problem=f"its vllm holds no {name}, the build for this processor")
    return replace(finding, found=f"{finding.found}, vllm's {name} on this processor")


def _cache() -> Finding:
    folder, name, needed = cache_root(), "cache", "what is fetched and built"
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return Finding(name, needed, str(folder), "cannot be written", "export OMNI_SCAFFOLD_CACHE=DIR")
    free = shutil.disk_usage(place).free
    room = f"{folder}, {free / 1e9:.0f} GB free"
    if free < ENVIRONMENT_BYTES:
        problem = f"an environment needs {ENVIRONMENT_BYTES / 1e9:.0f} GB"
        return Finding(name, needed, room, problem, "export OMNI_SCAFFOLD_CACHE=DIR")
    return Finding(name, needed, room)


def _hub() -> Finding:
    """Whether the Hub is reachable; any HTTP answer counts."""
    address = os.environ.get("HF_ENDPOINT") or HUB
    name, needed = "hub", "--checkpoint OWNER/NAME"
    if importlib.util.find_spec("huggingface_hub") is None:
        return Finding(name, needed, None, "huggingface_hub is not installed", install_command("hub"))
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return Finding(name, needed, None, "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE")
    if not address.startswith(("https://", "http://")):
        return Finding(name, needed, address, "HF_ENDPOINT is not an address of a server", "unset HF_ENDPOINT")
    try:
        urlopen(Request(address, method="HEAD"), timeout=HUB_SECONDS).close()
    except HTTPError as error:
        error.close()
    except (OSError, ValueError):
        return Finding(name, needed, None, f"{address} does not answer; a folder serves too: --checkpoint DIR")
    return Finding(name, needed, address)


def _git() -> Finding:
    needed, found = "update, which merges with it; git apply of a patch", git.installed()
    return Finding("git", needed, found) if found else Finding("git", needed, None, "is not installed", _system("git"))


def _browser() -> Finding:
    found = next((path for path in map(child_process.program, _BROWSERS) if path), None)
    name, needed = "chromium", "the tests of omni-scaffold's own pages, else skipped"
    return Finding(name, needed, found) if found else Finding(name, needed, None, "is not there", _system("chromium"))


def _system(package: str) -> str | None:
    return f"apt-get install {package}" if child_process.program("apt-get") else None


_STYLES = {"ok": "green", "absent": "yellow", "wrong": "red"}


def print_findings(findings: list[Finding]) -> None:
    """Print all findings, and how many of them are not as they should be."""
    console = report_console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = said((f"{finding.state:7}", _STYLES[finding.state]), (f"{finding.name:{width}}  ", "bold"))
        console.print(line.append_text(said(finding.found or finding.problem)), soft_wrap=True)
        if finding.state == "ok":
            continue
        console.print(said(f"        needed for: {finding.needed_for}"), soft_wrap=True)
        if finding.found:
            console.print(said(f"        {finding.problem}"), soft_wrap=True)
        if finding.mend:
            console.print(said(f"        run: {finding.mend}"), soft_wrap=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in _STYLES}
    console.print(said(", ".join(f"{count} {state}" for state, count in counts.items())))


CPUINFO = Path("/proc/cpuinfo")
# Flags that each asks for, as Linux spells them, the largest first: what torch.cpu looks at for vllm.
_AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"})
EXTENSIONS = (
    ("_C", _AVX512 | {"avx512_bf16"}),
    ("_C_AVX512", _AVX512),
    ("_C_AVX2", frozenset({"avx2", "fma"})),
)


def processor_flags(cpuinfo: Path = CPUINFO) -> frozenset[str] | None:
    """Flags of the first processor; None where this is not an x86 or the system does not say."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    with suppress(OSError):
        for line in read_text(cpuinfo, errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
    return None


def taken_extension(flags: frozenset[str]) -> str | None:
    """The extension that vllm loads on a processor with these flags; None where none of them runs there."""
    return next((name for name, needed in EXTENSIONS if needed <= flags), None)
