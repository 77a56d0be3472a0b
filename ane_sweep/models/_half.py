"""inputs=fp16: a module whose inputs come as fp16, as the notebooks fed them; ids turn back into integers inside."""

from torch import Tensor, nn

from ._options import POSITION, Options
from ._ports import Port, Ports


def is_half(port: Port, options: Options) -> bool:
    """Whether an input is fp16 by wish. Positions in a cache stay integers: nothing looks them up but us."""
    return options.inputs == "fp16" and port.name != POSITION


class FromHalf(nn.Module):
    """`inner` with the dtypes that its ports name, behind inputs of which some are fp16."""

    def __init__(self, inner: nn.Module, ports: Ports):
        super().__init__()
        self.inner, self.names = inner, [port.dtype for port in ports.inputs]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.inner(*(v.int() if name == "int32" else v.float() for v, name in zip(inputs, self.names)))
