"""From a folder to a module: each parameter is asked for by its name, and nothing may be left over."""

from pathlib import Path

from safetensors import safe_open

from .keys import FILE, released


def fill(module, folder: str):
    with safe_open(Path(folder) / FILE, framework="pt") as held:
        left = set(held.keys())
        state = {}
        for name, parameter in module.named_parameters():
            if released(name) not in left:
                raise KeyError(f"{FILE} has no {released(name)}")
            left.discard(released(name))
            state[name] = held.get_tensor(released(name))
        if left:
            raise KeyError(f"{FILE} has more: {sorted(left)[:3]}")
    module.load_state_dict(state, assign=True)
    return module
