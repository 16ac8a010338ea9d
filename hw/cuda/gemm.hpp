// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt on one stream.
//
// Row-major C = op(A) op(B) is column-major C' = op(B)' op(A)', so operands change places. The
// algorithm of a shape is chosen once, for as many SMs as the stream has, and kept: with a
// workspace of its own and no in-place reduction, cuBLAS promises the same bits every time
// (cuBLAS guide, "Results reproducibility"). Epilogues are cuBLASLt's where it has them for a shape
// and its alignments: bias, bias with GELU and its input as auxiliary output, GELU's gradient, and
// the gradient of a bias from the right operand. It overwrites the latter, so that goes to a place
// of its own, behind the workspace.
#pragma once

#include "hw/math.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>

namespace penstock::cuda {

/// Throws SystemError "cuBLASLt cannot WHAT: <status>".
void check(cublasStatus_t result, const char* what);

class GemmRunner {
 public:
  GemmRunner(cudaStream_t stream, int sms, bool bf16);
  ~GemmRunner();
  GemmRunner(const GemmRunner&) = delete;
  GemmRunner& operator=(const GemmRunner&) = delete;

  /// Issues the product; where the blocks are valid.
  void run_gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c);
  /// With an epilogue; false, and nothing is issued, where cuBLASLt cannot. Of `bias_gradient` the
  /// sums are in bias_sums() then.
  bool run_gemm(const Gemm& shape, Tensor a, Tensor b, Tensor c, const Epilogue& e);
  float* bias_sums() const;
  /// "9 kinds fused, 1 not"; empty: there were none.
  std::string describe_epilogues() const;

 private:
  struct Matmul;
  using Key = std::array<std::int64_t, 21>;
  static Key key_of(const Gemm& s, Tensor a, Tensor b, Tensor c, const Epilogue* e);
  std::unique_ptr<Matmul> make_matmul(const Gemm& shape, const Key& key, const Epilogue* e) const;
  bool choose_algorithm(Matmul& matmul, const Key& key) const;
  void multiply(const Matmul& matmul, const Gemm& shape, Tensor a, Tensor b, Tensor added,
                Tensor c);

  cudaStream_t stream_;
  int sms_;
  cudaDataType_t type_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, std::unique_ptr<Matmul>> matmuls_;  // none where there is no algorithm
  std::atomic<int> fused_ = 0, apart_ = 0;
};

}  // namespace penstock::cuda
