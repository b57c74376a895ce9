"""System libraries as external repositories, found by pkg-config or by header.

@NAME//:NAME   cc_library; when the library is absent it is "incompatible", so
               everything that depends on it is skipped under //... and gives a
               clear error when asked for by name.
@NAME//:found  config_setting for select(): library there and not switched off.
@NAME//:enabled  flag: --@NAME//:enabled=false switches a found library off.
@NAME//:defs.bzl  FOUND (bool), VERSION (string)

--repo_env=WITH_<NAME>=auto|yes|no   (yes: absent is an error; no: never look)
"""

load(":cuda.bzl", "cuda")
load(":mpi_abi.bzl", "mpi_abi")
load(":nanobind.bzl", "nanobind")

_FLAG_BZL = """def _impl(ctx):
    return []

bool_flag = rule(implementation = _impl, build_setting = config.bool(flag = True))
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

load("@rules_cc//cc:defs.bzl", "cc_library")
load(":flag.bzl", "bool_flag")

bool_flag(name = "enabled", build_setting_default = {found})

config_setting(name = "found", flag_values = {{":enabled": "True"}})

# No platform has this value, so targets that require it are skipped.
constraint_setting(name = "presence")

constraint_value(name = "{name}_is_not_installed", constraint_setting = ":presence")

cc_library(
    name = "{name}",
    hdrs = glob({hdrs}, allow_empty = True),
    defines = {defines},
    includes = {includes},
    linkopts = {linkopts},
    target_compatible_with = select({{
        ":found": [],
        "//conditions:default": [":{name}_is_not_installed"],
    }}),
)
"""

def _write(rctx, found, version = "", defines = [], includes = [], linkopts = []):
    rctx.file("WORKSPACE", "")
    rctx.file("flag.bzl", _FLAG_BZL)
    rctx.file("defs.bzl", "FOUND = %r\nVERSION = %r\n" % (found, version))
    rctx.file("BUILD", _BUILD.format(
        name = rctx.attr.lib,
        found = found,
        hdrs = [i + "/**" for i in includes],
        defines = defines,
        includes = includes,
        linkopts = linkopts,
    ))

def _find(rctx):
    """Returns (version, cflags, libs) or an error string."""
    version, cflags, libs = "", [], rctx.attr.linkopts
    pkgs = rctx.attr.pkg_config
    if pkgs:
        exe = rctx.which("pkg-config")
        if not exe:
            return "pkg-config is not installed"
        for args in ["--modversion", "--cflags", "--libs"]:
            r = rctx.execute([exe, args] + pkgs)
            if r.return_code != 0:
                return r.stderr.strip()
            words = [w for w in r.stdout.replace("\n", " ").split(" ") if w]
            if args == "--modversion":
                version = words[0]
            elif args == "--cflags":
                cflags = words
            else:
                libs = words + libs
    for h in rctx.attr.headers:
        dirs = [f[2:] for f in cflags if f.startswith("-I")] + ["/usr/include", "/usr/local/include"]
        if not [d for d in dirs if rctx.path(d + "/" + h).exists]:
            return "header <%s> not found" % h
    return (version, cflags, libs)

def _system_library_impl(rctx):
    env = "WITH_" + rctx.attr.lib.upper()
    want = rctx.os.environ.get(env, "auto")
    if want == "no":
        _write(rctx, False)
        return
    r = _find(rctx)
    if type(r) == "string":
        msg = "%s: %s (Debian: apt-get install %s)" % (rctx.attr.lib, r, rctx.attr.deb)
        if want == "yes" or rctx.attr.required:
            fail(msg)
        _write(rctx, False)
        return
    version, cflags, libs = r
    includes, defines = [], []
    for f in cflags:
        if f.startswith("-D"):
            defines.append(f[2:])
        elif f.startswith("-I"):
            d = "inc/%d" % len(includes)
            rctx.symlink(f[2:], d)
            includes.append(d)
    linkopts = []
    for f in libs:
        linkopts.append(f)
        if f.startswith("-L"):
            linkopts.append("-Wl,-rpath," + f[2:])
    _write(rctx, True, version, defines, includes, linkopts)

