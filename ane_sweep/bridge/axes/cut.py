"""The axes that cut a model into chunks (chunking.py makes the chunk task from them)."""

from dataclasses import dataclass
from functools import partial

from ane_sweep.bridge.axes import Asked, Only, axis
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.mil import cut_words

AUTO = "auto"
OWN = {"none": 0, "embeddings": 1, "head": 1, "both": 2}  # chunks that are set from the start
_axis = partial(axis, shapes=("chunk",), honoured="chunks")
_NO_MODEL = "no model here has as many places to cut"
_KNOWS_NEITHER = "pipeline=bisect: coremltools' bisect_model knows neither own_chunks nor chunk_by; use pipeline=manual"


def _pipeline(asked: Asked) -> str | None:
    if asked["pipeline"] != "manual" and asked["cache"] != "none" and asked["chunks"] != 1:
        return (
            f"pipeline={asked['pipeline']} with cache={asked['cache']}: it holds neither states nor several functions; "
            "use pipeline=manual"
        )
    return None


def _cuts(asked: Asked) -> str | None:
    cuts, chunks = asked["cuts"], asked["chunks"]
    if not cuts or chunks in (1, len(cuts) + 1):
        return None
    return f"chunks={chunks} with cuts of one's own, which make {len(cuts) + 1}: leave chunks out, or chunks={len(cuts) + 1}"


def span(value: int | str) -> tuple[int, int] | None:
    """Return the range in a text: `4-6` as (4, 6), `2` as (2, 2), and None for any other text."""
    first, dash, last = str(value).partition("-")
    words = (first, last) if dash else (first, first)
    if not all(word.isascii() and word.isdecimal() and len(word) < 5 for word in words):
        return None
    low, high = map(int, words)
    return (low, high) if 1 <= low <= high else None


def _no_span(name: str, value: object) -> str | None:
    return None if span(str(value)) else f"{name}={value}: expected one chunk as 2, or several as 4-6, counted from 1"


def _pieces(asked: Asked) -> str | None:
    if asked["pieces"] is None:
        return None
    chunks = len(asked["cuts"]) + 1 if asked["cuts"] else asked["chunks"]
    found = span(asked["pieces"])
    if chunks == 1:
        return f"pieces={asked['pieces']} of a model in one piece: cut it with chunks=12, or cuts=[...]"
    if chunks != AUTO and found and found[1] > chunks:
        return f"pieces={asked['pieces']} of {chunks} chunks: they are counted from 1 to {chunks}"
    if asked["pipeline"] == "bisect" or asked["cache"] == "stateful":
        said = "pipeline=bisect" if asked["pipeline"] == "bisect" else "cache=stateful"
        return f"pieces={asked['pieces']} with {said}: pieces are of chunks of ours without states; use pieces=null"
    if asked["copies"] > 1:
        return f"pieces={asked['pieces']} with copies={asked['copies']}: use copies=1"
    if asked["score"] != "none":
        said = f"score={asked['score']} with pieces={asked['pieces']}"
        return f"{said}: a task is asked of the whole model, and pieces are a part of it; use score=none or pieces=null"
    return None


def _own(asked: Asked) -> str | None:
    own, chunks, kind, model = asked["own_chunks"], asked["chunks"], KINDS[asked["task"]], asked["model"]
    if own == "none":
        return None
    least = OWN[own] + 1
    if chunks != AUTO and int(chunks) < least:
        return f"own_chunks={own} with chunks={chunks}: those are among the chunks, so chunks={least} or more, or auto"
    if own in ("embeddings", "both") and (asked["embeddings"] == "out" or not kind.reads):
        way = "embeddings=in, or own_chunks=none" if kind.reads else "own_chunks=none"
        return f"own_chunks={own}: this program of {model} looks up no embeddings; use {way}"
    if own in ("head", "both") and kind.leaves in ("vectors", "values"):
        way = "embeddings or none" if kind.reads else "none"
        return f"own_chunks={own}: {model} has no vocabulary head or classifier; use own_chunks={way}"
    return None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The axes that control cuts; they have an effect only if a model is cut."""

    cuts: list[float | str] | None = axis(
        f"cuts of one's own in place of an even share, as [1811MB]: {cut_words.FORMS}",
        most=999,
        why=_NO_MODEL,
        check=cut_words.find_problem,
        plain=None,
        only=(
            Only("own_chunks", ("none",), "cuts={value} are all cuts; use own_chunks=none, and op:NAME for that one"),
            Only(
                "chunk_by", ("bytes",), "cuts={value} share nothing out; use chunk_by=bytes, its default, or cuts=null"
            ),
            Only("pipeline", ("manual", "coreml"), "pipeline=bisect cuts by itself; use cuts=null, or pipeline=manual"),
        ),
        refuses=_cuts,
        shapes=("chunk",),
        honoured="chunks",
    )
    pieces: int | str | None = _axis(
        "of the chunks only these, as 4-6 or 2: run by themselves, on what the chunks before them make",
        least=1,
        most=1000,
        why=_NO_MODEL,
        check=_no_span,
        plain=None,
        shapes=("pieces",),
        unhonoured="pieces={value}: runtime={runtime} runs no chunks; use runtime=reference or coreml",
        refuses=_pieces,
    )
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
