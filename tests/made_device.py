"""A device that is none: tensors that say they lie on `cuda`, computed on the CPU.

What a GPU refuses is refused: operations on tensors of two devices, numpy arrays of what lies there,
generators of the CPU. So code for a GPU is tried on a machine without one; only its kernels are not tried.
"""

import contextlib

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

THERE = torch.device("cuda", 0)
MAY_MIX = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class There(torch.Tensor):
    "A tensor that says it lies on the device; `held` is where its numbers are."

    @staticmethod
    def __new__(cls, held):
        how = dict(dtype=held.dtype, layout=held.layout, device="meta", requires_grad=False)
        how |= dict(strides=held.stride(), storage_offset=held.storage_offset())
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, **how)

    def __init__(self, held):
        self.held = held

    device = property(lambda self: THERE)
    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)
    is_cpu = property(lambda self: False)

    def __repr__(self, **_):
        return f"{self.held!r} on {THERE}"

    def numpy(self, **_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return dispatched(function, args, kwargs or {})


def _tensors(values):
    found = []
    tree_map(lambda v: found.append(v) if isinstance(v, torch.Tensor) else None, values)
    return found


def _is_there(device):
    "Code in C++ sees the device `meta`, on which such a tensor really is."
    return device is not None and torch.device(device).type in ("cuda", "meta")


def _check(function, args, kwargs):
    "Raise what a GPU would raise."
    name, tensors = function.__name__.split(".")[0], _tensors((args, kwargs))
    there = [t for t in tensors if isinstance(t, There)]
    if any(t.device.type == "meta" for t in tensors):
        raise RuntimeError(f"{name}: C++ made a tensor without numbers; make it here")
    here = [t for t in tensors if not isinstance(t, There) and t.dim() and t.device.type == "cpu"]
    if there and here and name not in MAY_MIX:
        raise RuntimeError(f"{name}: expected all tensors on the same device, found cuda:0 and cpu")
    generator = kwargs.get("generator")
    on = kwargs.get("device")
    if generator is not None and (there or _is_there(on)):
        raise RuntimeError(f"{name}: expected a 'cuda' generator but found 'cpu'")
    return bool(there)


def dispatched(function, args, kwargs):
    "The operation on the numbers, its results on the device they belong to."
    there, on = _check(function, args, kwargs), kwargs.get("device")
    if on is not None:
        there = _is_there(on)
        kwargs = kwargs | dict(device=torch.device("cpu"))
        kwargs.pop("pin_memory", None)
    held = {}

    def unwrap(v):
        if isinstance(v, There):
            held[id(v.held)] = v
            return v.held
        return v

    if function is torch.ops.aten._local_scalar_dense.default:
        return function(*tree_map(unwrap, args))
    found = function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))

    def wrap(v):
        if not isinstance(v, torch.Tensor) or isinstance(v, There):
            return v
        if id(v) in held:  # changed in place
            return held[id(v)]
        return There(v) if there else v

    return tree_map(wrap, found)


def _indices(index):
    "Lists as tensors: C++ would make them where the tensor really is, without numbers."
    if isinstance(index, tuple):
        return tuple(map(_indices, index))
    return torch.as_tensor(index) if isinstance(index, list | np.ndarray) else index


class _Numbered(TorchFunctionMode):
    "`cuda` is `cuda:0`: which one is current, only a real driver could say."

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def numbered(v):
            plain = v == "cuda" if isinstance(v, str) else isinstance(v, torch.device) and str(v) == "cuda"
            return THERE if plain else v

        args, kwargs = tree_map(numbered, args), tree_map(numbered, kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and "device" in kwargs:  # made here, then moved
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device or "cpu")
        if function is torch.Tensor.new_tensor:
            how = dict(dtype=args[0].dtype) | {k: v for k, v in kwargs.items() if k != "device"}
            return torch.tensor(args[1], **how).to(args[0].device)
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = (args[0], _indices(args[1]), *args[2:])
        if function == torch.Tensor.data.__set__ and isinstance(args[1], There):
            return torch.utils.swap_tensors(args[0], torch.nn.Parameter(args[1], args[0].requires_grad))
        return function(*args, **kwargs)


class _Simulated(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return dispatched(function, args, kwargs or {})


@contextlib.contextmanager
def simulated_gpu():
    "Inside, `cuda` is a device."
    fakes = dict(_lazy_init=lambda: None, is_available=lambda: True, synchronize=lambda device=None: None)
    fakes |= dict(
        mem_get_info=lambda device=None: (2**36, 2**36), get_device_name=lambda device=None: "a card"
    )
    fakes |= dict(memory_allocated=lambda device=None: 0, max_memory_allocated=lambda device=None: 2**20)
    fakes |= dict(reset_peak_memory_stats=lambda device=None: None)
    fakes |= dict(is_bf16_supported=lambda including_emulation=True: True)
    kept = {name: getattr(torch.cuda, name) for name in fakes}
    inference, torch.inference_mode = torch.inference_mode, torch.no_grad  # its tensors take no wrapper
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)
    try:
        with _Numbered(), _Simulated():
            yield
    finally:
        torch.inference_mode = inference
        for name, value in kept.items():
            setattr(torch.cuda, name, value)
