// SPDX-License-Identifier: Apache-2.0
#include "hw/executor_process.hpp"

#include "base/error.hpp"
#include "base/folder.hpp"
#include "traces/byte_sink.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace penstock {
namespace {

/// Beside this program: in the build tree in another room's folder, installed in the same one.
std::string executor_path() {
  if (const char* named = std::getenv("PENSTOCK_RUN")) return named;
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& path : {here / "penstock-run", here.parent_path() / "hw" / "penstock-run"}) {
    if (std::filesystem::exists(path)) return path.string();
  }
  throw SystemError("penstock-run was not found beside this program; PENSTOCK_RUN may name it");
}

/// Those that end a program, unless who started it wants them ignored (nohup).
sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    ::sigaction(s, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&set, s);
  }
  return set;
}

struct Ended {
  int status = 0;  ///< as waitpid gives it
  int signal = 0;  ///< that came to this program meanwhile; 0: none
};

/// What should end this program ends the child instead. Precondition: those signals are blocked.
Ended wait_and_pass_signals_on(pid_t child) {
  const sigset_t stops = stop_signals();
  sigset_t all = stops;
  ::sigaddset(&all, SIGCHLD);
  Ended ended;
  const timespec look{0, 100'000'000}, now{0, 0};  // a SIGCHLD can get lost
  while (::waitpid(child, &ended.status, WNOHANG) == 0) {
    const int signal = ::sigtimedwait(&all, nullptr, &look);
    if (signal <= 0 || signal == SIGCHLD) continue;
    ended.signal = signal;
    ::kill(child, signal);
  }
  // Of a terminal's Ctrl-C the child may have ended before this program has looked.
  if (const int signal = ::sigtimedwait(&stops, nullptr, &now); signal > 0) ended.signal = signal;
  return ended;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  const sigset_t stops = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &stops, &before_);
  std::string pattern = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw SystemError::from_errno("make the temporary folder", pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  remove_folder(path_.c_str());
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

namespace {

/// Runs penstock-run with its standard output (and, if `all`, its errors) going to `output`.
int run_with(const std::vector<std::string>& arguments, int output, bool all) {
  const std::string program = executor_path();
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) words.push_back(const_cast<char*>(a.c_str()));
  words.push_back(nullptr);
  sigset_t waited = stop_signals(), before;
  ::sigaddset(&waited, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &waited, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) _exit(125);  // it died before the line above
    ::pthread_sigmask(SIG_UNBLOCK, &waited, nullptr);
    ::dup2(output, STDOUT_FILENO);
    if (all) ::dup2(output, STDERR_FILENO);
    ::execv(program.c_str(), words.data());
    _exit(127);
  }
  if (child < 0) throw SystemError::from_errno("start", program);
  const auto [status, signal] = wait_and_pass_signals_on(child);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (signal != 0) return 128 + signal;
  if (WIFSIGNALED(status))
    throw SystemError("penstock-run was ended by signal " + std::to_string(WTERMSIG(status)));
  if (WEXITSTATUS(status) == 127) throw SystemError("cannot start '" + program + "'");
  return WEXITSTATUS(status);
}

}  // namespace

int run_executor(const std::vector<std::string>& arguments) {
  const int nowhere = ::open("/dev/null", O_WRONLY);  // its summary: results are ours to print
  const int status = run_with(arguments, nowhere, false);
  ::close(nowhere);
  return status;
}

std::string ask_executor(const std::vector<std::string>& arguments, int& status) {
  const TemporaryFolder folder;
  const int answer = ::open(folder.file("answer").c_str(), O_RDWR | O_CREAT, 0600);
  if (answer < 0) throw SystemError::from_errno("write", folder.file("answer"));
  status = run_with(arguments, answer, true);
  ::close(answer);
  std::string text = read_back(folder.file("answer"));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace penstock
