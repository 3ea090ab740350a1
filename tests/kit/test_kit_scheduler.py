"""The kit's stochastic step against its formulas, evaluated directly in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from installed import in_one_worker, require

torch = pytest.importorskip("torch")
require("diffusers")
pytestmark = in_one_worker

SDE_TYPES = ("sde", "cps", "dance_sde")
# shift 3 over ten points, its first sigma exactly 1, then levels close to both ends
SHIFTED = [3 * t / (1 + 2 * t) for t in (1 - i / 9 for i in range(9))]
SCHEDULES = {"shifted": SHIFTED, "near one": [0.999, 0.98, 0.6, 0.05], "short": [1.0, 0.5], "fine": [0.9, 0.89, 0.01]}


class Expected(NamedTuple):
    """Everything one step returns, in float64."""

    prev_sample: Any
    log_prob: Any
    mean: Any
    std_dev: Any
    sqrt_dt: Any


def reference(
    x: Any, v: Any, sigma: Any, sigma_next: Any, second: float, eta: float, kind: str, normalizer: bool, chosen: Any
) -> Expected:
    """One step by the formulas; ``chosen`` is the noise (callable) or the next sample (tensor)."""
    x, v = x.double(), v.double()
    shape = (-1,) + (1,) * (x.ndim - 1)
    sigma, sigma_next = sigma.double().view(shape), sigma_next.double().view(shape)
    dt = sigma_next - sigma
    x0 = x - sigma * v
    if kind == "sde":
        in_denominator = torch.where(sigma == 1, torch.as_tensor(second, dtype=torch.float64), sigma)
        s = eta * torch.sqrt(sigma / (1 - in_denominator))
        mean = x * (1 + s**2 / (2 * sigma) * dt) + v * (1 + s**2 * (1 - sigma) / (2 * sigma)) * dt
        spread = s * torch.sqrt(-dt)
    elif kind == "cps":
        s = sigma_next * math.sin(eta * math.pi / 2)
        e = x + (1 - sigma) * v
        mean = x0 * (1 - sigma_next) + e * torch.sqrt(sigma_next**2 - s**2)
        spread = s
    else:
        s = eta * torch.sqrt(-dt)
        mean = x + dt * v + 0.5 * eta**2 * (x - x0 * (1 - sigma)) / sigma**2 * dt
        spread = s
    prev = mean + spread * chosen() if callable(chosen) else chosen.double()
    if kind == "cps":
        values = -((prev - mean) ** 2)
    else:
        values = -((prev - mean) ** 2) / (2 * spread**2)
        if normalizer:
            values = values - torch.log(spread) - math.log(math.sqrt(2 * math.pi))
    return Expected(prev, values.flatten(1).mean(1), mean, s, torch.sqrt(-dt).flatten())


@pytest.fixture
def make_scheduler(kit: Path) -> Any:
    """Return ``make(sigmas)``: a scheduler whose timesteps are its sigmas, as this family's are."""
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

    def make(sigmas: list[float]) -> Any:
        scheduler = FlowMatchSDEDiscreteScheduler()
        scheduler.set_shift(1.0)
        scheduler.set_timesteps(sigmas=sigmas)
        # diffusers 0.40 ignores timesteps= beside sigmas=, so they are set by hand
        scheduler.timesteps = scheduler.sigmas[:-1].clone()
        scheduler.set_begin_index(0)
        return scheduler

    return make


