"""@cuda//:found: config_setting for select(): kernels for GPUs are compiled, which takes minutes. So it is done
where somebody has a use for them: after `tools/setup --cuda`, on a machine with NVIDIA's driver, or with --config=cuda.
The compiler is that of $CUDA_PATH, of .cache/cuda (which tools/setup --cuda makes), of /usr/local/cuda, or nvcc on
the path. Without one, everything is built without kernels.

@cuda//:defs.bzl  NVCC, CUOBJDUMP (paths; "" where there is none)

--repo_env=WITH_CUDA=auto|yes|no
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
    """Returns the path of the tool, or "". """
    root = str(rctx.path(Label("//:WORKSPACE")).dirname)
    for folder in [rctx.os.environ.get("CUDA_PATH", ""), root + "/.cache/cuda/toolkit", "/usr/local/cuda"]:
        if folder and rctx.path(folder + "/bin/" + name).exists:
            return folder + "/bin/" + name
    found = rctx.which(name)
    return str(found) if found else ""

def _cuda_impl(rctx):
    nvcc, cuobjdump, version = "", "", ""
    with_cuda = rctx.os.environ.get("WITH_CUDA", "auto")
    if with_cuda == "auto":
        root = str(rctx.path(Label("//:WORKSPACE")).dirname)
        uses = [root + "/.cache/cuda/toolkit", "/proc/driver/nvidia"]
        with_cuda = "yes" if any([rctx.path(use).exists for use in uses]) else "no"
    if with_cuda == "yes":
        nvcc = _first(rctx, "nvcc")
        cuobjdump = _first(rctx, "cuobjdump")
    if nvcc:
        asked = rctx.execute([nvcc, "--version"])
        version = asked.stdout if asked.return_code == 0 else ""
        nvcc = nvcc if version else ""
    rctx.file("WORKSPACE", "")
    rctx.file("flag.bzl", _FLAG_BZL)
    rctx.file("defs.bzl", "NVCC = %r\nCUOBJDUMP = %r\n" % (nvcc, cuobjdump))

    # Makes another compiler rebuild everything.
    rctx.file("compiler.txt", nvcc + "\n" + version)
    rctx.file("BUILD", _BUILD.format(found = nvcc != ""))

cuda = repository_rule(
    implementation = _cuda_impl,
    local = True,
    configure = True,
    environ = ["CUDA_PATH", "PATH", "WITH_CUDA"],
)
