"""Tests that run once for each instruction set that the processor can be told to use."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

_INSTRUCTION_SETS = [
    "baseline",
    "avx2",
    "avx512",
]

def cc_test_per_instruction_set(name, srcs, deps, **kwargs):
    """NAME_baseline, NAME_avx2 and NAME_avx512: the same test under TUTTI_CPU; NAME is all three.

    Where the processor lacks the set, all of its cases are skipped, and say so.
    """
    cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        visibility = ["//visibility:private"],
        deps = deps + ["//tests/support:instruction_set"],
        alwayslink = True,
    )
    for instruction_set in _INSTRUCTION_SETS:
        cc_test(
            name = "%s_%s" % (name, instruction_set),
            env = {"TUTTI_CPU": instruction_set},
            deps = [":%s_cases" % name],
            **kwargs
        )
    native.test_suite(
        name = name,
        tests = ["%s_%s" % (name, instruction_set) for instruction_set in _INSTRUCTION_SETS],
    )
