"""Random graphs over floats, integers and truth values at once, with several outputs: MIL builder -> package -> runtime,
against numpy.

Every op stands here twice: in numpy, on values, and in MIL, on names. Floats are rounded to the graph's type after each op
in numpy as well; what would turn their last bit into a jump (comparisons, floors) is asked of integers alone.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MOST = 400  # elements of a value
WEIGHTS = np.random.default_rng(5).uniform(-1, 1, (5, 64))


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def halves(n):
    return {"num_splits": 2, "axis": n}


def weight(x, dtype):
    return (WEIGHTS[:, : x.shape[-1]] / x.shape[-1]).astype(dtype)


def axis_of(x, n):
    return n % len(x.shape)


def even_axis(x, n):
    return next((a for a in range(len(x.shape)) if x.shape[a] % 2 == 0), None)


# kind -> (kinds of the operands, kind of the results, numpy, MIL); n is a number from the recipe, d the graph's float type
FLOAT, INT, BOOL = "f", "i", "b"
OPS = {
    "tanh": (FLOAT, FLOAT, lambda x, n, d: np.tanh(x), lambda mb, x, n, d: mb.tanh(x=x)),
    "sigmoid": (FLOAT, FLOAT, lambda x, n, d: 1 / (1 + np.exp(-x)), lambda mb, x, n, d: mb.sigmoid(x=x)),
    "relu": (FLOAT, FLOAT, lambda x, n, d: np.maximum(x, 0), lambda mb, x, n, d: mb.relu(x=x)),
    "softmax": (FLOAT, FLOAT, lambda x, n, d: softmax(x, axis_of(x, n)), lambda mb, x, n, d: mb.softmax(x=x, axis=axis_of(x, n))),
    "linear": (
        FLOAT, FLOAT, lambda x, n, d: x @ weight(x, d).astype(np.float32).T,
        lambda mb, x, n, d: mb.linear(x=x, weight=weight(x, d), bias=np.zeros(5, d)),
    ),
    "cumsum": (FLOAT, FLOAT, lambda x, n, d: np.cumsum(x, axis_of(x, n)), lambda mb, x, n, d: mb.cumsum(x=x, axis=axis_of(x, n))),
    "reduce_mean": (
        FLOAT, FLOAT, lambda x, n, d: x.mean(axis_of(x, n), keepdims=True),
        lambda mb, x, n, d: mb.reduce_mean(x=x, axes=[axis_of(x, n)], keep_dims=True),
    ),
    "add": (FLOAT + FLOAT, FLOAT, lambda x, y, n, d: x + y, lambda mb, x, y, n, d: mb.add(x=x, y=y)),
    "sub": (FLOAT + FLOAT, FLOAT, lambda x, y, n, d: x - y, lambda mb, x, y, n, d: mb.sub(x=x, y=y)),
    "maximum": (FLOAT + FLOAT, FLOAT, lambda x, y, n, d: np.maximum(x, y), lambda mb, x, y, n, d: mb.maximum(x=x, y=y)),
    "select": (
        BOOL + FLOAT + FLOAT, FLOAT, lambda c, x, y, n, d: np.where(c, x, y), lambda mb, c, x, y, n, d: mb.select(cond=c, a=x, b=y)
    ),
    "float_of": (INT, FLOAT, lambda x, n, d: np.fmod(x, 50), lambda mb, x, n, d: mb.cast(
        x=mb.sub(x=x, y=mb.mul(x=mb.cast(x=mb.real_div(x=mb.cast(x=x, dtype="fp32"), y=np.float32(50)), dtype="int32"),
                               y=np.int32(50))), dtype=name_of(d))),
    "add_i": (INT + INT, INT, lambda x, y, n, d: (x + y) % 97, lambda mb, x, y, n, d: mb.mod(x=mb.add(x=x, y=y), y=np.int32(97))),
    "mul_i": (INT + INT, INT, lambda x, y, n, d: (x * y) % 89, lambda mb, x, y, n, d: mb.mod(x=mb.mul(x=x, y=y), y=np.int32(89))),
    "floor_div": (INT, INT, lambda x, n, d: x // (n + 2), lambda mb, x, n, d: mb.floor_div(x=x, y=np.int32(n + 2))),
    "mod": (INT, INT, lambda x, n, d: x % (n + 2), lambda mb, x, n, d: mb.mod(x=x, y=np.int32(n + 2))),
    "reduce_max": (
        INT, INT, lambda x, n, d: x.max(axis_of(x, n), keepdims=True),
        lambda mb, x, n, d: mb.reduce_max(x=x, axes=[axis_of(x, n)], keep_dims=True),
    ),
    "int_of": (BOOL, INT, lambda x, n, d: x.astype(np.int32), lambda mb, x, n, d: mb.cast(x=x, dtype="int32")),
    "greater": (INT + INT, BOOL, lambda x, y, n, d: x > y, lambda mb, x, y, n, d: mb.greater(x=x, y=y)),
    "equal": (INT, BOOL, lambda x, n, d: x == n, lambda mb, x, n, d: mb.equal(x=x, y=np.int32(n))),
    "logical_xor": (BOOL + BOOL, BOOL, lambda x, y, n, d: x ^ y, lambda mb, x, y, n, d: mb.logical_xor(x=x, y=y)),
    "logical_not": (BOOL, BOOL, lambda x, n, d: ~x, lambda mb, x, n, d: mb.logical_not(x=x)),
}  # fmt: skip
MOVES = {
    "transpose": (
        lambda x, n: x.transpose(np.random.default_rng(n).permutation(x.ndim)),
        lambda mb, x, n: mb.transpose(x=x, perm=list(np.random.default_rng(n).permutation(x.rank))),
    ),
    "flat": (lambda x, n: x.reshape(-1, 1), lambda mb, x, n: mb.reshape(x=x, shape=[-1, 1])),
    "reverse": (lambda x, n: np.flip(x, axis_of(x, n)), lambda mb, x, n: mb.reverse(x=x, axes=[axis_of(x, n)])),
    "gather": (
        lambda x, n: np.take(x, [0, x.shape[axis_of(x, n)] - 1, 0], axis_of(x, n)),
        lambda mb, x, n: mb.gather(x=x, indices=np.int32([0, x.shape[axis_of(x, n)] - 1, 0]), axis=axis_of(x, n)),
    ),
    "concat": (
        lambda x, n: np.concatenate([x, x], axis_of(x, n)),
        lambda mb, x, n: mb.concat(values=(x, x), axis=axis_of(x, n)),
    ),
    "stack": (lambda x, n: np.stack([x, x], 0), lambda mb, x, n: mb.stack(values=(x, x), axis=0)),
    "halves": (
        lambda x, n: np.split(x, 2, even_axis(x, n)),
        lambda mb, x, n: list(mb.split(x=x, **halves(even_axis(x, n)))),
    ),
}
for _name, (_numpy, _mil) in MOVES.items():
    for _kind in (FLOAT, INT):
        OPS[f"{_name}_{_kind}"] = (
            _kind, _kind, lambda x, n, d, f=_numpy: f(x, n), lambda mb, x, n, d, f=_mil: f(mb, x, n),
        )  # fmt: skip


def name_of(dtype):
    return "fp16" if dtype == np.float16 else "fp32"


def allowed(kind, values):
    """Whether an op can take these values: ranks, sizes, a dimension to halve."""
    rank, size = values[0].ndim, values[0].size
    if kind.startswith("halves"):
        return even_axis(values[0], 0) is not None
    if kind.startswith(("concat", "stack", "gather")) and size * 3 > MOST:
        return False
    return not (kind.startswith("stack") and rank > 3) and not (kind == "linear" and values[0].shape[-1] > 64)


def chosen(pool, kinds, at):
    """Places of operands of these kinds and one shape: the newest first, `at` steps further back; None if there are none."""
    firsts = [place for place in range(len(pool) - 1, -1, -1) if pool[place][0] == kinds[0]]
    if not firsts:
        return None
    places = [firsts[at % len(firsts)]]
    for kind in kinds[1:]:
        fits = [p for p, (k, v) in enumerate(pool) if k == kind and v.shape == pool[places[0]][1].shape]
        if not fits:
            return None
        places.append(fits[at % len(fits)])
    return places


def computed(pool, recipe, dtype):
    """Run a recipe in numpy: `pool` grows by its values; returns the steps that could be taken."""
    steps = []
    for kind, at, n in recipe:
        takes, gives, function, _ = OPS[kind]
        places = chosen(pool, takes, at)
        if places is None or not allowed(kind, [pool[p][1] for p in places]):
            continue
        values = [pool[p][1].astype(np.float32) if pool[p][0] == FLOAT else pool[p][1] for p in places]
        made = function(*values, n, dtype)
        for value in made if isinstance(made, list) else [made]:
            pool.append((gives, value.astype({FLOAT: dtype, INT: np.int32, BOOL: np.bool_}[gives])))
        steps.append((kind, places, n))
    return steps


def check(mil, tmp_path, recipe, shape, dtype):
    from ane_sweep import reference

    rng = np.random.default_rng(2)
    given_values = {"x": rng.uniform(-2, 2, shape).astype(dtype), "k": rng.integers(-40, 40, shape).astype(np.int32)}
    pool = [(FLOAT, given_values["x"]), (INT, given_values["k"])]
    steps = computed(pool, recipe, dtype)
    ends = [place for place in range(len(pool)) if place >= len(pool) - 4]

    def body(x, k):
        mb, names = mil.mb, [x, k]
        for kind, places, n in steps:
            made = OPS[kind][3](mb, *[names[p] for p in places], n, dtype)
            names += made if isinstance(made, list) else [made]
        outs = [mb.cast(x=names[p], dtype="int32") if pool[p][0] == BOOL else mb.identity(x=names[p]) for p in ends]
        return tuple(outs)

    path = mil.write(tmp_path / "m.mlpackage", given_values, body)
    found = list(reference.load(path).predict(given_values).values())
    peak = max(float(np.abs(v.astype(np.float32)).max()) for k, v in pool if k == FLOAT)
    for place, value in zip(ends, found):
        kind, expected = pool[place]
        assert value.shape == expected.shape
        if kind == FLOAT:
            step = 6e-3 if dtype == np.float16 else 2e-5
            np.testing.assert_allclose(
                value.astype(np.float64), expected.astype(np.float64), atol=step * peak, rtol=step
            )
        else:
            np.testing.assert_array_equal(value, expected.astype(np.int32))


RECIPE = st.lists(
    st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 3), st.integers(0, 9)), min_size=3, max_size=14
)
HOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}
SHAPES = st.sampled_from([(2, 3), (4, 2, 3), (1, 4, 2, 2)])


@settings(max_examples=6, derandomize=True, **HOW)
@given(recipe=RECIPE, shape=SHAPES, dtype=st.sampled_from([np.float16, np.float32]))
def test_random_mixed_graphs(mil, tmp_path, recipe, shape, dtype):
    check(mil, tmp_path, recipe, shape, dtype)


def test_every_op_of_the_table_runs_in_one_graph(mil, tmp_path):
    """So that a table entry whose operands never come together is noticed."""
    order = ["greater", "equal", "logical_xor", "logical_not", "int_of", "add_i", "select"]
    recipe = [(kind, 0, 3) for kind in [*order, *(kind for kind in OPS if kind not in order)]]
    pool = [(FLOAT, np.ones((2, 4), np.float32)), (INT, np.ones((2, 4), np.int32))]
    skipped = {kind for kind, _, _ in recipe} - {kind for kind, _, _ in computed(pool, recipe, np.float32)}
    assert not skipped
    check(mil, tmp_path, recipe, (2, 4), np.float32)


@pytest.mark.slow
@settings(max_examples=200, **HOW)
@given(recipe=RECIPE, shape=SHAPES, dtype=st.sampled_from([np.float16, np.float32]))
def test_many_random_mixed_graphs(mil, tmp_path, recipe, shape, dtype):
    check(mil, tmp_path, recipe, shape, dtype)
