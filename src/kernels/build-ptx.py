#!/usr/bin/env python3
"""Builds the embedded PTX from the kernel sources, with the NVRTC wheel: no CUDA toolkit and no GPU needed.

    src/kernels/build-ptx.py            writes src/kernels/collcheck_sm70.ptx and collcheck_sm90.ptx
    src/kernels/build-ptx.py --check    fails if they are not what the sources give, byte for byte

The NVRTC version is fixed: it makes the output reproducible, and it decides the oldest driver that loads it (the PTX
ISA of CUDA 12.0 needs 525). The wheel is unpacked once, under target/.
"""

import argparse
import ctypes
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE, VERSION = "nvidia-cuda-nvrtc-cu12", "12.0.140"
SOURCES = ["oracle.cuh", "methods.cuh", "stream.cuh", "job.cuh", "kernels.cu"]
ARCHITECTURES = [70, 90]
OPTIONS = ["--std=c++17"]


def fingerprint():
    """FNV-1a over names and texts of the sources, as tests.rs computes it too."""
    value = 0xCBF29CE484222325
    for name in SOURCES:
        for byte in name.encode() + b"\0" + (HERE / name).read_bytes() + b"\0":
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def load_nvrtc():
    """The compiler's library, installed on first use."""
    root = HERE.parent.parent / "target" / f"nvrtc-{VERSION}"
    libraries = root / "nvidia" / "cuda_nvrtc" / "lib"
    if not (libraries / "libnvrtc.so.12").is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-deps"]
        subprocess.run(pip + ["--target", str(root), f"{PACKAGE}=={VERSION}"], check=True)
    # NVRTC opens this by name; loaded beforehand it is found.
    ctypes.CDLL(str(libraries / "libnvrtc-builtins.so.12.0"), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(libraries / "libnvrtc.so.12"))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def text_of(nvrtc, program, what):
    """The PTX or the log of a program."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def compile_for(nvrtc, architecture):
    """The PTX for one architecture, with the header line that ties it to its sources."""

    def call(function, *arguments):
        code = function(*arguments)
        if code != 0:
            log = text_of(nvrtc, program, "ProgramLog") if program else ""
            sys.exit(f"{nvrtc.nvrtcGetErrorString(code).decode()}\n{log}")

    def strings(items):
        return (ctypes.c_char_p * len(items))(*items)

    *headers, main = SOURCES
    texts = [(HERE / name).read_bytes() for name in headers]
    names = [name.encode() for name in headers]
    program = ctypes.c_void_p()
    source = (HERE / main).read_bytes()
    call(
        nvrtc.nvrtcCreateProgram,
        ctypes.byref(program), source, main.encode(), len(headers), strings(texts), strings(names),
    )
    options = [f"--gpu-architecture=compute_{architecture}"] + OPTIONS
    call(nvrtc.nvrtcCompileProgram, program, len(options), strings([o.encode() for o in options]))
    ptx = text_of(nvrtc, program, "PTX")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return f"// collcheck kernels, sources {fingerprint():016x}\n{ptx}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files, change nothing")
    check = parser.parse_args().check
    nvrtc = load_nvrtc()
    stale = []
    for architecture in ARCHITECTURES:
        path = HERE / f"collcheck_sm{architecture}.ptx"
        ptx = compile_for(nvrtc, architecture)
        if not check:
            path.write_text(ptx)
        elif not path.is_file() or path.read_text() != ptx:
            stale.append(path.name)
    if stale:
        sys.exit(f"not what the sources give: {', '.join(stale)}; run src/kernels/build-ptx.py")


if __name__ == "__main__":
    main()
