"""Every push after an update of what samples changes what the engine computes with."""

from __future__ import annotations

from collections import defaultdict

from scaffold.algorithms import ALGORITHMS
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.train.contract import Training
from scaffold.verify.train.record import Push

CHECK = Check("push", "Every update reaches every rank of every replica of the engine", 0.0, "pushes", (11,))


def measure(training: Training) -> Measurement:
    """Count the pushes, one a step and process, that changed nothing or failed.

    An old policy that samples is updated every few steps, and a push between two of them brings what the engine has.
    """
    steps = len(training.run.steps)
    if not steps:
        raise NotApplicable("no step was taken")
    processes: dict[tuple[str, int], list[Push]] = defaultdict(list)
    for push in training.run.pushes:
        # Engines that share their processes with an asynchronous trainer have the first numbers, and make no images.
        if training.variant.engines and push.replica.isdigit() and int(push.replica) < training.variant.processes:
            continue
        processes[push.replica, push.rank].append(push)
    # A push before the first update may bring what the engine has.
    after = [push for found in processes.values() for push in found[-steps:]]
    every = _interval(training)
    updated = [push for found in processes.values() for push in found[-steps:][every - 1 :: every]]
    missing = sum(max(0, steps - len(found)) for found in processes.values()) if processes else steps
    dead = [push for push in after if push.error] + [push for push in updated if not push.error and not push.changed]
    if dead or missing:
        told = f"{len(dead)} changed nothing, {missing} did not come"
        error = next((push.error for push in dead if push.error), None)
        return Measurement("", float(len(dead) + missing), told + (f"; {error}" if error else ""))
    if not updated:
        raise NotApplicable(f"{steps} steps end before the policy that samples is updated, in step {every}")
    fewest = min(push.changed for push in updated)
    told = f"{len(after)} pushes to {len(processes)} processes, at least {fewest} tensors changed"
    return Measurement("", 0.0, told + (f" by every update, which is one in {every} steps" if every > 1 else ""))


def _interval(training: Training) -> int:
    """Steps from one update of the policy that samples to the next."""
    algorithm = training.variant.algorithm
    options = ALGORITHMS[algorithm].options if algorithm is not None else {}
    return int(options.get("algorithm.old_policy_update_interval", 1))
