"""Whose fault a failure is: read off the error, and off the control run of the same item without the drop-in."""

from typing import Any

OURS = ("lacks an op", "the runtime failed", "crashed", "refused", "numbers differ", "other")
# word in the report -> how it counts
OUTSIDE = {
    "not an ML Program": "what it needs is a neural network of the older format, which the drop-in refuses by design",
    "fails without the drop-in": "it fails in the same place, before it predicts, where nothing of ours is loaded",
}
_OLDER = ("only ML Programs", "and only ML Programs are", "neuralNetwork", "neural network")


def cause(item: dict[str, Any]) -> str:
    """Cause of a failed or crashed item, judged by its error alone."""
    text, error = item.get("text", ""), item.get("error", "")
    if item["outcome"] == "crashed":
        return "crashed"
    if "Timeout" in text or error == "Failed":
        return "crashed" if "Timeout" in text else "other"
    if item.get("models") and all(kind.startswith("neuralNetwork") for kind in item["models"]):
        return "not an ML Program"
    if "reference runtime lacks" in text or "does not execute" in text:
        return "lacks an op"
    if "a bug of ane-sweep" in text or "failed while it ran" in text:
        return "the runtime failed"
    if "Not equal to tolerance" in text or "Mismatched elements" in text or "not almost equal" in text:
        return "numbers differ"
    if error == "RuntimeError":
        return "refused"
    return "other"


def is_older_kind(item: dict[str, Any]) -> bool:
    """The refusal of an older kind, in an item that may have built ML Programs beside it."""
    return item.get("error") == "RuntimeError" and any(word in item.get("text", "") for word in _OLDER)


def settle(item: dict[str, Any], control: dict[str, Any] | None, reached: str) -> str:
    """The cause, once the control has run: the same failure without us is not ours."""
    found = cause(item)
    if found != "not an ML Program" and is_older_kind(item):
        return "not an ML Program"
    if control is None or found in ("not an ML Program", "crashed"):
        return found
    if control["outcome"] in ("failed", "crashed") and reached not in control.get("text", ""):
        return "fails without the drop-in"
    return found


def counts(item: dict[str, Any], cause_: str | None) -> bool:
    """Whether an item is in the figure: it ran to an end, it builds an ML Program, and its conversion works without us."""
    if item["outcome"] not in ("passed", "failed", "crashed") or cause_ in OUTSIDE:
        return False
    return item["outcome"] == "crashed" or "mlProgram" in item.get("models", []) or item["outcome"] == "failed"
