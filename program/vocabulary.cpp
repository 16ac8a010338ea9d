#include "program/vocabulary.hpp"

namespace penstock {

std::string_view token(OpKind kind) {
  static constexpr std::string_view kTokens[] = {"F", "B", "I", "W", "REDUCE_GRAD", "STEP"};
  return kTokens[static_cast<int>(kind)];
}

std::string to_string(const Op& op) {
  return std::to_string(op.stage).append(token(op.kind)).append(std::to_string(op.microbatch));
}

double StageCosts::duration_s(OpKind kind) const {
  switch (kind) {
    case OpKind::forward: return forward_s;
    case OpKind::backward: return backward_s;
    case OpKind::backward_input: return backward_input_s;
    case OpKind::backward_weight: return backward_weight_s;
    case OpKind::reduce_grad: return reduce_grad_s;
    case OpKind::step: return step_s;
  }
  return 0;
}

}  // namespace penstock
