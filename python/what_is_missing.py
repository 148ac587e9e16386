"""Prints what this Python lacks to build torch_tutti, in one line; nothing when it can be built. Imports no torch, which takes seconds."""
import importlib.util
import pathlib
import sysconfig


def missing():
    torch = importlib.util.find_spec("torch")
    if torch is None:
        return "no PyTorch (Debian: python3-torch)"
    if importlib.util.find_spec("setuptools") is None:
        return "no setuptools (Debian: python3-setuptools)"
    if not (pathlib.Path(torch.origin).parent / "include/torch/extension.h").exists():
        return "no headers of PyTorch (Debian: libtorch-dev)"
    folders = [pathlib.Path(torch.origin).parent / "include", pathlib.Path(sysconfig.get_paths()["include"]), pathlib.Path("/usr/include")]
    if not any((folder / "pybind11/pybind11.h").exists() for folder in folders):
        return "no headers of pybind11 (Debian: pybind11-dev)"
    if not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "no headers of Python (Debian: python3-dev)"
    return ""


print(missing())
