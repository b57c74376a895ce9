#include "training/models/sizes.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

void require_size(std::string_view what, int64_t size, int64_t least) {
  if (size >= least) return;
  throw Error(ErrorCode::invalid_argument, cat("the model's ", what, " cannot be ", size),
              {.remedy = cat("use at least ", least)});
}

}  // namespace tutti::training
