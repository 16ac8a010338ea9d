// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace penstock {
namespace {

[[noreturn]] void answer(int pipe, const std::function<std::string()>& work) noexcept {
  const std::string text = work();
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(pipe, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) ::_exit(1);
    done += static_cast<std::size_t>(wrote);
  }
  ::_exit(0);  // destructors and buffers are the parent's
}

std::string read_all(int pipe) {
  std::string text;
  char part[65536];
  for (;;) {
    const ssize_t count = ::read(pipe, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(part, static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

}  // namespace

bool out_of_time(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM; }

bool ChildResult::out_of_time() const { return penstock::out_of_time(status); }

double limit_time(double limit_s) {
  itimerval timer{}, before{};
  double whole_s = 0;
  const double rest_s = std::modf(limit_s, &whole_s);
  timer.it_value.tv_sec = static_cast<time_t>(whole_s);
  timer.it_value.tv_usec = static_cast<suseconds_t>(rest_s * 1e6);
  ::setitimer(ITIMER_REAL, &timer, &before);
  return static_cast<double>(before.it_value.tv_sec) +
         static_cast<double>(before.it_value.tv_usec) * 1e-6;
}

void end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before the line above
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = ::sigdescr_np(signal);
  return fmt::format("by signal {} ({})", signal, name == nullptr ? "unknown" : name);
}

ChildResult run_in_child(const std::string& what, const std::function<std::string()>& work,
                         double limit_s) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError::from_errno("open a pipe for", what);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    errno = error;
    throw SystemError::from_errno("start a process for", what);
  }
  if (child == 0) {
    end_with_parent(parent);
    ::close(ends[0]);
    limit_time(limit_s);
    answer(ends[1], work);
  }
  ::close(ends[1]);
  ChildResult result;
  std::string text = read_all(ends[0]);
  ::close(ends[0]);
  result.status = wait_for(child);
  if (result.status == 0) result.answer = std::move(text);
  return result;
}

}  // namespace penstock
