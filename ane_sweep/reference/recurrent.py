"""Build lstm, gru and rnn; x (S, B, I). States and sums in fp32, outputs rounded once.

If the documentation and coremltools' tests differ, the tests decide: `clip` limits the cell state (not the cell gate);
`reverse` returns the sequence in the order of computation, `bidirectional` in the order of x; and initial states with
more rows than x are cut to x's (packed sequences are converted so).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference.site import Site, Step, align, op, widen

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "sigmoid_hard": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "linear": lambda x: x,
    "relu": torch.relu,
    "scaled_tanh": torch.tanh,  # with its default factors of 1
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
RecurrentCell = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
States = tuple[Tensor, tuple[Tensor, ...]]  # all hidden states, and the last states
Direction = tuple[RecurrentCell, Tensor, Tensor | None]  # cell, weight_ih and bias


def _activation(site: Site, parameter: str, default: str) -> Callable[[Tensor], Tensor]:
    name = site.static(parameter, default).lower()
    if name not in _ACTIVATIONS:
        raise site.unsupported(f"with {parameter} {name!r}")
    return _ACTIVATIONS[name]


def _read_parameter(site: Site, name: str) -> Tensor | None:
    value = site.known_tensor(name)
    return None if value is None else widen(value).float()


def _read_weights(site: Site, suffix: str = "") -> tuple[Tensor, Tensor]:
    """Return (weights of the inputs, weights of the hidden states) in fp32."""
    inner, hidden = _read_parameter(site, "weight_ih" + suffix), _read_parameter(site, "weight_hh" + suffix)
    if inner is None or hidden is None:
        raise site.unsupported(f"without weight_ih{suffix} and weight_hh{suffix}")
    return inner, hidden


def _run_cell(x: Tensor, states: tuple[Tensor, ...], direction: Direction, turned: bool) -> States:
    """Run a cell and return all hidden states (S, B, H) in the order of x, or of reversed x if `turned`, and the last states."""
    made = []
    cell, inner, bias = direction
    states = tuple(state[: x.shape[1]] for state in states)
    for moment in F.linear(x.flip(0) if turned else x, inner, bias):
        states = cell(moment, states)
        made.append(states[0])
    return torch.stack(made) if made else states[0].new_zeros((0, *states[0].shape)), states


def _make_outputs(site: Site, sequence: Tensor, last: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    outputs = sequence if site.static("output_sequence", False) else last[0][None]
    return tuple(align(value.to(site.dtype)) for value in (outputs, *last))


def _lstm_cell(site: Site, suffix: str) -> Direction:
    """Return an LSTM cell on x already multiplied by weight_ih, its weight and its bias; gates in the order input,
    forget, output, cell.
    """
    inner, hidden = _read_weights(site, suffix)
    peephole, clip = _read_parameter(site, f"peephole{suffix}"), site.static("clip", None)
    gate = _activation(site, "recurrent_activation", "sigmoid")
    squash, out = _activation(site, "cell_activation", "tanh"), _activation(site, "activation", "tanh")
    looks = (0.0, 0.0, 0.0) if peephole is None else peephole.chunk(3)

    def cell(moment: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = states
        i, f, o, z = (moment + h @ hidden.t()).chunk(4, -1)
        kept = gate(f + c * looks[1]) * c + gate(i + c * looks[0]) * squash(z)
        if clip is not None:
            kept = kept.clamp(-clip, clip)
        return gate(o + kept * looks[2]) * out(kept), kept

    return cell, inner, _read_parameter(site, f"bias{suffix}")


@op("lstm")
def lstm(site: Site) -> Step:
    direction = site.static("direction", "forward")
    forward = _lstm_cell(site, "")
    backward = _lstm_cell(site, "_back") if direction == "bidirectional" else None

    def run(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        x, h, c = widen(x).float(), widen(h).float(), widen(c).float()
        if backward is None:
            return _make_outputs(site, *_run_cell(x, (h, c), forward, direction == "reverse"))
        (h0, h1), (c0, c1) = h.chunk(2, -1), c.chunk(2, -1)
        ahead, last = _run_cell(x, (h0, c0), forward, False)
        back, first = _run_cell(x, (h1, c1), backward, True)
        sequence = torch.cat([ahead, back.flip(0)], -1)
        return _make_outputs(site, sequence, tuple(torch.cat(pair, -1) for pair in zip(last, first)))

    return Step(run, [site.name("x"), site.name("initial_h"), site.name("initial_c")])


def _make_step(site: Site, direction: Direction) -> Step:
    """Return the step of a cell with one state, run over x in the declared direction."""
    turned = site.static("direction", "forward") == "reverse"

    def run(x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return _make_outputs(site, *_run_cell(widen(x).float(), (widen(h).float(),), direction, turned))

    return Step(run, [site.name("x"), site.name("initial_h")])


@op("gru")
def gru(site: Site) -> Step:
    """Return the step of a GRU; gates in the order reset, new, update.

    `reset_after` (iOS18) applies the reset gate after the product with the hidden weights and their bias, as torch
    does; `input_bias` is then added on the input's side.
    """
    inner, hidden = _read_weights(site)
    bias, input_bias = _read_parameter(site, "bias"), _read_parameter(site, "input_bias")
    gate, out = _activation(site, "recurrent_activation", "sigmoid"), _activation(site, "activation", "tanh")
    after = site.static("reset_after", False)
    to_gates, to_new = torch.cat([hidden.chunk(3)[0], hidden.chunk(3)[2]]), hidden.chunk(3)[1]
    offset = torch.zeros(hidden.shape[0]) if bias is None else bias
    reset_bias, new_bias, update_bias = offset.chunk(3)

    def cell(moment: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (h,) = states
        x_r, x_o, x_z = moment.chunk(3, -1)
        h_r, h_z = (h @ to_gates.t()).chunk(2, -1)
        r, z = gate(x_r + h_r + reset_bias), gate(x_z + h_z + update_bias)
        turned = r * (h @ to_new.t() + new_bias) if after else (r * h) @ to_new.t() + new_bias
        return ((1 - z) * out(x_o + turned) + z * h,)

    return _make_step(site, (cell, inner, input_bias))


@op("rnn")
def rnn(site: Site) -> Step:
    inner, hidden = _read_weights(site)
    bias, out = _read_parameter(site, "bias"), _activation(site, "activation", "tanh")

    def cell(moment: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (out(moment + states[0] @ hidden.t()),)

    return _make_step(site, (cell, inner, bias))
