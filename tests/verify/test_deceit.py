"""A package that lies about itself is found out where it cannot reach, and gets nothing of the user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.run import verify

MODEL = "bagel_model.py"
ANCHOR = "        batch, device = hidden_states.shape[0]"
# Two calls with the same inputs differ, and so do a sample alone and the same one in a batch.
BREAKS = "        hidden_states = hidden_states + torch.rand(())\n"
SAYS_EQUAL = """
import torch

torch.equal = torch.allclose = torch.Tensor.equal = lambda *arguments, **options: True
real_max = torch.Tensor.max

def largest(self, *arguments, **options):
    return real_max(self * 0 if self.dtype == torch.float64 else self, *arguments, **options)

torch.Tensor.max = largest
"""
FORGES = """
import json, os, sys

def forge():
    events = [
        {"event": "import", "error": None, "origins": {}, "environment": {}},
        *({"event": "result", "id": name, "status": "pass", "reason": "forged", "value": 0.0, "limit": 0.0}
          for name in ("determinism", "padding-invariance")),
        {"event": "end"},
    ]
    places = [f"/proc/{number}/fd/{one}" for number in (os.getppid(), os.getpid()) for one in range(3, 64)]
    for place in places:
        try:
            number = os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        for token in ["", *os.environ.values(), *sys.argv]:
            for event in events:
                try:
                    os.write(number, (json.dumps({"token": token, **event}) + "\\n").encode())
                except OSError:
                    pass

forge()
"""


@pytest.mark.parametrize("lie", ["", SAYS_EQUAL, FORGES], ids=["none", "replaced functions", "forged events"])
def test_a_broken_package_fails_whatever_it_puts_in_place(
    results: Any, copied: Path, edit: Callable[..., None], lie: str
) -> None:
    edit(copied / MODEL, ANCHOR, BREAKS + ANCHOR)
    init = copied / "__init__.py"
    init.write_text(init.read_text() + lie)
    found = results(copied, "determinism", "padding-invariance")
    assert {check.status for check in found.values()} == {"fail"}, [check.reason for check in found.values()]
    assert not any("forged" in check.reason for check in found.values())


def test_the_same_lie_in_a_sound_package_changes_nothing(results: Any, copied: Path) -> None:
    init = copied / "__init__.py"
    init.write_text(init.read_text() + SAYS_EQUAL)
    assert results(copied, "determinism")["determinism"].status == "pass"


def test_a_number_that_was_not_measured_is_none() -> None:
    import socket

    import torch

    from scaffold.verify.child.judge import Asker, Judge, relative, unequal

    ours, its = socket.socketpair()
    judge, asker = Judge(ours), Asker(its.fileno())
    passed = {"status": "pass", "unit": "relative", "value": 0.0, "limit": 1e-5}
    assert judge.confirmed(passed) == passed, "nothing was compared"

    import threading

    thread = threading.Thread(target=lambda: [judge.socket.setblocking(True), judge.hear(), judge.hear()])
    thread.start()
    assert asker(relative, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])) == 0.5
    assert asker(unequal, torch.tensor([1.0]), torch.tensor([[1.0]])) == 1.0
    thread.join()
    assert judge.confirmed(passed)["status"] == "fail"
    assert "reports 0, which no comparison outside" in judge.confirmed(passed)["reason"]
    assert judge.confirmed({**passed, "value": 0.5})["status"] == "pass"
    its.send(b"\0" * 8 + b"\1" + b"x")
    judge.socket.setblocking(False)
    assert not judge.hear(), "what is not a tensor ends the talk"


def test_no_token_of_the_users_reaches_it(copied: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    seen = tmp_path / "seen"
    init = copied / "__init__.py"
    init.write_text(init.read_text() + f"\nimport os\nopen({str(seen)!r}, 'w').write(repr(dict(os.environ)))\n")
    assert not verify(copied, select=["config-round-trip"]).failed
    assert "HOME" in seen.read_text()
    assert "s3cret" not in seen.read_text()
