"""What a conversion that fails says: the op, the line of the user's code, and a way round that is one."""

import math
import re

import numpy as np
import pytest
import torch
from nets import Net
from torch.nn import functional as F

from ane_sweep.errors import StageError
from ane_sweep.worker.programs.mlprogram import hints, torch_ops

X = torch.tensor([[0.3, -1.2, 2.6, 0.0], [1.5, 0.7, -0.4, 3.1], [-2.2, 0.9, 0.1, 0.6], [0.8, -0.5, 1.1, 2.0]])
IMAGE = torch.arange(2 * 4 * 4 * 4, dtype=torch.float32).reshape(2, 4, 4, 4) / 50
INDEX = torch.tensor([2, 0, 2, 1])


def _two_columns(x):
    y = x.clone()
    y[:, [0, 2]] = x[:, [1, 3]]
    return y


def _one_by_one(x):
    y = x.clone()
    y[:, 0] = x[:, 1]
    y[:, 2] = x[:, 3]
    return y


# coremltools converts them where the matrix is constant, and where no index is a list beside a whole axis
IN_PART = ("linalg_inv", "index_put")
# Op as coremltools calls it -> (as one would write it, the way of the table, input)
WAYS = {
    "tensordot": (lambda x: torch.tensordot(x, x, dims=1), lambda x: x.reshape(-1, 4) @ x.reshape(4, -1), X),
    "cdist": (
        lambda x: torch.cdist(x, x + 1),
        lambda x: (
            (
                x.square().sum(-1, keepdim=True)
                + (x + 1).square().sum(-1).unsqueeze(-2)
                - 2 * x @ (x + 1).transpose(-1, -2)
            )
            .clamp(min=0)
            .sqrt()
        ),
        X,
    ),
    "kron": (lambda x: torch.kron(x, x), lambda x: (x[:, None, :, None] * x[None, :, None, :]).reshape(16, 16), X),
    "hypot": (lambda x: torch.hypot(x, x + 1), lambda x: (x * x + (x + 1) * (x + 1)).sqrt(), X),
    "logaddexp": (lambda x: torch.logaddexp(x, -x), lambda x: torch.logsumexp(torch.stack([x, -x]), 0), X),
    "erfc": (lambda x: torch.erfc(x), lambda x: 1 - torch.erf(x), X),
    "bucketize": (
        lambda x: torch.bucketize(x, torch.tensor([0.2, 0.65])),
        lambda x: (x[..., None] > torch.tensor([0.2, 0.65])).int().sum(-1),
        X,
    ),
    "rot90": (lambda x: torch.rot90(x), lambda x: x.transpose(0, 1).flip(0), X),
    "kthvalue": (lambda x: x.kthvalue(2, 1)[0], lambda x: x.sort(1)[0][:, 1], X),
    "std_mean": (lambda x: torch.std_mean(x, 1)[0], lambda x: x.std(1), X),
    "var_mean": (lambda x: torch.var_mean(x, 1)[0], lambda x: x.var(1), X),
    "nansum": (lambda x: x.nansum(1), lambda x: torch.where(x.isnan(), 0.0, x).sum(1), X),
    "channel_shuffle": (
        lambda x: F.channel_shuffle(x, 2),
        lambda x: x.reshape(2, 2, 2, 4, 4).transpose(1, 2).reshape(2, 4, 4, 4),
        IMAGE,
    ),
    "fmod": (lambda x: torch.fmod(x, 0.7), lambda x: x - 0.7 * (x / 0.7).sign() * (x / 0.7).abs().floor(), X),
    "trunc": (lambda x: x.trunc(), lambda x: x.sign() * x.abs().floor(), X),
    "sgn": (lambda x: x.sgn(), lambda x: x.sign(), X),
    "celu": (lambda x: F.celu(x), lambda x: torch.relu(x) + (torch.exp(x) - 1).clamp(max=0), X),
    "hardshrink": (lambda x: F.hardshrink(x), lambda x: torch.where(x.abs() > 0.5, x, 0.0), X),
    "softshrink": (lambda x: F.softshrink(x), lambda x: x.sign() * torch.relu(x.abs() - 0.5), X),
    "log_sigmoid": (lambda x: F.logsigmoid(x), lambda x: -F.softplus(-x), X),
    "index_add": (
        lambda x: torch.ones(4, 4).index_add(0, INDEX, x),
        lambda x: 1 + (F.one_hot(INDEX, 4).float().T @ x.flatten(1)).reshape(4, 4),
        X,
    ),
    "index_put": (_two_columns, _one_by_one, X),
    "take": (lambda x: x.take(INDEX), lambda x: x.flatten()[INDEX], X),
    "take_along_dim": (lambda x: x.take_along_dim(INDEX[:, None], 1), lambda x: torch.gather(x, 1, INDEX[:, None]), X),
    "unfold": (lambda x: x.unfold(1, 2, 1), lambda x: torch.stack([x[:, i : i + 2] for i in range(3)], 1), X),
    "movedim": (lambda x: x.movedim(0, 1), lambda x: x.permute(1, 0), X),
    "diag_embed": (lambda x: torch.diag_embed(x), lambda x: x[..., None] * torch.eye(4), X),
    "msort": (lambda x: torch.msort(x), lambda x: x.sort(0)[0], X),
    "addr": (lambda x: torch.addr(x, x[0], x[1]), lambda x: x + torch.outer(x[0], x[1]), X),
    "aminmax": (lambda x: torch.aminmax(x)[1], lambda x: x.amax((0, 1)), X),
    "count_nonzero": (lambda x: torch.count_nonzero(x), lambda x: (x != 0).int().sum(), X),
    "dist": (lambda x: torch.dist(x, x * 2), lambda x: (x - x * 2).square().sum().sqrt(), X),
    "float_power": (lambda x: torch.float_power(x.abs(), 1.5), lambda x: x.abs() ** 1.5, X),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=0.5), lambda x: x + 0.5 * x * x, X),
    "lerp": (lambda x: torch.lerp(x, 2 * x, 0.3), lambda x: x + 0.3 * (2 * x - x), X),
    "logit": (lambda x: torch.logit(x.sigmoid()), lambda x: torch.log(x.sigmoid() / (1 - x.sigmoid())), X),
    "median": (lambda x: x.median(1)[0], lambda x: x.sort(1)[0][:, (x.shape[1] - 1) // 2], X),
    "deg2rad": (lambda x: torch.deg2rad(x), lambda x: x * (3.141592653589793 / 180), X),
    "linalg_multi_dot": (lambda x: torch.linalg.multi_dot([x, x, x]), lambda x: x @ x @ x, X),
    "tensor_split": (lambda x: torch.tensor_split(x, 2)[0], lambda x: torch.split(x, 2)[0], X),
}


def convert(function, x):
    import coremltools as ct

    traced = torch.jit.trace(Net(function).eval(), x, check_trace=False)
    with hints.explain_failures(), torch_ops.register_ops():
        return ct.convert(
            traced,
            inputs=[ct.TensorType("x", x.shape)],
            minimum_deployment_target=ct.target.iOS18,
            skip_model_load=True,
        )


def test_the_reason_names_the_op_the_line_of_ours_and_the_way_round():
    with pytest.raises(StageError) as caught:
        convert(WAYS["trunc"][0], X)
    said = str(caught.value)
    assert re.match(r"torch op 'trunc' \(test_hints.py line \d+, in <lambda>\) has no conversion in coremltools ", said)
    assert said.endswith(hints.find_workaround("trunc"))


def test_an_op_that_nobody_has_a_way_for_is_named_with_the_way_for_all():
    with pytest.raises(
        StageError, match=r"'lgamma' \(test_hints.py line \d+, .* register a conversion of it in your own file"
    ):
        convert(lambda x: torch.lgamma(x), X)


def test_an_op_that_is_known_and_refused_keeps_what_coremltools_says_of_it():
    with pytest.raises(StageError, match=r"torch op 'diagonal' \(test_hints.py line \d+, .*Only offset == 0"):
        convert(lambda x: x.diagonal(1), X)


def test_what_is_about_no_op_is_left_as_it_is():
    with pytest.raises(ValueError, match="no op"), hints.explain_failures():
        raise ValueError("no op of it")


def test_coremltools_is_as_it_was_afterwards():
    from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode as Node

    before = Node.__dict__["from_torchscript_node"]
    with pytest.raises(StageError):
        convert(WAYS["trunc"][0], X)
    assert Node.__dict__["from_torchscript_node"] is before


def test_a_line_of_an_installed_package_is_told_where_no_line_is_the_users():
    stack = "<frozen runpy>(88): _run\n/x/site-packages/torch/functional.py(14): diff\n/x/site-packages/timm/layers/a.py(33): forward\n"
    assert hints.find_line(stack) == "a.py line 33, in forward"
    assert hints.find_line(stack + "/home/me/nets.py(7): forward\n") == "nets.py line 7, in forward"
    assert hints.find_line("") == ""


def test_the_table_is_of_ops_that_coremltools_lacks_and_says_where_each_way_is_from():
    import csv

    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    with hints.TABLE.open() as file:
        rows = list(csv.DictReader(file))
    assert set(WAYS) <= {row["op"] for row in rows} and len({row["op"] for row in rows}) == len(rows)
    assert [row["op"] for row in rows if row["source"] == "tests/stages/test_hints.py" and row["op"] not in WAYS] == []
    assert all(row["source"] and row["way"] for row in rows)
    gained = [row["op"] for row in rows if row["op"] in _TORCH_OPS_REGISTRY and row["op"] not in IN_PART]
    assert gained == []  # coremltools has them now: delete the rows


@pytest.mark.parametrize("op", WAYS)
def test_a_way_of_the_table_computes_the_same(op):
    plain, way, x = WAYS[op]
    assert np.allclose(plain(x).numpy(), way(x).numpy(), atol=1e-5)


def _drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


ROWS = torch.tensor([2, 0, 2, 1, 0])
# Op -> (what torch gives, the names in the table's text), at one, at several and at more axes than one would think of
TEXTS = [
    *(
        ("cdist", lambda a, b: torch.cdist(a, b), {"a": _drawn(*batch, 5, 3), "b": _drawn(*batch, 7, 3)})
        for batch in ((), (1,), (5,), (7,), (10,), (2, 5))
    ),
    *(
        ("index_add", lambda x, source, index: x.index_add(0, index, source), {"x": x, "source": source, "index": ROWS})
        for x, source in ((_drawn(3, 5), _drawn(5, 5)), (_drawn(3, 5, 2), _drawn(5, 5, 2)))
    ),
    *(
        (op, made, {"x": _drawn(*shape)})
        for shape in ((4,), (4, 3), (2, 4, 4))
        for op, made in (
            ("trunc", torch.trunc), ("sgn", torch.sgn), ("erfc", torch.erfc), ("msort", torch.msort), ("log_sigmoid", F.logsigmoid),
            ("count_nonzero", torch.count_nonzero), ("deg2rad", torch.deg2rad),
        )
    ),
    *(("rot90", torch.rot90, {"x": _drawn(*shape)}) for shape in ((4, 3), (2, 4, 3))),
    *(
        (op, made, {"a": _drawn(*shape), "b": -_drawn(*shape)})
        for shape in ((4,), (4, 3), (2, 4, 4))
        for op, made in (("hypot", torch.hypot), ("logaddexp", torch.logaddexp), ("dist", torch.dist))
    ),
    *(
        ("bucketize", torch.bucketize, {"x": _drawn(*shape), "boundaries": torch.tensor([-0.5, 0.2, 0.65])})
        for shape in ((4,), (2, 3, 4))
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_way_computes_the_same_as_it_is_written_at_every_batch(number):
    op, made, names = TEXTS[number]
    text = hints.find_workaround(op).removeprefix("write ").removesuffix(" for axis 0")
    got = eval(text, {"torch": torch, "math": math}, names)
    expected = made(*names.values())
    assert got.shape == expected.shape and np.allclose(got.numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("op", WAYS)
def test_a_way_of_the_table_converts_where_the_op_does_not(op):
    plain, way, x = WAYS[op]
    with pytest.raises(StageError, match=f"torch op '{op}_?' "):
        convert(plain, x)
    assert convert(way, x) is not None
