// Implements tutti mpi: starts an unchanged MPI program, with Tutti's library loaded before its MPI
// library.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

namespace fs = std::filesystem;

struct MpiLibrary {
  std::string name;
  std::string title;
  std::string soname;  // name of the shared library to which programs and the interposer are linked
  std::vector<std::string>
      // names of the files to which the links mpirun and mpiexec lead; empty: any launcher is used
      launchers;
  // Returns the launcher options that set an environment variable of the program's processes.
  std::vector<std::string> (*variable)(const std::string& name, const std::string& value);
  std::string installed_by;
};

const std::array<MpiLibrary, 3>& libraries() {
  static const std::array<MpiLibrary, 3> all = {
      MpiLibrary{.name = "openmpi",
                 .title = "Open MPI",
                 .soname = "libmpi.so.40",
                 .launchers = {"orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"},
                 .variable =
                     [](const std::string& name, const std::string& value) {
                       return std::vector<std::string>{"-x", cat(name, "=", value)};
                     },
                 .installed_by = "apt-get install openmpi-bin libopenmpi-dev"},
      MpiLibrary{.name = "mpich",
                 .title = "MPICH",
                 .soname = "libmpich.so.12",
                 .launchers = {"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"},
                 .variable =
                     [](const std::string& name, const std::string& value) {
                       return std::vector<std::string>{"-genv", name, value};
                     },
                 .installed_by = "apt-get install mpich libmpich-dev"},
      MpiLibrary{.name = "mpi_abi",
                 .title = "a library with MPI's standard ABI",
                 .soname = "libmpi_abi.so.1",
                 .launchers = {},
                 .variable = nullptr,
                 .installed_by = "tools/setup --tests"}};
  return all;
}

// Returns the path of a command, found as a shell finds it.
std::string path_of(const std::string& word) {
  return word.find('/') == std::string::npos ? find_program(word) : word;
}

// Returns the library whose launcher this is, or null if it is unknown.
const MpiLibrary* launched_by(const std::string& program) {
  const std::string path = path_of(program);
  if (path.empty()) return nullptr;
  std::error_code ignored;
  const std::string file = fs::canonical(path, ignored).filename();
  for (const MpiLibrary& library : libraries()) {
    if (std::ranges::find(library.launchers, file) != library.launchers.end()) return &library;
  }
  return nullptr;
}

// Returns the library to which the program is linked, by searching its file for the soname. Returns
// null if it is linked to no known library, or if the file is not a program.
const MpiLibrary* linked_by(const std::string& word) {
  const std::string path = path_of(word);
  std::error_code ignored;
  if (path.empty() || !fs::is_regular_file(path, ignored)) return nullptr;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!bytes.starts_with("\177ELF")) return nullptr;
  for (const MpiLibrary& library : libraries()) {
    const std::string entry = '\0' + library.soname + '\0';
    if (bytes.find(entry) != std::string::npos) return &library;
  }
  return nullptr;
}

const MpiLibrary& named(const std::string& name) {
  const auto* found = std::ranges::find(libraries(), name, &MpiLibrary::name);
  return *found;  // the command line allows no other names
}

const MpiLibrary& find_mpi(const std::string& name, const std::vector<std::string>& command) {
  if (!name.empty()) return named(name);
  const MpiLibrary* launcher = launched_by(command.front());
  const MpiLibrary* linked = nullptr;
  std::string program;
  for (size_t i = launcher == nullptr ? 0 : 1; i < command.size() && linked == nullptr; ++i) {
    linked = linked_by(command[i]);
    program = command[i];
  }
  if (linked != nullptr && linked->launchers.empty()) return *linked;
  if (launcher != nullptr && linked != nullptr && launcher != linked) {
    throw Error(ErrorCode::invalid_argument,
                cat(command.front(), " is the launcher of ", launcher->title, ", but ", program,
                    " is linked to ", linked->title),
                {.cause = "each rank would become a separate job",
                 .remedy = cat("start it with ", linked->launchers.back())});
  }
  if (launcher != nullptr) return *launcher;
  if (linked != nullptr) return *linked;
  throw Error(
      ErrorCode::invalid_argument,
      cat("cannot detect which MPI library '", command.front(), "' uses"),
      {.cause = "the command is not mpirun of Open MPI or MPICH, and no program in the command is "
                "linked to libmpi.so.40, libmpich.so.12 or libmpi_abi.so.1",
       .remedy = "add --mpi openmpi, mpich or mpi_abi"});
}

// Returns the interposer's path: beside this program's folder if it is installed, in the build tree
// otherwise.
std::string interposer(const MpiLibrary& library) {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string file = cat("libtutti_", library.name, ".so");
  for (const fs::path& candidate : {here / "../lib" / file, here / "../bindings/mpi" / file}) {
    if (::access(candidate.c_str(), R_OK) == 0) return candidate.lexically_normal().string();
  }
  throw Error(
      ErrorCode::unsupported, cat(file, " is missing"),
      {.cause = cat(library.title,
                    " was not installed when this program was built, or the program was built by "
                    "tools/quickstart, which omits it"),
       .remedy = cat(library.installed_by,
                     ", then: bazel sync --configure && bazel build -c opt //tools:tutti")});
}

// Returns the command with the interposer. A known launcher gets options that preload it into the
// program's processes on every host; other launchers pass on the environment.
std::vector<std::string> with_interposer(const MpiLibrary& library,
                                         std::vector<std::string> command) {
  std::string preload = interposer(library);
  if (const char* before = std::getenv("LD_PRELOAD"); before != nullptr && *before != '\0') {
    preload += cat(":", before);
  }
  const MpiLibrary* const launcher = launched_by(command.front());
  if (launcher == nullptr) {
    ::setenv("LD_PRELOAD", preload.c_str(), 1);
    return command;
  }
  const std::vector<std::string> words = launcher->variable("LD_PRELOAD", preload);
  command.insert(command.begin() + 1, words.begin(), words.end());
  return command;
}

struct MpiOptions {
  std::string mpi;  // name of the library; empty: detect it
  std::vector<std::string> command;
};

int run_mpi(const MpiOptions& options) {
  const MpiLibrary& library = find_mpi(options.mpi, options.command);
  const std::vector<std::string> command = with_interposer(library, options.command);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  throw system_error(cat("cannot start ", command.front()), errno);
}

}  // namespace

void add_mpi(CommandLine& line) {
  const auto options = std::make_shared<MpiOptions>();
  Command command = line.add("mpi", "run an MPI program with Tutti's collectives");
  command
      .add_option("--mpi", options->mpi,
                  "MPI library that the program uses (default: the library of the launcher, or the "
                  "library to which the program is linked)")
      .one_of({"openmpi", "mpich", "mpi_abi"});
  command.add_option("command", options->command, "launcher, program and arguments, after --")
      .required()
      .type_name("COMMAND ...");
  command.positionals_at_end();
  command.footer(
      "Examples:\n"
      "  tutti mpi -- mpirun -n 4 ./program\n"
      "  tutti mpi -- srun -n 64 ./program\n"
      "  TUTTI_MPI_REPORT=1 tutti mpi -- mpirun -n 4 ./program     # report the calls Tutti ran\n"
      "  tutti mpi --mpi mpich -- srun -n 4 python3 program.py     # if it cannot be detected");
  command.runs([options] { return run_mpi(*options); });
}

}  // namespace tutti::tool
