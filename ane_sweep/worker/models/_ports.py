"""What goes into and comes out of a graph."""

from dataclasses import KW_ONLY, dataclass, replace

SHARED = ("causal_mask",)  # by all inputs of a batch


@dataclass(frozen=True)
class Seeded:
    """An input that is no text: numbers between two, as the model's processor scales what it is given; of a picture or
    a spectrum in tiles (feeds/seeds.py)."""

    low: float
    high: float
    tiled: bool = True


NUMBERS = Seeded(-1.73, 1.73, tiled=False)  # of variance 1: what a model of features gets that says nothing else


@dataclass(frozen=True)
class Port:
    """One graph input or output; `dtype` is "int32" or "float32" (the fp32 graph's; convert may narrow floats).

    shapes   of an input that takes several: those, or one with sizes of (low, high); `shape` is its default
    seeded  of an input that is no text: what is scored and timed on
    last    of token ids: the one with which a text must end
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

    def of(self, batch: int) -> "Ports":
        """With as many inputs side by side; what is added to all of them stays one."""
        wider = [
            tuple(port if port.name in SHARED else replace(port, shape=(batch, *port.shape[1:])) for port in some)
            for some in (self.inputs, self.outputs)
        ]
        return Ports(*wider)


def encoder_inputs(seq_len: int) -> tuple[Port, ...]:
    """input_ids (1,S), attention_mask (1,S): 1 where a token is real, 0 where it is padding."""
    return Port("input_ids", (1, seq_len), "int32"), Port("attention_mask", (1, seq_len), "float32")


def hidden_output(seq_len: int, width: int) -> tuple[Port, ...]:
    return (Port("last_hidden_state", (1, seq_len, width), "float32"),)
