#include <cerrno>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

// Throws for "-". Other commands accept it as standard output, but these commands print other text
// there.
void require_file(const std::string& path, const std::string& option) {
  if (path != "-") return;
  throw Error(ErrorCode::invalid_argument,
              "'-' is not supported here, because standard output has other text",
              {.where = option, .remedy = "use a file name such as /dev/stderr or ./-"});
}

std::ofstream opened(const std::string& path, const std::string& option, std::ios::openmode mode) {
  std::ofstream file;
  if (path.empty()) return file;
  require_file(path, option);
  errno = 0;
  file.open(path, mode);
  if (!file) {
    throw system_error(cat("cannot write ", path), errno,
                       {.where = option, .remedy = "choose a file in a writable directory"});
  }
  return file;
}

}  // namespace

std::ofstream open_for_writing(const std::string& path, const std::string& option) {
  return opened(path, option, std::ios::out);
}

std::ofstream open_for_appending(const std::string& path, const std::string& option) {
  return opened(path, option, std::ios::app);
}

void append(std::ofstream& file, const std::string& path, const std::string& text,
            const std::string& option) {
  errno = 0;
  file << text << std::flush;
  if (!file) throw system_error(cat("cannot write ", path), errno, {.where = option});
}

void write_file(const std::string& path, const std::string& text) {
  require_file(path, "");
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw system_error(cat("cannot write ", path), errno,
                       {.remedy = "choose a file in a writable directory"});
  }
}

void write_results(const std::string& path, Json document, const Json& results) {
  if (path.empty()) return;
  for (const Json::Member& member : results[0].items()) document[member.name] = member.value;
  document["results"] = results;
  write_file(path, document.dump(2) + "\n");
}

}  // namespace tutti::tool
