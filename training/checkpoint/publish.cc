#include "training/checkpoint/publish.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {

Publication::Publication(RunDirectory& directory, int64_t step)
    : directory_(directory),
      step_(step),
      folder_(cat(directory.path(), '/', temporary_name(step))) {
  if (step < 0) throw Error(ErrorCode::invalid_argument, cat("invalid step ", step));
  if (::mkdir(folder_.c_str(), 0777) != 0) {
    throw system_error(cat("cannot make the directory ", folder_), errno,
                       {.remedy = "choose a writable directory on a disk with free space"});
  }
}

// Removes the temporary folder. After publication the folder of this name is the step that was
// replaced, if any.
Publication::~Publication() { remove_folder(folder_); }

void Publication::publish(std::string_view manifest,
                          const std::function<void(std::string_view)>& at_phase) {
  OutputFile file(cat(folder_, '/', kManifestFile));
  file.write(manifest);
  file.finish();
  sync_directory(folder_);
  at_phase("manifest written");
  directory_.require_writer();
  at_phase("fence read");
  give_name();
  sync_directory(directory_.path());
  at_phase("named");
  directory_.require_writer();
  at_phase("fence read again");
  replace_file(cat(directory_.path(), '/', kLatestFile), step_name(step_) + "\n");
  sync_directory(directory_.path());
  at_phase("published");
  directory_.has_published(step_);
}

// Renames the folder to the step's name. An existing step of the run is exchanged atomically with
// the new one. A step of another run, and on file systems without exchange any existing step, is
// set aside first, so that the name is missing for a moment. A later writer's step is kept: if it
// was published after the fence was read, the plain rename() fails, and an exchange is undone.
void Publication::give_name() const {
  const std::string name = cat(directory_.path(), '/', step_name(step_));
  const auto exchange = [&] {
    return ::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0;
  };
  std::error_code error;
  if (std::filesystem::exists(name, error)) {
    directory_.require_no_later_writer(name);
    if (directory_.may_replace(step_) && exchange()) {
      try {
        return directory_.require_no_later_writer(folder_);
      } catch (const Error&) {
        exchange();
        throw;
      }
    }
    directory_.set_aside({step_});
  }
  if (::rename(folder_.c_str(), name.c_str()) == 0) return;
  const int reason = errno;
  if (reason == ENOTEMPTY || reason == EEXIST) directory_.require_writer();
  throw system_error(cat("cannot rename ", folder_, " to ", name), reason);
}

}  // namespace tutti::training
