#include "bench/peers/peer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"

namespace tutti::bench {

namespace {

using Words = std::vector<std::string>;

bool is_crowded(int ranks) { return ranks > ::sysconf(_SC_NPROCESSORS_ONLN); }

Words openmpi_options(int ranks, const std::string& transport) {
  Words options = {"--allow-run-as-root",
                   "--oversubscribe",
                   "-n",
                   cat(ranks),
                   "--bind-to",
                   is_crowded(ranks) ? "none" : "core"};
  const auto add = [&](std::initializer_list<const char*> words) {
    options.insert(options.end(), words.begin(), words.end());
  };
  if (is_crowded(ranks)) add({"--mca", "mpi_yield_when_idle", "1"});
  add({"--mca", "pml", "ob1", "--mca", "btl"});
  if (transport == "tcp") {
    add({"tcp,self", "--mca", "btl_tcp_if_include", "lo"});
  } else {
    add({"vader,self"});
  }
  return options;
}

Words mpich_options(int ranks, const std::string& transport) {
  Words options = {"-n", cat(ranks), "-bind-to", is_crowded(ranks) ? "none" : "core"};
  if (transport == "tcp") {
    for (const char* word : {"-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self",
                             "-genv", "UCX_NET_DEVICES", "lo"}) {
      options.emplace_back(word);
    }
  }
  return options;
}

const std::vector<Peer>& all_peers() {
  static const std::vector<Peer> peers = {
      {.name = "openmpi",
       .title = "Open MPI",
       .is_mpi = true,
       .launchers = {"mpirun.openmpi", "mpirun"},
       .packages = "openmpi-bin libopenmpi-dev",
       .lacks = {},
       .launcher_options = openmpi_options},
      {.name = "mpich",
       .title = "MPICH",
       .is_mpi = true,
       .launchers = {"mpirun.mpich", "mpiexec.hydra", "mpiexec"},
       .packages = "mpich libmpich-dev",
       .lacks = {},
       .launcher_options = mpich_options},
      {.name = "gloo",
       .title = "Gloo",
       .launchers = {},
       .packages = "libgloo-dev",
       .lacks = {Collective::scan, Collective::exscan}},
      {.name = "floor", .title = "the floor", .launchers = {}, .packages = "", .lacks = {}},
      {.name = "floor",
       .program = "gpu_floor",
       .title = "the floor",
       .launchers = {},
       .packages = "",
       .on_device = true,
       .lacks = {Collective::barrier}},
      {.name = "nccl",
       .title = "NCCL",
       .launchers = {},
       .packages = "libnccl2",
       .library = "libnccl.so.2",
       .on_device = true,
       .lacks = {Collective::scan, Collective::exscan}},
  };
  return peers;
}

// Returns the name of the first installed program, or "". Returns no path, because Open MPI, if
// started by a path, looks for its files relative to that path.
std::string first_installed(const Words& programs) {
  const auto found = std::ranges::find_if(
      programs, [](const std::string& program) { return !find_program(program).empty(); });
  return found == programs.end() ? "" : *found;
}

// Returns true if the library can be loaded. The library stays loaded, because GPU libraries do not
// support unloading.
bool can_be_loaded(const std::string& library) {
  return library.empty() || ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

// Returns the path of a peer's program: beside this program if it is installed, in the build tree
// otherwise.
std::string peer_program(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate :
       {here / ("tutti_" + name + "_peer"), here / "../bench/peers" / (name + "_peer")}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return {};
}

}  // namespace

bool Peer::has(Collective collective) const {
  return std::ranges::find(lacks, collective) == lacks.end();
}

bool Peer::is_installed() const {
  return can_be_loaded(library) && !peer_program(program.empty() ? name : program).empty() &&
         (launchers.empty() || !first_installed(launchers).empty());
}

std::vector<std::string> Peer::command(int ranks, const std::string& transport) const {
  if (!is_installed()) {
    const std::string install =
        packages.empty() ? "" : cat("apt-get install ", packages, ", then: ");
    throw Error(
        ErrorCode::unsupported,
        cat(title, " was not installed when this program was built, or is not installed now"),
        {.cause = "tools/quickstart, for example, builds only the program",
         .remedy = cat(install,
                       "bazel sync --configure && bazel build -c opt "
                       "//tools:tutti")});
  }
  Words words;
  if (!launchers.empty()) {
    words.push_back(first_installed(launchers));
    const Words options = launcher_options(ranks, transport);
    words.insert(words.end(), options.begin(), options.end());
  }
  words.push_back(peer_program(program.empty() ? name : program));
  return words;
}

const Peer& find_peer(const std::string& name, bool on_device) {
  if (name == "horovod") {
    throw Error(
        ErrorCode::unsupported, "Horovod is not among the peers",
        {.cause = "it is a layer on a framework (PyTorch, TensorFlow), whose tensors on CPUs it "
                  "sums by MPI or Gloo",
         .remedy = "use --peers openmpi,gloo"});
  }
  std::string names;
  bool is_elsewhere = false;
  for (const Peer& peer : all_peers()) {
    if (peer.on_device == on_device) {
      if (peer.name == name) return peer;
      names += cat(names.empty() ? "" : ", ", peer.name);
    }
    is_elsewhere = is_elsewhere || peer.name == name;
  }
  if (!is_elsewhere) {
    throw Error(ErrorCode::unsupported, cat("unknown peer '", name, "'"),
                {.remedy = cat("use --peers with some of ", names, ", or all")});
  }
  throw Error(ErrorCode::unsupported,
              cat("--peers ", name, on_device ? " with" : " without", " --device cuda"),
              {.cause = cat("its buffers are in the memory of ", on_device ? "the host" : "GPUs"),
               .remedy = cat("use --peers with some of ", names, ", or all")});
}

std::vector<std::string> choose_peers(const std::vector<std::string>& names, bool on_device) {
  std::vector<std::string> chosen;
  const auto choose = [&](const std::string& name) {
    if (std::ranges::find(chosen, name) == chosen.end()) chosen.push_back(name);
  };
  for (const std::string& name : names) {
    if (name != "all") {
      (void)find_peer(name, on_device).command(1, "shm");
      choose(name);
      continue;
    }
    for (const Peer& peer : all_peers()) {
      if (peer.on_device == on_device && peer.is_installed()) choose(peer.name);
    }
  }
  if (chosen.empty() && !names.empty()) {
    throw Error(ErrorCode::unsupported, "no peer is installed",
                {.remedy = "build it: bazel build -c opt //tools:tutti"});
  }
  return chosen;
}

}  // namespace tutti::bench
