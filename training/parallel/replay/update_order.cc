#include "training/parallel/replay/update_order.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/text.h"
#include "training/logs/keep_lines.h"

namespace tutti::training {
namespace {

Json json_of(const UpdateOrder& order) {
  Json pushes = Json::array();
  for (const AppliedPush& push : order) {
    pushes.push_back(Json::array({Json(push.worker), Json(push.clock)}));
  }
  return pushes;
}

UpdateOrder order_of(const Json& pushes) {
  UpdateOrder order;
  for (const Json& push : pushes) order.push_back({push.at(0), push.at(1)});
  return order;
}

Json line_of(const StretchOrder& stretch) {
  Json servers = Json::array();
  for (const UpdateOrder& order : stretch.servers) servers.push_back(json_of(order));
  return {{"way", stretch.way},   {"run", stretch.run},         {"first", stretch.first},
          {"last", stretch.last}, {"workers", stretch.workers}, {"servers", std::move(servers)}};
}

StretchOrder stretch_in(const Json& line) {
  StretchOrder stretch{.way = line.at("way"),
                       .run = line.value("run", std::string()),
                       .first = line.at("first"),
                       .last = line.at("last"),
                       .workers = line.at("workers")};
  for (const Json& pushes : line.at("servers")) stretch.servers.push_back(order_of(pushes));
  return stretch;
}

StretchOrder read_line(std::string_view line, int number, const std::string& name) {
  try {
    return stretch_in(Json::parse(line));
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, cat(name, " is not a record of updates"),
                {.where = cat("line ", number),
                 .cause = error.what(),
                 .remedy = "use a file written by --record"});
  }
}

}  // namespace

void refuse_record(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, cat("the record cannot be replayed: ", why),
              {.where = "--replay",
               .cause = "the record belongs to another run, or was changed",
               .remedy = "use the file and the settings of the same run"});
}

std::string text_of(const UpdateOrder& order) { return json_of(order).dump(); }

UpdateOrder order_in(const std::string& text) { return order_of(Json::parse(text)); }

OrderRecorder::OrderRecorder(std::string path, int64_t done) : path_(std::move(path)) {
  const bool continues = done > 0 && is_regular_file(path_);
  if (continues) {
    int number = 0;
    keep_lines(
        path_, [&](std::string_view line) { return read_line(line, ++number, path_).last <= done; },
        FileKind::order);
  }
  file_.open(path_, std::ios::binary | (continues ? std::ios::app : std::ios::trunc));
  if (!file_) refuse();
}

void OrderRecorder::add(const StretchOrder& stretch) {
  file_ << line_of(stretch).dump() << '\n' << std::flush;
  if (!file_) refuse();
}

void OrderRecorder::refuse() const {
  throw Error(ErrorCode::system, cat("cannot write ", path_),
              {.where = "--record", .remedy = "use a file in a directory with write permission"});
}

// Ignores an incomplete last line, which a killed process may have left.
RecordedOrder::RecordedOrder(const std::string& text, std::string name) : name_(std::move(name)) {
  int number = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    StretchOrder stretch = read_line(line, ++number, name_);
    const int64_t first = stretch.first;
    stretches_[first] = std::move(stretch);
  }
}

const StretchOrder* RecordedOrder::from(int64_t first) const {
  const auto found = stretches_.find(first);
  return found == stretches_.end() ? nullptr : &found->second;
}

const StretchOrder& RecordedOrder::at(const StretchOrder& wanted) const {
  const auto refuse = [&](const std::string& cause, const std::string& remedy) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(name_, " does not contain steps ", wanted.first, " to ", wanted.last, " of this run"),
        {.where = "--replay", .cause = cause, .remedy = remedy});
  };
  const StretchOrder* const found = from(wanted.first);
  if (found == nullptr) {
    refuse(cat("none of its segments starts at step ", wanted.first),
           "use the settings of the recorded run");
  }
  const StretchOrder& stretch = *found;
  if (stretch.last != wanted.last) {
    refuse(cat("its segment ends at step ", stretch.last),
           "use --flush-every, --validate-every and --checkpoint-every of the recorded run");
  }
  if (stretch.way != wanted.way) {
    refuse(cat("it was recorded with --sync ", stretch.way), cat("use --sync ", stretch.way));
  }
  if (!stretch.run.empty() && !wanted.run.empty() && stretch.run != wanted.run) {
    refuse("it belongs to a run with other settings or data",
           "use the settings of the recorded run: model, data, batch, seed, learning rate ...");
  }
  const auto servers = static_cast<int64_t>(stretch.servers.size());
  if (stretch.workers != wanted.workers || servers != std::ssize(wanted.servers)) {
    refuse(cat("the record has ", stretch.workers, " workers and ", servers, " servers"),
           "start as many ranks as the recorded run; if it lost ranks, use its --min-ranks too, so "
           "that they leave again");
  }
  for (const UpdateOrder& order : stretch.servers) {
    const bool known = std::ranges::all_of(order, [&](const AppliedPush& push) {
      return push.worker >= 0 && push.worker < stretch.workers;
    });
    if (!known) refuse("it names workers that did not exist", "use the unchanged file");
  }
  return stretch;
}

}  // namespace tutti::training
