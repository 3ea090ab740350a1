"""What the unconditional branch is given without a negative prompt, through the ways in which it is written."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from synthetic import BOTH, look, turns

from scaffold.inspect import Report

GUIDED = BOTH + "v = u + scale * (c - u)"
KIND, TEXT, KEYS = "detail.negative.kind", "detail.negative.text", "detail.negative.keys"


def found(root: Path, said: str, body: str = GUIDED, **others: str) -> Report:
    return look(root, turns(body, textwrap.dedent(said)), **others)


GIVEN = 'words = None if isinstance(prompt, str) else prompt.get("negative_prompt")\n'
FROM_ALL = """
if all(isinstance(p, str) or p.get("negative_prompt") is None for p in req.prompts):
    words = None
else:
    words = ["" if isinstance(p, str) else (p.get("negative_prompt") or "") for p in req.prompts]
"""


ONCE = "words = 1 * [words] if isinstance(words, str) else words\n"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (GIVEN + 'none = self.encode(words or "")', "empty_string"),
        (GIVEN + 'none = self.encode([words if words is not None else " "])', "space"),
        (GIVEN + 'words = words or ""\nnone = self.encode([w.strip() for w in [words]])', "empty_string"),
        (FROM_ALL + 'words = words or ""\n' + ONCE + "none = self.encode(words)", "empty_string"),
        (FROM_ALL + 'words = words or [""]\nnone = self.encode(["Draw: " + w for w in words])', "text"),
        (GIVEN + 'none = self.encode(words or "blurred, ugly")', "text"),
        ('none = self.encode(prompt.get("negative_prompt", params.seed))', None),
        ('none = self.encode(params.extra_args.get("style", ""))', None),
    ],
)
def test_words_when_none_are_given(tmp_path: Path, said: str, kind: str | None) -> None:
    assert found(tmp_path, said).value(KIND) == kind


def test_fixed_words_are_told(tmp_path: Path) -> None:
    report = found(tmp_path, GIVEN + 'none = self.encode(words or "blurred,  ugly".strip())')
    assert (report.value(KIND), report.value(TEXT)) == ("text", "blurred,  ugly")
    assert report.value(KEYS) == ["prompt.negative_prompt"]
    assert found(tmp_path, GIVEN + 'none = self.encode(words or "")').value(TEXT) is None


FRAMED = """
class Framed:
    def frame(self, text):
        return self.tokenizer(["Draw this: " + text + "!"]).input_ids


"""


@pytest.mark.parametrize(("words", "kind"), [('""', "empty_string"), ('" "', "space"), ('"nothing"', "text")])
def test_words_inside_the_same_frame_as_the_prompt(tmp_path: Path, words: str, kind: str) -> None:
    said = f'cond = self.frame(prompt.get("prompt"))\nnone = self.frame({words})'
    assert found(tmp_path, said, bases="nn.Module, Framed", before=FRAMED).value(KIND) == kind


CHAT = """
class Chat:
    def frame(self, texts):
        texts = [texts] if isinstance(texts, str) else texts
        for i, text in enumerate(texts):
            turn = [{"role": "system", "content": "You draw."}, {"role": "user", "content": text}]
            texts[i] = self.tokenizer.apply_chat_template(turn, tokenize=False)
        return self.tokenizer(texts).input_ids


"""


@pytest.mark.parametrize(("words", "kind"), [('""', "empty_string"), ('" "', "space"), ('"nothing"', "text")])
def test_words_inside_a_chat_template(tmp_path: Path, words: str, kind: str) -> None:
    said = GIVEN + f'cond = self.frame(prompt.get("prompt"))\nnone = self.frame({words} if words is None else words)'
    report = found(tmp_path, said, bases="nn.Module, Chat", before=CHAT)
    assert (report.value(KIND), report.value(TEXT)) == (kind, None)


SPACED = """
class Spaced:
    def frame(self, text):
        return self.tokenizer([text if text else " "]).input_ids


