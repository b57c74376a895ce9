#include "training/planner/job.h"

#include <algorithm>

#include "collectives/cluster/predict.h"

namespace tutti::training::planner {

Group tensor_group(const Layout& layout) { return {layout.tensor, 1}; }

Group context_group(const Layout& layout) { return {layout.context, layout.tensor}; }

Group data_group(const Layout& layout) { return {layout.data * layout.context, layout.tensor}; }

Group expert_group(const Layout& layout) { return {layout.expert, layout.expert_tensor}; }

Group expert_data_group(const Layout& layout) {
  const int one = layout.expert * layout.expert_tensor;
  return {std::max(1, layout.tensor * layout.data * layout.context / one), one};
}

double collective_seconds(const Cluster& cluster, const Group& group, Collective collective,
                          double bytes) {
  if (group.ranks <= 1 || bytes <= 0) return 0;
  Cluster part = cluster;
  part.gpus = std::clamp(cluster.gpus / group.stride, 1, group.ranks);
  part.hosts = (group.ranks + part.gpus - 1) / part.gpus;
  part.between.GBps *= static_cast<double>(part.gpus) / cluster.gpus;
  part.launch_us = 0;
  return 1e-6 * predict(part, collective, bytes).time_us;
}

double message_seconds(const Cluster& cluster, int away, double bytes) {
  const bool is_inside = away < cluster.gpus;
  const double GBps = is_inside ? cluster.inside.GBps : cluster.between.GBps / cluster.gpus;
  constexpr double kStart = 15e-6;
  return kStart + bytes / (1e9 * GBps);
}

double micro_batches_of(const Job& job, const Layout& layout) {
  return count(job.global_batch) / layout.data / count(layout.micro_batch);
}

double peak_of(const Job& job) {
  const Processor& processor = job.processor;
  const bool eight = job.precision == Precision::eight;
  return 1e12 * (eight ? processor.eight_TFLOPs : processor.half_TFLOPs);
}

double tokens_of(const Job& job, const Layout& layout) {
  return count(layout.micro_batch * job.sequence) / layout.context;
}

int64_t padded_vocabulary(const Job& job, const Layout& layout) {
  const bool pads = job.software == Software::megatron || job.software == Software::megatron_2021 ||
                    job.software == Software::deepspeed;
  const int64_t step = pads ? int64_t{128} * layout.tensor : layout.tensor;
  return (job.model.vocabulary + step - 1) / step * step;
}

}  // namespace tutti::training::planner
