// Estimates each rank's memory before a run starts. The memory of parameters, gradients, masters
// and optimizer state is computed from the layout (layout.h). Activations are measured by running
// one micro-batch through the model, one unit at a time, so that a model larger than memory can be
// planned if its largest unit fits. A pipeline's plan determines how many activations and messages
// exist at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/optimizers/optimizer.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/profile.h"
#include "training/run/train_options.h"

namespace tutti::training {

// The estimate. It excludes memory of communication hooks.
class MemoryPlan {
 public:
  // Makes the estimate. `model` is the model of one rank of a mesh; `batch` is a micro-batch of the
  // run; `passes` is the maximum number of micro-batches of a data-parallel rank in a step. The
  // model and the batch must outlive the plan. The constructor changes the parameters' views and
  // leaves them empty. Throws as profile_model() and make_placement() do.
  MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options, int64_t passes);
  // Makes the estimate for a model whose units have been profiled.
  MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options, int64_t passes,
             pipeline::Profile profile);

  // Returns the memory of the rank at this place. Along the axes that shard parameters, the place
  // must equal the place for which the model was created. Throws as make_layout() does.
  MemoryReport of(const MeshPlace& rank) const;
  // Returns the bytes of logits that exist at once in the activations of a rank of stage `stage`.
  int64_t logits(int stage) const;

 private:
  // Properties that the ranks of a stage share. Without a pipeline there is one stage.
  struct Stage {
    pipeline::Placement placement;
    int versions = 1;         // number of weight versions
    bool split = false;       // true if backward is split in two
    int64_t activations = 0;  // bytes of activations
    int64_t activation_files = 0;
    int64_t activation_pages = 0;
    int64_t messages = 0;  // maximum bytes of messages from and to other stages at once
  };

  // Bytes of the optimizer's states. `each`: bytes of each elementwise state; `whole`: bytes of all
  // states of whole parameters.
  struct StateBytes {
    int64_t each = 0;
    int64_t whole = 0;
    int64_t two_wholes = 0;  // bytes of the states of the two largest whole parameters
  };

  // Adds to a report the bytes of the storage, of the gradients that workers send to this rank, of
  // the optimizer's states and of files, and fills `states`. Returns the number of elements that
  // the rank owns.
  int64_t add_storage(const Stage& stage, const MeshPlace& rank, MemoryReport& report,
                      StateBytes& states) const;
  int64_t whole_state_bytes(const Layout& layout, std::span<const Piece> own, int self,
                            int64_t& of_two) const;

  int64_t own_writes() const;
  int64_t shared_elements(const Stage& stage) const;
  int64_t separate_gradients(const Stage& stage) const;

  Model& model_;
  const MicroBatch& batch_;
  std::shared_ptr<const Optimizer> optimizer_;
  TrainOptions options_;
  int64_t passes_;
  pipeline::Profile profile_;
  std::vector<Stage> stages_;
};

// Returns the total memory of a report in bytes. Excludes files, except their pages in memory.
int64_t total(const MemoryReport& memory);

}  // namespace tutti::training
