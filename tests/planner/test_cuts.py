"""Cuts of one's own and pieces of a chain, as they are asked for: what they share, and what is refused before anything runs."""

import pytest
from planner.test_plan import CUT, counts, planned


@pytest.mark.parametrize(
    ("axes", "chunkings", "choices"),
    [
        (["cuts=null,[200kB],[layer:1],[op:a_b],[0.5]"], 4, 0),
        (["cuts=[0.5]", "chunks=1,2"], 1, 0),
        (["cuts=[0.5],[0.25,0.5]", "pipeline=manual,coreml"], 4, 0),
        (["chunks=4", "pieces=null,1-3,2,4"], 1, 3),
        (["chunks=4", "pieces=1-3", "pipeline=manual,coreml"], 1, 2),
    ],
)
def test_cuts_enter_the_key_of_a_chunking_and_pieces_of_their_own(axes, chunkings, choices):
    made = planned(*CUT, *axes)
    assert (counts(made)["chunk"], counts(made).get("pieces", 0)) == (chunkings, choices)
    assert counts(made)["convert"] == 1 and not made.refused


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["cuts=[0.5]", "chunks=3"], "chunks=3 with cuts of one's own, which make 2: leave chunks out, or chunks=2"),
        (["cuts=[0.5]", "own_chunks=head"], "use own_chunks=none"),
        (["cuts=[0.5]", "chunk_by=time"], "cuts=0.5 share nothing out"),
        (["cuts=[0.5]", "pipeline=bisect"], "pipeline=bisect cuts by itself"),
        (["cuts=[9GB]"], "9GB is beyond the weights of tiny-gpt2 at precision=fp16"),
        (["cuts=[layer:2]"], "layer:2 of tiny-gpt2, which has 2 layers: a cut lies between two, so layer:1 to layer:1"),
        (["model=tiny-t5", "cuts=[layer:4]"], "has 4 layers"),
        (["pieces=2"], "cut it with chunks=12, or cuts=[...]"),
        (["pieces=2-4", "chunks=3"], "they are counted from 1 to 3"),
        (["pieces=1", "cuts=[0.5]", "cache=stateful"], "pieces are of chunks of ours without states"),
        (["pieces=1", "chunks=2", "copies=2"], "use copies=1"),
        (["pieces=1", "chunks=2", "runtime=torch_eager"], "runs no chunks; use runtime=reference or coreml"),
    ],
)
def test_cuts_of_ones_own_and_pieces_that_cannot_be(args, reason):
    made = planned(*[part for part in CUT[1:] if not part.startswith(args[0].partition("=")[0])], *args)
    (found,) = made.refused.values()
    assert reason in found


def test_a_cut_of_ones_own_is_named_as_it_is_typed():
    made = planned(*CUT, "cuts=[200kB],[layer:1,0.9]")
    labels = {task.label for task in made.tasks.values() if task.stage == "chunk"}
    assert labels == {"chunk tiny-gpt2 cuts=[200kB]", "chunk tiny-gpt2 cuts=[layer:1,0.9]"}