def draw(*shape: int, seed: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(actual: Any, expected: Any, tolerance: float = 2e-5) -> None:
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def inner_steps(sigmas: list[float], kind: str) -> list[int]:
    """Steps with noise: cps has none where the next sigma is 0."""
    return list(range(len(sigmas) - (kind == "cps")))


@pytest.mark.parametrize("normalizer", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", SDE_TYPES)
def test_batched_lookup_matches_formulas(make_scheduler: Any, kind: str, schedule: str, normalizer: bool) -> None:
    scheduler = make_scheduler(SCHEDULES[schedule])
    steps = list(reversed(inner_steps(SCHEDULES[schedule], kind)))  # any order, each sample its own timestep
    index = torch.tensor(steps)
    x, v = draw(len(steps), 6, 4, seed=1), draw(len(steps), 6, 4, seed=2)
    noise = draw(len(steps), 6, 4, seed=3).double()
    sigma, following, second = scheduler.sigmas[index], scheduler.sigmas[index + 1], float(scheduler.sigmas[1])
    drawn = reference(x, v, sigma, following, second, 0.7, kind, normalizer, lambda: noise)
    given = drawn.prev_sample.float()

    prev, log_prob, mean, std_dev, sqrt_dt = scheduler.sample_previous_step(
        sample=x,
        model_output=v,
        timestep=scheduler.timesteps[index],
        noise_level=0.7,
        prev_sample=given,
        sde_type=kind,
        return_sqrt_dt=True,
        include_logprob_normalizer=normalizer,
    )

    expected = reference(x, v, sigma, following, second, 0.7, kind, normalizer, given)
    assert prev is given
    close(mean, expected.mean)
    close(std_dev, expected.std_dev)
    close(sqrt_dt, expected.sqrt_dt)
    # a Gaussian's log-prob divides the rounding of the mean by its spread
    close(log_prob, expected.log_prob, tolerance=2e-4)
    assert log_prob.shape == sqrt_dt.shape == (len(steps),)
    assert std_dev.shape == (len(steps), 1, 1)


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("kind", SDE_TYPES)
def test_noise_comes_from_the_generator(make_scheduler: Any, kind: str, eta: float) -> None:
    scheduler = make_scheduler(SHIFTED)
    x, v = draw(2, 5, 3, seed=4), draw(2, 5, 3, seed=5)
    prev, log_prob, *_ = scheduler.sample_previous_step(
        sample=x,
        model_output=v,
        timestep=scheduler.timesteps[[0, 4]],
        generator=torch.Generator().manual_seed(6),
        noise_level=eta,
        sde_type=kind,
    )
    sigma, following = scheduler.sigmas[[0, 4]], scheduler.sigmas[[1, 5]]
    noise = draw(2, 5, 3, seed=6).double()
    expected = reference(x, v, sigma, following, float(scheduler.sigmas[1]), eta, kind, True, lambda: noise)
    close(prev, expected.prev_sample)
    close(log_prob, expected.log_prob, tolerance=2e-4)


@pytest.mark.parametrize("kind", SDE_TYPES)
def test_step_walks_the_schedule(make_scheduler: Any, kind: str) -> None:
    scheduler = make_scheduler(SHIFTED)
    x = draw(1, 8, 4, seed=7)
    generator = torch.Generator().manual_seed(8)
    twin = torch.Generator().manual_seed(8)
    for i in inner_steps(SHIFTED, kind):
        v = draw(1, 8, 4, seed=100 + i)
        out = scheduler.step(v, scheduler.timesteps[i], x, generator=generator, noise_level=0.5, sde_type=kind)
        assert scheduler.step_index == i + 1
        noise = torch.randn(1, 8, 4, generator=twin).double()
        expected = reference(
            x,
            v,
            scheduler.sigmas[i : i + 1],
            scheduler.sigmas[i + 1 : i + 2],
            float(scheduler.sigmas[1]),
            0.5,
            kind,
            True,
            lambda noise=noise: noise,
        )
        close(out.prev_sample, expected.prev_sample)
        close(out.prev_sample_mean, expected.mean)
        close(out.log_prob, expected.log_prob, tolerance=2e-4)
        x = out.prev_sample


def test_step_finds_its_index_by_timestep_first(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    scheduler._begin_index = None
    scheduler.step(draw(1, 2, 2, seed=1), scheduler.timesteps[3], draw(1, 2, 2, seed=2))
    assert scheduler.step_index == 4


def test_step_takes_the_sample_in_any_dtype_and_returns_float32(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    result = scheduler.step(
        draw(1, 2, 2, seed=1),
        scheduler.timesteps[0],
        draw(1, 2, 2, seed=2).bfloat16(),
        prev_sample=draw(1, 2, 2, seed=3).bfloat16(),
        return_dict=False,
    )
    assert len(result) == 4
    assert result[0].dtype == result[2].dtype == torch.float32


def test_no_noise_and_no_log_prob_outside_a_window(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    x, v = draw(1, 3, 3, seed=1), draw(1, 3, 3, seed=2)
    for kind in SDE_TYPES:
        prev, log_prob, mean, _ = scheduler.sample_previous_step(
            sample=x,
            model_output=v,
            timestep=scheduler.timesteps[2:3],
            noise_level=0.0,
            sde_type=kind,
            return_logprobs=False,
        )
        assert log_prob is None
        assert torch.equal(prev, mean)
        euler = x.double() + v.double() * (scheduler.sigmas[3] - scheduler.sigmas[2]).double()
        close(prev, euler)


def test_sqrt_dt_has_one_value_per_sample_without_timesteps(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    scheduler._step_index = 2
    *_, sqrt_dt = scheduler.sample_previous_step(
        sample=draw(3, 4, seed=1), model_output=draw(3, 4, seed=2), return_sqrt_dt=True
    )
    expected = torch.sqrt(scheduler.sigmas[2] - scheduler.sigmas[3])
    assert torch.equal(sqrt_dt, expected.repeat(3))


def test_gradient_of_log_prob_reaches_the_model_only_through_the_mean(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    v = draw(1, 4, seed=2).requires_grad_()
    prev = draw(1, 4, seed=3).requires_grad_()
    _, log_prob, *_ = scheduler.sample_previous_step(
        sample=draw(1, 4, seed=1), model_output=v, timestep=scheduler.timesteps[1:2], prev_sample=prev
    )
    log_prob.sum().backward()
    assert prev.grad is None
    assert v.grad is not None
    assert bool((v.grad != 0).all())


@pytest.mark.parametrize("which", ["sample", "model_output", "prev_sample"])
def test_anything_but_float32_is_refused(make_scheduler: Any, which: str) -> None:
    scheduler = make_scheduler(SHIFTED)
    tensors = {name: draw(1, 4, seed=i) for i, name in enumerate(("sample", "model_output", "prev_sample"))}
    tensors[which] = tensors[which].bfloat16()
    with pytest.raises(AssertionError, match=f"{which} is torch.bfloat16"):
        scheduler.sample_previous_step(**tensors, timestep=scheduler.timesteps[:1])


def test_wrong_use_is_refused(make_scheduler: Any) -> None:
    scheduler = make_scheduler(SHIFTED)
    pair = {"sample": draw(1, 4, seed=1), "model_output": draw(1, 4, seed=2)}
    with pytest.raises(AssertionError, match="ode"):
        scheduler.sample_previous_step(**pair, timestep=scheduler.timesteps[:1], sde_type="ode")
    with pytest.raises(NotImplementedError, match="per_token_timesteps"):
        scheduler.sample_previous_step(**pair, per_token_timesteps=torch.zeros(1, 4))
    with pytest.raises(IndexError):  # integers for fractions of the schedule
        scheduler.sample_previous_step(**pair, timestep=torch.tensor([833.0]))
    for index in (0, torch.tensor(0), torch.tensor(0, dtype=torch.int32)):
        with pytest.raises(ValueError, match="integer"):
            scheduler.step(pair["model_output"], index, pair["sample"])


def test_fourth_positional_argument_is_not_a_step_width(make_scheduler: Any) -> None:
    """Calls with (model_output, sigma, sample, dt) need a wrapper: here dt would be swallowed."""
    import inspect

    assert list(inspect.signature(make_scheduler(SHIFTED).step).parameters)[3] == "s_churn"
