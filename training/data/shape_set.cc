#include "training/data/shape_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

constexpr int kMostShapes = 4;

// The random numbers of one image. Each call of below() returns the next one.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t image) : seed_(seed), image_(image) {}
  double below(double end) {
    return end * static_cast<double>(random_bits(seed_, image_, next_++) >> 11) * 0x1p-53;
  }

 private:
  uint64_t seed_;
  uint64_t image_;
  uint64_t next_ = 0;
};

struct Shape {
  int32_t kind;
  double row, column, size, brightness;

  bool has(double y, double x) const {
    const double up = y - row, right = x - column;
    switch (kind) {
      case 1:
        return up * up + right * right <= size * size;
      case 2:
        return std::max(std::abs(up), std::abs(right)) <= size;
      default:
        return up <= size && 2 * std::abs(right) - size <= up;
    }
  }
};

[[noreturn]] void refuse(const std::string& name) {
  throw Error(ErrorCode::invalid_argument, cat(in_quotes(name), " is not a valid set of shapes"),
              {.where = "--data",
               .remedy = "use shapes:HEIGHTxWIDTH[:COUNT[:SEED]], such as shapes:64x64:4096:1, "
                         "with sides of 4 to 8192 pixels"});
}

}  // namespace

ShapeSet::Options ShapeSet::parse(const std::string& name) {
  const std::vector<std::string> words = split(name, ':');
  const auto number = [&](const std::string& word, uint64_t least, uint64_t most) {
    const auto value = parse_number<uint64_t>(word);
    if (!value || *value < least || *value > most) refuse(name);
    return *value;
  };
  if (words.size() < 2 || words.size() > 4) refuse(name);
  const std::vector<std::string> sides = split(words[1], 'x');
  if (sides.size() != 2) refuse(name);
  Options options;
  options.height = static_cast<int64_t>(number(sides[0], 4, 8192));
  options.width = static_cast<int64_t>(number(sides[1], 4, 8192));
  if (words.size() > 2) options.count = number(words[2], 1, uint64_t{1} << 40);
  if (words.size() > 3) options.seed = number(words[3], 0, ~uint64_t{0});
  return options;
}

void ShapeSet::draw(uint64_t image, Batch& batch) const {
  Draws draws(options_.seed, image);
  const auto height = static_cast<double>(options_.height);
  const auto width = static_cast<double>(options_.width);
  const double side = std::min(height, width);
  std::array<Shape, kMostShapes> shapes{};
  const auto count = static_cast<size_t>(1 + draws.below(kMostShapes));
  for (size_t i = 0; i < count; ++i) {
    shapes[i] = {.kind = 1 + static_cast<int32_t>(draws.below(kClasses - 1)),
                 .row = draws.below(height),
                 .column = draws.below(width),
                 .size = side * (0.1 + draws.below(0.15)),
                 .brightness = 0.5 + draws.below(0.3)};
  }
  std::array<int64_t, kClasses> pixels{};
  for (int64_t row = 0; row < options_.height; ++row) {
    for (int64_t column = 0; column < options_.width; ++column) {
      int32_t kind = 0;
      double brightness = 0.2;
      for (size_t i = 0; i < count; ++i) {  // later shapes cover earlier ones
        if (!shapes[i].has(static_cast<double>(row), static_cast<double>(column))) continue;
        kind = shapes[i].kind;
        brightness = shapes[i].brightness;
      }
      ++pixels[static_cast<size_t>(kind)];
      batch.features.push_back(static_cast<float>(brightness + draws.below(0.2)));
      if (pixels_) batch.targets.push_back(kind);
    }
  }
  if (!pixels_) {
    const auto most = std::ranges::max_element(pixels.begin() + 1, pixels.end());
    batch.targets.push_back(static_cast<int32_t>(most - pixels.begin()));
  }
  ++batch.samples;
}

void ShapeSet::add(uint64_t example, uint64_t, Batch& batch) const { draw(example, batch); }

void ShapeSet::add_validation(uint64_t example, Batch& batch) const {
  draw(options_.count + example, batch);
}

uint64_t ShapeSet::fingerprint() const {
  uint64_t hash = pixels_ ? 1 : 0;
  for (const auto part : {static_cast<uint64_t>(options_.height),
                          static_cast<uint64_t>(options_.width), options_.count, options_.seed}) {
    hash = mix_bits(hash + part);
  }
  return hash;
}

}  // namespace tutti::training
