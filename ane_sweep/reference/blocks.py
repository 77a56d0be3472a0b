"""Ops that rearrange blocks: between depth, batch and space, and windows."""

import torch
import torch.nn.functional as F

from ane_sweep.reference.site import Site, Step, aligned, op


@op("depth_to_space", "pixel_shuffle")
def depth_to_space(site: Site) -> Step:
    """Both (N, C r r, H, W) -> (N, C, H r, W r); depth_to_space has the channel last within C r r, pixel_shuffle
    first.
    """
    is_shuffle = site.op.type == "pixel_shuffle"
    r = site.static("upscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        if is_shuffle:
            parts = x.view(n, c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
        else:
            parts = x.view(n, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
        return aligned(parts.reshape(n, c // (r * r), h * r, w * r))

    return Step(run, [site.name("x")])


@op("space_to_depth", "pixel_unshuffle")
def space_to_depth(site: Site) -> Step:
    is_shuffle = site.op.type == "pixel_unshuffle"
    r = site.static("downscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.view(n, c, h // r, r, w // r, r)
        order = (0, 1, 3, 5, 2, 4) if is_shuffle else (0, 3, 5, 1, 2, 4)
        return aligned(parts.permute(order).reshape(n, c * r * r, h // r, w // r))

    return Step(run, [site.name("x")])


@op("sliding_windows")
def sliding_windows(site: Site) -> Step:
    """(.., L, ..) -> (.., windows, size, ..) along `axis`."""
    axis, size, stride = site.static("axis"), site.static("size"), site.static("stride", 1)

    def run(x: torch.Tensor) -> torch.Tensor:
        place = axis % x.ndim
        return aligned(x.unfold(place, size, stride).movedim(-1, place + 1))

    return Step(run, [site.name("x")])


@op("space_to_batch")
def space_to_batch(site: Site) -> Step:
    """(N, C, H, W), padded, -> (N b0 b1, C, H / b0, W / b1); the place within a block varies slowest."""
    (high, broad), (rows, columns) = site.static("block_shape"), site.static("paddings")

    def run(x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, [*columns, *rows])
        n, c, h, w = x.shape
        parts = x.view(n, c, h // high, high, w // broad, broad).permute(3, 5, 0, 1, 2, 4)
        return aligned(parts.reshape(n * high * broad, c, h // high, w // broad))

    return Step(run, [site.name("x")])


@op("batch_to_space")
def batch_to_space(site: Site) -> Step:
    """The way back; `crops` cuts from the top, bottom, left and right afterwards."""
    (high, broad), ((top, bottom), (left, right)) = site.static("block_shape"), site.static("crops")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.view(high, broad, n // (high * broad), c, h, w).permute(2, 3, 4, 0, 5, 1)
        whole = parts.reshape(n // (high * broad), c, h * high, w * broad)
        return aligned(whole[:, :, top : h * high - bottom, left : w * broad - right])

    return Step(run, [site.name("x")])
