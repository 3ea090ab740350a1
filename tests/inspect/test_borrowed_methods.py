"""A class attribute that holds another class's function is a method of whoever is asked for it."""

from __future__ import annotations

from pathlib import Path

from synthetic import look

LENDER = """

class Lender:
    def turn(self, x, now, following, cond):
        return x + (following - now) * self.net(x, now, cond)

    @property
    def halved(self):
        return self.weight * 0.5

    def plainly(x):
        return x


"""
LOOP = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    x = {call}
"""


def test_method_of_another_class_sees_the_borrower(tmp_path: Path) -> None:
    before = LENDER + "class Borrower:\n    advance = Lender.turn\n"
    loop = LOOP.format(call="self.advance(x, sigmas[i], sigmas[i + 1], cond)")
    found = look(tmp_path, loop, before=before, bases="nn.Module, Borrower")
    assert found.value("denoiser.class") == "Net"
    assert found.value("scheduler.inline") is True
    assert found.value("scheduler.steps") == "n"


def test_static_method_gets_no_receiver(tmp_path: Path) -> None:
    before = """

class Lender:
    def turn(x, now, following, v):
        return x + (following - now) * v


class Borrower:
    advance = staticmethod(Lender.turn)
"""
    loop = LOOP.format(call="self.advance(x, sigmas[i], sigmas[i + 1], self.net(x, sigmas[i], cond))")
    found = look(tmp_path, loop, before=before, bases="nn.Module, Borrower")
    assert found.value("scheduler.inline") is True
    assert found.value("denoiser.class") == "Net"


def test_borrowed_property_is_computed(tmp_path: Path) -> None:
    before = LENDER + "class Borrower:\n    part = Lender.halved\n"
    loop = """
    self.weight = 6.0
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    sigmas = self.part * sigmas / (1 + (self.part - 1) * sigmas)
    for i in range(steps):
        v = self.net(x, sigmas[i], cond)
        x = x + (sigmas[i + 1] - sigmas[i]) * v
    """
    found = look(tmp_path, loop, before=before, bases="nn.Module, Borrower")
    assert found.value("scheduler.shift") == 3.0
