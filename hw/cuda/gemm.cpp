// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/gemm.hpp"

#include "hw/cuda/driver.hpp"
#include "hw/cuda/layout.hpp"

#include <fmt/format.h>

namespace penstock::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
constexpr std::int64_t kMostSums = 1 << 16;                     // of a gradient of a bias
constexpr std::size_t kUsableBytes = kWorkspaceBytes - kMostSums * sizeof(float);

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                                   std::int64_t leading, std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), leading),
        "describe a matrix");
  if (batch == 1) return layout;
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof count),
        "describe a batch of matrices");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &stride, sizeof stride),
        "describe a batch of matrices");
  return layout;
}

/// An attribute of a matrix product's preferences.
template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "state a preference");
}

/// With pointers of the alignments that the product will have: only these count now.
void describe_epilogue(cublasLtMatmulDesc_t product, const Gemm& s, const Epilogue& e) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
          "describe an epilogue");
  };
  const auto aligned = [](std::int64_t bytes) { return reinterpret_cast<void*>(bytes); };
  constexpr cublasLtEpilogue_t kinds[] = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                          CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, kinds[static_cast<int>(e.kind)]);
  if (e.kind == Epilogue::Kind::bias_gradient)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned(256));
  else if (e.bias)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned(alignment_of(e.bias.offset_bytes)));
  if (!e.aux) return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned(alignment_of(e.aux.offset_bytes)));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.ldc);
}

}  // namespace

void check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  // What it could not do may be the fault of what ran before, which only CUDA tells.
  const cudaError_t before = cudaGetLastError();
  throw SystemError(fmt::format("cuBLASLt cannot {}: {}{}{}", what, cublasLtGetStatusName(result),
                                before == cudaSuccess ? "" : ", ",
                                before == cudaSuccess ? "" : cudaGetErrorString(before)));
}

struct GemmRunner::Matmul {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Matmul() = default;
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  ~Matmul() {
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }
};

GemmRunner::GemmRunner(cudaStream_t stream, int sms, bool bf16)
    : stream_(stream), sms_(sms), type_(bf16 ? CUDA_R_16BF : CUDA_R_32F) {
  check(cublasLtCreate(&handle_), "start");
  check(cudaMalloc(&workspace_, kWorkspaceBytes), "allocate cuBLASLt's workspace");
}

GemmRunner::~GemmRunner() {
  matmuls_.clear();
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

GemmRunner::Key GemmRunner::key_of(const Gemm& s, Tensor a, Tensor b, Tensor c, const Epilogue* e) {
  const auto alignment = [](Tensor t) { return t ? alignment_of(t.offset_bytes) : 0; };
  return {s.m,
          s.n,
          s.k,
          s.transpose_a,
          s.transpose_b,
          s.lda,
          s.ldb,
          s.ldc,
          s.batch,
          s.stride_a,
          s.stride_b,
          s.stride_c,
          s.beta != 0,
          s.fp32_output,
          alignment(a),
          alignment(b),
          alignment(c),
          e ? 1 + static_cast<std::int64_t>(e->kind) : 0,
          e ? alignment(e->bias) : 0,
          e ? alignment(e->aux) : 0,
          e ? alignment(e->residual) : 0};
}

/// None where there is no algorithm.
std::unique_ptr<GemmRunner::Matmul> GemmRunner::make_matmul(const Gemm& s, const Key& key,
                                                            const Epilogue* e) const {
  auto matmul = std::make_unique<Matmul>();
  check(cublasLtMatmulDescCreate(&matmul->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describe a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(cublasLtMatmulDescSetAttribute(matmul->product, attribute, &value, sizeof value),
          "describe a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (sms_ > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(sms_));
  if (e) describe_epilogue(matmul->product, s, *e);
  const cudaDataType_t out = s.fp32_output ? CUDA_R_32F : type_;
  matmul->left = make_layout(type_, s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k, s.ldb,
                             s.batch, s.stride_b);
  matmul->right = make_layout(type_, s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m, s.lda,
                              s.batch, s.stride_a);
  matmul->result = make_layout(out, s.n, s.m, s.ldc, s.batch, s.stride_c);
  return choose_algorithm(*matmul, key) ? std::move(matmul) : nullptr;
}

bool GemmRunner::choose_algorithm(Matmul& matmul, const Key& key) const {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "state a preference");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        decltype(&cublasLtMatmulPreferenceDestroy)>
      preference(raw, cublasLtMatmulPreferenceDestroy);
  const auto bytes = [&](std::size_t at) { return static_cast<std::uint32_t>(key[at]); };
  const std::uint32_t added = key[20] != 0 ? bytes(20) : bytes(16);
  prefer(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kUsableBytes});
  prefer(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(15));
  prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(14));
  prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, added);
  prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(16));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t result =
      cublasLtMatmulAlgoGetHeuristic(handle_, matmul.product, matmul.left, matmul.right,
                                     matmul.result, matmul.result, raw, 1, &best, &found);
  matmul.algorithm = best.algo;
  return result == CUBLAS_STATUS_SUCCESS && found > 0;
}

