"""Stand-ins for the three archives that Bazel 4 downloads before it builds any cc_* target."""

def bazel4_standins():
    # Debian's bazel-bootstrap 4.2.3 calls itself a development version: ""
    v = native.bazel_version
    if v and not v.startswith("4."):
        return
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        native.local_repository(name = name, path = "tools/bazel/standins/" + name)
