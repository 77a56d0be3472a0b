"""A device that there is none of: it computes on the CPU, and refuses to mix with it as CUDA does."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

HERE, THERE = torch.device("cpu"), torch.device("meta")


class Far(torch.Tensor):
    """A tensor that says it lives on the device; its numbers are `near`."""

    @staticmethod
    def __new__(cls, near):
        with torch.inference_mode(False):
            return torch.Tensor._make_wrapper_subclass(cls, near.shape, near.stride(), dtype=near.dtype, device=THERE)

    def __init__(self, near):
        self.near = near

    def __torch_dispatch__(self, *_):
        raise AssertionError("outside of Pretended")

    def data_ptr(self):
        return self.near.data_ptr()

    def tolist(self):
        return self.near.tolist()


class Pretended(TorchDispatchMode):
    """Runs every kernel on the CPU, keeps up whose tensors are whose, and raises as CUDA does where they mix."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = tree_leaves((args, kwargs or {}))
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        devices = [value for value in given if isinstance(value, torch.device)]
        far = any(isinstance(value, Far) for value in tensors)
        if far and any(value.ndim and not isinstance(value, Far) for value in tensors):
            raise RuntimeError(f"{func}: tensors on the device and on the CPU")
        far = THERE in devices if devices else far
        inner = tree_map_only(Far, lambda value: value.near, (args, kwargs or {}))
        inner = tree_map_only(torch.device, lambda _: HERE, inner)
        made = func(*inner[0], **inner[1])
        for mine, theirs in zip(tree_leaves(args), tree_leaves(inner[0])):
            if made is theirs and isinstance(mine, Far) and far:  # in place
                return mine
        return tree_map_only(torch.Tensor, Far, made) if far else made


class Made(TorchFunctionMode):
    """torch.tensor, and an index that is a list, make tensors where no dispatch mode sees it: here it does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.tensor and (kwargs or {}).get("device") == THERE:
            return torch.tensor(*args, **{**kwargs, "device": HERE}).to(THERE)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            index = tuple(torch.tensor(item).to(args[0].device) if isinstance(item, list) else item for item in index)
            args = (args[0], index, *args[2:])
        return func(*args, **(kwargs or {}))


def checked(placed, run, device):
    """cuda.placed, with a look at what a step makes: all of it must be on the device."""

    def there(*values):
        made = placed(run, device)(*values)
        left = [value for value in tree_leaves(made) if isinstance(value, torch.Tensor) and not isinstance(value, Far)]
        assert not left, f"made on the CPU: {left}"
        return made

    return there