"""


def test_words_that_the_encoder_replaces_are_known_by_what_is_encoded(tmp_path: Path) -> None:
    said = 'cond = self.frame(prompt.get("prompt"))\nnone = self.frame("")'
    assert found(tmp_path, said, bases="nn.Module, Spaced", before=SPACED).value(KIND) == "space"


def test_two_readings_that_disagree(tmp_path: Path) -> None:
    # One function is given nothing, and the one that it calls puts a blank there.
    inner = SPACED.replace("text if text else", "text or") + (
        "class Outer(Spaced):\n    def whole(self, text):\n        return self.frame(text)\n\n\n"
    )
    said = 'cond = self.whole(prompt.get("prompt"))\nnone = self.whole("")'
    assert found(tmp_path, said, bases="nn.Module, Outer", before=inner).fact(KIND).confidence == "unknown"


GUARDED = "has = words is not None\nnone = self.encode(words) if has else cond\nboth = scale > 1 and has"
CHOSEN = """
c = self.net(x, sigmas[i], cond)
if both:
    u = self.net(x, sigmas[i], none)
    v = u + scale * (c - u)
else:
    v = c
"""


def test_no_branch_without_a_negative_prompt(tmp_path: Path) -> None:
    report = found(tmp_path, GIVEN + GUARDED, CHOSEN)
    assert (report.value(KIND), report.value("cfg.branches")) == ("none", 2)
    always = GUARDED.replace("scale > 1 and has", "scale > 1").replace("else cond", 'else self.encode("")')
    assert found(tmp_path, GIVEN + always, CHOSEN).value(KIND) == "empty_string"


def test_no_branch_at_all(tmp_path: Path) -> None:
    said = GIVEN + 'none = self.encode(words or "")'
    report = found(tmp_path, said, "v = self.net(x, sigmas[i], cond)")
    assert (report.value(KIND), report.fact(KIND).confidence) == ("none", "likely")
    assert report.value(KEYS) is None


@pytest.mark.parametrize(
    ("none", "kind"),
    [
        ("torch.zeros_like(cond)", "zeros"),
        ("cond.new_zeros((1, 0, 8))", "empty"),
        ("self.encode(words)", None),
    ],
)
def test_rows_of_one_batch(tmp_path: Path, none: str, kind: str | None) -> None:
    body = """
    given = torch.cat([none, cond], dim=0) if scale > 1 else cond
    u, c = self.net(x, sigmas[i], given.repeat(1, 2, 1)).chunk(2)
    v = u + scale * (c - u)
    """
    said = f"{GIVEN}none = {none} if words is None else self.encode(words)"
    assert found(tmp_path, said, body).value(KIND) == kind


def test_a_join_along_the_tokens_is_no_batch(tmp_path: Path) -> None:
    body = "c = self.net(x, sigmas[i], torch.cat([cond, torch.zeros_like(cond)], dim=1))\n"
    body += "u = self.net(x, sigmas[i], self.learned)\nv = u + scale * (c - u)"
    assert found(tmp_path, "", body, init="self.learned = nn.Parameter(torch.ones(8))").value(KIND) is None


def test_zeros_beside_words_that_were_not_read(tmp_path: Path) -> None:
    pair = "class Pair(nn.Module):\n    def forward(self, x, t, cond, hint):\n        return x + t + cond + hint\n\n\n"
    body = "c = self.pair(x, sigmas[i], cond, cond)\nu = self.pair(x, sigmas[i], none, torch.zeros_like(cond))\n"
    body += "v = u + scale * (c - u)"
    init = "self.pair = Pair()\nself.words = AutoTokenizer.from_pretrained('x').unk_token"
    unread = found(tmp_path, "none = self.encode(self.words)", body, before=pair, init=init)
    assert unread.value(KIND) is None
    read = found(tmp_path / "read", "none = torch.zeros_like(cond)", body, before=pair, init=init)
    assert read.value(KIND) == "zeros"
