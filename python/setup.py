"""Builds torch_tutti, the torch.distributed backend, against the PyTorch that is installed and the tutti that pkg-config finds.

    PKG_CONFIG_PATH=PREFIX/lib/pkgconfig pip install --no-build-isolation ./python     (or: python3 setup.py install)
"""
import pathlib
import shlex
import subprocess

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

HERE = pathlib.Path(__file__).resolve().parent


def pkg_config(*flags):
    asked = ["pkg-config", *flags, "tutti"]
    try:
        return shlex.split(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        raise SystemExit(f"{' '.join(asked)}: {said}\nInstall tutti (cmake --install build --prefix PREFIX) and set PKG_CONFIG_PATH=PREFIX/lib/pkgconfig.")


if not torch._C._GLIBCXX_USE_CXX11_ABI:
    raise SystemExit(f"PyTorch {torch.__version__} was built with the C++ ABI of before GCC 5, tutti is not: take a PyTorch of the new ABI "
                     "(from 2.6 on all are), or build tutti and fmt with -D_GLIBCXX_USE_CXX11_ABI=0.")

quiet_headers = [flag for path in include_paths() for flag in ("-isystem", path)]      # warnings about our own code alone
libraries = pkg_config("--libs")
folders = [flag[2:] for flag in libraries if flag.startswith("-L")]
setup(
    name="torch_tutti",
    version="0.1.0",
    description="torch.distributed on tutti",
    packages=["torch_tutti"],
    ext_modules=[
        CppExtension(
            "torch_tutti._C",
            sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.cpp")),
            include_dirs=[str(HERE.parent)],
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-Wall", "-fvisibility=hidden",
                                *quiet_headers, *pkg_config("--cflags")],
            extra_link_args=[*libraries, *(f"-Wl,-rpath,{folder}" for folder in folders)],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
