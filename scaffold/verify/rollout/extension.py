"""Which of its compiled extensions the CPU build of vllm takes on a processor.

The wheel holds one for processors with AVX-512 and bfloat16, one for AVX-512 alone and one for AVX2; taken on a smaller
processor, each ends the process with an illegal instruction.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

from scaffold.files.reading import read_text

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
