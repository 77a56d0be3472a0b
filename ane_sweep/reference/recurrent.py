"""Build lstm, gru and rnn; x (S, B, I). States and sums in fp32, outputs rounded once.

If the documentation and coremltools' tests differ, the tests are followed: `clip` limits the cell state (not the
cell gate), `reverse` leaves the sequence it made in the order in which it made it, `bidirectional` turns it back, and
initial states of more rows than x has are cut to x's (packed sequences are converted so).
"""

from collections.abc import Callable

import torch

from ane_sweep.reference.site import Site, Step, align, op, widen

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "sigmoid_hard": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "linear": lambda x: x,
    "relu": torch.relu,
    "scaled_tanh": torch.tanh,  # with its default factors of 1
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
RecurrentCell = Callable[[torch.Tensor, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]
States = tuple[torch.Tensor, tuple[torch.Tensor, ...]]  # all hidden states, and the last states
Direction = tuple[RecurrentCell, torch.Tensor, torch.Tensor | None]  # cell, weight_ih and bias


def _activation(site: Site, parameter: str, default: str) -> Callable[[torch.Tensor], torch.Tensor]:
    name = site.static(parameter, default).lower()
    if name not in _ACTIVATIONS:
        raise site.unsupported(f"with {parameter} {name!r}")
    return _ACTIVATIONS[name]


def _read_parameter(site: Site, name: str) -> torch.Tensor | None:
    value = site.known_tensor(name)
    return None if value is None else widen(value).float()


def _run_cell(
    x: torch.Tensor, states: tuple[torch.Tensor, ...], cell: RecurrentCell
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return all hidden states (S, B, H) in the order of x, and the last states."""
    made = []
    states = tuple(state[: x.shape[1]] for state in states)
    for moment in x:
        states = cell(moment, states)
        made.append(states[0])
    return torch.stack(made) if made else states[0].new_zeros((0, *states[0].shape)), states


def _make_outputs(site: Site, sequence: torch.Tensor, last: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    outputs = sequence if site.static("output_sequence", False) else last[0][None]
    return tuple(align(value.to(site.dtype)) for value in (outputs, *last))


def _lstm_cell(site: Site, suffix: str) -> Direction:
    """Return a cell that takes x already times weight_ih, its weight and its bias; gates in the order input, forget, output, cell."""
    inner, hidden = _read_parameter(site, f"weight_ih{suffix}"), _read_parameter(site, f"weight_hh{suffix}")
    if inner is None or hidden is None:
        raise site.unsupported(f"without weight_ih{suffix} and weight_hh{suffix}")
    peephole, clip = _read_parameter(site, f"peephole{suffix}"), site.static("clip", None)
    gate = _activation(site, "recurrent_activation", "sigmoid")
    squash, out = _activation(site, "cell_activation", "tanh"), _activation(site, "activation", "tanh")
    looks = (0.0, 0.0, 0.0) if peephole is None else peephole.chunk(3)

    def cell(moment: torch.Tensor, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        h, c = states
        i, f, o, z = (moment + h @ hidden.t()).chunk(4, -1)
        kept = gate(f + c * looks[1]) * c + gate(i + c * looks[0]) * squash(z)
        if clip is not None:
            kept = kept.clamp(-clip, clip)
        return gate(o + kept * looks[2]) * out(kept), kept

    return cell, inner, _read_parameter(site, f"bias{suffix}")


def _project(x: torch.Tensor, inner: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.nn.functional.linear(x, inner, bias)


@op("lstm")
def lstm(site: Site) -> Step:
    direction = site.static("direction", "forward")
    forward = _lstm_cell(site, "")
    backward = _lstm_cell(site, "_back") if direction == "bidirectional" else None

    def run_one_way(
        x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, parts: Direction, turned: bool
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        cell, inner, bias = parts
        return _run_cell(_project(x.flip(0) if turned else x, inner, bias), (h, c), cell)

    def run(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, h, c = widen(x).float(), widen(h).float(), widen(c).float()
        if backward is None:
            return _make_outputs(site, *run_one_way(x, h, c, forward, direction == "reverse"))
        (h0, h1), (c0, c1) = h.chunk(2, -1), c.chunk(2, -1)
        ahead, last = run_one_way(x, h0, c0, forward, False)
        back, first = run_one_way(x, h1, c1, backward, True)
        sequence = torch.cat([ahead, back.flip(0)], -1)
        return _make_outputs(site, sequence, tuple(torch.cat(pair, -1) for pair in zip(last, first)))

    return Step(run, [site.name("x"), site.name("initial_h"), site.name("initial_c")])


@op("gru")
def gru(site: Site) -> Step:
    """Build gru; gates in the order reset, new, update.

    `reset_after` (iOS18) applies the reset gate after the product with the hidden weights and their bias, as torch does;
    `input_bias` is then that of the input's side.
    """
    inner, hidden = _read_parameter(site, "weight_ih"), _read_parameter(site, "weight_hh")
    if inner is None or hidden is None:
        raise site.unsupported("without weight_ih and weight_hh")
    bias, input_bias = _read_parameter(site, "bias"), _read_parameter(site, "input_bias")
    gate, out = _activation(site, "recurrent_activation", "sigmoid"), _activation(site, "activation", "tanh")
    after, reverse = site.static("reset_after", False), site.static("direction", "forward") == "reverse"
    to_gates, to_new = torch.cat([hidden.chunk(3)[0], hidden.chunk(3)[2]]), hidden.chunk(3)[1]
    offset = torch.zeros(hidden.shape[0]) if bias is None else bias
    reset_bias, new_bias, update_bias = offset.chunk(3)

    def cell(moment: torch.Tensor, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        (h,) = states
        x_r, x_o, x_z = moment.chunk(3, -1)
        h_r, h_z = (h @ to_gates.t()).chunk(2, -1)
        r, z = gate(x_r + h_r + reset_bias), gate(x_z + h_z + update_bias)
        turned = r * (h @ to_new.t() + new_bias) if after else (r * h) @ to_new.t() + new_bias
        return ((1 - z) * out(x_o + turned) + z * h,)

    def run(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = widen(x).float()
        moments = _project(x.flip(0) if reverse else x, inner, input_bias)
        return _make_outputs(site, *_run_cell(moments, (widen(h).float(),), cell))

    return Step(run, [site.name("x"), site.name("initial_h")])


@op("rnn")
def rnn(site: Site) -> Step:
    inner, hidden = _read_parameter(site, "weight_ih"), _read_parameter(site, "weight_hh")
    if inner is None or hidden is None:
        raise site.unsupported("without weight_ih and weight_hh")
    bias, out = _read_parameter(site, "bias"), _activation(site, "activation", "tanh")
    reverse = site.static("direction", "forward") == "reverse"

    def cell(moment: torch.Tensor, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (out(moment + states[0] @ hidden.t()),)

    def run(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = widen(x).float()
        moments = _project(x.flip(0) if reverse else x, inner, bias)
        return _make_outputs(site, *_run_cell(moments, (widen(h).float(),), cell))

    return Step(run, [site.name("x"), site.name("initial_h")])
