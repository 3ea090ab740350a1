"""The adapters of one architecture, or a script that trains it, name different algorithms.

Adapters are looked up by architecture and algorithm together. A training adapter for one algorithm and a rollout
adapter for another are never found in the same run, and a script that names a third one finds neither.

    @DiffusionModelBase.register(ARCHITECTURE, algorithm="flow_grpo")
    @VllmOmniPipelineBase.register(ARCHITECTURE, algorithm="flowgrpo")

Instead: one algorithm in both ``register`` calls, and ``actor_rollout_ref.model.algorithm=`` with it in the scripts.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.scripts import ALGORITHM
from scaffold.check.rule import Hit, Hits

ID = "OSC509"
NAME = "mismatched-algorithm"
SEVERITY = "error"
CHECKLIST = ("T1", "R1", "pitfall 26")


def check(package: Package) -> Hits:
    """Compare the algorithms of the two sides and of the scripts."""
    yield from _sides(package)
    known = package.algorithms
    if any(not isinstance(registration.algorithm, str) for registration in package.registrations) or not known:
        return
    for script in (*package.launch_scripts, *package.e2e_scripts):
        override = script.override(ALGORITHM)
        if override is not None and isinstance(override.value, str) and override.value not in known:
            text = f"algorithm {override.value!r} has no adapter in {package.name}, which has {', '.join(known)}"
            yield Hit(script, override.value_span, text, f"write {ALGORITHM}={known[0]}")


def _sides(package: Package) -> Hits:
    for registration in package.registered("rollout"):
        if not isinstance(registration.algorithm, str) or not isinstance(registration.architecture, str):
            continue
        others = [other for other in package.registered("training") if other.architecture == registration.architecture]
        algorithms = [other.algorithm for other in others]
        if not algorithms or not all(isinstance(name, str) for name in algorithms):
            continue
        if registration.algorithm not in algorithms:
            place = registration.algorithm_node or registration.call
            text = f"rollout is registered for {registration.algorithm!r}, training for {algorithms[0]!r}"
            yield Hit(registration.file, place, text, f"register both adapters for {algorithms[0]!r}")


FAILING = (
    Example("another name for rollout", rollout=('"flow_grpo"', '«"flowgrpo"»')),
    Example("a script that names another one", launch=("=flow_grpo", "=«dance_grpo»")),
)
PASSING = (
    Example("the script leaves it to the default", launch=("    actor_rollout_ref.model.algorithm=flow_grpo\n", "")),
)
