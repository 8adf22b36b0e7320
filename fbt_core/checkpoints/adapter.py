"""A metric adapter: MetricNets that were trained on a frozen base model, in a small ``.safetensors`` file of their own.

The file names its base by SHA-256, and is refused on any other: the nets read that model's residuals and nothing else.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from fbt_core.checkpoints.checkpoint import Origin
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import Header, read_header
from fbt_core.checkpoints.native import data_sha256, metadata_table, write_atomically
from fbt_core.checkpoints.sniff import sniff
from fbt_core.checkpoints.tensors import FLOATS

FORMAT = "fiberscope-adapter"
SCHEMA = "1"
REMEDY = "Train it again with `python -m fbt_core adapt`."
MOST_BYTES = 1 << 30
MOST = {"heads": 512, "head_width": 4096, "inputs": 1 << 17, "hidden": 1 << 17, "rank": 256}
"""The largest sizes that a file may name; layers are bounded by its tensors."""


@dataclass(frozen=True)
class AdapterConfig:
    """The shape of an adapter, and how it blends. Raises ``ValueError`` (got, expected) for a value out of range."""

    layers: tuple[int, ...]  # the base's layers that have a net
    heads: int
    head_width: int  # d, of the base's queries and keys
    inputs: int  # D, of the base's residual stream
    hidden: int  # between the net's two maps
    rank: int = 4
    alpha: float = 0.5  # s = (1 - alpha) (the base's own dot product) + alpha s_Riem, fixed
    metric_init: float = 0.5  # E ||U||_F^2 at the start; 0 would be a stationary point
    kappa_max: float = 8.0  # ceiling on ||U||_F^2

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ValueError(f"got {name} = {value!r:.40}, expected a whole number from 1 to {most}")
        for name, least, most in (("alpha", 0.0, 1.0), ("metric_init", 1e-6, 1e3), ("kappa_max", 1e-6, 1e6)):
            value = getattr(self, name)
            if not isinstance(value, float) or not least <= value <= most:
                raise ValueError(f"got {name} = {value!r:.40}, expected a number from {least:g} to {most:g}")
        if not self.layers or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in self.layers):
            raise ValueError(f"got layers {str(self.layers)[:80]}, expected whole numbers of at least 0")
        if list(self.layers) != sorted(set(self.layers)):
            raise ValueError(f"got layers {str(self.layers)[:80]}, expected each once, in order")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the tensors."""
        outputs = self.heads * self.head_width * self.rank
        one = {
            "metric.first.weight": (self.hidden, self.inputs),
            "metric.first.bias": (self.hidden,),
            "metric.second.weight": (outputs, self.hidden),
            "metric.second.bias": (outputs,),
            "curvature": (self.heads,),
        }
        return {f"layers.{i}.{name}": shape for i in self.layers for name, shape in one.items()}


@dataclass(frozen=True)
class Adapter:
    """An adapter that was checked: all tensors of its config there, all finite."""

    config: AdapterConfig
    tensors: Mapping[str, Tensor]
    base_sha256: str
    base_name: str  # a label, never a path
    training: Mapping[str, Any]
    origin: Origin

    def check_base(self, base: Origin) -> None:
        """Raises ``CheckpointError`` with both sums unless the base is the one that the adapter was trained on."""
        if base.sha256 != self.base_sha256:
            raise CheckpointError(
                f"the base {base.name!r:.80} with SHA-256 {base.sha256}",
                f"{self.base_name!r:.80} with SHA-256 {self.base_sha256}, on which this adapter was trained",
                "Open that base, or train an adapter on this one with `python -m fbt_core adapt`.",
            )


