"""Build the random ops. They are not bit-exact and cannot be: Core ML's generator is not specified, not even with a seed.

The distribution is right. With a seed of 0 or more every run of this runtime gives the same numbers (the generator is
torch's, seeded anew at each run of the op; drawn on the CPU, wherever the rest is computed); without one every run differs.
"""

from collections.abc import Callable

import torch

from ane_sweep.reference.site import Site, Step, op, widen


def _generator(site: Site) -> Callable[[], torch.Generator | None]:
    seed = site.static("seed", -1)
    return lambda: torch.Generator().manual_seed(seed) if seed >= 0 else None


@op("random_uniform", "random_normal", "random_bernoulli")
def random_fill(site: Site) -> Step:
    kind, shape, dtype, generator = site.op.type, site.static("shape"), site.dtype, _generator(site)
    low, high = site.static("low", 0.0), site.static("high", 1.0)
    mean, deviation, chance = site.static("mean", 0.0), site.static("stddev", 1.0), site.static("prob", 0.5)

    def run() -> torch.Tensor:
        if kind == "random_normal":
            drawn: torch.Tensor = torch.randn(shape, generator=generator(), device="cpu") * deviation + mean
        else:
            drawn = torch.rand(shape, generator=generator(), device="cpu")
            drawn = drawn < chance if kind == "random_bernoulli" else drawn * (high - low) + low
        return drawn.to(torch.get_default_device(), dtype)

    return Step(run, [], is_pure=False)


@op("random_categorical")
def random_categorical(site: Site) -> Step:
    """`size` draws, with replacement, from the distribution along the last dimension."""
    mode, size, dtype = site.static("mode", "logits"), site.static("size", 1), site.dtype
    generator = _generator(site)

    def run(x: torch.Tensor) -> torch.Tensor:
        chances = widen(x).float().softmax(-1) if mode == "logits" else widen(x).float()
        rows = chances.reshape(-1, x.shape[-1])
        drawn = torch.multinomial(rows.cpu(), size, replacement=True, generator=generator())
        return drawn.reshape([*x.shape[:-1], size]).to(x.device, dtype)

    return Step(run, [site.name("x")], is_pure=False)
