"""@cuda//:found: config_setting for select(): the CUDA toolkit's compiler is there and not switched off. It is
$CUDA_PATH's, or that of .cache/cuda, which tools/setup --cuda makes, or of /usr/local/cuda, or nvcc on the path.
Where there is none, everything is built without kernels for GPUs.

@cuda//:defs.bzl  NVCC, CUOBJDUMP (paths; "" where there is none)

--repo_env=WITH_CUDA=auto|no
"""

_FLAG_BZL = """def _impl(ctx):
    return []

bool_flag = rule(implementation = _impl, build_setting = config.bool(flag = True))
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

load(":flag.bzl", "bool_flag")

bool_flag(name = "enabled", build_setting_default = {found})

config_setting(name = "found", flag_values = {{":enabled": "True"}})

exports_files(["compiler.txt"])
"""

def _first(rctx, name):
    """The tool of that name, or "". """
    root = str(rctx.path(Label("//:WORKSPACE")).dirname)
    for folder in [rctx.os.environ.get("CUDA_PATH", ""), root + "/.cache/cuda/toolkit", "/usr/local/cuda"]:
        if folder and rctx.path(folder + "/bin/" + name).exists:
            return folder + "/bin/" + name
    found = rctx.which(name)
    return str(found) if found else ""

def _cuda_impl(rctx):
    nvcc, cuobjdump, version = "", "", ""
    if rctx.os.environ.get("WITH_CUDA", "auto") != "no":
        nvcc = _first(rctx, "nvcc")
        cuobjdump = _first(rctx, "cuobjdump")
    if nvcc:
        asked = rctx.execute([nvcc, "--version"])
        version = asked.stdout if asked.return_code == 0 else ""
        nvcc = nvcc if version else ""
    rctx.file("WORKSPACE", "")
    rctx.file("flag.bzl", _FLAG_BZL)
    rctx.file("defs.bzl", "NVCC = %r\nCUOBJDUMP = %r\n" % (nvcc, cuobjdump))

    # So that another compiler builds everything anew.
    rctx.file("compiler.txt", nvcc + "\n" + version)
    rctx.file("BUILD", _BUILD.format(found = nvcc != ""))

cuda = repository_rule(
    implementation = _cuda_impl,
    local = True,
    configure = True,
    environ = ["CUDA_PATH", "PATH", "WITH_CUDA"],
)
