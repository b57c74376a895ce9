"""A fuzz target: run by libFuzzer with --config=fuzz, else a test of `runs` mutated inputs."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_target(name, runs, deps, megabytes = 256):
    corpus = "tests/fuzz/corpus/" + name
    cc_test(
        name = name,
        size = "small",
        srcs = [name + ".cc"],
        args = [corpus] + select({
            "//tests/fuzz:libfuzzer": ["-timeout=10", "-rss_limit_mb=%d" % (2 * megabytes)],
            "//conditions:default": ["-runs=%d" % runs, "-rss_limit_mb=%d" % megabytes],
        }),
        data = native.glob(["corpus/%s/*" % name]),
        env = {"TUTTI_LOG": "error"},
        # The sanitizers read their options from the program itself, not from its libraries.
        linkstatic = True,
        tags = ["asan"],
        deps = [":target"] + deps + select({
            "//tests/fuzz:libfuzzer": [],
            "//conditions:default": [":driver"],
        }),
    )
