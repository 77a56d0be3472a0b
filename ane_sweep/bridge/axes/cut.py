"""How a model is cut into chunks (chunking.py makes the chunk task of it)."""

from dataclasses import dataclass
from functools import partial

from ane_sweep.bridge.axes import Asked, Only, axis
from ane_sweep.bridge.model_tasks import EMBED, NO_TEXT, TEXTS

AUTO = "auto"
OWN = {"none": 0, "embeddings": 1, "head": 1, "both": 2}  # chunks that are set from the start
_axis = partial(axis, shapes=("chunk",), honoured="chunks")
_KNOWS_NEITHER = "pipeline=bisect: coremltools' bisect_model knows neither own_chunks nor chunk_by; use pipeline=manual"


def _pipeline(asked: Asked) -> str | None:
    if asked["pipeline"] != "manual" and asked["cache"] != "none" and asked["chunks"] != 1:
        return (
            f"pipeline={asked['pipeline']} with cache={asked['cache']}: it holds neither states nor several functions; "
            "use pipeline=manual"
        )
    return None


def _own(asked: Asked) -> str | None:
    own, chunks, task, model = (asked[name] for name in ("own_chunks", "chunks", "task", "model"))
    if own == "none":
        return None
    least = OWN[own] + 1
    if chunks != AUTO and int(chunks) < least:
        return f"own_chunks={own} with chunks={chunks}: those are among the chunks, so chunks={least} or more, or auto"
    looks_up = task in (*TEXTS, "text_encoder")
    if own in ("embeddings", "both") and (asked["embeddings"] == "out" or not looks_up):
        way = "embeddings=in, or own_chunks=none" if looks_up else "own_chunks=none"
        return f"own_chunks={own}: this program of {model} looks up no embeddings; use {way}"
    if own in ("head", "both") and task in (*EMBED, *NO_TEXT):
        way = "embeddings or none" if looks_up else "none"
        return f"own_chunks={own}: {model} has no vocabulary head or classifier; use own_chunks={way}"
    return None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """These mean something only where a model is cut."""

    chunk_by: str = _axis(
        "what is shared out evenly: weights, layers, or estimated time", choices=("bytes", "layers", "time")
    )
    own_chunks: str = _axis("parts that are chunks of their own, among the number", choices=tuple(OWN), refuses=_own)
    pipeline: str = _axis(
        "a chain that is driven, one Core ML pipeline package, or coremltools' bisect_model to compare with",
        choices=("manual", "coreml", "bisect"),
        plain="manual",
        only=(
            Only(
                "chunks",
                (2,),
                "pipeline=bisect: coremltools' bisect_model cuts in two and chunks={chunks}; use chunks=2, or pipeline=manual",
                when=("bisect",),
            ),
            Only("own_chunks", ("none",), _KNOWS_NEITHER, when=("bisect",)),
            Only("chunk_by", ("bytes",), _KNOWS_NEITHER, when=("bisect",)),
        ),
        refuses=_pipeline,
    )
    limits_for: str | None = _axis("chunks=auto, chunk_by=time: the chip; null: this host's, or m1 where it has none")
