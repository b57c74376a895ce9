"""What a shared library of a layer is made of: everything that some targets and what they depend on have in the folders
of the layer, whether something there uses it or not."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _in_layer(label, folder):
    return label != None and (label.package + "/").startswith(folder + "/") and not label.workspace_name

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    whole = []
    for given in merged.linking_context.linker_inputs.to_list():
        if _in_layer(given.owner, ctx.attr.folder):
            whole.append(cc_common.create_linker_input(
                owner = given.owner,
                libraries = depset([cc_common.create_library_to_link(
                    actions = ctx.actions,
                    feature_configuration = features,
                    cc_toolchain = toolchain,
                    static_library = library.static_library,
                    pic_static_library = library.pic_static_library,
                    alwayslink = True,
                ) for library in given.libraries]),
            ))
    headers = [
        header
        for header in merged.compilation_context.headers.to_list()
        if _in_layer(header.owner, ctx.attr.folder) and header.extension == "h"
    ]
    return [
        CcInfo(
            compilation_context = merged.compilation_context,
            linking_context = cc_common.create_linking_context(linker_inputs = depset(
                whole,
                order = "topological",
                transitive = [merged.linking_context.linker_inputs],
            )),
        ),
        DefaultInfo(files = depset(headers)),
    ]

# Its files are the layer's headers; a dependent target gets all of the layer's objects.
layer = rule(
    implementation = _impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "folder": attr.string(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