void GemmRunner::run_gemm(const Gemm& s, Tensor a, Tensor b, Tensor c) {
  const Key key = key_of(s, a, b, c, nullptr);
  auto& matmul = matmuls_[key];
  if (!matmul) matmul = make_matmul(s, key, nullptr);
  if (!matmul)
    throw SystemError(fmt::format("cuBLASLt has no algorithm for a {} x {} x {} product{}", s.m,
                                  s.n, s.k, type_ == CUDA_R_16BF ? " in bf16" : ""));
  multiply(*matmul, s, a, b, c, c);
}

bool GemmRunner::run_gemm(const Gemm& s, Tensor a, Tensor b, Tensor c, const Epilogue& e) {
  const bool sums = e.kind == Epilogue::Kind::bias_gradient;
  Gemm shape = s;
  if (e.residual) shape.beta = 1;  // C is the residual, D what comes
  const Key key = key_of(shape, a, b, c, &e);
  auto [at, is_new] = matmuls_.try_emplace(key);
  if (is_new) {
    const bool fits =
        sums ? s.m <= kMostSums : !e.aux || s.ldc % 8 == 0;  // of the auxiliary matrix
    if (fits) at->second = make_matmul(shape, key, &e);
    (at->second ? fused_ : apart_).fetch_add(1);
  }
  if (!at->second) return false;
  const Matmul& matmul = *at->second;
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, void* to) {
    check(cublasLtMatmulDescSetAttribute(matmul.product, attribute, &to, sizeof to),
          "describe an epilogue");
  };
  if (sums)
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_sums());
  else if (e.bias)
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, e.bias.data<void>());
  if (e.aux) point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.aux.data<void>());
  multiply(matmul, shape, a, b, e.residual ? e.residual : c, c);
  return true;
}

void GemmRunner::multiply(const Matmul& matmul, const Gemm& s, Tensor a, Tensor b, Tensor added,
                          Tensor c) {
  check(
      cublasLtMatmul(handle_, matmul.product, &s.alpha, b.data<void>(), matmul.left, a.data<void>(),
                     matmul.right, &s.beta, added.data<void>(), matmul.result, c.data<void>(),
                     matmul.result, &matmul.algorithm, workspace_, kUsableBytes, stream_),
      "multiply matrices");
}

float* GemmRunner::bias_sums() const {
  return reinterpret_cast<float*>(static_cast<char*>(workspace_) + kUsableBytes);
}

std::string GemmRunner::describe_epilogues() const {
  if (fused_ + apart_ == 0) return {};
  return fmt::format("{} kinds fused, {} not", fused_.load(), apart_.load());
}

}  // namespace penstock::cuda