def save(
    path: Path, config: AdapterConfig, tensors: Mapping[str, Tensor], base: Origin, training: Mapping[str, Any]
) -> None:
    """Write an adapter, whole or not at all. ``training`` is any table of JSON values."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {
        "format": FORMAT,
        "schema": SCHEMA,
        "base": json.dumps({"sha256": base.sha256, "name": base.name}),
        "config": json.dumps(asdict(config)),
        "training": json.dumps(training, allow_nan=False),
        "data_sha256": data_sha256(plain),
    }
    write_atomically(path, save_safetensors(plain, metadata=metadata))


def open_adapter(path: Path, name: str | None = None) -> Adapter:
    """The adapter in a file; ``name`` is what to call it (default: the file's own name).

    Raises ``CheckpointError`` for every file that is not a whole adapter, and ``OSError`` for one that cannot be read.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise CheckpointError(f"a file of {size} bytes", f"an adapter of at most {MOST_BYTES}", "Choose another file.")
    content = path.read_bytes()
    if (kind := sniff(content[:4096], len(content))) != "safetensors":
        raise CheckpointError(kind, "a metric adapter (.safetensors)", REMEDY)
    header = read_header(io.BytesIO(content), len(content))
    if not is_adapter(header):
        got = f"a safetensors file of {len(header.tensors)} tensors that is no metric adapter"
        raise CheckpointError(got, "one that `python -m fbt_core adapt` wrote", REMEDY)
    origin = Origin(name or path.name, "safetensors", hashlib.sha256(content).hexdigest(), len(content))
    return read(content, header, origin)


def is_adapter(header: Header) -> bool:
    """Whether a safetensors header is that of a metric adapter."""
    return header.metadata.get("format") == FORMAT


def read(content: bytes, header: Header, origin: Origin) -> Adapter:
    """The checked adapter of a file's bytes; nothing is executed. Every doubt is a ``CheckpointError``."""
    metadata = header.metadata
    if metadata.get("schema") != SCHEMA:
        raise CheckpointError(f"schema {metadata.get('schema', '')[:20]!r}", f"schema {SCHEMA!r}", REMEDY)
    config = _config(metadata_table(metadata, "config", REMEDY), len(header.tensors))
    _check_entries(header, config)
    base = metadata_table(metadata, "base", REMEDY)
    if not all(isinstance(base.get(key), str) for key in ("sha256", "name")):
        raise CheckpointError("an adapter that does not name its base", "the base's name and SHA-256", REMEDY)
    try:
        tensors = load_safetensors(content)
    except (SafetensorError, ValueError) as error:
        got = f"tensors that the safetensors library refuses ({str(error)[:120]!r})"
        raise CheckpointError(got, "tensors it can read", "Copy or download the file again.") from error
    if data_sha256(tensors) != metadata.get("data_sha256"):
        raise CheckpointError("tensors whose SHA-256 is not the one in the file", "equal sums", "Copy the file again.")
    for name, tensor in tensors.items():
        if bad := int((~tensor.isfinite()).sum()):
            got = f"{bad} of {tensor.numel()} values of {name!r:.80} that are NaN or infinite"
            raise CheckpointError(got, "finite numbers", REMEDY)
    return Adapter(config, tensors, base["sha256"], base["name"], metadata_table(metadata, "training", REMEDY), origin)


def _config(table: dict[str, Any], tensors: int) -> AdapterConfig:
    known = {field.name for field in fields(AdapterConfig)}
    try:
        if set(table) != known:
            raise ValueError(f"got the fields {str(sorted(table))[:120]}, expected {sorted(known)}")
        layers = table["layers"]
        if not isinstance(layers, list) or len(layers) > tensors:
            raise ValueError(f"got layers {str(layers)[:80]}, expected a list, and tensors for each")
        return AdapterConfig(**{**table, "layers": tuple(layers)})
    except ValueError as error:
        raise CheckpointError(
            f"an adapter's config with an error ({str(error)[:200]})", "a valid one", REMEDY
        ) from error


def _check_entries(header: Header, config: AdapterConfig) -> None:
    """Names, shapes and dtypes by the config, before a tensor is loaded."""
    expected = config.shapes()
    if set(expected) != set(header.tensors):
        missing = sorted(set(expected) - set(header.tensors))
        extra = sorted(set(header.tensors) - set(expected))
        got = f"without {missing[0]!r:.80}" if missing else f"with an unexpected tensor {extra[0]!r:.80}"
        raise CheckpointError(f"an adapter {got}", f"exactly the {len(expected)} tensors of its config", REMEDY)
    for name, shape in expected.items():
        entry = header.tensors[name]
        if entry.shape != shape or entry.dtype not in FLOATS:
            got = f"{name!r:.80} of shape {entry.shape} and dtype {entry.dtype}"
            raise CheckpointError(got, f"{shape} by its config, of one of {', '.join(FLOATS)}", REMEDY)
