"""non_maximum_suppression: boxes in the order of their scores, without those that overlap a better one."""

import math
from typing import Any

import torch

from ane_sweep.reference.site import Site, Step, aligned, op, widen


@op("non_maximum_suppression")
def non_maximum_suppression(site: Site) -> Step:
    """boxes (N, B, 4) as centre x, centre y, width, height; scores (N, B, K).

    Gives boxes (N, max_boxes, 4), scores (N, max_boxes, K), places (N, max_boxes; -1 where empty) and counts (N); where
    no score passes the threshold, the best box is kept. Since iOS17 there is no threshold and no count, and the
    dimension of the boxes is the last one, in and out.
    """
    is_last = not site.has("score_threshold")
    limit, floor = float(site.static("iou_threshold")), float(site.static("score_threshold", -math.inf))
    count, by_class = site.static("max_boxes"), site.static("per_class_suppression", False)
    dtypes = [site.dtype_of(index) for index in range(len(site.outputs))]

    def run(boxes: torch.Tensor, scores: torch.Tensor) -> tuple[Any, ...]:
        if is_last:
            boxes, scores = boxes.mT, scores.mT
        batch = boxes.shape[0]
        kept_boxes = torch.zeros(batch, count, 4, dtype=boxes.dtype)
        kept_scores = torch.zeros(batch, count, scores.shape[2], dtype=scores.dtype)
        places = torch.full((batch, count), -1, dtype=torch.int64)
        counts = torch.zeros(batch, dtype=torch.int64)
        for row in range(batch):
            picked = _picked(widen(boxes[row]).float(), widen(scores[row]).float(), limit, floor, by_class)[:count]
            size = len(picked)
            kept_boxes[row, :size], kept_scores[row, :size] = boxes[row, picked], scores[row, picked]
            places[row, :size], counts[row] = picked, size
        if is_last:
            kept_boxes, kept_scores = kept_boxes.mT, kept_scores.mT
        made = (kept_boxes, kept_scores, places, counts)
        return tuple(aligned(value.to(dtype)) for value, dtype in zip(made, dtypes))

    return Step(run, [site.name("boxes"), site.name("scores")])


def _picked(boxes: torch.Tensor, scores: torch.Tensor, limit: float, floor: float, by_class: bool) -> torch.Tensor:
    """Places of the boxes that stay, best score first."""
    best, classes = scores.max(-1)
    order = best.sort(descending=True, stable=True).indices
    corner, size = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]
    kept: list[int] = []
    for place in order.tolist():
        if not best[place] > floor:
            break
        rivals = [other for other in kept if not by_class or classes[other] == classes[place]]
        if not rivals or not bool((_overlap(corner, size, place, rivals) > limit).any()):
            kept.append(place)
    return torch.tensor(kept or order[:1].tolist(), dtype=torch.int64)


def _overlap(corner: torch.Tensor, size: torch.Tensor, place: int, others: list[int]) -> torch.Tensor:
    """Intersection over union of one box with others."""
    low = torch.maximum(corner[place], corner[others])
    high = torch.minimum(corner[place] + size[place], corner[others] + size[others])
    shared = (high - low).clamp(min=0).prod(-1)
    whole = size[place].prod() + size[others].prod(-1) - shared
    return torch.where(whole > 0, shared / whole, torch.zeros_like(whole))
