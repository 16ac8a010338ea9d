// SPDX-License-Identifier: Apache-2.0
// Finds and opens the CUDA module beside this program.
#include "base/error.hpp"
#include "base/module_path.hpp"
#include "hw/cuda/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace penstock {
namespace {

constexpr const char* kModule = "libpenstock_cuda.so";

struct Module {
  CudaEntry* entry = nullptr;
  CudaProbe* probe = nullptr;
  CudaExamine* examine = nullptr;
  std::string problem;
};

Module open_module() {
  for (const auto& path : module_paths(kModule, "hw/cuda")) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      return {.problem = fmt::format("the CUDA backend cannot be loaded: {}", dlerror())};
    const Module found{reinterpret_cast<CudaEntry*>(dlsym(handle, kCudaEntry)),
                       reinterpret_cast<CudaProbe*>(dlsym(handle, kCudaProbe)),
                       reinterpret_cast<CudaExamine*>(dlsym(handle, kCudaExamine)), ""};
    if (found.entry != nullptr && found.probe != nullptr && found.examine != nullptr) return found;
    return {.problem = fmt::format("'{}' is not penstock's CUDA module", path.string())};
  }
  return {.problem = fmt::format("the CUDA backend is not built in: no '{}' beside this program; "
                                 "use --backend host",
                                 kModule)};
}

const Module& module() {
  static const Module loaded = open_module();
  return loaded;
}

}  // namespace

std::unique_ptr<Backend> open_cuda_backend(const BackendRequest& request) {
  if (!one_rank_each(request.plan))
    throw InputError(
        request.plan.name,
        "GPUs that share a stage are executed by --backend host alone so far; use --set "
        "pipeline.tensor=1 and no replicas that split microbatches");
  if (request.plan.sharding.sharded())
    throw InputError(request.plan.name,
                     "replicas that divide weights, gradients or states are executed by --backend "
                     "host alone so far; use --set pipeline.shard=none");
  if (has_experts_apart(request.plan))
    throw InputError(
        request.plan.name,
        "GPUs with other experts each are executed by --backend host alone so far; use "
        "--set pipeline.expert=1");
  if (module().entry == nullptr) throw NoHardware(module().problem);
  std::array<char, 512> why{};
  std::unique_ptr<Backend> backend(module().entry(&request, &renew_bases, why.data(), why.size()));
  if (backend == nullptr) throw NoHardware(why.data());
  return backend;
}

void examine_cuda(void (*say)(const char*)) {
  if (module().examine == nullptr) throw NoHardware(module().problem);
  if (!module().examine(say)) throw NoHardware(probe_cuda());
}

std::string probe_cuda() { return module().probe == nullptr ? module().problem : module().probe(); }

}  // namespace penstock
