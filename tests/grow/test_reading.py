"""Numbers that Python reads as a module is traced."""

import pytest

torch = pytest.importorskip("torch")

from ane_sweep.worker.grow import reading  # noqa: E402
from ane_sweep.worker.grow.sequence import Unlike  # noqa: E402
from tests.grow.dependencies import READ_BY_PYTHON  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self, read):
        super().__init__()
        self.weight, self.read = torch.nn.Parameter(torch.randn(4)), read

    def forward(self, x):
        return torch.relu(x * self.weight) if self.read(self.weight) else x * self.weight


def traced(net, trace):
    return trace(net, (torch.zeros(2, 4),), check_trace=False)


@pytest.mark.parametrize("name", [name for name in READ_BY_PYTHON if name != "traced"])
def test_a_number_that_is_read_is_refused_though_the_net_catches_every_error(name):
    with pytest.raises(Unlike, match="reads the numbers"):
        traced(Net(READ_BY_PYTHON[name]), reading.refuse_reading(torch.jit.trace))


def test_sizes_may_be_read_and_names_stay_what_they_are():
    net = Net(lambda weight: weight.shape[0] > 3 and int(weight.size(0)) == 4)
    names = [
        [value.debugName() for node in traced(net, trace).graph.nodes() for value in node.outputs()]
        for trace in (torch.jit.trace, reading.refuse_reading(torch.jit.trace))
    ]
    assert names[0] == names[1]


def test_torch_is_left_as_it_was():
    before = [vars(torch.Tensor).get(name) for name in reading._METHODS], torch.equal, torch._C._is_tracing
    with pytest.raises(Unlike):
        traced(Net(READ_BY_PYTHON["item"]), reading.refuse_reading(torch.jit.trace))
    with reading.pretend_tracing():
        assert torch.jit.is_tracing()
    after = [vars(torch.Tensor).get(name) for name in reading._METHODS], torch.equal, torch._C._is_tracing
    assert before == after and not torch.jit.is_tracing()
