"""Random ML Programs made of what rewrites look for, of look-alikes, and of other ops between; a number is a program.

    path = write_program(7, folder)     # the same program each time

Each step adds a piece to a pool of values: a plain op, or a pattern with its constants, axes and spellings drawn, now and
then a wrong one. A piece reads any value of the pool, so values inside patterns get further readers or become outputs.
What coremltools refuses is left out, and dead ops stay.
"""

import random
from pathlib import Path

import numpy as np
from fix.checks import save

MOST_ELEMENTS = 4096
HALF_SHARE = 0.7  # of programs whose numbers are fp16


class Pool:
    """The values of a program under way, and the draws."""

    def __init__(self, mb, draw: random.Random, dtype, values):
        self.mb, self.draw, self.dtype, self.values = mb, draw, dtype, list(values)

    def take(self, *ranks):
        """Return a value with one of these ranks, most likely a late one; any rank without them."""
        fits = [one for one in self.values if not ranks or one.rank in ranks]
        return fits[max(self.draw.randrange(len(fits)), self.draw.randrange(len(fits)))]

    def number(self, value):
        """Return a constant of the program's type; now and then another number."""
        return self.dtype(value * (self.draw.choice((0.5, 1.1, -1.0)) if self.draw.random() < 0.08 else value and 1))

    def array(self, *shape, scale=0.3):
        made = np.random.default_rng(self.draw.randrange(1 << 30)).standard_normal(shape) * scale
        return made.astype(self.dtype)

    def axis(self, x):
        return self.draw.randrange(-x.rank, x.rank)

    def axes(self, x):
        return sorted(self.draw.sample(range(x.rank), self.draw.randint(1, min(2, x.rank))))

    def flip(self, share=0.5):
        return self.draw.random() < share

    def product(self, *factors):
        """Return the product of some values in a drawn order and nesting."""
        left = list(factors)
        while len(left) > 1:
            self.draw.shuffle(left)
            left.append(self.mb.mul(x=left.pop(), y=left.pop()))
        return left[0]

    def sum_of(self, x, y):
        return self.mb.add(x=x, y=y) if self.flip() else self.mb.add(x=y, y=x)


def plain(pool):
    mb, x = pool.mb, pool.take()
    names = "relu tanh sigmoid softplus abs erf silu gelu sin clip identity square mish quick"
    kind = pool.draw.choice(names.split(" "))
    if kind == "gelu":
        return mb.gelu(x=x, mode=pool.draw.choice(("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")))
    if kind == "clip":
        return mb.clip(x=x, alpha=pool.dtype(-1), beta=pool.dtype(2))
    if kind == "square":
        return mb.square(x=mb.tanh(x=x))
    if kind == "mish":
        return mb.mul(x=x, y=mb.tanh(x=mb.softplus(x=x)))
    if kind == "quick":
        return mb.mul(x=x, y=mb.sigmoid(x=mb.mul(x=x, y=pool.number(1.702))))
    return getattr(mb, kind)(x=x)


def two(pool):
    x = pool.take()
    others = [one for one in pool.values if one.rank == x.rank and one.shape == x.shape]
    y = pool.draw.choice([*others, pool.number(0.5), pool.array(x.shape[-1])])
    return getattr(pool.mb, pool.draw.choice(("add", "sub", "mul", "maximum", "minimum")))(x=x, y=y)


def transposed(pool):
    x = pool.take()
    made = pool.mb.transpose(x=x, perm=pool.draw.sample(range(x.rank), x.rank))
    if pool.flip():
        made = pool.mb.transpose(
            x=pool.mb.relu(x=made) if pool.flip() else made, perm=pool.draw.sample(range(x.rank), x.rank)
        )
    return made


