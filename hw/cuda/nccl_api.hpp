// SPDX-License-Identifier: Apache-2.0
// NCCL's functions, looked up when several processes meet, so that one process needs no NCCL.
#pragma once

#if __has_include(<nccl.h>)
#include <nccl.h>
#define PENSTOCK_NCCL 1

namespace penstock::cuda {

struct Nccl {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
};

/// Loads libnccl.so.2 on first use. Throws SystemError with the loader's text.
const Nccl& nccl();

}  // namespace penstock::cuda
#endif
