"""The process that runs protoc: one request per line on standard input, one answer per line on standard output.

It is apart so that a hostile schema can cost no more than its limits on memory and time, and so that the registry
itself loads no compiler.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ottla.registry.protobuf.imports import BUILT_IN, is_text

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from ottla.registry.protobuf.model import Compiled

MEMORY_BYTES: Final = 1 << 30
MAIN: Final = "main.proto"
_WELL_KNOWN: Final = "google/protobuf/"


class Refused(Exception):
    """The schema is not one; the message says why."""


def main() -> None:
    """Answer requests until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        done: Compiled | None = None
        problem: str | None = None
        try:
            done = compile_schema(request["text"], request["files"])
        except Refused as error:
            problem = str(error)
        except (MemoryError, RecursionError):
            problem = "it takes too much memory to compile"
        except (TypeError, ValueError) as error:
            # What protoc takes and Protobuf's Python does not: texts that are not UTF-8, messages that are too large.
            problem = str(error).strip()[:1000]
        answers.write(json.dumps({"done": done, "error": problem}) + "\n")
        answers.flush()


def compile_schema(text: str, files: dict[str, str]) -> Compiled:
    """The schema's text in one spelling, its descriptor in base64, and the model that is compared."""
    from ottla.registry.protobuf.model import model_of
    from ottla.registry.protobuf.text import to_text

    sources = _as_texts(files)
    source = _as_text(text, sources)
    main = _free_name(sources)
    found = _protoc([main], {**sources, main: source})
    model = model_of(next(one for one in found.file if one.name == main), list(found.file))
    own = _with_options(found, main)
    own.ClearField("name")
    own.ClearField("source_code_info")
    canonical = to_text(own)
    own.name = "default"
    return {
        "text": source,
        "canonical": canonical,
        "serialized": base64.b64encode(own.SerializeToString(deterministic=True)).decode(),
        "model": model,
    }


def _free_name(files: dict[str, str]) -> str:
    name = MAIN
    while name in files:
        name = "_" + name
    return name


def _as_texts(files: dict[str, str]) -> dict[str, str]:
    """The files as .proto text. Those that are texts come first: they may declare options of the others."""
    found: dict[str, str] = {name: each for name, each in files.items() if is_text(each)}
    left = {name: each for name, each in files.items() if name not in found}
    while left:
        imports = {name: set(_descriptor(each).dependency) for name, each in left.items()}
        name = next((name for name, needed in imports.items() if not needed & set(left)), next(iter(left)))
        found[name] = _as_text(left.pop(name), found)
    return found


def _as_text(text: str, files: dict[str, str]) -> str:
    """The schema as .proto text; Confluent's Python serializer sends a descriptor in base64 instead."""
    if is_text(text):
        return text
    from ottla.registry.protobuf.text import to_text

    file = _descriptor(text)
    file.name = _free_name(files)
    imports = [name for name in file.dependency if not name.startswith(_WELL_KNOWN)]
    if not imports:
        return to_text(file)
    found = _protoc(imports, files)
    found.file.append(file)
    try:
        return to_text(_with_options(found, file.name))
    except TypeError as error:
        # The descriptor contradicts itself or its imports: the pool says where.
        raise Refused(str(error)[:1000]) from None


def _descriptor(text: str) -> FileDescriptorProto:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        raise Refused("it is neither .proto text nor a descriptor in base64") from None


def _with_options(found: FileDescriptorSet, main: str) -> FileDescriptorProto:
    """A file of a set, read again so that options which its imports declare are known by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    raw = b""
    for one in found.file:
        if one.name == main:
            raw = one.SerializeToString(deterministic=True)
        if one.name != descriptor_pb2.DESCRIPTOR.name:
            pool.AddSerializedFile(one.SerializeToString(deterministic=True))
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    # The same type in a pool of its own, which knows more options.
    return cast("FileDescriptorProto", kind.FromString(raw))


def _protoc(wanted: list[str], files: dict[str, str]) -> FileDescriptorSet:
    import grpc_tools
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    built_in = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="ottla-protoc-") as folder:
        root, out = Path(folder, "in"), Path(folder, "out")
        for name, text in {**BUILT_IN, **files}.items():
            if name.startswith(_WELL_KNOWN):
                continue
            path = Path(os.path.normpath(root / name))
            if not path.is_relative_to(root) or path == root or "\0" in name:
                raise Refused(f"the import {name[:80]!r} is not a relative path")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        messages = Path(folder, "messages")
        with messages.open("wb") as log:
            kept = os.dup(2)
            os.dup2(log.fileno(), 2)
            try:
                arguments = ["protoc", f"-I{root}", f"-I{built_in}", "--include_imports"]
                code = protoc.main([*arguments, f"--descriptor_set_out={out}", *wanted])
            finally:
                os.dup2(kept, 2)
                os.close(kept)
        if code != 0:
            lines = messages.read_text(errors="replace").replace(f"{root}/", "").splitlines()
            wanted = [line for line in lines if "warning" not in line][:5]
            raise Refused("; ".join(wanted)[:1000] or "protoc refuses it without a reason")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


if __name__ == "__main__":
    main()
