#include "training/pipeline/schedule.h"

#include <algorithm>

#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

char letter(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return 'F';
    case Kind::backward:
      return 'B';
    case Kind::backward_input:
      return 'I';
    case Kind::backward_weight:
      return 'W';
  }
  return '?';
}

}  // namespace

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return "forward";
    case Kind::backward:
      return "backward";
    case Kind::backward_input:
      return "backward_input";
    case Kind::backward_weight:
      return "backward_weight";
  }
  return "?";
}

std::string to_string(const Entry& entry, bool with_chunk) {
  const std::string text = cat(letter(entry.kind), entry.micro_batch);
  return with_chunk ? cat(text, '.', entry.chunk) : text;
}

std::string describe(const Entry& entry) {
  return cat(name(entry.kind), " of micro-batch ", entry.micro_batch, " through chunk ",
             entry.chunk);
}

bool Schedule::has_split_backward() const {
  return std::ranges::any_of(table, [](const std::vector<Entry>& entries) {
    return std::ranges::any_of(
        entries, [](const Entry& entry) { return entry.kind == Kind::backward_weight; });
  });
}

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  for (std::vector<Entry>& entries : result.table) {
    std::erase_if(entries, [](const Entry& entry) { return entry.kind != Kind::forward; });
  }
  return result;
}

}  // namespace tutti::training::pipeline
