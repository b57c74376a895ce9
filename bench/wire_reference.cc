#include "bench/wire_reference.h"

#include <algorithm>
#include <cstring>

#include "base/block_format.h"
#include "base/reduce.h"
#include "collectives/program/arithmetic.h"
#include "collectives/program/chunk_map.h"
#include "collectives/program/plan.h"
#include "collectives/proof/expression.h"
#include "collectives/proof/symbolic_run.h"

namespace tutti::bench {

namespace {

using Values = std::vector<float>;

// Rounds values as encoding and decoding do. `values` holds a whole number of elements.
void travel(WireFormat wire, Values& values) {
  const DType element = element_of(wire);
  std::vector<std::byte> elements(bytes_of(wire, values.size()));
  narrow(elements.data(), values.data(), values.size() / values_of(element), element);
  widen(values.data(), elements.data(), values.size() / values_of(element), element);
}

// Returns `count` values of rank `rank`'s input, beginning with value `first`, padded to `room`
// values.
Values input_values(WireFormat wire, Data data, ReduceOp op, int ranks, int rank, uint64_t first,
                    uint64_t count, uint64_t room) {
  const DType element = element_of(wire);
  Values values(room, is_block(element) ? padding(block_format_of(element)) : 0.0f);
  fill_part(data, DType::f32, op, ranks, {.rank = rank, .first = first, .count = count},
            values.data());
  return values;
}

// Location of an element's values in a buffer; each block begins at an element boundary.
struct Place {
  uint64_t first = 0;  // index of the first value
  uint64_t count = 0;  // number of values in the requested elements
};
Place place_of(WireFormat wire, const std::vector<uint64_t>& counts, uint64_t element,
               uint64_t elements) {
  const uint64_t values = values_of(element_of(wire));
  uint64_t before = 0;
  for (const uint64_t count : counts) {
    const uint64_t whole = elements_of(wire, count);
    if (element < whole) {
      const uint64_t first = element * values;
      return {before + first, std::min(elements * values, count - first)};
    }
    element -= whole;
    before += count;
  }
  return {before, 0};
}

// Computes one call's reduction by formula.
class Reference {
 public:
  Reference(WireFormat wire, Data data, ReduceOp op, const Layout& layout, int combined)
      : wire_(wire),
        data_(data),
        op_(op),
        layout_(layout),
        combined_(combined),
        add_(reduce_kernel(DType::f32, op)),
        expressions_(layout.ranks) {}

  // Computes `count` output elements of one chunk, whose inputs begin at element `input`.
  Values of_formula(Expressions::Id id, uint64_t input, uint64_t count) const {
    if (expressions_.is_leaf(id)) return leaf(expressions_.rank_of(id), input, count);
    Values values = of_formula(expressions_.part(id), input, count);
    if (expressions_.is_combined(id)) {
      const Values right = of_formula(expressions_.right_part(id), input, count);
      add_(values.data(), values.data(), right.data(), values.size(), {});
      return values;
    }
    if (expressions_.is_mean(id)) {
      mean(values.data(), values.data(), nullptr, values.size(), DType::f32, combined_);
    }
    travel(wire_, values);
    return values;
  }

  Expressions& expressions() { return expressions_; }

 private:
  Values leaf(int rank, uint64_t element, uint64_t count) const {
    const Place place = place_of(wire_, layout_.input_counts(rank), element, count);
    Values values = input_values(wire_, data_, op_, layout_.ranks, rank, place.first, place.count,
                                 count * values_of(element_of(wire_)));
    travel(wire_, values);
    if (op_ != ReduceOp::premul_sum) return values;
    scale(values.data(), values.data(), values.size(), DType::f32,
          reduction(data_, op_, rank).factor);
    travel(wire_, values);
    return values;
  }

