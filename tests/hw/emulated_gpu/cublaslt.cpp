// cuBLASLt on the emulated GPU: column-major products by OpenBLAS, in fp32 whatever the type.
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
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
};

struct Preference {
  std::uint32_t align_a = 256, align_b = 256, align_c = 256;
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
  const void *a_data, *b_data;
  void* c_data;
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
      store(c, result, c_data, i);
    }
  }
};

/// A kernel is for a kind of shape; here, for one.
void load_once(const Call& call) {
  using Kernel = std::array<std::uint64_t, 6>;
  static auto* mutex = new std::mutex;
  static auto* loaded = new std::set<Kernel>;
  const Kernel kernel{call.a.rows,
                      call.a.cols,
                      call.c.rows,
                      call.c.cols,
                      static_cast<std::uint64_t>(call.step),
                      static_cast<std::uint64_t>(penstock::emulated::current_gpu())};
  {
    const std::lock_guard lock(*mutex);
    if (!loaded->insert(kernel).second) return;
  }
  penstock::emulated::load_code();
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
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(p.align_c, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// The algorithm holds what it takes for granted, the alignments, and how it sums.
extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto& p = own<Preference>(preference);
  *results = {};
  results->algo.data[0] = p.align_a;
  results->algo.data[1] = p.align_b;
  results->algo.data[2] = p.align_c;
  results->algo.data[3] = p.workspace_bytes;
  // For other SMs another algorithm is the fastest.
  results->algo.data[4] = static_cast<std::uint64_t>(std::max(own<Product>(product).sms / 4, 4));
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
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  static_cast<std::int64_t>(algorithm->data[4])};
  const std::uint64_t* promised = algorithm->data;
  load_once(call);
  if (c != d || !call.fits() || !aligned(a, promised[0]) || !aligned(b, promised[1]) ||
      !aligned(d, promised[2]) || workspace_bytes < promised[3])
    return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t issued = penstock::emulated::enqueue(stream, [call, workspace] {
    std::memset(workspace, 0, 64);  // two streams must not share one
    call.run();
  });
  return issued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
