"""A tape makes of other predictions what a pipeline makes of its own, and with gradients."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from taped import SHAPE, Guidance, record, seeded
from torch.nn import functional
from torch.overrides import BaseTorchFunctionMode

from flow_grpo_runtime.tape import Tape
from flow_grpo_runtime.tape_play import TapeError, functions, play, require_gradients, sources

Tensor = torch.Tensor


def plain(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u + 4.0 * (c - u)


def in_place(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    c -= u
    c *= 4
    u += c
    return u


def halves(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    out = torch.empty_like(c)
    out[:, :2] = (u + 3 * (c - u))[:, :2]
    out[:, 2:] = c[:, 2:]
    return out


def chunked(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    a, b = torch.cat([c, u]).chunk(2)
    return b + 4 * (a - b)


def view_changed(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    c.view(1, -1).mul_(2)
    return c + u


def copied_into_a_view(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    out = torch.zeros(SHAPE)
    out[:, :2].copy_(c[:, :2])
    return out + u


def added_to_a_part(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    out = torch.ones(2, *SHAPE[1:])
    flat = out.view(-1)
    out[:1, :2] += c[:, :2]
    flat *= 2
    return out[:1] - u


def apg(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    dims = [-1, -2, -3]
    difference = c - u
    difference = difference * torch.minimum(torch.ones(1), 2.5 / difference.norm(p=2, dim=dims, keepdim=True))
    along = functional.normalize(c.double(), dim=dims)
    parallel = (difference.double() * along).sum(dim=dims, keepdim=True) * along
    return c + 3 * (difference.double() - parallel).float()


def zero_star(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    p, n = c.view(1, -1), u.view(1, -1)
    scale = ((p * n).sum(1, keepdim=True) / ((n**2).sum(1, keepdim=True) + 1e-8)).view(1, 1, 1, 1)
    return n.view_as(u) * scale + 5 * (c - u * scale)


def rescaled(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    guided = u + 4 * (c - u)
    dims = list(range(1, c.ndim))
    scaled = guided * (c.std(dim=dims, keepdim=True) / guided.std(dim=dims, keepdim=True))
    return 0.7 * scaled + (1 - 0.7) * guided


def renormalised(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    guided = u + 4 * (c - u)
    ratio = torch.linalg.vector_norm(c, dim=1, keepdim=True) / (
        torch.linalg.vector_norm(guided, dim=1, keepdim=True) + 1e-6
    )
    return guided * ratio.clamp(min=0.0, max=1.0)


def by_where(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.where(c.abs() > 1, u, c)


def detached(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u.detach() + 3 * (c.detach() - u.detach()).data


def patched(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    b, channels, h, w = c.shape
    tokens = (u + 3 * (c - u)).reshape(b, channels, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return tokens.reshape(b, -1, channels * 4)


def of_x0(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return (x - (u + 3 * (c - u)).clamp(-2, 2)) / torch.tensor(0.7)


def log_ratio(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    level = torch.tensor(0.3).clamp(1e-4, 1 - 1e-4)
    return (c + u) * torch.log1p(level) / torch.sqrt(1 - level)


def fourier(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.fft.ifft2(torch.fft.fft2(c) * 0.5).real + u


def quantile(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.quantile(c.abs().flatten(), 0.99) * u / c.std()


def asserted(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    assert not torch.isnan(c).any()
    if not (~torch.isfinite(u)).sum() == 0:
        raise ValueError("not finite")
    return c + u


def with_latents(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return (x.permute(0, 2, 3, 1) - c.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) + u


def by_form(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    if c.shape[0] == 1 and c.is_floating_point() and len(u) == 1:
        return c / c.numel() + u.to(c.device, c.dtype)
    return c


def deep_copied(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return copy.deepcopy(c) + u


def sorted_rows(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    values, _ = c.sort(dim=-1)
    return values + u


def named_result(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return c.max(dim=1, keepdim=True).values * u


def into(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    out = torch.zeros(SHAPE)
    torch.add(c, u, out=out)
    return out * 2


def lerped(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.lerp(u, c, 4.0)


def numpy_scalars(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u + np.float32(3.25) * (c - u) + np.float64(0.5) * u


def resized(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return functional.interpolate(functional.avg_pool2d(c, 2), scale_factor=2) + u


def convolved(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return functional.conv2d(c, torch.ones(4, 4, 3, 3) / 9, padding=1) + u


def summed(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    velocity = torch.zeros_like(c)
    for prediction in (c, u):
        velocity += 0.5 * prediction
    return velocity


def iterated(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.stack([a * 2 + b for a, b in zip(c[0], u[0], strict=True)])[None]


def indexed(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    mask = torch.arange(8) % 2 == 0
    out = c.clone()
    out[..., mask] = u[..., mask]
    return out - 2 * u


def operators(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    a = 1 - c
    a = 2 / (a * a + 1)
    return abs(-a) ** 0.5 - 1 * u + (c @ u.mT)


def named_arguments(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.add(input=c, other=u, alpha=0.25) * torch.exp(input=-c)


def split_channels(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    mean, _ = torch.cat([c, u], dim=1).split([4, 4], dim=1)
    return mean + 0.1 * u


def preview_beside(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    preview = torch.linalg.svd(c)[0]  # no function that a tape may hold, and no part of the step
    assert preview.shape == SHAPE
    return c - 2 * u


def noise_beside(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    torch.randn_like(c).mul_(2)
    return c - 2 * u


IDIOMS: list[Guidance] = [
    plain, in_place, halves, chunked, view_changed, copied_into_a_view,
    added_to_a_part, apg, zero_star, rescaled, renormalised, by_where,
    detached, patched, of_x0, log_ratio, fourier, quantile, asserted, with_latents, by_form, deep_copied, sorted_rows,
    named_result, into, lerped, numpy_scalars, resized, convolved, summed, iterated, indexed, operators,
    named_arguments, split_channels, preview_beside, noise_beside,
]  # fmt: skip

# Autograd cannot differentiate the text itself, or a rollout has no gradient to stop and training follows what it made.
GRADIENTS_AS: dict[Guidance, Guidance] = {
    detached: lambda c, u, x: u + 3 * (c - u),
    deep_copied: lambda c, u, x: c + u,
    into: lambda c, u, x: (c + u) * 2,
    added_to_a_part: lambda c, u, x: torch.cat([c[:, :2] + 1, torch.ones_like(c[:, 2:])], dim=1) * 2 - u,
}


def reference_gradients(guidance: Guidance, predictions: list[Tensor], latents: Tensor) -> list[Tensor | None]:
    """Of the pipeline's own functions; a change in place needs what is no leaf."""
    leaves = [prediction.clone().requires_grad_() for prediction in predictions]
    guidance(*(leaf.clone() for leaf in leaves), latents.clone()).square().sum().backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("guidance", IDIOMS, ids=lambda guidance: guidance.__name__)