  const WireFormat wire_;
  const Data data_;
  const ReduceOp op_;
  const Layout& layout_;
  const int combined_;
  const ReduceKernel add_;
  Expressions expressions_;
};

// Returns the blocks of a call with these counts of values, in elements of the wire format.
Blocks blocks_of(WireFormat wire, const std::vector<uint64_t>& counts) {
  Blocks blocks;
  uint64_t start = 0;
  for (const uint64_t count : counts) {
    blocks.counts.push_back(elements_of(wire, count));
    blocks.displacements.push_back(start);
    start += blocks.counts.back();
  }
  return blocks;
}

ChunkMap chunks_of(WireFormat wire, const Layout& layout, int rank, const Plan& plan) {
  const uint64_t bytes = size_of(element_of(wire));
  if (layout.uneven.empty()) return {plan, elements_of(wire, layout.count), bytes};
  return {plan,
          blocks_of(wire, layout.input_counts(rank)),
          {},
          elements_of(wire, layout.block(rank, rank)),
          bytes};
}

// Returns the formulas of all chunks of a rank's output.
std::vector<Expressions::Id> formulas(const Algorithm& algorithm, const Plan& plan, ReduceOp op,
                                      int rank, Expressions& expressions) {
  const Arithmetic arithmetic = arithmetic_of(op);
  const std::vector<Plan> plans = make_plans(algorithm, plan.shape, arithmetic);
  SymbolicRun run(plans, false, arithmetic, expressions);
  run.to_the_end();
  std::vector<Expressions::Id> found;
  for (int32_t chunk = 0; chunk < plan.program.output_chunks; ++chunk) {
    found.push_back(run.result(rank, chunk).value);
  }
  return found;
}

// Computes the elements of one chunk, whose inputs begin at element `from`, and writes them to the
// output at `to`.
void write_elements(const Reference& reference, Expressions::Id formula, uint64_t from,
                    const Extent& to, WireFormat wire, Values& output) {
  constexpr uint64_t kValuesAtOnce = 16384;
  const uint64_t values = values_of(element_of(wire));
  for (uint64_t done = 0; done < to.length; done += kValuesAtOnce / values) {
    const uint64_t count = std::min(kValuesAtOnce / values, to.length - done);
    const Values result = reference.of_formula(formula, from + done, count);
    const uint64_t first = (to.offset + done) * values;
    std::copy_n(result.begin(), std::min<uint64_t>(result.size(), output.size() - first),
                output.begin() + static_cast<ptrdiff_t>(first));
  }
}

void reduce_all(WireFormat wire, Data data, ReduceOp op, const Layout& layout, int rank,
                const Prepared& call, Values& output) {
  const std::vector<Part> parts = output_parts(layout, rank);
  if (parts.empty() || output.empty()) return;
  Reference reference(wire, data, op, layout, parts[0].combined);
  const Plan* const plan = internal::plan_of(call);
  if (plan == nullptr) {  // a single rank has no plan
    const Extent whole{0, elements_of(wire, output.size())};
    return write_elements(reference, reference.expressions().leaf(0, 0), 0, whole, wire, output);
  }
  const Algorithm& algorithm = *find_algorithm(layout.collective, call.algorithm());
  const std::vector<Expressions::Id> of_chunks =
      formulas(algorithm, *plan, op, rank, reference.expressions());
  const ChunkMap chunks = chunks_of(wire, layout, rank, *plan);
  for (int32_t chunk = 0; chunk < plan->program.output_chunks; ++chunk) {
    const Expressions::Id formula = of_chunks[static_cast<size_t>(chunk)];
    const Extent& from = chunks.at(Space::input, reference.expressions().chunk_of(formula));
    write_elements(reference, formula, from.offset, chunks.at(Space::output, chunk), wire, output);
  }
}

}  // namespace

std::vector<float> wire_reference(WireFormat wire, Data data, ReduceOp op, const Layout& layout,
                                  int rank, const Prepared& call) {
  Values output(layout.outputs(rank));
  std::ranges::fill(std::as_writable_bytes(std::span(output)), kUntouched);
  if (reduces(layout.collective)) {
    reduce_all(wire, data, op, layout, rank, call, output);
    return output;
  }
  uint64_t done = 0;
  for (const Part& part : output_parts(layout, rank)) {
    const uint64_t room = elements_of(wire, part.count) * values_of(element_of(wire));
    Values values =
        input_values(wire, data, op, layout.ranks, part.rank, part.first, part.count, room);
    travel(wire, values);
    std::copy_n(values.begin(), part.count, output.begin() + static_cast<ptrdiff_t>(done));
    done += part.count;
  }
  return output;
}

}  // namespace tutti::bench
