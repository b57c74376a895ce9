"""The C header is the table of types, operators, collectives and errors: Python's names are its names."""

import re
from pathlib import Path

import pytest
from tutti import ErrorCode, _arrays, _communicator

HEADER = Path("bindings/c/tutti.h").read_text()


def enumerators(typedef):
    """Name -> value of the enum that follows a typedef, without the prefix."""
    body = HEADER.split(f"typedef int32_t {typedef};", 1)[1].split("};", 1)[0]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    return {name: int(value) for name, value in re.findall(r"TUTTI_(\w+) = (-?\d+)", body)}


def test_errors():
    names = enumerators("tutti_status_t")
    assert names.pop("OK") == 0
    assert names == {code.name: code.value for code in ErrorCode}


def test_operators():
    # Python omits the two operators that need a factor or a function.
    names = enumerators("tutti_op_t")
    del names["PREMUL_SUM"], names["USER"]
    assert [name.lower() for name in sorted(names, key=names.get)] == list(_communicator.OPS)
    assert sorted(names.values()) == list(range(len(names)))


@pytest.mark.parametrize("name", enumerators("tutti_collective_t"))
def test_collectives(name):
    assert getattr(_communicator, f"_{name}") == enumerators("tutti_collective_t")[name]


def test_dtypes():
    """Each has a name of NumPy's or ml_dtypes', of its kind and width."""
    words = {"I": "int", "U": "uint", "F": "float"}
    names = enumerators("tutti_dtype_t")
    assert sorted(names.values()) == list(range(len(_arrays.DTYPES)))
    for name, value in names.items():
        simple = re.fullmatch(r"([IUF])(\d+)", name)
        if simple:
            assert _arrays.DTYPES[value] == words[simple[1]] + simple[2]
        elif not re.fullmatch(r"\w\d+_I\d+", name):
            assert name[2:].lower() in _arrays.DTYPES[value], f"{name} is no {_arrays.DTYPES[value]}"


def test_any():
    for name, value in re.findall(r"#define TUTTI_(ANY_\w+) \(?(-?\d+)\)?", HEADER):
        assert getattr(_communicator, name) == int(value)
