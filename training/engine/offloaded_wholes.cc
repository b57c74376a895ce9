#include "training/engine/offloaded_wholes.h"

#include <span>

namespace tutti::training {

PageRange OffloadedWholes::memory_of(int parameter) const {
  return {std::as_bytes(states_.all_of(parameter)), true};
}

void OffloadedWholes::use(int parameter) {
  if (used_) next_[*used_] = parameter;
  end();
  used_ = parameter;
  const PageRange own = memory_of(parameter);
  const Pager::Ticket ticket = pager_.fetch({&own, 1});
  if (const auto next = next_.find(parameter); next != next_.end()) {
    const PageRange memory = memory_of(next->second);
    pager_.fetch({&memory, 1});
  }
  pager_.wait(ticket);
}

void OffloadedWholes::end() {
  if (!used_) return;
  const PageRange memory = memory_of(*used_);
  pager_.start_writing({&memory, 1});
  pager_.evict({&memory, 1});
  used_.reset();
}

}  // namespace tutti::training
