"""What the kinds of an audit's verdict are called on pages."""

from __future__ import annotations

from typing import NamedTuple

from proctor.view.verdict import Tone

_HEADLINES: dict[str, tuple[Tone, str]] = {
    "no effect found": ("good", "No effect found"),
    "isolated": ("warn", "Cause found"),
    "not isolated": ("warn", "An effect, not isolated"),
    "observer": ("warn", "What is asked for beside the answer changes it"),
    "too identical": ("bad", "Too identical"),
    "run-to-run": ("bad", "Not the same from run to run"),
    "could not tell": ("open", "Could not tell"),
    "failed": ("warn", "The audit failed"),
}


class Headline(NamedTuple):
    """How bad it is, in a few words, and the sentence without what those words say already."""

    tone: Tone
    text: str
    sentence: str


def headline(kind: str, sentence: str, nature: str = "") -> Headline:
    """The headline of a verdict of this kind; `nature` says whether rounding explains what was found."""
    tone, text = _HEADLINES.get(kind, ("open", kind))
    tone = "bad" if nature == "wrong results" else tone
    head, colon, rest = sentence.partition(": ")
    said = colon and head.lower() in (kind.replace("-", " "), text.lower())
    if not said:
        return Headline(tone, text, sentence)
    begins_with_a_word = rest.partition(" ")[0].isalpha()  # names of arms stay as they are
    return Headline(tone, text, rest[:1].upper() + rest[1:] if begins_with_a_word else rest)
