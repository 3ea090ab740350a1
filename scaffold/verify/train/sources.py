"""Where verl-omni and verl of a training run come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded
from scaffold.target import Checkout
from scaffold.target.pin import text_of
from scaffold.verify.package import Package, require_release

VERL_OMNI = "VERL_OMNI_SRC"
VERL = "VERL_SRC"
PIN = ".github/verl_pin.txt"


@dataclass(frozen=True)
class Sources:
    """What is trained with.

    Attributes:
        verl_omni: a checkout.
        verl: a checkout of verl, or None for the release in the environment.
        verl_label: which verl it is, for the report.
    """

    verl_omni: Checkout
    verl: Path | None
    verl_label: str


def find_sources(package: Package, verl_omni: Path | None) -> Sources:
    """Take verl-omni from the argument, from the checkout the package lies in, or from ``$VERL_OMNI_SRC``.

    verl is ``$VERL_SRC`` where that is set, which has to be at the commit that verl-omni pins; else the environment's.

    Raises:
        ScaffoldError: there is none, or it is not what it should be.
    """
    named = verl_omni or (package.root if package.checkout else None)
    if named is None and os.environ.get(VERL_OMNI):
        named = Path(os.environ[VERL_OMNI])
    if named is None:
        raise ScaffoldError(
            "level train needs verl-omni, which is on no package index",
            hint=f"give --verl-omni CHECKOUT or set {VERL_OMNI} (git clone https://github.com/verl-project/verl-omni)",
        )
    checkout = Checkout.open(named)
    require_release(package, checkout.root)
    verl = verl_checkout(checkout)
    return Sources(checkout, *verl) if verl is not None else Sources(checkout, None, "the environment's")


def verl_checkout(checkout: Checkout | None) -> tuple[Path, str] | None:
    """Return the folder that ``$VERL_SRC`` names and which verl it is beside the checkout's pin; None if not set.

    Raises:
        ScaffoldError: it holds no verl.
    """
    verl = os.environ.get(VERL)
    if not verl:
        return None
    folder = expanded(verl).resolve()
    if not (folder / "verl" / "__init__.py").is_file():
        raise ScaffoldError(f"${VERL} names {verl}, which holds no verl/", hint="name a checkout of verl, or unset it")
    return folder, f"the checkout in ${VERL}, {_commit(folder, checkout)}"


def _commit(folder: Path, checkout: Checkout | None) -> str:
    """Which commit a checkout of verl is at, next to the pin."""
    pin = (text_of(checkout.root, PIN) or "").strip() if checkout is not None else None
    head = (text_of(folder, ".git/HEAD") or "").strip()
    if head.startswith("ref: "):
        head = (text_of(folder, f".git/{head[5:]}") or "").strip()
    if not head:
        return "of an unknown commit"
    if pin is None:
        return f"at {head[:9]}"
    return f"at {head[:9]}, " + ("the pin" if head == pin else f"while verl-omni pins {pin[:9] or 'none'}")
