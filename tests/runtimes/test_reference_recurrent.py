"""lstm, gru and rnn against torch and against the equations written out in numpy."""

import numpy as np
import pytest
import torch

RNG = np.random.default_rng(11)
S, B, I, H = 4, 2, 3, 5  # noqa: E741


def gates(count: int, *widths: int) -> list[np.ndarray]:
    return [RNG.standard_normal((count * H, width)).astype(np.float32) / 2 for width in widths]


def to_mil(weight: np.ndarray) -> np.ndarray:
    """torch's order input, forget, cell, output as input, forget, output, cell."""
    i, f, z, o = np.split(weight, 4)
    return np.concatenate([i, f, o, z])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_lstm(execute, mil, direction, dtype):
    two = direction == "bidirectional"
    net = torch.nn.LSTM(I, H, bidirectional=two)
    x = RNG.standard_normal((S, B, I)).astype(dtype)
    h, c = (RNG.standard_normal((1 + two, B, H)).astype(dtype) for _ in range(2))
    weights = {}
    for suffix, ending in (("", ""), ("_back", "_reverse")) if two else (("", ""),):
        for name in ("ih", "hh"):
            weights[f"weight_{name}{suffix}"] = to_mil(getattr(net, f"weight_{name}_l0{ending}").detach().numpy())
        total = getattr(net, f"bias_ih_l0{ending}") + getattr(net, f"bias_hh_l0{ending}")
        weights[f"bias{suffix}"] = to_mil(total.detach().numpy())
    weights = {name: value.astype(dtype) for name, value in weights.items()}

    def body(x, h, c):
        given = {"x": x, "initial_h": h, "initial_c": c, "direction": direction, "output_sequence": True}
        return mil.mb.lstm(**given, **weights)

    joined = [np.concatenate(list(state), -1) for state in (h, c)]
    found = execute({"x": x, "h": joined[0], "c": joined[1]}, body)
    turned = x[::-1].copy() if direction == "reverse" else x
    with torch.no_grad():
        sequence, (last_h, last_c) = net(
            *(torch.from_numpy(turned).float(), (torch.from_numpy(h).float(), torch.from_numpy(c).float()))
        )
    tolerance = 1e-5 if dtype == np.float32 else 4e-3
    exact = [sequence, torch.cat(list(last_h), -1), torch.cat(list(last_c), -1)]
    for one, true in zip(found, exact):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, true, atol=tolerance)


def test_clip_limits_the_cell_state_and_peepholes_look_at_it(execute, mil):
    x = RNG.standard_normal((S, B, I)).astype(np.float32) * 3
    inner, hidden = gates(4, I, H)
    peephole, clip = RNG.standard_normal(3 * H).astype(np.float32), np.float32(0.3)
    zeros = np.zeros((B, H), np.float32)

    def body(x):
        given = {"initial_h": zeros, "initial_c": zeros, "weight_ih": inner, "weight_hh": hidden, "clip": clip}
        return mil.mb.lstm(x=x, **given, peephole=peephole, activation="relu", cell_activation="hard_sigmoid")

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    h, c = zeros, zeros
    p_i, p_f, p_o = np.split(peephole, 3)
    for moment in x:
        i, f, o, z = np.split(moment @ inner.T + h @ hidden.T, 4, -1)
        new = c * sigmoid(f + c * p_f) + sigmoid(i + c * p_i) * np.clip(0.2 * z + 0.5, 0, 1)
        c = np.clip(new, -clip, clip)
        h = sigmoid(o + c * p_o) * np.maximum(c, 0)
    last, found_h, found_c = execute({"x": x}, body)
    assert last.shape == (1, B, H) and (c == clip).any()
    np.testing.assert_allclose(found_h, h, atol=1e-5)
    np.testing.assert_allclose(last[0], h, atol=1e-5)
    np.testing.assert_allclose(found_c, c, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gru(execute, mil, direction):
    """The reset gate before the product: MIL's own form, which torch does not have."""
    x, h = RNG.standard_normal((S, B, I)).astype(np.float32), RNG.standard_normal((B, H)).astype(np.float32)
    inner, hidden = gates(3, I, H)
    bias = RNG.standard_normal(3 * H).astype(np.float32)

    def body(x, h):
        given = {"weight_ih": inner, "weight_hh": hidden, "bias": bias, "direction": direction}
        return mil.mb.gru(x=x, initial_h=h, **given, output_sequence=True)

    (w_r, w_o, w_z), (r_r, r_o, r_z), (b_r, b_o, b_z) = (np.split(value, 3) for value in (inner, hidden, bias))
    state, made = h, []
    for moment in x[::-1] if direction == "reverse" else x:
        r = 1 / (1 + np.exp(-(moment @ w_r.T + state @ r_r.T + b_r)))
        z = 1 / (1 + np.exp(-(moment @ w_z.T + state @ r_z.T + b_z)))
        o = np.tanh(moment @ w_o.T + (r * state) @ r_o.T + b_o)
        state = (1 - z) * o + z * state
        made.append(state)
    sequence, last = execute({"x": x, "h": h}, body)
    np.testing.assert_allclose(sequence, made, atol=1e-5)
    np.testing.assert_allclose(last, state, atol=1e-5)


def test_gru_with_the_reset_gate_after_is_torchs(execute, mil):
    net = torch.nn.GRU(I, H)
    x, h = RNG.standard_normal((S, B, I)).astype(np.float32), RNG.standard_normal((B, H)).astype(np.float32)

    def turned(value):
        r, z, n = np.split(value.detach().numpy(), 3)
        return np.concatenate([r, n, z])

    def body(x, h):
        return mil.mb.gru(
            x=x, initial_h=h, weight_ih=turned(net.weight_ih_l0), weight_hh=turned(net.weight_hh_l0),
            input_bias=turned(net.bias_ih_l0), bias=turned(net.bias_hh_l0), reset_after=True, output_sequence=True,
        )  # fmt: skip

    with torch.no_grad():
        exact, _ = net(torch.from_numpy(x), torch.from_numpy(h)[None])
    np.testing.assert_allclose(execute({"x": x, "h": h}, body)[0], exact, atol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn(execute, mil, activation):
    net = torch.nn.RNN(I, H, nonlinearity=activation)
    x, h = RNG.standard_normal((S, B, I)).astype(np.float32), RNG.standard_normal((B, H)).astype(np.float32)
    weights = {
        "weight_ih": net.weight_ih_l0.detach().numpy(),
        "weight_hh": net.weight_hh_l0.detach().numpy(),
        "bias": (net.bias_ih_l0 + net.bias_hh_l0).detach().numpy(),
    }
    given = {"activation": activation, "output_sequence": True, **weights}
    found = execute({"x": x, "h": h}, lambda x, h: mil.mb.rnn(x=x, initial_h=h, **given))
    with torch.no_grad():
        sequence, last = net(torch.from_numpy(x), torch.from_numpy(h)[None])
    np.testing.assert_allclose(found[0], sequence, atol=1e-5)
    np.testing.assert_allclose(found[1], last[0], atol=1e-5)
