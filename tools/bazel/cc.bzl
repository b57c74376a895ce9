"""C++ targets whose many sources are compiled a few at a time.

Half of what compiling a small source takes is reading the standard library. So the sources of one target are
joined into parts, each of which is compiled as one:

    cc_library(name = "runtime", srcs = [23 files])   ->   runtime_part1.cc, runtime_part2.cc, runtime_part3.cc

Names in the anonymous namespaces of one target must therefore differ, and each source must still include what
it uses: --define=each_source=alone compiles it by itself. Lines of errors are those of the sources.
"""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library")

# A change of one source recompiles its whole part, which takes seconds.
_MOST_IN_A_PART = 12

def _in_parts(name, srcs, alone):
    """Returns the labels to compile instead of srcs."""
    if type(srcs) == "select":
        return srcs
    joined = [source for source in srcs if source.endswith(".cc") and source not in alone]
    if len(joined) < 2:
        return srcs
    parts = -(-len(joined) // _MOST_IN_A_PART)
    size = -(-len(joined) // parts)
    outs = []
    for part in range(parts):
        out = "%s_part%d.cc" % (name, part + 1)
        outs.append(out)
        native.genrule(
            name = out + "_source",
            srcs = joined[part * size:(part + 1) * size],
            outs = [out],
            cmd = "for file in $(SRCS); do printf '#line 1 \"%s\"\\n' $$file; cat $$file; done >$@",
        )
    return [source for source in srcs if source not in joined] + select({
        "//tools/bazel:is_each_source_alone": joined,
        "//conditions:default": outs,
    })

def cc_library(name, srcs = [], alone = [], **kwargs):
    """A cc_library; the sources in `alone` are compiled separately."""
    _cc_library(name = name, srcs = _in_parts(name, srcs, alone), **kwargs)

def cc_binary(name, srcs = [], alone = [], **kwargs):
    """A cc_binary; the sources in `alone` are compiled separately."""
    _cc_binary(name = name, srcs = _in_parts(name, srcs, alone), **kwargs)
