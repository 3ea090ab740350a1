"""Packages that tests need in processes of their own: importing one here takes seconds in every worker."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

in_one_worker = pytest.mark.xdist_group("peft and diffusers")
"""What imports them in the process of the tests."""


def require(*names: str) -> None:
    """Skip a test, or a module of tests, where one of the packages is not installed.

    Args:
        names: what `import` calls them.
    """
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
