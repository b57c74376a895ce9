"""Bzlmod extension of syslib.bzl. Loaded by MODULE.bazel only: Bazel 4 has no module_extension."""

load(":syslib.bzl", "syslibs")

def _system_impl(_ctx):
    syslibs()

system = module_extension(implementation = _system_impl)