def reshaped(pool):
    x, mb = pool.take(), pool.mb
    kind = pool.draw.choice(("reshape", "expand_dims", "squeeze", "back", "flat"))
    if kind == "expand_dims":
        return mb.expand_dims(x=x, axes=[pool.draw.randrange(x.rank + 1)])
    if kind == "squeeze":
        ones = [axis for axis, size in enumerate(x.shape) if size == 1]
        return mb.squeeze(x=x, axes=pool.draw.sample(ones, pool.draw.randint(1, len(ones))))
    if kind == "flat":
        return mb.reshape(x=x, shape=[1, -1, x.shape[-1]])
    sizes = list(x.shape)
    place = pool.draw.randrange(len(sizes))
    for factor in (4, 2, 3):
        if sizes[place] % factor == 0:
            sizes[place : place + 1] = [factor, sizes[place] // factor]
            break
    made = mb.reshape(x=x, shape=sizes)
    return mb.reshape(x=mb.tanh(x=made), shape=list(x.shape)) if kind == "back" else made


def sliced(pool):
    mb, x = pool.mb, pool.take()
    axis = pool.draw.randrange(x.rank)
    size = x.shape[axis]
    kind = pool.draw.choice(("slice", "split", "split", "concat", "stack", "tile", "reverse", "gather", "scalar"))
    if kind == "slice":
        begin, end, stride = [0] * x.rank, list(x.shape), [1] * x.rank
        begin[axis] = pool.draw.randrange(size)
        end[axis] = pool.draw.randint(begin[axis] + 1, size)
        stride[axis] = pool.draw.choice((1, 1, 2))
        return mb.slice_by_index(x=x, begin=begin, end=end, stride=stride)
    if kind == "split":
        first = pool.draw.randint(1, size - 1)
        return mb.split(x=x, split_sizes=[first, size - first], axis=pool.draw.choice((axis, axis - x.rank)))
    if kind == "concat":
        return mb.concat(values=[x, mb.relu(x=x), x][: pool.draw.randint(2, 3)], axis=axis)
    if kind == "stack":
        return mb.stack(values=[x, mb.abs(x=x)], axis=axis)
    if kind == "tile":
        return mb.tile(x=x, reps=[2 if place == axis else 1 for place in range(x.rank)])
    if kind == "reverse":
        return mb.reverse(x=x, axes=[axis])
    if kind == "scalar":
        return mb.gather(x=x, indices=np.int32(pool.draw.randrange(size)), axis=axis)
    indices = np.array([pool.draw.randrange(size) for _ in range(pool.draw.randint(1, 4))], np.int32)
    return mb.gather(x=x, indices=indices, axis=axis)


def padded(pool):
    x = pool.take(2, 3, 4)
    sides = [pool.draw.randrange(3) for _ in range(2 * pool.draw.randint(1, 2))]
    mode = pool.draw.choice(("reflect", "reflect", "replicate", "constant"))
    return pool.mb.pad(
        x=x,
        pad=[0] * (2 * x.rank - len(sides)) + sides if pool.flip() else sides,
        mode=mode,
        constant_val=pool.dtype(0),
    )


def reduced(pool):
    mb, x = pool.mb, pool.take()
    kind = pool.draw.choice(["mean", "sum", "max", "min", "log_sum_exp", "l2_norm", "sum_square"])
    return getattr(mb, f"reduce_{kind}")(x=x, axes=pool.axes(x), keep_dims=pool.flip(0.7))


def linear(pool):
    mb, x = pool.mb, pool.take(2, 3, 4)
    width = pool.draw.choice((4, 6, 8))
    weight, bias = pool.array(width, x.shape[-1]), pool.array(width)
    if pool.flip(0.6):
        return mb.linear(x=x, weight=weight, bias=bias) if pool.flip() else mb.linear(x=x, weight=weight)
    is_turned = pool.flip()
    made = mb.matmul(x=x, y=weight if is_turned else weight.T.copy(), transpose_y=is_turned)
    return mb.add(x=made, y=bias) if pool.flip() else made


def convolved(pool):
    mb, x = pool.mb, pool.take(3, 4)
    spatial = x.rank - 2
    size = pool.draw.choice((1, 1, 3))
    groups = x.shape[1] if pool.flip(0.2) else 1
    weight = pool.array(4 * groups, x.shape[1] // groups, *[size] * spatial)
    given = {"bias": pool.array(4 * groups)} if pool.flip() else {}
    return mb.conv(x=x, weight=weight, pad_type=pool.draw.choice(("same", "valid")), groups=groups, **given)


def normed(pool):
    mb, x = pool.mb, pool.take()
    axes = pool.draw.choice(([-1], [1], [-2, -1], [x.rank - 1]))
    shape = [x.shape[axis] for axis in axes]
    given = {"gamma": pool.array(*shape) + 1, "beta": pool.array(*shape)} if pool.flip(0.7) else {}
    given = {key: value.astype(pool.dtype) for key, value in given.items()}
    return mb.layer_norm(x=x, axes=axes, epsilon=pool.dtype(1e-3), **given)


def norm_written_out(pool):
    mb, x = pool.mb, pool.take()
    axes = [pool.axis(x)] if pool.flip(0.8) else pool.axes(x)
    if pool.flip():
        x = mb.sub(x=x, y=mb.reduce_mean(x=x, axes=axes, keep_dims=True))
    square = pool.draw.choice((mb.square, lambda x: mb.mul(x=x, y=x), lambda x: mb.pow(x=x, y=pool.number(2.0))))(x=x)
    mean = pool.sum_of(mb.reduce_mean(x=square, axes=axes, keep_dims=True), pool.number(1e-3))
    form = pool.draw.randrange(3)
    if form == 0:
        made = mb.real_div(x=x, y=mb.sqrt(x=mean))
    else:
        made = pool.product(x, mb.rsqrt(x=mean) if form == 1 else mb.pow(x=mean, y=pool.number(-0.5)))
    return mb.mul(x=made, y=pool.array(x.shape[-1])) if pool.flip() else made


def logarithm(pool):
    """Return log_softmax, logsumexp, logcumsumexp or log(1 + exp(x)), right or nearly so."""
    mb, x = pool.mb, pool.mb.clip(x=pool.take(), alpha=pool.dtype(-8), beta=pool.dtype(8))
    axis, form = pool.axis(x), pool.draw.randrange(6)
    if form == 0:
        return mb.log(x=mb.softmax(x=x, axis=axis))
    if form == 1:
        return mb.log(x=mb.cumsum(x=mb.exp(x=x), axis=axis, reverse=pool.flip(0.2), exclusive=False))
    if form == 2:
        return mb.log(x=pool.sum_of(mb.exp(x=x), pool.dtype(pool.draw.choice((1, 1, 1, 2)))))
    if form == 3:
        return mb.log(x=mb.exp(x=x), epsilon=pool.dtype(1))
    keep = pool.flip(0.7)
    if pool.flip():
        total = mb.reduce_log_sum_exp(x=x, axes=[axis], keep_dims=keep)
    else:
        total = mb.log(x=mb.reduce_sum(x=mb.exp(x=x), axes=[axis], keep_dims=keep))
    if form == 4:
        return total
    return mb.sub(x=x, y=total if keep else mb.expand_dims(x=total, axes=[axis % x.rank]))


def gelu_written_out(pool):
    mb, x = pool.mb, pool.take()
    if pool.flip():
        inner = mb.mul(x=x, y=pool.number(0.5**0.5)) if pool.flip() else mb.real_div(x=x, y=pool.number(2**0.5))
        return pool.product(x, pool.number(0.5), pool.sum_of(mb.erf(x=inner), pool.number(1.0)))
    if pool.flip():
        cube = pool.product(mb.pow(x=x, y=pool.number(3.0)), pool.number(0.044715))
        inner = pool.product(pool.sum_of(x, cube), pool.number((2 / np.pi) ** 0.5))
    else:
        inner = pool.product(
            x, pool.number((2 / np.pi) ** 0.5), pool.sum_of(pool.product(x, x, pool.number(0.044715)), pool.number(1.0))
        )
    return pool.product(x, pool.number(0.5), pool.sum_of(mb.tanh(x=inner), pool.number(1.0)))


def mean_as_sum(pool):
    mb, x = pool.mb, pool.take()
    axes = pool.axes(x)
    count = int(np.prod([x.shape[axis] for axis in axes]))
    total = mb.reduce_sum(x=x, axes=axes, keep_dims=pool.flip())
    return mb.real_div(x=total, y=pool.number(count)) if pool.flip() else pool.product(total, pool.number(1 / count))


def masked(pool):
    mb, x = pool.mb, pool.take()
    low = pool.dtype(pool.draw.choice((-np.inf, -np.inf, -1e4)))
    rows, width = (x.shape[-2] if x.rank > 1 else 1), x.shape[-1]
    form = pool.draw.randrange(4)
    if form == 0:
        mask = np.triu(np.full((rows, width), low), pool.draw.choice((1, 1, 0)))
        made = mb.add(x=x, y=np.where(mask == 0, 0, mask).astype(pool.dtype))
    elif form == 1:
        other = pool.draw.choice([one for one in pool.values if one.shape == x.shape])
        keep = mb.greater(x=other, y=pool.number(-0.5))
        made = mb.select(cond=keep, a=x, b=low) if pool.flip() else mb.select(cond=keep, a=low, b=x)
    elif form == 2:
        keep = mb.cast(x=mb.greater(x=x, y=pool.dtype(-0.5)), dtype="fp16" if pool.dtype is np.float16 else "fp32")
        made = mb.add(x=x, y=mb.mul(x=mb.sub(x=pool.dtype(1), y=keep), y=low))
    else:
        return mb.select(cond=mb.less(x=x, y=pool.number(0.0)), a=x, b=pool.number(0.25))
    made = mb.softmax(x=made, axis=-1 if pool.flip(0.8) else pool.axis(x))
    return mb.select(cond=mb.not_equal(x=made, y=made), a=pool.dtype(0), b=made) if pool.flip(0.1) else made


def attended(pool):
    """Return attention as converters leave it: projections, heads split, fused or not, a mask or none, heads merged."""
    mb, x = pool.mb, pool.take(3)
    batch, count, width = x.shape
    heads, size = pool.draw.choice((1, 2, 4)), pool.draw.choice((2, 4, 8))
    groups = pool.draw.choice((heads, heads, 1))

    def project(parts):
        made = mb.linear(x=x, weight=pool.array(parts * size, width), bias=pool.array(parts * size))
        return mb.transpose(x=mb.reshape(x=made, shape=[batch, count, parts, size]), perm=[0, 2, 1, 3])

    q, k, v = project(heads), project(groups), project(groups)
    if groups != heads:
        k, v = (mb.tile(x=one, reps=[1, heads // groups, 1, 1]) for one in (k, v))
    mask = np.triu(np.full((count, count), pool.draw.choice((-np.inf, -1e4))), 1)
    mask = np.where(mask == 0, 0, mask).astype(pool.dtype)
    if pool.flip(0.3):
        given = {"attn_mask": mask} if pool.flip() else {}
        made = mb.scaled_dot_product_attention(query=q, key=k, value=v, **given)
    else:
        if pool.flip():
            q = mb.mul(x=q, y=pool.number(size**-0.5))
        if pool.flip():
            scores = mb.matmul(x=q, y=k, transpose_y=True)
        else:
            scores = mb.matmul(x=q, y=mb.transpose(x=k, perm=[0, 1, 3, 2]))
        if pool.flip(0.3):
            scores = mb.mul(x=scores, y=pool.number(size**-0.5))
        if pool.flip(0.4):
            scores = mb.add(x=scores, y=mask)
        made = mb.matmul(x=mb.softmax(x=scores, axis=-1), y=v)
    made = mb.transpose(x=made, perm=[0, 2, 1, 3] if pool.flip(0.9) else [0, 1, 3, 2])
    made = mb.reshape(x=made, shape=[batch, count, heads * size])
    return mb.linear(x=made, weight=pool.array(width, heads * size)) if pool.flip() else made


def counted(pool):
    """Return numbers made by way of whole numbers, comparisons, or a wider type."""
    mb, x = pool.mb, pool.take()
    half = "fp16" if pool.dtype is np.float16 else "fp32"
    form = pool.draw.randrange(5)
    if form == 0:
        whole = mb.cast(x=mb.clip(x=x, alpha=pool.dtype(-50), beta=pool.dtype(50)), dtype="int32")
        return mb.cast(x=mb.add(x=mb.mul(x=whole, y=np.int32(2)), y=np.int32(1)), dtype=half)
    if form == 1:
        return mb.cast(x=mb.logical_not(x=mb.greater(x=x, y=pool.number(0.0))), dtype=half)
    if form == 2:
        wide = mb.cast(x=x, dtype="fp32")
        wide = mb.softmax(x=wide, axis=-1) if pool.flip() else mb.reduce_mean(x=wide, axes=[-1], keep_dims=True)
        return mb.cast(x=wide, dtype=half)
    if form == 3:
        wide = mb.cast(x=x, dtype="fp32")
        return mb.cast(x=mb.mul(x=mb.tanh(x=wide), y=np.float32(0.5)), dtype=half)
    return mb.cast(x=mb.cast(x=x, dtype="fp32"), dtype=half)


def chosen(pool):
    """Return the largest numbers (their places only as an output), or an embedding."""
    mb, x = pool.mb, pool.take()
    if pool.flip():
        return mb.topk(x=x, k=pool.draw.randint(1, x.shape[-1]), axis=-1)[0]
    best = mb.reduce_argmax(x=x, axis=pool.axis(x), keep_dims=pool.flip())
    return mb.cast(x=mb.minimum(x=best, y=np.int32(3)), dtype="fp16" if pool.dtype is np.float16 else "fp32")


def windowed(pool):
    """Return a maximum over a wide window, or a convolution with a long kernel."""
    x = pool.take(4)
    pads = [pool.draw.choice((0, 1, 6, 12, 20)) for _ in range(4)]
    given = {"pad": pads, "pad_type": "custom", "strides": [pool.draw.choice((1, 1, 2)) for _ in range(2)]}
    reach = [size + sum(pads[2 * axis : 2 * axis + 2]) for axis, size in enumerate(x.shape[2:])]
    if pool.flip():
        sizes = [pool.draw.randint(1, min(reach[0], 13)), pool.draw.randint(1, min(reach[1], 30))]
        return pool.mb.max_pool(x=x, kernel_sizes=sizes, ceil_mode=pool.flip(0.2), **given)
    apart = pool.draw.choice(([1, 1], [2, 1]))
    sizes = [pool.draw.randint(1, min((most - 1) // step + 1, 40)) for most, step in zip(reach, apart)]
    bias = {"bias": pool.array(3)} if pool.flip() else {}
    return pool.mb.conv(x=x, weight=pool.array(3, x.shape[1], *sizes), dilations=apart, groups=1, **given, **bias)


PIECES = [
    plain, plain, two, two, transposed, transposed, reshaped, reshaped, sliced, sliced, padded, reduced, linear, linear,
    convolved, normed, norm_written_out, logarithm, gelu_written_out, mean_as_sum, masked, attended, attended, counted, chosen,
]  # fmt: skip


def write_program(number: int, folder: Path) -> Path:
    """Write the program of a number and return its path. A draw that coremltools cannot finish is drawn anew."""
    for attempt in range(100):
        try:
            return _write_draw(f"{number}.{attempt}", folder / f"{number}.mlpackage")
        except (TypeError, ValueError):
            continue
    raise AssertionError(f"no draw of program {number} can be written")


def _write_draw(seed: str, path: Path) -> Path:
    from coremltools.converters.mil import Builder as mb

    draw, later = random.Random(seed), random.Random(f"{seed}.windowed")  # another, so that numbers keep their programs
    dtype = np.float16 if draw.random() < HALF_SHARE else np.float32
    kind = "fp16" if dtype is np.float16 else "fp32"
    shapes = [draw.choice(([1, 6, 8], [2, 4, 12], [1, 8, 1, 6], [2, 3, 6, 6], [8, 16], [1, 4, 2, 8])) for _ in range(2)]

    def body(x, y):
        pool = Pool(mb, draw, dtype, [x, y])
        for _ in range(draw.randint(2, 10)):
            try:
                made = draw.choice(PIECES)(pool)
            except (ValueError, IndexError, TypeError, AssertionError, ZeroDivisionError):
                continue  # the piece does not fit the value
            for one in made if isinstance(made, (list, tuple)) else [made]:
                if 1 <= one.rank <= 5 and int(np.prod(one.shape)) <= MOST_ELEMENTS:
                    pool.values.append(one)
        ends = [pool.values[-1], *draw.sample(pool.values, draw.randint(0, 2))]
        ends = list({id(one): one for one in ends}.values())
        ends = [mb.identity(x=one) if draw.random() < 0.5 or one in (x, y) else one for one in ends]
        if later.random() < 0.1 and any(one.rank == 4 for one in pool.values):
            try:
                ends.append(windowed(Pool(mb, later, dtype, pool.values)))
            except ValueError:
                pass  # a window that coremltools refuses
        return tuple(ends)

    return save(path, body, x=(kind, shapes[0]), y=(kind, shapes[1]))
