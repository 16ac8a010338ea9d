// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/nccl_api.hpp"

#ifdef PENSTOCK_NCCL
#include "base/error.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace penstock::cuda {
namespace {

template <class Function>
void look_up(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw SystemError(fmt::format("libnccl.so.2 has no {}", name));
}

Nccl load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw SystemError(
        fmt::format("several processes need NCCL, which cannot be loaded: {}", dlerror()));
  Nccl n{};
  look_up(library, n.get_version, "ncclGetVersion");
  look_up(library, n.get_unique_id, "ncclGetUniqueId");
  look_up(library, n.init_rank, "ncclCommInitRankConfig");
  look_up(library, n.split, "ncclCommSplit");
  look_up(library, n.finalize, "ncclCommFinalize");
  look_up(library, n.destroy, "ncclCommDestroy");
  look_up(library, n.abort, "ncclCommAbort");
  look_up(library, n.async_error, "ncclCommGetAsyncError");
  look_up(library, n.error_string, "ncclGetErrorString");
  look_up(library, n.last_error, "ncclGetLastError");
  look_up(library, n.send, "ncclSend");
  look_up(library, n.receive, "ncclRecv");
  look_up(library, n.group_start, "ncclGroupStart");
  look_up(library, n.group_end, "ncclGroupEnd");
  return n;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl loaded = load();
  return loaded;
}

}  // namespace penstock::cuda
#endif
