#include "values.h"

#include <cstdint>
#include <optional>

#include "exact_double.h"

namespace tutti::torch_backend {

namespace {

std::optional<tutti_dtype_t> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kByte:
      return TUTTI_U8;
    case at::kChar:
      return TUTTI_I8;
    case at::kShort:
      return TUTTI_I16;
    case at::kInt:
      return TUTTI_I32;
    case at::kLong:
      return TUTTI_I64;
    case at::kUInt16:
      return TUTTI_U16;
    case at::kUInt32:
      return TUTTI_U32;
    case at::kUInt64:
      return TUTTI_U64;
    case at::kHalf:
      return TUTTI_F16;
    case at::kBFloat16:
      return TUTTI_BF16;
    case at::kFloat:
    case at::kComplexFloat:
      return TUTTI_F32;
    case at::kDouble:
    case at::kComplexDouble:
      return TUTTI_F64;
    case at::kComplexHalf:
      return TUTTI_F16;
    case at::kFloat8_e4m3fn:
      return TUTTI_F8E4M3;
    case at::kFloat8_e5m2:
      return TUTTI_F8E5M2;
    default:
      return std::nullopt;
  }
}

tutti_op_t op_of(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return TUTTI_SUM;
    case c10d::ReduceOp::AVG:
      return TUTTI_AVG;
    case c10d::ReduceOp::PRODUCT:
      return TUTTI_PROD;
    case c10d::ReduceOp::MIN:
      return TUTTI_MIN;
    case c10d::ReduceOp::MAX:
      return TUTTI_MAX;
    case c10d::ReduceOp::BAND:
      return TUTTI_BAND;
    case c10d::ReduceOp::BOR:
      return TUTTI_BOR;
    case c10d::ReduceOp::BXOR:
      return TUTTI_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
      return TUTTI_PREMUL_SUM;
    default:
      TORCH_CHECK(false, "tutti: unknown ReduceOp ", static_cast<int>(op));
  }
}

// Maps an operator on truth values, which are the bytes 0 and 1: a sum means "any", and a product
// means "all".
tutti_op_t op_of_truth(tutti_op_t op, const char* call) {
  switch (op) {
    case TUTTI_SUM:
    case TUTTI_MAX:
    case TUTTI_BOR:
      return TUTTI_MAX;
    case TUTTI_PROD:
    case TUTTI_MIN:
    case TUTTI_BAND:
      return TUTTI_MIN;
    case TUTTI_BXOR:
      return TUTTI_BXOR;
    default:
      TORCH_CHECK(false, "tutti: ", call, ": booleans have no average; convert the tensor");
  }
}

double factor_of(const c10d::ReduceOp& op) {
  const auto* premul = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(premul != nullptr, "tutti: PREMUL_SUM without a factor");
  const at::Tensor& factor = premul->tensor_factor;
  if (!factor.defined()) return premul->double_factor;
  if (!c10::isIntegralType(factor.scalar_type(), true)) return factor.item<double>();
  const std::optional<double> exact = factor.scalar_type() == at::kUInt64
                                          ? exact_double(factor.item().toUInt64())
                                          : exact_double(factor.item<int64_t>());
  TORCH_CHECK(
      exact.has_value(), "tutti: PREMUL_SUM: the factor ", factor.item(),
      " has more than 53 bits, which the library's factors do not hold; multiply the tensor "
      "by it, and use SUM");
  return *exact;
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: ", call, " of a sparse tensor (",
              tensor.layout(), ") is not supported; use tensor.to_dense()");
  TORCH_CHECK(tensor.device().is_cpu(), "tutti: ", call, " of a tensor on ", tensor.device(),
              " is not supported: this backend is for CPU tensors; give GPUs another backend "
              "beside it: init_process_group(\"cpu:tutti,cuda:nccl\")");
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK(tensors.size() == 1, "tutti: ", call, " takes one tensor, not ", tensors.size());
  check_tensor(tensors.front(), call);
  return tensors.front();
}

int64_t elements_in_each(const at::Tensor& tensor) {
  if (!dtype_of(tensor.scalar_type())) return static_cast<int64_t>(tensor.element_size());
  return tensor.is_complex() ? 2 : 1;
}

tutti_buffer_t elements_of(const at::Tensor& tensor) {
  return tutti_host(tensor.data_ptr(),
                    static_cast<uint64_t>(tensor.numel() * elements_in_each(tensor)),
                    dtype_of(tensor.scalar_type()).value_or(TUTTI_U8));
}

void set_reduction(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* call,
                   tutti_request_t& request) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK(dtype_of(type).has_value(), "tutti: ", call, " cannot combine elements of type ",
              type, "; convert the tensor");
  TORCH_CHECK(!tensor.is_complex() || c10d::isComplexViewAsRealAllowed(op), "tutti: ", call,
              " does not support this ReduceOp on complex tensors");
  request.op = op_of(op);
  if (type == at::kBool) request.op = op_of_truth(request.op, call);
  if (request.op == TUTTI_PREMUL_SUM) request.factor = factor_of(op);
}

}  // namespace tutti::torch_backend
