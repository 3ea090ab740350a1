"""The package under test, as contracts see it: its classes, a tiny model, inputs, a rollout to drive."""

from scaffold.verify.subject.subject import Subject

__all__ = ["Subject"]
