"""Memory that loading a model leaves behind in the allocator."""

import ctypes
import sys


def give_back_memory() -> None:
    """Gives the kernel back what the C library holds free: 50 MB after OpenVINO loaded the demo model.

    A loader copies weights several times over; glibc keeps what was freed, in case it is wanted again. A worker that
    is loaded wants it never. Does nothing where the C library has no such call (musl, macOS).
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
