from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

from .plan import Draft


class Ply(nn.Module):
    def __init__(self, thread):
        super().__init__()
        w = thread.breadth
        self.n, self.kv, self.h = thread.strands, thread.groups, w // thread.strands
        if w % thread.strands or thread.strands % thread.groups:
            raise ValueError("does not divide")
        self.norm1 = nn.RMSNorm(w, eps=1e-6)
        self.norm2 = nn.RMSNorm(w, eps=1e-6)
        self.query = nn.Linear(w, w, bias=False)
        self.key = nn.Linear(w, self.kv * self.h, bias=False)
        self.value = nn.Linear(w, self.kv * self.h, bias=False)
        self.join = nn.Linear(w, w, bias=False)
        self.fc1 = nn.Linear(w, w * thread.bulge)
        self.fc2 = nn.Linear(w * thread.bulge, w)

    def forward(self, x, mask):
        y = self.norm1(x)
        q = self.query(y).unflatten(-1, (self.n, self.h)).transpose(1, 2)
        k = self.key(y).unflatten(-1, (self.kv, self.h)).transpose(1, 2)
        v = self.value(y).unflatten(-1, (self.kv, self.h)).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + self.join(o.transpose(1, 2).flatten(2))
        return x + self.fc2(F.silu(self.fc1(self.norm2(x))))


class Fabric(NonDiffusersModelBase):
    _no_split_modules = ["Ply"]
    _supports_gradient_checkpointing = True

    def __init__(self, draft: Draft):
        super().__init__()
        self.draft = draft
        t, c, s = draft.thread, draft.canvas, draft.speech
        size = c.depth * c.patch**2
        self.lexicon = nn.Embedding(s.lexicon, t.breadth)
        self.places = nn.Embedding(c.edge * c.edge, t.breadth)
        self.inward = nn.Linear(size, t.breadth)
        self.hour = nn.Sequential(nn.Linear(32, t.breadth), nn.SiLU(), nn.Linear(t.breadth, t.breadth))
        self.plies = nn.ModuleList(Ply(t) for _ in range(t.plies))
        self.outward = nn.Linear(t.breadth, size)

    @classmethod
    def revive(cls, folder, dtype):
        draft = Draft.parse(folder)
        with torch.device("meta"):
            made = cls(draft)
        state = torch.load(Path(folder) / "loom" / "weights" / "tensors.bin", map_location="cpu", mmap=True, weights_only=True)
        made.load_state_dict(state["model"], strict=True, assign=True)
        return made.to(dtype)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, torch_dtype=torch.bfloat16, **kwargs):
        return cls.revive(pretrained_model_name_or_path, torch_dtype)

    def save_pretrained(self, save_directory, **kwargs):
        self.draft.write(save_directory)
        target = Path(save_directory) / "loom" / "weights"
        target.mkdir(exist_ok=True)
        torch.save({"model": self.state_dict()}, target / "tensors.bin")

    def forward(self, picture, hour, place, speech=None, spoken=None):
        dtype = self.inward.weight.dtype
        x = self.inward(picture.to(dtype)) + self.places(place).to(dtype)
        x = x + self.hour(hour.to(dtype))[:, None]
        mask = None
        if speech is not None:
            order = 1 + 0.05 * torch.arange(speech.shape[1], device=speech.device)
            words = self.lexicon(speech) * order[None, :, None].to(dtype)
            x = torch.cat([x, words.to(dtype)], 1)
            mask = F.pad(spoken, (picture.shape[1], 0), value=True)[:, None, None]
        for ply in self.plies:
            x = self._checkpointed_call(ply, x, mask)
        return (self.outward(x[:, : picture.shape[1]]),)
