"""Build non_maximum_suppression: boxes in order of score, without those that overlap a better box."""

import math

import torch
from torch import Tensor

from ane_sweep.reference.site import Site, Step, align, op, widen


@op("non_maximum_suppression")
def non_maximum_suppression(site: Site) -> Step:
    """Build the op for boxes (N, B, 4) as centre x, centre y, width, height, and scores (N, B, K).

    It returns boxes (N, max_boxes, 4), scores (N, max_boxes, K), places (N, max_boxes; -1 if empty) and counts (N); if
    no score passes the threshold, the best box is kept. Since iOS17 there is no threshold and no count, and the
    dimension of the boxes is the last one, in and out.
    """
    is_last = not site.has("score_threshold")
    limit, floor = float(site.static("iou_threshold")), float(site.static("score_threshold", -math.inf))
    count, by_class = site.static("max_boxes"), site.static("per_class_suppression", False)
    dtypes = [site.dtype_of(index) for index in range(len(site.outputs))]

    def run(boxes: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        if is_last:
            boxes, scores = boxes.mT, scores.mT
        batch = boxes.shape[0]
        kept_boxes = torch.zeros(batch, count, 4, dtype=boxes.dtype)
        kept_scores = torch.zeros(batch, count, scores.shape[2], dtype=scores.dtype)
        places = torch.full((batch, count), -1, dtype=torch.int64)
        counts = torch.zeros(batch, dtype=torch.int64)
        for row in range(batch):
            wide_boxes, wide_scores = widen(boxes[row]).float(), widen(scores[row]).float()
            above = math.nextafter(floor, math.inf)  # the op keeps what is above, and the best where nothing is
            kept = select_boxes(wide_boxes, wide_scores, limit, above, by_class)[:count]
            if not len(kept):
                kept = wide_scores.amax(-1).argmax()[None]
            size = len(kept)
            kept_boxes[row, :size], kept_scores[row, :size] = boxes[row, kept], scores[row, kept]
            places[row, :size], counts[row] = kept, size
        if is_last:
            kept_boxes, kept_scores = kept_boxes.mT, kept_scores.mT
        made = (kept_boxes, kept_scores, places, counts)
        return tuple(align(value.to(dtype)) for value, dtype in zip(made, dtypes))

    return Step(run, [site.name("boxes"), site.name("scores")])


def select_boxes(boxes: Tensor, scores: Tensor, limit: float, floor: float, by_class: bool) -> Tensor:
    """Return the indices of the boxes that are kept, best score first.

    A box is dropped if its score is below `floor`, or if it overlaps a better one (of the same class, if `by_class`) by
    more than `limit`. boxes (B, 4) as centre x, centre y, width, height; scores (B, K).
    """
    best, classes = scores.max(-1)
    order = best.sort(descending=True, stable=True).indices
    order = order[best[order].double() >= floor]
    corner, size = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]
    kept: list[int] = []
    while len(order):  # once a box that stays, each against all that are left
        place, order = int(order[0]), order[1:]
        kept.append(place)
        gone = _overlap(corner, size, place, order) > limit
        if by_class:
            gone &= classes[order] == classes[place]
        order = order[~gone]
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(corner: Tensor, size: Tensor, place: int, others: Tensor) -> Tensor:
    """Return the intersection over union of one box with others."""
    low = torch.maximum(corner[place], corner[others])
    high = torch.minimum(corner[place] + size[place], corner[others] + size[others])
    shared = (high - low).clamp(min=0).prod(-1)
    whole = size[place].prod() + size[others].prod(-1) - shared
    return torch.where(whole > 0, shared / whole, torch.zeros_like(whole))
