"""Inputs and outputs of a graph: names, shapes and dtypes."""

from dataclasses import KW_ONLY, dataclass, replace

SHARED = ("causal_mask",)  # by all inputs of a batch


@dataclass(frozen=True)
class Seeded:
    """The values of an input that is no text: numbers from `low` to `high`, the range of the model's processor.

    `tiled` numbers form a picture or a spectrum (feeds/seeds.py).
    """

    low: float
    high: float
    tiled: bool = True


NUMBERS = Seeded(-1.73, 1.73, tiled=False)  # of variance 1, the default of a model of features


@dataclass(frozen=True)
class Port:
    """One graph input or output; `dtype` is "int32" or "float32" (the fp32 graph's; convert may narrow floats).

    shapes   the shapes of an input that takes several, or one with sizes of (low, high); `shape` is its default
    seeded   the values of an input that is no text, for scoring and timing
    last     the token id with which a text must end
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shapes: tuple[tuple[int | tuple[int, int], ...], ...] = ()
    _: KW_ONLY
    seeded: Seeded | None = None
    last: int | None = None


@dataclass(frozen=True)
class Ports:
    """Inputs in the order of the module's forward, outputs in the order of the tuple it returns."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def with_batch(self, batch: int) -> "Ports":
        """Return the ports for `batch` inputs at once; a mask that is added to all inputs keeps its size."""
        wider = [
            tuple(port if port.name in SHARED else replace(port, shape=(batch, *port.shape[1:])) for port in some)
            for some in (self.inputs, self.outputs)
        ]
        return Ports(*wider)


def hidden_output(seq_len: int, width: int) -> tuple[Port, ...]:
    return (Port("last_hidden_state", (1, seq_len, width), "float32"),)
