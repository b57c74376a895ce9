#include "training/core/group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/reduce_op.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr int kFirst = 0;

// Returns "CODE TEXT", which decoded() parses.
std::string encoded(ErrorCode code, const std::string& text) {
  return std::to_string(static_cast<int>(code)) + ' ' + text;
}

Error decoded(const std::string& words, const std::string& failed, const ErrorDetail& detail = {}) {
  int code = static_cast<int>(ErrorCode::internal);
  std::from_chars(words.data(), words.data() + words.size(), code);
  return Error(static_cast<ErrorCode>(code), failed + words.substr(words.find(' ') + 1), detail);
}

// Prefix of a result; errors are encoded as "CODE TEXT".
constexpr std::string_view kGood = "ok ";

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return std::string(kGood) + work();
  } catch (const Error& error) {
    return encoded(error.code(), error.what());
  } catch (const std::exception& error) {
    return encoded(ErrorCode::internal, error.what());
  }
}

void wait_for_all(const Group& group) {
  try {
    group.gather_to_first("");
    group.from_first("");
  } catch (const Error&) {
    // A rank has died or left meanwhile; this function's caller reports its own error.
  }
}

// Collective. Returns the text of rank `root` on every rank.
std::string text_of(Communicator& communicator, int root, std::string text) {
  std::array<uint64_t, 1> size = {text.size()};
  communicator.broadcast(std::span<uint64_t>(size), root);
  text.resize(size[0]);
  if (size[0] > 0) {
    const Buffer buffer{text.data(), text.size(), DType::u8};
    communicator.broadcast({text.data(), text.size(), DType::u8}, buffer, root);
  }
  return text;
}

// Returns the error of the lowest rank that has one.
std::optional<Error> first_error(Communicator& communicator, const std::optional<Error>& own) {
  const int none = communicator.size();
  std::array<int32_t, 1> first = {own ? communicator.rank() : none};
  communicator.all_reduce(std::span<int32_t>(first), ReduceOp::min);
  if (first[0] == none) return std::nullopt;
  const std::string words =
      text_of(communicator, first[0], own ? encoded(own->code(), own->what()) : "");
  return decoded(words, "", {.where = communicator.describe(first[0])});
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own) {
  const bool first = communicator.rank() == kFirst;
  const uint64_t size = own.size();
  std::vector<uint64_t> sizes(first ? static_cast<size_t>(communicator.size()) : 0);
  communicator.gather({&size, 1, DType::u64}, {sizes.data(), sizes.size(), DType::u64}, kFirst);
  uint64_t total = 0;
  for (const uint64_t one : sizes) total += one;
  std::string all(total, '\0');
  communicator.gatherv({own.data(), size, DType::u8}, {all.data(), total, DType::u8},
                       Blocks::of(sizes), kFirst);
  std::vector<std::string> texts;
  size_t at = 0;
  for (const uint64_t one : sizes) {
    texts.push_back(all.substr(at, one));
    at += one;
  }
  return texts;
}

std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& own) {
  std::string all;
  for (const std::string& text : gather_texts(communicator, own)) all += text + '\0';
  std::vector<std::string> texts = split(text_of_first(communicator, std::move(all)), '\0');
  texts.resize(static_cast<size_t>(communicator.size()));
  return texts;
}

std::string text_of_first(Communicator& communicator, std::string text) {
  return text_of(communicator, kFirst, std::move(text));
}

bool same_on_all(Communicator& communicator, const std::string& own) {
  const uint64_t hash = fnv(own);
  // The maximum of the complements is the complement of the minimum.
  std::array<uint64_t, 2> bounds = {hash, ~hash};
  communicator.all_reduce(std::span<uint64_t>(bounds), ReduceOp::max);
  return bounds[0] == ~bounds[1];
}

void throw_any(Communicator& communicator, const std::optional<Error>& own) {
  std::optional<Error> first;
  try {
    first = first_error(communicator, own);
  } catch (const Error& aborted) {
    first = aborted;
  }
  if (own) throw *own;
  if (first) throw *first;
}

void throw_on_all(Communicator& communicator, const Error& error) {
  try {
    communicator.barrier();
  } catch (const Error&) {
    // A rank has died or left meanwhile; the caller's own error is thrown.
  }
  throw error;
}

Group group_of_one() {
  return {.rank = 0,
          .size = 1,
          .gather_to_first = [](std::string text) { return std::vector{std::move(text)}; },
          .from_first = [](std::string text) { return text; }};
}

Group group_of(Communicator& communicator) {
  return {
      .rank = communicator.rank(),
      .size = communicator.size(),
      .gather_to_first =
          [&communicator](const std::string& text) { return gather_texts(communicator, text); },
      .from_first = [&communicator](
                        std::string text) { return text_of_first(communicator, std::move(text)); }};
}

std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work) {
  const std::string outcome = group.from_first(group.rank == kFirst ? outcome_of(work) : "");
  if (outcome.starts_with(kGood)) return outcome.substr(kGood.size());
  wait_for_all(group);
  throw decoded(outcome, failed);
}

}  // namespace tutti::training
