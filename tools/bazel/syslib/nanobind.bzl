"""@nanobind//:nanobind: what an extension module for Python is built with. One interpreter is asked for
everything: its own headers, and where nanobind's sources lie. It is $TUTTI_PYTHON, or else that of
.cache/python, which tools/setup --tests makes. Where something is missing, what depends on it is skipped
under //..., as for the libraries of syslib.bzl.

@nanobind//:defs.bzl  FOUND (bool), PYTHON (the interpreter), SUFFIX (of extension modules: ".cpython-...so")
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

load("@rules_cc//cc:defs.bzl", "cc_library")
load(":defs.bzl", "FOUND")

# No platform has this value, so targets that require it are skipped.
constraint_setting(name = "presence")

constraint_value(name = "python_nanobind_or_numpy_is_not_installed", constraint_setting = ":presence")

cc_library(
    name = "nanobind",
    srcs = glob(["nanobind/src/nb_combined.cpp"]),
    hdrs = glob(["python/**", "nanobind/include/**"]),
    # It includes them.
    textual_hdrs = glob(["nanobind/src/*", "nanobind/ext/robin_map/include/**"], exclude = ["nanobind/src/nb_combined.cpp"]),
    copts = ["-I{external}/nanobind/ext/robin_map/include", "-fno-strict-aliasing", "-fvisibility=hidden", "-w"],
    defines = ["NB_COMPACT_ASSERTIONS"],
    includes = ["python", "nanobind/include"],
    target_compatible_with = [] if FOUND else [":python_nanobind_or_numpy_is_not_installed"],
)
"""

_QUESTION = """
import os, sys, sysconfig
import ml_dtypes, nanobind, numpy, pytest
include = sysconfig.get_path("include")
assert os.path.exists(os.path.join(include, "Python.h"))
print(include, os.path.dirname(nanobind.__file__), sysconfig.get_config_var("EXT_SUFFIX"), sep="\\n")
"""

def _nanobind_impl(rctx):
    python = rctx.os.environ.get("TUTTI_PYTHON", "")
    if not python:
        python = str(rctx.path(Label("//:WORKSPACE")).dirname) + "/.cache/python/bin/python3"
    answer = []
    if rctx.path(python).exists and rctx.os.environ.get("WITH_NANOBIND", "auto") != "no":
        asked = rctx.execute([python, "-c", _QUESTION])
        if asked.return_code == 0:
            answer = asked.stdout.strip().split("\n")
    found = len(answer) == 3
    if found:
        rctx.symlink(answer[0], "python")
        rctx.symlink(answer[1], "nanobind")
    rctx.file("WORKSPACE", "")
    rctx.file("defs.bzl", "FOUND = %r\nPYTHON = %r\nSUFFIX = %r\n" % (found, python, answer[2] if found else ".so"))
    rctx.file("BUILD", _BUILD.format(external = "external/" + rctx.name))

nanobind = repository_rule(
    implementation = _nanobind_impl,
    local = True,
    configure = True,
    environ = ["TUTTI_PYTHON", "WITH_NANOBIND"],
)