# name: (pkg-config packages, required headers, linkopts, Debian packages, required)
_LIBS = {
    "blas": (["blas"], [], [], "libblas-dev", True),
    "benchmark": (["benchmark"], ["benchmark/benchmark.h"], ["-lbenchmark_main", "-lbenchmark", "-lpthread"], "libbenchmark-dev", False),
    # Fibers, with which tests emulate a GPU.
    "boost_context": ([], ["boost/context/detail/fcontext.hpp"], ["-l:libboost_context.a"], "libboost-context-dev", True),
    "cli11": (["CLI11"], ["CLI/CLI.hpp"], [], "libcli11-dev", True),
    "crypto": (["libcrypto"], ["openssl/hmac.h"], [], "libssl-dev", True),
    "dnnl": ([], ["oneapi/dnnl/dnnl.hpp"], ["-ldnnl"], "libdnnl-dev", True),
    "gloo": ([], ["gloo/allreduce.h"], ["-lgloo"], "libgloo-dev", False),
    "gtest": (["gmock_main", "gmock", "gtest"], ["gtest/gtest.h", "gmock/gmock.h"], [], "libgtest-dev libgmock-dev", True),
    "hwloc": (["hwloc"], ["hwloc.h"], [], "libhwloc-dev", True),
    # Its header only: the library is loaded at run time, where there is one.
    "ipsec_mb": ([], ["intel-ipsec-mb.h"], [], "libipsec-mb-dev", False),
    "json": (["nlohmann_json"], ["nlohmann/json.hpp"], [], "nlohmann-json3-dev", True),
    "lapack": (["lapack"], [], [], "liblapack-dev", True),
    # Its headers only: the library is loaded at run time, where there is one.
    "libfabric": ([], ["rdma/fabric.h"], [], "libfabric-dev", True),
    "mpich": (["mpich"], ["mpi.h"], [], "libmpich-dev mpich", False),
    "openmpi": (["ompi"], ["mpi.h"], [], "libopenmpi-dev openmpi-bin", False),
    "pcre2": (["libpcre2-8"], ["pcre2.h"], [], "libpcre2-dev", True),
    # Linked statically, so that installed files need no additional library.
    "pugixml": ([], ["pugixml.hpp"], ["-l:libpugixml.a"], "libpugixml-dev", True),
    "ssl": (["libssl"], ["openssl/ssl.h"], [], "libssl-dev", True),
    # Its headers only: the library is loaded at run time, where there is one.
    "ucx": ([], ["ucp/api/ucp.h"], [], "libucx-dev", True),
    "zlib": (["zlib"], ["zlib.h"], [], "zlib1g-dev", True),
    "zstd": ([], ["zstd.h"], ["-l:libzstd.a"], "libzstd-dev", True),
    "xxhash": ([], ["xxhash.h"], ["-l:libxxhash.a"], "libxxhash-dev", True),
}

_system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    configure = True,
    environ = ["PKG_CONFIG_PATH", "PATH"] + ["WITH_" + n.upper() for n in _LIBS],
    attrs = {
        "lib": attr.string(),  # rctx.name is mangled under Bzlmod
        "pkg_config": attr.string_list(),
        "headers": attr.string_list(),
        "linkopts": attr.string_list(),
        "deb": attr.string(),
        "required": attr.bool(),
    },
)

def syslibs():
    for name, (pkgs, headers, linkopts, deb, required) in _LIBS.items():
        _system_library(
            name = name,
            lib = name,
            pkg_config = pkgs,
            headers = headers,
            linkopts = linkopts,
            deb = deb,
            required = required,
        )
    cuda(name = "cuda")
    mpi_abi(name = "mpi_abi")
    nanobind(name = "nanobind")
