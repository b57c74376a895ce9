"""@mpi_abi//:mpi_abi: the standard ABI of MPI 5, of whichever library has it: libmpi_abi.so.1, and mpi.h as it is with MPI_ABI
defined. It is looked for under $TUTTI_MPI_ABI, or else in .cache/mpi_abi, which tools/setup --tests makes (MPICH 5 from PyPI).

@mpi_abi//:defs.bzl  FOUND (bool), PREFIX (where its bin and lib lie)
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

load("@rules_cc//cc:defs.bzl", "cc_library")
load(":defs.bzl", "FOUND", "PREFIX")

# No platform has this value, so targets that require it are skipped.
constraint_setting(name = "presence")

constraint_value(name = "mpi_abi_is_not_installed", constraint_setting = ":presence")

cc_library(
    name = "mpi_abi",
    hdrs = glob(["include/mpi*.h"], allow_empty = True),
    defines = ["MPI_ABI"],
    includes = ["include"],
    linkopts = ["-L" + PREFIX + "/lib", "-Wl,-rpath," + PREFIX + "/lib", "-lmpi_abi"],
    target_compatible_with = [] if FOUND else [":mpi_abi_is_not_installed"],
)
"""

def _mpi_abi_impl(rctx):
    prefix = rctx.os.environ.get("TUTTI_MPI_ABI", "")
    if not prefix:
        prefix = str(rctx.path(Label("//:WORKSPACE")).dirname) + "/.cache/mpi_abi"
    files = [rctx.path(prefix + "/" + file) for file in ["include/mpi_abi.h", "lib/libmpi_abi.so"]]
    found = all([file.exists for file in files])
    if found:
        rctx.symlink(prefix + "/include", "include")
    rctx.file("WORKSPACE", "")
    rctx.file("defs.bzl", "FOUND = %r\nPREFIX = %r\n" % (found, prefix))
    rctx.file("BUILD", _BUILD)

mpi_abi = repository_rule(
    implementation = _mpi_abi_impl,
    local = True,
    configure = True,
    environ = ["TUTTI_MPI_ABI"],
)
