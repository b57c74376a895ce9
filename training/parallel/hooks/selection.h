// Compresses the gradients of some parameters only. Gradients of parameters whose names match a
// pattern are copied from their buckets and compressed; the rest of each bucket is summed
// uncompressed.
//
//   bucket      | wte | ln.bias | attn.weight | ln.weight |
//   compressed  | wte | attn.weight |         plain  | ln.bias | ln.weight |
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/hooks/warm_up.h"

namespace tutti::training {

// Returns true if the name matches one of the comma-separated shell patterns ("*.weight,wte*";
// fnmatch(3)).
bool fits(std::string_view name, const std::string& patterns);
// Throws Error(invalid_argument) if no parameter matches.
void check_patterns(const std::string& patterns, const std::vector<ParameterSpec>& specs);

class Selection : public CommunicationHook {
 public:
  // Function that creates the hook for the chosen parameters. Its argument is a layout with the
  // same buckets, without the other parameters.
  using Make = std::function<std::unique_ptr<CommunicationHook>(const Layout&)>;
  // Creates the hook; does not retain references to its arguments.
  Selection(const std::string& patterns, const Layout& layout,
            const std::vector<ParameterSpec>& specs, const Make& make);

  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool remembers() const override { return hook_->remembers(); }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override {
    return hook_->states(communicator, gradients);
  }
  int64_t bytes() const override { return hook_->bytes() + bytes_; }
  int64_t payload_bytes(int bucket, Tensor gradients) const override;

 private:
  // `count` consecutive elements: at offset `from` of the bucket, and at offset `to` of packed
  // memory.
  struct Run {
    int64_t from = 0;
    int64_t to = 0;
    int64_t count = 0;
  };
  struct Part {
    std::vector<Run> runs;
    int64_t size = 0;
    Memory<std::byte> memory;
  };
  struct BucketState {
    Part chosen;
    Part rest;
  };
  static void add(Part& part, const Slot& slot);
  Tensor packed(Part& part, DType dtype) const;
  void pack(Communicator& communicator, Part& part, Tensor gradients);
  static void copy(const Part& part, Tensor gradients, bool to_bucket);

  std::vector<BucketState> buckets_;
  std::unique_ptr<CommunicationHook> hook_;
  PlainSums sums_;
  int64_t bytes_ = 0;
};

}  // namespace tutti::training
