"""inputs=fp16: a module whose inputs come as fp16, as the notebooks fed them; ids turn back into integers inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ane_sweep.bridge.building import POSITION, Options
from ane_sweep.worker.models._ports import Port, Ports


def is_half(port: Port, options: Options) -> bool:
    """Whether an input is fp16 by wish. Positions in a cache stay integers: nothing looks them up but us."""
    return options.inputs == "fp16" and port.name != POSITION


@contextmanager
def widened(module: nn.Module, ports: Ports) -> Iterator[None]:
    """While this is open, `module` turns its inputs into the dtypes that its ports name. A hook and no module around
    it, which would put a prefix before the names of its states."""
    kinds = [port.dtype for port in ports.inputs]

    def widen(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        return tuple(value.int() if kind == "int32" else value.float() for value, kind in zip(inputs, kinds))

    hook = module.register_forward_pre_hook(widen)
    try:
        yield
    finally:
        hook.remove()
