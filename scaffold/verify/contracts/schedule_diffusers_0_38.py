"""Both sides walk one schedule, on diffusers 0.38.0."""

from __future__ import annotations

from functools import partial

from scaffold.verify.subject.schedule import measure_schedule

ID = "schedule-diffusers-0.38.0"
TITLE = "both adapters and upstream walk one schedule for 1 to 60 steps, on diffusers 0.38.0"
ROLLED = True
PITFALLS = (5, 30, 33, 44)
DIFFUSERS = "0.38.0"
run = partial(measure_schedule, release=DIFFUSERS)
