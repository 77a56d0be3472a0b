"""inputs=fp16: a module takes fp16 inputs, as the notebooks fed them, and turns ids back into integers inside."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ane_sweep.bridge.building import POSITION, Options
from ane_sweep.worker.models._ports import Port, Ports


def is_half(port: Port, options: Options) -> bool:
    """Return True if the option makes this input fp16. Positions in a cache stay integers: only our code sets them."""
    return options.inputs == "fp16" and port.name != POSITION


@contextmanager
def widen_inputs(module: nn.Module, ports: Ports) -> Iterator[None]:
    """Make `module` turn its inputs into the dtypes of its ports while this is open.

    It is a hook, as a module around `module` would put a prefix before the names of its states.
    """
    kinds = [port.dtype for port in ports.inputs]

    def widen(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(value.int() if kind == "int32" else value.float() for value, kind in zip(inputs, kinds))

    hook = module.register_forward_pre_hook(widen)
    try:
        yield
    finally:
        hook.remove()
