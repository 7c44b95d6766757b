"""Which of the GPUs that NVML lists are those that torch sees, and under which index.

NVML lists all GPUs of the machine by their place on the bus, whatever CUDA_VISIBLE_DEVICES says. CUDA's own order may
be another one, so that only UUIDs tell which is which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIXES = ("GPU-", "MIG-")

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Device:
    """A GPU as NVML lists it, or a MIG instance of one.

    Attributes:
        uuid: with its prefix, GPU- or MIG-; None where NVML does not say.
        name: of the product.
        handle: NVML's.
        gpu: NVML's handle of the whole GPU, for an instance; None for a GPU.
        gpu_instance: id within the GPU, for an instance, where NVML says it.
        compute_instance: likewise, within the GPU instance.
        instances: of a GPU in MIG mode.
    """

    uuid: str | None
    name: str | None = None
    handle: Any = None
    gpu: Any = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    instances: tuple[Device, ...] = ()

    @property
    def mig(self) -> bool:
        """Whether it is an instance."""
        return self.gpu is not None


class Placed(NamedTuple):
    """A device that torch sees, with its index there; None where it can't be told which of those it is."""

    torch_index: int | None
    device: Device


def by_torch(gpus: Sequence[Device], uuids: Sequence[str]) -> list[Placed] | None:
    """Return the devices of the UUIDs that torch gives for its own, in its order; None where any is not among `gpus`.

    CUDA may give the UUID of the GPU for an instance of it: that says which one it is where there is but one.
    """
    found: list[Placed] = []
    for index, uuid in enumerate(uuids):
        device = next((d for d in _all(gpus) if _bare(d.uuid) == _bare(uuid)), None)
        if device is not None and device.instances:
            device = device.instances[0] if len(device.instances) == 1 else None
        if device is None:
            return None
        found.append(Placed(index, device))
    return found


def by_variable(gpus: Sequence[Device], variable: str | None, order: str | None) -> list[Placed]:
    """Return the devices that CUDA_VISIBLE_DEVICES leaves, in its order; all where it is None.

    As CUDA does: what does not exist, or is not unique, ends the list, and what is there twice empties it.

    Args:
        gpus: all of the machine, in the order of the bus.
        variable: CUDA_VISIBLE_DEVICES.
        order: CUDA_DEVICE_ORDER. Unless it is PCI_BUS_ID, which of several different GPUs is the first is for CUDA
            alone to know.
    """
    if variable is not None and variable.strip().startswith(_PREFIXES):
        return _placed(_by_uuid(gpus, variable))
    chosen = list(range(len(gpus))) if variable is None else _indices(variable, len(gpus))
    if order != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1:
        everything = len(chosen) == len(gpus) and not any(gpu.instances for gpu in gpus)
        return [Placed(None, gpu) for gpu in gpus] if everything else []
    devices = [gpus[index] for index in chosen]
    # Where CUDA sees an instance it sees no whole GPU.
    return _placed([instance for gpu in devices for instance in gpu.instances] or devices)


def _placed(devices: Sequence[Device]) -> list[Placed]:
    return [Placed(index, device) for index, device in enumerate(devices)]


def _by_uuid(gpus: Sequence[Device], variable: str) -> list[Device]:
    names = [name.strip() for name in variable.split(",")]
    prefix = names[0][: len(_PREFIXES[0])]
    found: list[Device] = []
    for name in names:
        matching = _matching(gpus, name) if name.startswith(prefix) else []
        if len(matching) != 1:
            break
        found += matching
    return _once(found)


def _matching(gpus: Sequence[Device], name: str) -> list[Device]:
    """Return the devices that a UUID, its beginning, or the older `MIG-GPU-…/1/0` may mean."""
    exact = [d for d in _all(gpus) if d.uuid == name]
    if exact or name in _PREFIXES:
        return exact
    gpu_uuid, *ids = name.removeprefix("MIG-").split("/")
    if name.startswith("MIG-GPU-") and len(ids) == 2:
        instances = [i for gpu in gpus if (gpu.uuid or "").startswith(gpu_uuid) for i in gpu.instances]
        return [i for i in instances if [str(i.gpu_instance), str(i.compute_instance)] == ids]
    return [d for d in _all(gpus) if (d.uuid or "").startswith(name)]


def _indices(variable: str, count: int) -> list[int]:
    found = []
    for text in variable.split(","):
        index = _leading_number(text.strip())
        if not 0 <= index < count:
            break
        found.append(index)
    return _once(found)


def _leading_number(text: str) -> int:
    """Return the number that a text begins with, as C's strtoul reads it; -1 without one."""
    sign = text[:1] if text[:1] in {"+", "-"} else ""
    digits = ""
    for character in text[len(sign) :]:
        if character not in "0123456789":
            break
        digits += character
    return int(f"{sign}{digits}") if digits else -1


def _once(found: list[_Key]) -> list[_Key]:
    """Return what was found, or nothing where some of it was found twice."""
    return found if all(item not in found[:place] for place, item in enumerate(found)) else []


def _all(gpus: Sequence[Device]) -> list[Device]:
    return [device for gpu in gpus for device in (gpu, *gpu.instances)]


def _bare(uuid: str | None) -> str | None:
    """Return a UUID as torch writes it, without the prefix."""
    return uuid and uuid.removeprefix(_PREFIXES[0]).removeprefix(_PREFIXES[1]).lower()
