"""What a module says of several inputs while its weights are not all there: of each layer they are drawn or read once, serve
every input, and are gone before the next layer's come.

The passes are threads that run one at a time, each up to the next layer; results are those of one pass after the other, bit by bit.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from ane_sweep.worker.models._lazy import USE, Lazy, made

LARGE = 1 << 30  # bytes: weights that are smaller are all made before the first pass
_AT_ONCE = 4  # passes: each is a thread, and holds what the layers hand on

Inputs = tuple[Tensor, ...]


def results(module: nn.Module, feeds: Sequence[Inputs], large: int = LARGE) -> Iterator[Any]:
    """`module(*feed)` for each feed, in inference mode; lazy weights of `large` bytes or more in all are made by layer.

    Below that, and of a module whose layers read the weights of others, they are all made, and stay.
    """
    asleep = {layer: held for layer in module.modules() if (held := _lazy(layer))}
    weights = {id(one): one.numel() * one.element_size() for held in asleep.values() for one in held.values()}
    if sum(weights.values()) >= large:
        try:
            for first in range(0, len(feeds), _AT_ONCE):
                yield from _in_turns(module, feeds[first : first + _AT_ONCE], asleep)
            return
        except _Unlike:
            feeds = feeds[first:]
    awake = {id(one): made(one) for held in asleep.values() for one in held.values()}
    for layer, held in asleep.items():
        _put(layer, {name: awake[id(one)] for name, one in held.items()})
    with torch.inference_mode():
        yield from (module(*feed) for feed in feeds)


class _Unlike(Exception):
    """The passes do not go through the same layers, or a layer's weights are read elsewhere."""


class _Ended(BaseException):
    """Said to passes that wait while others have failed."""


def _lazy(layer: nn.Module) -> dict[str, Lazy]:
    return {name: one for name, one in layer._parameters.items() if isinstance(one, Lazy)}


def _put(layer: nn.Module, values: dict[str, Tensor]) -> None:
    for name, value in values.items():
        layer._parameters[name] = nn.Parameter(value, requires_grad=False)


class _Pass(threading.Thread):
    """One pass over one input: `step` runs it to the next layer's begin or end, and says which, or (None, the result)."""

    def __init__(self, module: Callable[..., Any], feed: Inputs):
        super().__init__(daemon=True)
        self.module, self.feed, self.ended = module, feed, False
        self.go, self.said = threading.Semaphore(0), SimpleQueue[Any]()
        self.start()

    def run(self) -> None:
        self.go.acquire()
        USE.refused = True
        try:
            with torch.inference_mode():
                self.said.put((None, self.module(*self.feed)))
        except _Ended:
            pass
        except BaseException as error:
            self.said.put(error)

    def pause(self, at: Any) -> None:
        self.said.put((at, None))
        self.go.acquire()
        if self.ended:
            raise _Ended

    def step(self) -> tuple[Any, Any]:
        self.go.release()
        said = self.said.get()
        if isinstance(said, BaseException):
            raise _Unlike from said
        return said

    def end(self) -> None:
        self.ended = True
        self.go.release()
        self.join()


def _in_turns(module: nn.Module, feeds: Sequence[Inputs], asleep: dict[nn.Module, dict[str, Lazy]]) -> list[Any]:
    def paused(layer: nn.Module, begins: bool) -> None:
        thread = threading.current_thread()
        if isinstance(thread, _Pass):
            thread.pause((layer, begins))

    hooks = []
    for layer in asleep:
        hooks.append(layer.register_forward_pre_hook(lambda layer, _: paused(layer, True), prepend=True))
        hooks.append(layer.register_forward_hook(lambda layer, *_: paused(layer, False)))
    passes = [_Pass(module, feed) for feed in feeds]
    try:
        while True:
            said = [one.step() for one in passes]
            places = {at for at, _ in said}
            if len(places) > 1:
                raise _Unlike
            place = places.pop()
            if place is None:
                return [result for _, result in said]
            layer, begins = place
            if begins:
                _put(layer, {name: made(one) for name, one in asleep[layer].items()})
            else:
                layer._parameters.update(asleep[layer])
    finally:
        for one in passes:
            one.end()
        for layer, held in asleep.items():
            layer._parameters.update(held)
        for hook in hooks:
            hook.remove()
