// SPDX-License-Identifier: Apache-2.0
#include "base/last_words.hpp"

#include "base/exit_codes.hpp"
#include "base/say.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <new>

namespace penstock {
namespace {

const char* program_name = "penstock";

[[noreturn]] void say_and_end() noexcept {
  static std::atomic_flag ending;
  while (ending.test_and_set()) ::pause();  // another thread ends the process
  try {
    if (std::current_exception() != nullptr) throw;
    say("{}: this is a bug: it was ended\n", program_name);
  } catch (const std::bad_alloc&) {
    say_no_memory(program_name);
    ::_exit(exit_failed);
  } catch (const std::exception& error) {
    say("{}: this is a bug: {}\n", program_name, error.what());
  } catch (...) {
    say("{}: this is a bug: something was thrown\n", program_name);
  }
  ::_exit(exit_internal_bug);
}

}  // namespace

void say_what_nobody_catches(const char* program) {
  program_name = program;
  std::set_terminate(say_and_end);
}

void begin_program(const char* program) {
  keep_standard_streams();
  say_what_nobody_catches(program);
  std::signal(SIGXFSZ, SIG_IGN);
  constexpr rlim_t kLeastStack = rlim_t{1} << 20;  // a quarter of it is for the environment
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeastStack) return;
  say("{}: the stack may have {} KiB (ulimit -s), which is too little; at least {} are needed\n",
      program, stack.rlim_cur >> 10, kLeastStack >> 10);
  ::_exit(exit_failed);
}

void say_no_memory(const char* program) noexcept {
  say_text(program);
  say_text(": not enough memory for this run; simulate fewer batches or microbatches\n");
}

}  // namespace penstock
