"""A probe net for each numeric rule: wrong on a device without an error, named by the rule, and right once mended.

A probe is run in fp32 and as the device computes it (fp16, with the Neural Engine's known effects). `mended` is the
rewrite that the rule names, or the net as a person would write it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from fix.checks import apply_rewrite, save

from ane_sweep import reference
from ane_sweep.fix import output
from ane_sweep.hazards.search import search
from ane_sweep.mil import package
from ane_sweep.placement import judge
from ane_sweep.placement.findings import Finding

HALF = np.float16


@dataclass(frozen=True)
class Probe:
    """One net: its ops, its inputs' types and values, and how it is mended. `truth` is the right result if fp32 in the
    same form is wrong as well; `effects`: None for the default ones.
    """

    rule: str
    body: Callable
    types: dict[str, tuple]
    values: dict[str, np.ndarray]
    mended: str | Callable
    effects: tuple[str, ...] | None = None
    truth: np.ndarray | None = None
    mended_types: dict[str, tuple] | None = None
    mended_values: dict[str, np.ndarray] = field(default_factory=dict)


def find_named(path: Path, units: str = "cpu_and_ne", chip: str = "m4", trial=None) -> dict[str, Finding]:
    """Return the findings about a package by the rule's name."""
    found = search(judge.judge(path, chip=chip, compute_units=units).prediction, trial)
    return {one.rule.rpartition("/")[2]: one for one in found}


def compute(path: Path, values: dict, numerics: str, effects=None) -> np.ndarray:
    model = reference.load(path, numerics=numerics, effects=effects if numerics == "ane" else None)
    (found,) = model.predict(values).values()
    return np.asarray(found, np.float64)


def measure_error(path: Path, values: dict, effects, truth: np.ndarray | None) -> float:
    """Return the largest error as a device computes, relative to the largest right number."""
    exact = compute(path, values, "fp32") if truth is None else np.asarray(truth, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(exact - compute(path, values, "ane", effects))
    return float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf).max() / np.abs(exact[np.isfinite(exact)]).max())


def build(probe: Probe, folder: Path) -> Path:
    return save(folder / f"{probe.rule}.mlpackage", probe.body, **probe.types)


def mend(probe: Probe, path: Path) -> Path:
    """Return the mended package: rewritten, or written anew."""
    target = path.with_name(f"{path.stem}.mended.mlpackage")
    if callable(probe.mended):
        return save(target, probe.mended, **(probe.mended_types or probe.types))
    scratch = path.with_suffix(".scratch")
    scratch.mkdir()
    source = package.read(path)
    made, changes, failed = apply_rewrite(source, probe.mended, scratch)
    assert changes and not failed
    output.write_package(source, made, target)
    return target


