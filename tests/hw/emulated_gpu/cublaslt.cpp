// SPDX-License-Identifier: Apache-2.0
// cuBLASLt on the emulated GPU: column-major products by OpenBLAS, in fp32 whatever the type.
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

namespace {

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;

  std::size_t size() const { return static_cast<std::size_t>(leading) * (cols - 1) + rows; }
};

constexpr std::int32_t kSms = 132;

struct Product {
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::int32_t sms = kSms;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_leading = 0;
};

struct Preference {
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  std::uint64_t workspace_bytes = 0;
};

template <class Own, class Handle>
Own& own(Handle handle) {
  return *reinterpret_cast<Own*>(handle);
}

template <class T>
cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::vector<float> floats(const Layout& layout, const void* data, std::int64_t batch) {
  std::vector<float> values(layout.size());
  const auto first = static_cast<std::size_t>(batch * layout.stride);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = layout.type == CUDA_R_16BF
                    ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[first + i])
                    : static_cast<const float*>(data)[first + i];
  }
  return values;
}

float one_of(cudaDataType_t type, const void* data, std::size_t i) {
  return type == CUDA_R_16BF ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i])
                             : static_cast<const float*>(data)[i];
}

// The tanh form, as the guide says.
double gelu_tanh(double x) { return std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)); }
float gelu(float z) {
  const auto x = static_cast<double>(z);
  return static_cast<float>(0.5 * x * (1 + gelu_tanh(x)));
}
float gelu_slope(float z) {
  const auto x = static_cast<double>(z);
  const double t = gelu_tanh(x);
  const double inner = 0.7978845608 * (1 + 3 * 0.044715 * x * x);
  return static_cast<float>(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
}

/// Only the matrix itself: between its columns, another may lie.
void store(const Layout& layout, const std::vector<float>& values, void* data, std::int64_t batch) {
  for (std::size_t c = 0; c < layout.cols; ++c) {
    for (std::size_t r = 0; r < layout.rows; ++r) {
      const std::size_t i = c * static_cast<std::size_t>(layout.leading) + r;
      const std::size_t at = static_cast<std::size_t>(batch * layout.stride) + i;
      if (layout.type == CUDA_R_16BF) {
        static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16(values[i]);
      } else {
        static_cast<float*>(data)[at] = values[i];
      }
    }
  }
}

struct Call {
  Product product;
  Layout a, b, c;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
  std::int64_t step;  ///< of the sum over k: an algorithm's, so the bits depend on it

  bool fits() const {
    const bool ta = product.transpose_a == CUBLAS_OP_T;
    const bool tb = product.transpose_b == CUBLAS_OP_T;
    return (ta ? a.cols : a.rows) == c.rows && (tb ? b.rows : b.cols) == c.cols &&
           (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows) && a.batch == c.batch &&
           b.batch == c.batch && a.leading >= static_cast<std::int64_t>(a.rows) &&
           b.leading >= static_cast<std::int64_t>(b.rows) &&
           c.leading >= static_cast<std::int64_t>(c.rows);
  }
  void run() const {
    const auto transposed = [](std::int32_t t) {
      return t == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
    };
    const Layout& summed = a;
    const auto k =
        static_cast<std::int64_t>(product.transpose_a == CUBLAS_OP_T ? summed.rows : summed.cols);
    for (std::int64_t i = 0; i < c.batch; ++i) {
      const std::vector<float> left = floats(a, a_data, i);
      const std::vector<float> right = floats(b, b_data, i);
      std::vector<float> result = beta != 0 ? floats(c, c_data, i) : std::vector<float>(c.size());
      if (product.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_right(right, k);
      for (std::int64_t at = 0; at < k; at += step) {
        const std::int64_t of_a = product.transpose_a == CUBLAS_OP_T ? at : at * a.leading;
        const std::int64_t of_b = product.transpose_b == CUBLAS_OP_T ? at * b.leading : at;
        cblas_sgemm(CblasColMajor, transposed(product.transpose_a), transposed(product.transpose_b),
                    static_cast<blasint>(c.rows), static_cast<blasint>(c.cols),
                    static_cast<blasint>(std::min(step, k - at)), alpha, left.data() + of_a,
                    static_cast<blasint>(a.leading), right.data() + of_b,
                    static_cast<blasint>(b.leading), at == 0 ? beta : 1, result.data(),
                    static_cast<blasint>(c.leading));
      }
      finish(result);
      store(c, result, d_data, i);
    }
  }
  /// What an epilogue does with each element.
  void finish(std::vector<float>& result) const {
    const Layout aux{c.type, c.rows, c.cols, product.aux_leading};
    std::vector<float> inputs(product.aux != nullptr ? aux.size() : 0);
    if (product.epilogue == CUBLASLT_EPILOGUE_DGELU) inputs = floats(aux, product.aux, 0);
    for (std::size_t col = 0; col < c.cols; ++col) {
      for (std::size_t row = 0; row < c.rows; ++row) {
        float& x = result[col * static_cast<std::size_t>(c.leading) + row];
        const std::size_t beside = col * static_cast<std::size_t>(aux.leading) + row;
        if ((product.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
          x += one_of(c.type, product.bias, row);
        if (product.epilogue == CUBLASLT_EPILOGUE_DGELU) x *= gelu_slope(inputs[beside]);
        if (product.epilogue != CUBLASLT_EPILOGUE_GELU_AUX_BIAS) continue;
        inputs[beside] = x;
        x = gelu(x);
      }
    }
    if (product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) store(aux, inputs, product.aux, 0);
  }
  /// The sums of op(B)'s columns, over k, of the type of the result.
  void sum_right(const std::vector<float>& right, std::int64_t k) const {
    const bool transposed = product.transpose_b == CUBLAS_OP_T;
    std::vector<float> sums(c.cols);
    for (std::size_t col = 0; col < c.cols; ++col) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
        const auto leading = static_cast<std::size_t>(b.leading);
        sums[col] += right[transposed ? i * leading + col : col * leading + i];
      }
    }
    store({c.type, c.cols, 1, static_cast<std::int64_t>(c.cols)}, sums, product.bias, 0);
  }
  bool epilogue_fits() const {
    const bool with_bias = product.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                           product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                           product.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const bool with_aux = product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                          product.epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (product.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    return c.batch == 1 && (with_bias || with_aux) && (product.bias != nullptr) == with_bias &&
           (product.aux != nullptr) == with_aux &&
           (!with_aux || (product.aux_leading % 8 == 0 &&
                          product.aux_leading >= static_cast<std::int64_t>(c.rows)));
  }
};

/// A kernel is for a kind of shape; here, for one.
void load_once(const Call& call) {
  using Kernel = std::array<std::uint64_t, 7>;
  static auto* mutex = new std::mutex;
  static auto* loaded = new std::set<Kernel>;
  const Kernel kernel{call.a.rows,
                      call.a.cols,
                      call.c.rows,
                      call.c.cols,
                      static_cast<std::uint64_t>(call.step),
                      call.product.epilogue,
                      static_cast<std::uint64_t>(penstock::emulated::current_gpu())};
  {
    const std::lock_guard lock(*mutex);
    if (!loaded->insert(kernel).second) return;
  }
  penstock::emulated::load_code();
}

/// At most 16 bytes, which are the most that it would make use of.
std::uint64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::uint64_t alignment = 16;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

bool aligned(const void* data, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

extern "C" std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

extern "C" const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INVALID_VALUE";
  }
}

extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  openblas_set_num_threads(1);
  static int any;
  *handle = reinterpret_cast<cublasLtHandle_t>(&any);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

extern "C" cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                     cudaDataType type, std::uint64_t rows,
                                                     std::uint64_t cols, std::int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, leading});
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &own<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
    std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(own<Layout>(layout).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(own<Layout>(layout).stride, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

extern "C" cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product,
                                                   cublasComputeType_t compute,
                                                   cudaDataType_t type) {
  if (compute != CUBLAS_COMPUTE_32F || type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *product = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete &own<Product>(product);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                         cublasLtMatmulDescAttributes_t attribute,
                                                         const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(own<Product>(product).transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(own<Product>(product).transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return set(own<Product>(product).sms, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(own<Product>(product).epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(own<Product>(product).bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(own<Product>(product).aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(own<Product>(product).aux_leading, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &own<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, std::size_t bytes) {
  auto& p = own<Preference>(preference);
  std::uint32_t ignored = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(p.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(ignored, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(p.align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(p.align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(p.align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(p.align_d, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// The algorithm holds what it takes for granted, the alignments, and how it sums.
extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto& p = own<Preference>(preference);
  const auto& q = own<Product>(product);
  static const bool bare = [] {
    const char* text = std::getenv("PENSTOCK_EMULATED_EPILOGUES");
    return text != nullptr && std::string_view(text) == "none";
  }();
  *found = 0;
  if (bare && q.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {};
  results->algo.data[0] = p.align_a;
  results->algo.data[1] = p.align_b;
  results->algo.data[2] = p.align_d;
  results->algo.data[7] = p.align_c;
  results->algo.data[3] = p.workspace_bytes;
  // For other SMs another algorithm is the fastest.
  results->algo.data[4] = static_cast<std::uint64_t>(std::max(q.sms / 4, 4));
  // It looks at these pointers for their alignment alone.
  results->algo.data[5] = alignment_of(q.bias);
  results->algo.data[6] = alignment_of(q.aux);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                         const void* alpha, const void* a,
                                         cublasLtMatrixLayout_t a_layout, const void* b,
                                         cublasLtMatrixLayout_t b_layout, const void* beta,
                                         const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                         cublasLtMatrixLayout_t,
                                         const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                         std::size_t workspace_bytes, cudaStream_t stream) {
  const Call call{own<Product>(product),
                  own<Layout>(a_layout),
                  own<Layout>(b_layout),
                  own<Layout>(c_layout),
                  a,
                  b,
                  c,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  static_cast<std::int64_t>(algorithm->data[4])};
  const std::uint64_t* promised = algorithm->data;
  load_once(call);
  if (!call.fits() || !call.epilogue_fits() || !aligned(a, promised[0]) ||
      !aligned(b, promised[1]) || !aligned(c, promised[7]) || !aligned(d, promised[2]) ||
      workspace_bytes < promised[3] || !aligned(call.product.bias, promised[5]) ||
      !aligned(call.product.aux, promised[6]))
    return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t issued = penstock::emulated::enqueue(stream, [call, workspace] {
    std::memset(workspace, 0, 64);  // two streams must not share one
    call.run();
  });
  return issued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