def test_an_idiom_of_guidance_is_exact_at_other_predictions_too_and_has_its_gradients(guidance: Guidance) -> None:
    taped = record(guidance)
    assert torch.equal(taped.played(), taped.made)
    others, (latents,) = seeded(2, seed=7), seeded(1, seed=99)
    own = guidance(*(prediction.clone() for prediction in others), latents.clone())
    assert torch.equal(taped.played(others), own)
    leaves = [prediction.clone().requires_grad_() for prediction in others]
    taped.played(leaves).square().sum().backward()
    reference = GRADIENTS_AS.get(guidance, guidance)
    for leaf, expected in zip(leaves, reference_gradients(reference, others, latents), strict=True):
        assert leaf.grad is not None
        assert expected is not None
        assert torch.equal(leaf.grad, expected)
        assert leaf.grad.any()


def read_a_number(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u + float(c.norm()) * (c - u)


def read_an_item(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u * c.abs().max().item()


def decide(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return c if (c - u).abs().mean() > 0.1 else u


def by_numpy(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.from_numpy((u + 3 * (c - u)).numpy())


def as_list(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.tensor(c.tolist()) + u


def noise(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return c + 0.1 * torch.randn_like(u)


def noise_of_a_shape(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return c + u + 0.1 * torch.randn(SHAPE)


def noise_in_place(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    c[:, :1].normal_()
    return c + u


def dropout(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return functional.dropout(c, 0.1, True) + u


def past_the_functions(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.ops.aten.add(c, u)


def past_into_a_list(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    gathered = [torch.zeros(SHAPE), torch.zeros(SHAPE)]
    torch.ops.aten._foreach_copy_.default(gathered, [c, u])
    return gathered[0] + gathered[1]


def past_into_another(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    gathered = torch.zeros(SHAPE)
    torch.ops.aten.copy_(gathered, c)
    return gathered + u


def subclass(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    class Own(torch.Tensor):
        pass

    return c.as_subclass(Own) + u


def unknown_function(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.linalg.inv(c) + u


def of_numbers_of_its_own(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return c[c > 0].mean() * u + torch.masked_select(c, c > 0).mean()


def of_nothing_predicted(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return x * 2


def deciding_by_what_is_not_finite(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    worse = c / 0
    if torch.isfinite(worse).all():
        return worse
    return c + u


def into_another(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.add(c, u, out=c)


def of_a_layout(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.ones_like(c, layout=torch.strided) * u


def several_in_place(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    torch._foreach_add_([c], [u])
    return c


def into_a_number(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return u * torch.ops.aten._local_scalar_dense.default(c.mean())


def past_into_a_number(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    mean = c.mean()
    with torch._C.DisableTorchFunction():
        return u * mean.item()


REFUSED: list[tuple[Guidance, str]] = [
    (into_another, r"calls torch.add with out= for what it made of a prediction \(.*test_tape.py:\d+\)"),
    (of_a_layout, r"calls ones_like with a layout \(.*test_tape.py:\d+\), which cannot be carried"),
    (several_in_place, r"_foreach_add_ \(.*test_tape.py:\d+\), which is no function that a tape may hold"),
    (into_a_number, r"_local_scalar_dense.default on what it made of a prediction \(.*test_tape.py:\d+\), which is no"),
    (past_into_a_number, r"aten.item.default \(.*test_tape.py:\d+\) on what it made of a prediction, past torch's"),
    (read_a_number, r"reads numbers of a prediction with float\(\) \(.*test_tape.py:\d+\)"),
    (read_an_item, r"reads numbers of a prediction with item\(\) \(.*test_tape.py:\d+\)"),
    (decide, r"reads numbers of a prediction with bool\(\) \(.*test_tape.py:\d+\)"),
    (by_numpy, r"reads numbers of a prediction with numpy\(\) \(.*test_tape.py:\d+\)"),
    (as_list, r"reads numbers of a prediction with tolist\(\)"),
    (noise, r"draws noise for its step with torch.randn_like \(.*test_tape.py:\d+\)"),
    (noise_of_a_shape, r"draws noise for its step with torch.randn \(.*test_tape.py:\d+\)"),
    (noise_in_place, r"draws noise for its step with torch.Tensor.normal_ \(.*test_tape.py:\d+\)"),
    (dropout, r"draws noise for its step with torch.nn.functional.dropout"),
    (past_the_functions, r"aten.add.* \(.*test_tape.py:\d+\)"),
    (past_into_another, r"aten.copy_.* \(.*test_tape.py:\d+\)"),
    (past_into_a_list, r"aten._foreach_copy_"),
    (subclass, r"the pipeline .* \(.*test_tape.py:\d+\)"),
    (unknown_function, r"result of torch.linalg.inv \(.*test_tape.py:\d+\), which is no function"),
    (of_numbers_of_its_own, r"result of torch.masked_select \(.*test_tape.py:\d+\), which is no function"),
    (of_nothing_predicted, r"did not make of this step's predictions"),
    (deciding_by_what_is_not_finite, r"is not finite, and the pipeline decides by that \(.*test_tape.py:\d+\)"),
]


@pytest.mark.parametrize(("guidance", "match"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_training_cannot_make_again_is_refused_with_its_statement(guidance: Guidance, match: str) -> None:
    with pytest.raises(TapeError, match=match) as refused:
        record(guidance)
    assert "\n" not in str(refused.value)


def test_a_mode_that_is_entered_between_denoiser_and_step_is_refused() -> None:
    tape = Tape()
    inner = BaseTorchFunctionMode()
    tape.resume()
    inner.__enter__()
    try:
        with pytest.raises(TapeError, match="enters or leaves a mode of torch"):
            tape.pause()
    finally:
        inner.__exit__(None, None, None)
        tape.pause()
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(
    "name", ["torch.Tensor.item", "os.system", "torch.load", "torch.hub.load", "torch.Tensor.set_"]
)
def test_a_record_may_name_no_other_function(name: str) -> None:
    program: dict[str, Any] = {"ops": [(name, ("tuple", [("source", 0, 0)]), ("dict", {}))], "end": ("result", 0, None)}
    with pytest.raises(TapeError, match="which is no function that a tape may hold"):
        play(program, [], {(0, 0): torch.ones(2)}, torch.ones(2))
    assert all(known.startswith("torch.") for known in functions())


def chunk_changed(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    a, b = torch.cat([c, u]).chunk(2)
    a.sub_(b).mul_(4)
    return b + a


def rounded(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return torch.round(c) + torch.sign(u)


def rooted(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return (c - c).sqrt() + u


def test_what_autograd_cannot_follow_is_refused_when_it_is_recorded() -> None:
    refused = {
        chunk_changed: "autograd cannot follow",
        rounded: "no gradient reaches",
        rooted: "gradient of a prediction .* is not finite",
    }
    for guidance, match in refused.items():
        taped = record(guidance)
        assert torch.equal(taped.played(), taped.made)
        leaves = {place: taped.predictions[place[0]] for place in sources(taped.program)}
        with pytest.raises(TapeError, match=match):
            require_gradients(taped.program, taped.constants, leaves, taped.latents)
    taped = record(apg)
    leaves = {place: taped.predictions[place[0]] for place in sources(taped.program)}
    require_gradients(taped.program, taped.constants, leaves, taped.latents)


def test_a_format_that_is_none_is_refused() -> None:
    ops = [("torch.Tensor.contiguous", ("tuple", [("source", 0, 0)]), ("dict", {"memory_format": ("format", "nn")}))]
    with pytest.raises(TapeError, match="the record names 'nn', which is no format of memory"):
        require_gradients({"ops": ops, "end": ("result", 0, None)}, [], {(0, 0): seeded(1)[0]}, seeded(1)[0])


def test_half_precision_is_played_in_float32() -> None:
    taped = record(lambda c, u, x: (u.float() + 3 * (c.float() - u.float())).to(c.dtype), torch.bfloat16)
    c, u = (prediction.float() for prediction in taped.predictions)
    assert taped.played().dtype == torch.float32
    assert torch.equal(taped.played(), u + 3 * (c - u))
    assert torch.allclose(taped.made.float(), taped.played(), rtol=1e-2, atol=1e-2)


def test_steps_share_a_program_and_have_constants_of_their_own() -> None:
    tape = Tape()
    steps = [record(lambda c, u, x, level=level: u + level * (c - u), tape=tape) for level in (1.5, 4.0)]
    assert steps[0].program == steps[1].program
    assert [step.constants for step in steps] == [[1.5], [4.0]]


def test_momentum_over_steps_is_a_constant_and_said_to_be_of_an_earlier_step() -> None:
    tape, held = Tape(), []

    def momentum(c: Tensor, u: Tensor, x: Tensor) -> Tensor:
        held.append(c - u if not held else (c - u) - 0.5 * held[-1])
        return c + 3 * held[-1]

    first, second = record(momentum, tape=tape), record(momentum, tape=tape, seed=3)
    assert first.program["earlier"] == []
    (place,) = second.program["earlier"]
    assert torch.equal(second.constants[place], 0.5 * (first.predictions[0] - first.predictions[1]))
    assert torch.equal(second.played(), second.made)