def list_probes() -> list[Probe]:
    from coremltools.converters.mil import Builder as mb

    row = {"x": ("fp16", (4, 64))}
    ramp = {"x": np.tile(np.linspace(-4, 14, 64).astype(HALF), (4, 1))}
    spike = np.full((4, 64), 0.01, HALF)
    spike[:, 3] = 200.0
    wide = np.linspace(-2000, 2000, 256).astype(HALF).reshape(4, 64)
    dominant = np.zeros((4, 64), HALF)
    dominant[:, 5] = 24.0
    bias = np.zeros((4, 4), HALF)
    bias[1] = -np.inf
    table = (np.arange(4096)[:, None] % 7 + np.zeros((1, 4))).astype(HALF)
    ids = np.array([[5.0, 2049.0, 4093.0]], np.float32)
    plain = lambda x: mb.mul(x=x, y=HALF(1))  # noqa: E731

    def norm(x):
        mean = mb.reduce_mean(x=mb.mul(x=x, y=x), axes=[-1], keep_dims=True)
        return mb.mul(x=x, y=mb.rsqrt(x=mb.add(x=mean, y=HALF(1e-3))))

    def scaled_norm(x, is_right):
        largest = mb.reduce_max(x=mb.abs(x=x), axes=[-1], keep_dims=True)
        y = mb.real_div(x=x, y=largest)
        mean = mb.reduce_mean(x=mb.mul(x=y, y=y), axes=[-1], keep_dims=True)
        epsilon = HALF(1e-2)
        if is_right:
            epsilon = mb.real_div(x=mb.real_div(x=epsilon, y=largest), y=largest)
        return mb.real_div(x=y, y=mb.sqrt(x=mb.add(x=mean, y=epsilon)))

    def masked(scores, fill):
        return mb.softmax(x=mb.add(x=scores, y=np.where(bias == 0, HALF(0), fill)), axis=-1)

    def lookup(ids, is_half):
        if is_half:
            ids = mb.cast(x=mb.cast(x=ids, dtype="fp16"), dtype="int32")
        return mb.gather(x=table, indices=ids, axis=0)

    def sentinel(x):
        y = mb.matmul(x=x, y=np.eye(64, dtype=HALF))
        return mb.cast(x=mb.not_equal(x=y, y=y), dtype="fp32")

    lost = np.ones((4, 64), HALF)
    lost[0] = np.nan
    half_flat = ramp["x"].copy()
    half_flat[0] = 1
    centred = half_flat - half_flat.astype(np.float64).mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    spiky = spike.astype(np.float64)
    true_norm = spiky / np.sqrt((spiky**2).mean(-1, keepdims=True) + 1e-2)
    return [
        Probe("softplus_cliff", lambda x: mb.softplus(x=plain(x)), row, ramp, "softplus_shifted"),
        Probe("log_sum_exp", lambda x: mb.reduce_log_sum_exp(x=plain(x), axes=[-1], keep_dims=True), row, ramp,
              "logsumexp_shifted"),
        Probe("log_softmax", lambda x: mb.log(x=mb.softmax(x=plain(x), axis=-1)), row, {"x": dominant}, "log_softmax_shifted"),
        Probe("log_cumsum_exp", lambda x: mb.log(x=mb.cumsum(x=mb.exp(x=plain(x)), axis=-1)), row, ramp, "logcumsumexp_shifted"),
        Probe("log1p_exp", lambda x: mb.log(x=mb.add(x=mb.exp(x=plain(x)), y=HALF(1))), row, ramp, "log1p_exp_shifted"),
        Probe("exp_unshifted", lambda x: mb.exp(x=plain(x)), row, ramp,
              lambda x: mb.exp(x=mb.clip(x=plain(x), alpha=HALF(-20), beta=HALF(11)))),
        Probe("infinite_mask", lambda x: masked(x, HALF(-np.inf)), {"x": ("fp16", (4, 4))}, {"x": np.ones((4, 4), HALF)},
              "masks_finite", truth=np.where(np.arange(4)[:, None] >= 0, 0.25, 0) + np.zeros((4, 4))),
        Probe("rms_norm_squares", norm, row, {"x": wide}, "rms_norm_scaled"),
        Probe("rms_norm_epsilon", lambda x: scaled_norm(x, False), row, {"x": spike}, lambda x: scaled_norm(x, True),
              truth=true_norm),
        Probe("epsilon_vanishes", lambda x: mb.layer_norm(x=x, axes=[-1], epsilon=HALF(1e-12)), row, {"x": half_flat},
              lambda x: mb.layer_norm(x=x, axes=[-1], epsilon=HALF(1e-5)), truth=normed),
        Probe("long_sums", lambda x: mb.reduce_sum(x=x, axes=[-1], keep_dims=True), {"x": ("fp16", (2, 4096))},
              {"x": np.ones((2, 4096), HALF)}, lambda x: mb.matmul(x=x, y=np.ones((4096, 1), HALF)), effects=("narrow_sums",)),
        Probe("narrow_ids", lambda ids: lookup(ids, True), {"ids": ("fp32", (1, 3))}, {"ids": ids}, lambda ids: lookup(ids, False),
              truth=table[ids.astype(int)], mended_types={"ids": ("int32", (1, 3))}, mended_values={"ids": ids.astype(np.int32)}),
        Probe("nan_tests", sentinel, row, {"x": lost}, lambda x, is_lost: mb.cast(x=is_lost, dtype="fp32"),
              mended_types={"x": row["x"], "is_lost": ("fp32", (4, 64))},
              mended_values={"x": np.ones((4, 64), HALF), "is_lost": np.isnan(lost).astype(np.float32)}, truth=np.isnan(lost)),
    ]  # fmt: skip
