"""Run a module with lazy weights on several inputs, layer by layer.

The weights of each layer are drawn or read once, serve every input, and are freed before those of the next layer are
made. The passes are threads that run one at a time, each up to the next layer; the results are bit for bit those of
passes in sequence.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from ane_sweep.worker.models._lazy import USE, Lazy, materialise

LARGE = 1 << 30  # bytes: weights that are smaller are all made before the first pass
_AT_ONCE = 4  # passes: each is a thread, and holds what the layers hand on

Inputs = tuple[Tensor, ...]
Place = tuple[nn.Module, bool]  # a layer, and True at its begin, False at its end
Step = tuple[Place, None] | tuple[None, object]


def run_in_turns(module: nn.Module, feeds: Sequence[Inputs], large: int = LARGE) -> Iterator[Any]:
    """Yield `module(*feed)` for each feed, in inference mode.

    If lazy weights total `large` bytes or more, they are made layer by layer. Otherwise, or if layers read each other's
    weights, all are made first and stay.
    """
    asleep = {layer: lazy for layer in module.modules() if (lazy := _lazy_weights(layer))}
    weights = {id(one): one.numel() * one.element_size() for lazy in asleep.values() for one in lazy.values()}
    if sum(weights.values()) >= large:
        try:
            for first in range(0, len(feeds), _AT_ONCE):
                yield from _run_layer_by_layer(module, feeds[first : first + _AT_ONCE], asleep)
            return
        except _Unlike:
            feeds = feeds[first:]
    awake = {id(one): materialise(one) for lazy in asleep.values() for one in lazy.values()}
    for layer, lazy in asleep.items():
        _set_weights(layer, {name: awake[id(one)] for name, one in lazy.items()})
    with torch.inference_mode():
        yield from (module(*feed) for feed in feeds)


class _Unlike(Exception):
    """Raised if the passes go through different layers, or a layer's weights are read elsewhere."""


class _Ended(BaseException):
    """Raised in waiting passes when another pass has failed."""


def _lazy_weights(layer: nn.Module) -> dict[str, Lazy]:
    parameters: Mapping[str, object] = layer._parameters
    return {name: value for name, value in parameters.items() if isinstance(value, Lazy)}


def _set_weights(layer: nn.Module, values: dict[str, Tensor]) -> None:
    for name, value in values.items():
        layer._parameters[name] = nn.Parameter(value, requires_grad=False)


def _set_lazy(layer: nn.Module, values: Mapping[str, Any]) -> None:
    """Put lazy tensors, which torch does not take for parameters, into a layer's parameters."""
    layer._parameters.update(values)


class _Pass(threading.Thread):
    """One pass over one input. `step` runs it to the next start or end of a layer and returns that place, or the result."""

    def __init__(self, module: Callable[..., object], feed: Inputs):
        super().__init__(daemon=True)
        self.module, self.feed, self.ended = module, feed, False
        self.go, self.steps = threading.Semaphore(0), SimpleQueue[Step | BaseException]()
        self.start()

    def run(self) -> None:
        self.go.acquire()
        USE.refused = True
        try:
            with torch.inference_mode():
                self.steps.put((None, self.module(*self.feed)))
        except _Ended:
            pass
        except BaseException as error:
            self.steps.put(error)

    def pause(self, place: Place) -> None:
        self.steps.put((place, None))
        self.go.acquire()
        if self.ended:
            raise _Ended

    def step(self) -> Step:
        """Continue the pass, and return (the place where it waits, None) or (None, the result). Raises _Unlike."""
        self.go.release()
        step = self.steps.get()
        if isinstance(step, BaseException):
            raise _Unlike from step
        return step

    def end(self) -> None:
        self.ended = True
        self.go.release()
        self.join()


def _run_layer_by_layer(
    module: nn.Module, feeds: Sequence[Inputs], asleep: dict[nn.Module, dict[str, Lazy]]
) -> list[object]:
    def pause(layer: nn.Module, begins: bool) -> None:
        thread = threading.current_thread()
        if isinstance(thread, _Pass):
            thread.pause((layer, begins))

    hooks = []
    for layer in asleep:
        hooks.append(layer.register_forward_pre_hook(lambda layer, _: pause(layer, True), prepend=True))
        hooks.append(layer.register_forward_hook(lambda layer, *_: pause(layer, False)))
    passes = [_Pass(module, feed) for feed in feeds]
    try:
        while True:
            steps = [one.step() for one in passes]
            places = {place for place, _ in steps}
            if len(places) > 1:
                raise _Unlike
            place = places.pop()
            if place is None:
                return [result for _, result in steps]
            layer, begins = place
            if begins:
                _set_weights(layer, {name: materialise(one) for name, one in asleep[layer].items()})
            else:
                _set_lazy(layer, asleep[layer])
    finally:
        for one in passes:
            one.end()
        for layer, lazy in asleep.items():
            _set_lazy(layer, lazy)
        for hook in hooks:
            hook.remove()
