"""A scheduler that keeps what the window of a rollout needs."""

from types import SimpleNamespace

from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .hours import set_hours


class Diary:
    def open(self, points, window, noise_level, sde_type):
        self.clock = FlowMatchSDEDiscreteScheduler()
        set_hours(self.clock, points, "cpu")
        self.first, self.last = window or (0, len(self.clock.timesteps))
        self.noise_level, self.sde_type = noise_level, sde_type
        self.page, self.path, self.scores = 0, [], []

    def step(self, velocity, level, sample, difference, **unused):
        kept = self.first <= self.page < self.last
        here = sample.float()[None]
        after, score, *_ = self.clock.step(
            velocity.float()[None],
            self.clock.timesteps[self.page],
            here,
            return_dict=False,
            noise_level=self.noise_level if kept else 0.0,
            sde_type=self.sde_type,
            include_logprob_normalizer=False,
        )
        if kept:
            self.path = [*(self.path or [here]), after]
            self.scores.append(score)
        self.page += 1
        return SimpleNamespace(prev_sample=after[0], log_prob=score[0] if kept else None)
