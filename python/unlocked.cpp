// SPDX-License-Identifier: Apache-2.0
#include "python/unlocked.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace penstock {
namespace {

std::atomic<int> computing = 0;

void end_without_destructors(int status, void*) {
  if (computing == 0) return;
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

Computing::Computing() { ++computing; }
Computing::~Computing() { --computing; }

Unlocked::Unlocked() : computing_(std::in_place), state_(PyEval_SaveThread()) {}

Unlocked::~Unlocked() {
  computing_.reset();
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {  // as pthread_exit ends a thread
    for (;;) ::pause();
  }
}

void end_quietly_at_exit() {
  // Registered when Python ends: what was constructed before is destroyed after it.
  pybind11::module_::import("atexit").attr("register")(
      pybind11::cpp_function([] { ::on_exit(end_without_destructors, nullptr); }));
}

}  // namespace penstock
