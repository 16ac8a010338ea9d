// SPDX-License-Identifier: Apache-2.0
// C++ that runs without the interpreter's lock, and what may happen meanwhile: Ctrl-C, for which
// the caller's thread waits while another one computes, and the end of the interpreter, which a
// thread that computes for a daemon (`penstock serve`'s requests) must not disturb.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>

namespace penstock {

/// Counts who computes, for the end of the process.
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
};

/// Gives the interpreter's lock up while it lives. Where the interpreter ends meanwhile, Python
/// would end this thread by an exception that no destructor lets pass: it stops here for ever
/// instead.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::optional<Computing> computing_;
  PyThreadState* state_;
};

/// Has the process end at once, without destructors of what is used, where a thread still computes
/// when Python is done.
void end_quietly_at_exit();

/// What `work` returns or throws; without the lock, which must be held here. Work that is not
/// `quick` is done on another thread: Ctrl-C raises KeyboardInterrupt, and what then comes of the
/// work, which nothing else can end, is dropped. So `work` must own what it uses.
template <class Work>
auto interruptibly(bool quick, Work work) -> std::invoke_result_t<Work&> {
  if (quick) {
    const Unlocked unlocked;
    return work();
  }
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<std::invoke_result_t<Work&>> result;
    std::exception_ptr error;
    bool ended = false;
  };
  const auto outcome = std::make_shared<Outcome>();
  std::thread([outcome, work = std::move(work)]() mutable {
    const Computing computing;
    std::optional<std::invoke_result_t<Work&>> result;
    std::exception_ptr error;
    try {
      result.emplace(work());
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(outcome->mutex);
    outcome->result = std::move(result);
    outcome->error = error;
    outcome->ended = true;
    outcome->changed.notify_all();
  }).detach();
  constexpr std::chrono::milliseconds kLookAgain{50};  // at signals
  for (bool ended = false; !ended;) {
    {
      const Unlocked unlocked;
      std::unique_lock lock(outcome->mutex);
      ended = outcome->changed.wait_for(lock, kLookAgain, [&] { return outcome->ended; });
    }
    if (!ended && PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(*outcome->result);
}

}  // namespace penstock
