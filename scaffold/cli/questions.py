"""What ``new`` asks on a terminal where no MODEL is given; each answer is an option, and the command is printed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from scaffold.printable import printable, printable_command

SHOWN = 15


@dataclass(frozen=True)
class Answers:
    """What `new` takes; None for its default."""

    model: str
    pipeline: str
    checkpoint: str | None
    verl_omni: str | None
    out: str | None
    reward: str | None
    lora_rank: int | None

    def command(self, vllm_omni: str | None) -> str:
        """The command that does the same without questions."""
        options = {
            "--pipeline": self.pipeline,
            "--vllm-omni": vllm_omni,
            "--checkpoint": self.checkpoint,
            "--verl-omni": self.verl_omni,
            "--out": self.out,
            "--reward": self.reward,
            "--lora-rank": self.lora_rank,
        }
        words = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
        return shlex.join(["omni-scaffold", "new", self.model, *words])


def can_ask() -> bool:
    """Whether a person is there to answer: never in a pipe."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(
    *,
    pipeline: str | None,
    checkpoint: str | None,
    vllm_omni: str | None,
    verl_omni: str | None,
    out: str | None,
    reward: str | None,
    lora_rank: int | None,
) -> Answers:
    """Ask for what is not given, with what was found as the default.

    Raises:
        ScaffoldError: no such vllm-omni or checkout, or a pipeline that this path does not serve.
        KeyboardInterrupt: the person has had enough.
    """
    from scaffold.inspect import inspect_pipeline
    from scaffold.new import refuse
    from scaffold.render.names import model_name
    from scaffold.target import Checkout
    from scaffold.upstream import locate, read_registry

    try:
        above = Checkout.above(Path.cwd()) if verl_omni is None and out is None else None
        checkout = Checkout.open(verl_omni) if verl_omni is not None else above
        source = locate(vllm_omni, checkout_pin=checkout.vllm_omni_pin if checkout is not None else None)
        typer.echo(f"vllm-omni {printable(source.label)}")
        pipeline = pipeline or _pipeline(list(read_registry(source)))
        report = inspect_pipeline(source, pipeline)
        refuse(report)
        for name in ("scheduler.steps", "scheduler.shift", "cfg.scales", "prompt.kind"):
            fact = report.fact(f"answers.{name}")
            place = f"{fact.evidence[0].file}:{fact.evidence[0].line}" if fact.evidence else "no place"
            typer.echo(printable(f"{name}: {fact.value} ({fact.confidence}, {place})"))
        model = typer.prompt("name of the integration", default=model_name(pipeline))
        checkpoint = (
            checkpoint or typer.prompt("checkpoint, a folder or OWNER/NAME (empty for none)", default="") or None
        )
        if verl_omni is None and out is None:
            if above is not None and typer.confirm(printable(f"write into the checkout {above.root}"), default=True):
                verl_omni = str(above.root)
            else:
                out = typer.prompt("folder to write to", default=f"build/{model}")
        reward = reward or typer.prompt("reward: ocr, pickscore or FILE:FUNCTION", default="ocr")
        rank = lora_rank or typer.prompt("rank of the LoRA adapter", default=64, type=int)
    except typer.Abort:
        raise KeyboardInterrupt from None
    answers = Answers(model, pipeline, checkpoint, verl_omni, out, reward, rank)
    typer.echo(printable_command(f"the same without questions: {answers.command(vllm_omni)}"))
    return answers


def _pipeline(keys: list[str]) -> str:
    """Search until one is left: a key, or a part that only one key has."""
    while True:
        wanted = str(typer.prompt("pipeline, or a part of its name"))
        found = [key for key in keys if wanted.lower() in key.lower()]
        exact = [key for key in found if key.lower() in (wanted.lower(), f"{wanted.lower()}pipeline")]
        if len(exact or found) == 1:
            return (exact or found)[0]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        typer.echo(printable(", ".join(found[:SHOWN]) + more) if found else "no pipeline has that in its name")
