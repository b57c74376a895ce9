// Tensors that are assembled from pieces in several places.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/manifest.h"
#include "training/checkpoint/tensor_source.h"

namespace tutti::training {

class PiecewiseSource : public TensorSource {
 public:
  // Returns the description of the tensors and of the locations of their pieces.
  const Manifest& manifest() const { return manifest_; }

  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, int64_t first, Tensor out) const override;

 protected:
  // Creates a source with the name `where`, which errors quote.
  PiecewiseSource(std::string where, Manifest manifest)
      : where_(std::move(where)), manifest_(std::move(manifest)) {}

  const std::string& where() const { return where_; }
  // Returns `count` bytes of a piece, starting at byte `first`; `name` is its piece_name(). Returns
  // null if the bytes are not available; read() then leaves the destination unchanged.
  virtual const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                                    size_t count) const = 0;

 private:
  const TensorEntry* entry(std::string_view name) const;

  std::string where_;
  Manifest manifest_;
};

}  // namespace tutti::training
