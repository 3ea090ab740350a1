"""Count what a training micro-batch passes of the code that a package brings: files, functions, calls between files.

    python benchmarks/micro_batch.py                                     # BAGEL and OmniGen2, as `new` renders them
    python benchmarks/micro_batch.py --each PACKAGE                      # a rendered one, with the files' names

One step as verl-omni's engine takes it, with LoRA and gradient checkpointing, in train mode: `prepare_model_inputs`,
`forward_and_sample_previous_step`, the backward pass. Counted are the package's files and the runtime's. A call is a
pair of functions of two of these files, libraries in between aside. Text of vllm-omni that an imported denoiser
executes is counted apart. It runs as a contract of level ``contract`` does, so OmniGen2 needs `omni-scaffold env
rollout`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.verify.measured import Measured

PACKAGES = (("BagelPipeline", "0.27.0rc1"), ("OmniGen2Pipeline", "0.30.0"))
UPSTREAM = "vllm_omni"


class Passed:
    """Functions that run, and which of them call which in another file."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = tuple(f"{folder}/" for folder in folders)
        self.functions: set[tuple[str, str]] = set()
        self.calls: set[tuple[tuple[str, str], tuple[str, str]]] = set()

    def _key(self, code: CodeType) -> tuple[str, str] | None:
        """File and function; a comprehension or an inner function is part of the one around it."""
        file = code.co_filename
        if not file.startswith(self.folders) and f"/{UPSTREAM}/diffusion/" not in file:
            return None
        return file, getattr(code, "co_qualname", code.co_name).partition(".<locals>")[0]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """To be given to ``sys.setprofile``."""
        if event != "call" or (key := self._key(frame.f_code)) is None or key[1].startswith("<"):
            return
        self.functions.add(key)
        around: FrameType | None = frame.f_back
        while around is not None and (caller := self._key(around.f_code)) is None:
            around = around.f_back
        if around is not None and caller is not None and caller[0] != key[0]:
            self.calls.add((caller, key))

    def told(self) -> str:
        """Counts and names, of the package with the runtime and of upstream's text."""
        own = {key for key in self.functions if f"/{UPSTREAM}/diffusion/" not in key[0]}
        files = {file for file, _ in own}
        between = [pair for pair in self.calls if pair[0] in own and pair[1] in own]
        theirs = {file for file, _ in self.functions - own}
        names = ", ".join(sorted("/".join(Path(file).parts[-2:]) for file in files))
        more = f", and {len(theirs)} files and {len(self.functions - own)} functions of vllm-omni" if theirs else ""
        return f"{len(files)} files, {len(own)} functions, {len(between)} calls between files{more}: {names}"


@contextmanager
def watched(passed: Passed) -> Iterator[None]:
    """Note calls of this thread and of those that start meanwhile."""
    threading.setprofile(passed)
    sys.setprofile(passed)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run(subject: Any) -> Measured:
    """One step of a package, as a contract has it."""
    from scaffold.verify.subject.lora import adapted
    from scaffold.verify.subject.subject import PROMPTS

    module = adapted(subject)
    module.enable_gradient_checkpointing()
    subject.train(module)
    runtime = {Path(m.__file__).parent for n, m in sys.modules.items() if "flow_grpo_runtime." in n and m.__file__}
    passed = Passed((Path(sys.modules[subject.training.__module__].__file__).parent, *runtime))
    settings = subject.settings()
    scheduler = subject.scheduler(settings)  # the engine makes it once, before the first micro-batch
    subject.scheduler = lambda _: scheduler
    subject.log_prob(module, PROMPTS, settings, step=0)[0].sum().backward()  # also makes what later steps keep
    with watched(passed):
        subject.log_prob(module, PROMPTS, settings, step=1)[0].sum().backward()
    return Measured(passed.told())


def of(package: Path) -> str:
    """What a step of a rendered package passes.

    Raises:
        SystemExit: it did not run.
    """
    from scaffold.verify import contract_level, host_process
    from scaffold.verify.catalogue import ContractEntry
    from scaffold.verify.package import open_package
    from scaffold.verify.request import VerifyRequest

    entry = ContractEntry("micro_batch", "micro-batch", "what a training micro-batch passes")
    contract_level.catalogue = lambda: (entry,)  # type: ignore[assignment]
    host_process.HOST = Path(__file__).resolve()
    opened = open_package(package)
    (found,) = contract_level.run_contract_level(opened, VerifyRequest(opened.folder)).checks
    if found.status != "pass":
        raise SystemExit(f"{package}: {found.reason}")
    return found.reason


def host() -> None:
    """The process of the contracts, in which this file is the contract."""
    from scaffold.verify import subject
    from scaffold.verify.child import host as process

    subject.contract_of = lambda _: sys.modules[__name__]
    process.main()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", type=Path, metavar="PACKAGE", help="folders that `new` wrote")
    parser.add_argument("--each", action="store_true", help="also name the files")
    asked = parser.parse_args()

    def show(name: str, package: Path) -> None:
        counts, _, names = of(package).partition(": ")
        print(f"{name}: {counts}{': ' + names if asked.each else ''}", flush=True)

    for package in asked.packages:
        show(package.name, package)
    with tempfile.TemporaryDirectory() as folder:
        for pipeline, version in () if asked.packages else PACKAGES:
            out = Path(folder, pipeline)
            command = ["new", pipeline, "--packaged", "--vllm-omni", version, "--patch", "--out", str(out), "--quiet"]
            subprocess.run([sys.executable, "-m", "scaffold", *command], check=True, stdout=subprocess.DEVNULL)
            show(pipeline, next(out.rglob("*_flow_grpo/scaffold.toml")).parent)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].isdigit():
        host()
    else:
        main()
