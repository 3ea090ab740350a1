"""Several runs of one function that meet at one call, so that it is answered for all of them at once."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch

_OTHERS = 0x1B873593  # makes a seed of a request's that none of its generators has

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class _Abandoned(BaseException):
    """Ends a run whose questions are no longer answered."""


class Lockstep(Generic[Question, Answer, Result]):
    """Runs functions in turns, each up to its next question, and answers the questions of a turn together.

    Each run has a thread, of which one works at a time. Each has its own random numbers, of the CPU and of the card
    that is current: what it draws does not depend on the others.

    Args:
        together: answers the questions of a turn, in order; an error goes to all of them.
    """

    def __init__(self, together: Callable[[list[Question]], Sequence[Answer]]) -> None:
        self._together = together
        self._runs = threading.local()

    def ask(self, question: Question) -> Answer:
        """Called in a run: wait until all others ask or are done, and return the answer."""
        run: _Run[Question, Answer, Result] = self._runs.current
        return run.ask(question)

    def run(self, functions: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Run all functions to their end; an error of one is its result, and does not concern the others."""
        runs = [_Run[Question, Answer, Result](function, self._runs) for function in functions]
        with _random_numbers_kept():
            # Random numbers of the run's own, where the function seeds none: equal ones would be one noise for all.
            seeds = torch.randint(2**62, (len(runs),)).tolist()
            try:
                for run, seed in zip(runs, seeds, strict=True):
                    run.start(seed)
                while asking := [run for run in runs if run.asks]:
                    for run, answer in zip(asking, self._answers(asking), strict=True):
                        run.answer(answer)
            finally:
                for run in runs:
                    if run.asks:
                        run.answer(_Abandoned())
        return [run.result for run in runs]  # type: ignore[misc]

    def _answers(self, asking: Sequence[_Run[Question, Answer, Result]]) -> Sequence[Answer | BaseException]:
        try:
            return self._together([run.question for run in asking])  # type: ignore[misc]
        except Exception as error:
            return [error] * len(asking)


class _Run(Generic[Question, Answer, Result]):
    def __init__(self, function: Callable[[], Result], runs: threading.local) -> None:
        self._function, self._runs = function, runs
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._answer: Answer | BaseException | None = None
        self.question: Question | None = None
        self.asks = False
        self.result: Result | Exception | None = None

    def start(self, seed: int) -> None:
        settings, context = _torch_settings(), contextvars.copy_context()

        def work() -> None:
            self._runs.current = self
            try:
                with settings():
                    torch.manual_seed(seed)
                    self.result = self._function()
            except Exception as error:
                self.result = error
            except _Abandoned:
                self.result = RuntimeError("the batch of this request was given up")
            finally:
                self.asks = False
                self._back.release()

        threading.Thread(target=context.run, args=(work,), daemon=True).start()
        self._back.acquire()

    def ask(self, question: Question) -> Answer:
        self.question, self.asks = question, True
        with _random_numbers_kept():
            self._back.release()
            self._go.acquire()
        answer, self._answer = self._answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]

    def answer(self, answer: Answer | BaseException) -> None:
        self.question, self.asks, self._answer = None, False, answer
        self._go.release()
        self._back.acquire()


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Restore the random states of the CPU and of the current accelerator afterwards."""
    card = _card()
    states = torch.get_rng_state(), None if card is None else card.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        if card is not None:
            card.set_rng_state(states[1])


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Within the block torch's own random numbers follow ``seed``; afterwards they go on as without it.

    A pipeline draws more than noise: a sample of what its autoencoder makes of a reference image, say. Without a seed
    nothing is touched.
    """
    if seed is None:
        yield
        return
    with _random_numbers_kept():
        # Another one than the generators of the latents and of the steps have, which would draw the same numbers.
        torch.manual_seed(seed ^ _OTHERS)
        yield


def _card() -> Any:
    """torch's module of the accelerator in use; None where there is none."""
    accelerator = torch.accelerator.current_accelerator()
    module = None if accelerator is None else torch.get_device_module(accelerator.type)
    return module if module is not None and module.is_initialized() else None


def _torch_settings() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Capture the thread-local settings of torch; the result applies them in another thread."""
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    card, accelerator = _card(), torch.accelerator.current_accelerator()
    kinds = ("cpu",) if card is None or accelerator is None else ("cpu", accelerator.type)
    casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    stream = None if card is None else card.current_stream()

    @contextlib.contextmanager
    def settings() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(inference))
            stack.enter_context(torch.set_grad_enabled(grad))
            for kind, enabled, dtype in casts:
                if enabled:
                    stack.enter_context(torch.autocast(kind, dtype=dtype))
            if stream is not None:
                stack.enter_context(card.device(stream.device))
                stack.enter_context(card.stream(stream))
            yield

    return settings
