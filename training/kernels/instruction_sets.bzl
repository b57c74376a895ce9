"""Loops that are compiled once per instruction set and chosen at run time."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_FLAGS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512vl",
        "-mavx512dq",
        "-mfma",
        "-mf16c",
        "-mprefer-vector-width=512",
    ],
}

def instruction_sets(name, main, hdrs, includes, deps, copts = []):
    """`main` is a .inc file whose names lie in a namespace TUTTI_INSTRUCTION_SET.

    `includes` are the other .inc files that it includes, `hdrs` the headers of its table, `copts`
    options for every set: "-ffp-contract=off" where all sets must give the same bits.
    """
    for instruction_set, flags in _FLAGS.items():
        source = "%s_%s.cc" % (name, instruction_set)
        native.genrule(
            name = source + "_made",
            outs = [source],
            cmd = "printf '#define TUTTI_INSTRUCTION_SET %s\\n#include \"%s/%s\"\\n' > $@" %
                  (instruction_set, native.package_name(), main),
        )
        cc_library(
            name = "%s_%s" % (name, instruction_set),
            srcs = [source] + hdrs,
            copts = ["-O3", "-fno-trapping-math", "-fno-math-errno"] + flags + copts,
            textual_hdrs = [main] + includes,
            visibility = ["//visibility:private"],
            deps = deps,
        )
    cc_library(
        name = name,
        visibility = ["//visibility:private"],
        deps = [":%s_baseline" % name] + select({
            "@platforms//cpu:x86_64": [":%s_avx2" % name, ":%s_avx512" % name],
            "//conditions:default": [],
        }),
    )
