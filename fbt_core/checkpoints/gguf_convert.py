"""A GGUF file as a folder of the transformers library: a script for a child process, which alone lets a library at it.

``python -I gguf_convert.py FILE FOLDER`` writes config.json, model.safetensors (float32: the very numbers that the
file's blocks stand for) and tokenizer.json. It prints one JSON object: ``{"fault": ""}`` or why it cannot be done.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any


def convert(file: Path, folder: Path) -> str:
    """Why it cannot be done, or "". A weight that the file lacks is a fault: the library would make one up."""
    import gguf
    import torch
    import transformers

    # The library reads the header three times and makes the map of names once a tensor: most of the time, unless kept.
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32, output_loading_info=True, local_files_only=True,
        trust_remote_code=False,
    )  # fmt: skip
    model, found = loaded
    for what in ("missing_keys", "mismatched_keys", "conversion_errors"):
        if names := sorted(map(str, found.get(what) or ())):
            return f"{what.replace('_', ' ')} {names[:3]} and {max(0, len(names) - 3)} more"
    _save(model, folder)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    except Exception as error:  # the model can be read without it, by ids
        print(f"no tokenizer: {type(error).__name__}: {error}"[:400], file=sys.stderr)
    return ""


def _save(model: Any, folder: Path) -> None:
    """The config and every parameter once: of tied ones the library keeps a name each."""
    from safetensors.torch import save_file

    kept, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or not tensor.numel():
            kept[name] = tensor.contiguous()
        seen.add(tensor.data_ptr())
    save_file(kept, str(folder / "model.safetensors"))
    table = model.config.to_dict()
    table.pop("quantization_config", None)
    table["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(table, default=str), encoding="utf-8")


if __name__ == "__main__":
    try:
        fault = convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except MemoryError:
        raise
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:400]
    sys.stdout.write(json.dumps({"fault": fault}))
