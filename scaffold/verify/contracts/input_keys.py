"""What ``prepare_model_inputs`` builds is what ``forward`` takes."""

from __future__ import annotations

import inspect
from typing import Any

from scaffold.attributes import with_attribute
from scaffold.verify.measured import Measured
from scaffold.verify.subject.subject import PROMPTS

ID = "input-keys"
TITLE = "the keys of prepare_model_inputs are the arguments of forward"
PITFALLS = (27,)


def run(subject: Any) -> Measured:
    """Compare the keys of both branches with the signature; what hides behind ``**kwargs`` cannot be compared."""
    module = subject.new_module()
    made, error = None, None
    for image in subject.images(module):
        try:
            with with_attribute(subject, "_image", image):
                settings = subject.settings()
                trajectory = subject.trajectory(len(PROMPTS), settings)
                made = subject.prepared(module, settings, trajectory, subject.micro_batch(PROMPTS))
            break
        except Exception as problem:
            error = error or problem
    if made is None:
        raise error or RuntimeError("prepare_model_inputs took none of the image sizes tried")
    if not isinstance(made, tuple) or len(made) != 2:
        return Measured("", [f"prepare_model_inputs returns {type(made).__name__}, not a pair"])
    parameters = inspect.signature(module.forward).parameters
    named = {name for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    required = {name for name in named if parameters[name].default is inspect.Parameter.empty}
    problems = []
    for branch, inputs in zip(("conditional", "unconditional"), made, strict=True):
        if inputs is None:
            continue
        if missing := sorted(required - inputs.keys()):
            problems.append(f"the {branch} inputs lack {', '.join(missing)}, which forward needs")
        if not takes_more and (strange := sorted(inputs.keys() - named)):
            problems.append(f"the {branch} inputs hold {', '.join(strange)}, which forward does not take")
    more = "; forward takes **kwargs, so surplus keys would not show" if takes_more else ""
    return Measured(f"{', '.join(sorted(made[0]))}{more}", problems)
