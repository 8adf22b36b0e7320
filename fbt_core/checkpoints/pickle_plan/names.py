"""Bounds, and what is known of the names that stand in pickles."""

from __future__ import annotations

MOST_PICKLE_BYTES = 128 << 20
MOST_OPCODES = 3_000_000
MOST_STEPS = 1_000_000  # of the walk through what was built: shared parts count each time
MOST_DEPTH = 100
MOST_TENSORS = 100_000
MOST_VALUES = 10_000
MOST_LISTED = 64  # scalars in a list that is kept as a value
MOST_RANK = 8
MOST_SIZE = 1 << 40
MOST_NAME = 512
MOST_TEXT = 4096
MOST_IGNORED = 200
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # what torch.save writes before the older, zip-less form

SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex128": 16, "complex64": 8, "complex32": 4, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of one number, by torch's name of the dtype."""

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "UntypedStorage": "uint8", "QInt8Storage": "int8", "QUInt8Storage": "uint8",
    "QInt32Storage": "int32", "QUInt4x2Storage": "uint8", "QUInt2x4Storage": "uint8",
}  # fmt: skip
"""Dtype of each kind of storage. The quantised ones belong to tensors that are not read; here they only take place."""

TENSORS = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}
PARAMETERS = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
SUBCLASS = "torch._tensor._rebuild_from_type_v2"
CONTAINERS = {
    "collections.OrderedDict": "dict", "collections.Counter": "dict", "builtins.dict": "dict", "builtins.list": "list",
    "builtins.tuple": "tuple", "builtins.set": "set", "builtins.frozenset": "set", "torch.Size": "tuple",
}  # fmt: skip

QUIET = {"_codecs.encode", "copyreg._reconstructor", "builtins.object", "torch.device", "builtins.complex"}
"""Part of how plain values are written, and so not worth telling."""

PLAIN_TORCH = {"torch.Size", "torch.device", "torch.dtype", "torch.Generator", "torch._C.Generator"}
"""What may be called of torch itself."""

PLAIN_BUILTINS = {
    "object", "type", "int", "float", "complex", "bool", "str", "bytes", "bytearray", "slice", "range", "getattr",
    "dict", "list", "tuple", "set", "frozenset", "iter", "len", "min", "max", "sum", "abs", "round", "Exception",
    "property", "staticmethod", "classmethod", "Ellipsis",
}  # fmt: skip
DANGEROUS = {
    "os", "posix", "nt", "subprocess", "sys", "runpy", "socket", "shutil", "importlib", "imp", "pty", "commands",
    "code", "codeop", "ctypes", "_ctypes", "cffi", "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal",
    "webbrowser", "urllib", "urllib2", "http", "httplib", "ftplib", "smtplib", "telnetlib", "requests", "aiohttp",
    "httpx", "asyncio", "multiprocessing", "threading", "_thread", "signal", "platform", "tempfile", "pdb", "bdb",
    "timeit", "trace", "cProfile", "profile", "pip", "ensurepip", "venv", "pydoc", "pkgutil", "zipimport", "site",
    "linecache", "fileinput", "sqlite3", "mmap", "resource", "faulthandler", "atexit", "torch.hub",
    "torch.utils.cpp_extension", "numpy.f2py", "numpy.testing", "IPython", "setuptools", "distutils",
    "_posixsubprocess", "_winapi", "winreg", "msvcrt", "io.open", "_io.open", "io.FileIO", "_io.FileIO", "io.open_code",
    "_io.open_code", "codecs.open", "types.CodeType", "types.FunctionType", "torch.serialization.load",
    "torch.serialization.save", "torch.jit.load", "torch.package",
}  # fmt: skip
"""Modules with all below them, and functions, that no checkpoint needs: they run programs, open files or load code."""

OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "posix": "os", "nt": "os"}

DAMAGED = "The file is damaged or was not written by torch.save: copy, download or save it again."
ATTACK = "Do not open this file with other tools. Ask its author for a safetensors file."
SIMPLER = "Save only its state_dict() with torch.save or, better, as safetensors."


class Refused(Exception):
    """Sentence fragments (got, expected, remedy); text of the file's choosing only quoted."""


def is_dangerous(module: str, name: str) -> bool:
    """Whether a global marks an attack; ``name`` can be dotted, and reach a module that another has imported."""
    if module == "builtins" and "." not in name:
        return name not in PLAIN_BUILTINS and not name.endswith(("Error", "Warning"))
    parts = [*module.split("."), name.split(".")[0]]
    above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return bool(DANGEROUS & (above | set(name.split(".")[:-1])))


def makes_tensors(module: str, name: str) -> bool:
    """Whether a global is a function of torch itself, which can claim any amount of memory when called."""
    return module in ("torch", "torch._C") and f"{module}.{name}" not in PLAIN_TORCH


def quote(name: str) -> str:
    """A dotted name as it is, anything else quoted: it comes from the file."""
    plain = name.isascii() and len(name) <= 200 and all(part.isidentifier() for part in name.split("."))
    return name if plain else repr(name[:120])
