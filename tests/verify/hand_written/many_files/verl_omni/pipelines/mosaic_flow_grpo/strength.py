"""Guidance: how strongly the prompt counts."""

NAME, USUAL = "cfg_text_scale", 3.0


def asked(settings) -> float:
    found = getattr(settings, NAME, None)
    return USUAL if found is None else float(found)


def stronger(with_prompt, without, strength: float):
    return without + strength * (with_prompt - without)
