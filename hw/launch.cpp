// SPDX-License-Identifier: Apache-2.0
#include "hw/launch.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/folder.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>

namespace penstock {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A folder that is removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "penstock-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw SystemError::from_errno("make a folder", path_);
  }
  ~TemporaryFolder() { remove_folder(path_.c_str()); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The signals that tell a launcher to stop, and that of a child that ended, as a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, s);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw SystemError::from_errno("open", "a signal descriptor");
  }
  ~Signals() {
    ::close(fd_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }
  /// The last signal to stop that has come, or 0.
  int take_signal() const {
    signalfd_siginfo info;
    int stop = 0;
    while (::read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (info.ssi_signo != SIGCHLD) stop = static_cast<int>(info.ssi_signo);
    return stop;
  }

 private:
  int fd_ = -1;
  sigset_t before_;
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& s : strings) all.push_back(s.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_of(const LaunchRequest& request, int rank,
                                        const std::string& folder) {
  auto ours = request.environment;
  ours.emplace_back("RANK", std::to_string(rank));
  ours.emplace_back("WORLD_SIZE", std::to_string(request.processes));
  ours.emplace_back("LOCAL_RANK", std::to_string(rank));
  ours.emplace_back("PENSTOCK_RENDEZVOUS", folder);
  std::vector<std::string> all;
  for (char** e = ::environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const auto replaced = [&](const auto& o) {
      return entry.starts_with(o.first) && entry.substr(o.first.size()).starts_with('=');
    };
    if (std::none_of(ours.begin(), ours.end(), replaced)) all.emplace_back(entry);
  }
  for (const auto& [name, value] : ours) all.push_back(name + "=" + value);
  return all;
}

std::vector<std::string> command_of(const LaunchRequest& request, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  std::vector<std::string> command;
  if (r < request.prefixes.size()) command = request.prefixes[r];
  command.push_back(request.executable);
  command.insert(command.end(), request.arguments.begin(), request.arguments.end());
  return command;
}

/// In the child: only what is safe after a fork of a process with threads.
[[noreturn]] void become(char* const* arguments, char* const* environment, int errors_fd,
                         const sigset_t& signals, pid_t launcher) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(125);  // it died before the line above
  ::setpgid(0, 0);                            // what a prefix starts is signalled along
  ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, 0);
  ::dup2(errors_fd, 2);
  ::execvpe(arguments[0], arguments, environment);
  const char* const parts[] = {"cannot start '", arguments[0], "': ", ::strerrordesc_np(errno),
                               "\n"};
  for (const char* part : parts) {
    if (::write(2, part, std::strlen(part)) < 0) break;
  }
  ::_exit(127);
}

struct Process {
  pid_t pid = -1;
  int errors = -1;  ///< read end of its stderr
  std::string line;
  int status = -1;  ///< -1: it runs
};

/// Leaves it to be reaped: until then nobody else gets its id.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

class Launch {
 public:
  explicit Launch(const LaunchRequest& request) : request_(request) {}
  /// Only an error here leaves processes to this.
  ~Launch() {
    for (Process& p : processes_) {
      if (p.pid > 0 && p.status < 0) {
        ::kill(-p.pid, SIGKILL);
        ::kill(p.pid, SIGKILL);
        ::waitpid(p.pid, nullptr, 0);
      }
      if (p.errors >= 0) ::close(p.errors);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  LaunchResult run() {
    for (int rank = 0; rank < request_.processes; ++rank) start(rank);
    while (running()) {
      wait_for_something();
      if (const int signal = signals_.take_signal(); signal != 0) interrupt(signal);
      read_errors();
      reap();
      enforce();
    }
    for (const Process& p : processes_) result_.status.push_back(p.status);
    return result_;
  }

 private:
  void start(int rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError::from_errno("open", "a pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    auto command = command_of(request_, rank);
    auto variables = environment_of(request_, rank, folder_.path());
    const auto arguments = pointers(command);
    const auto environment = pointers(variables);
    const pid_t launcher = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0)
      become(arguments.data(), environment.data(), ends[1], signals_.before(), launcher);
    ::close(ends[1]);
    processes_.push_back({.pid = pid, .errors = ends[0], .line = {}, .status = -1});
    if (pid < 0) throw SystemError::from_errno("start", command.front());
    ::setpgid(pid, pid);  // whoever comes first, so that a signal cannot come too early
  }

  bool running() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& p) { return p.status < 0; });
  }

  void wait_for_something() {
    // A SIGCHLD can get lost to another thread: look now and then.
    constexpr int kLookMs = 50;
    std::vector<pollfd> ready = {{signals_.fd(), POLLIN, 0}};
    for (const Process& p : processes_) ready.push_back({p.errors, POLLIN, 0});
    ::poll(ready.data(), ready.size(), kLookMs);
  }

  void read_errors() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) read_errors(rank);
  }

  void read_errors(std::size_t rank) {
    Process& p = processes_[rank];
    char buffer[4096];
    while (p.errors >= 0) {
      const ssize_t got = ::read(p.errors, buffer, sizeof buffer);
      if (got > 0) print(rank, std::string_view(buffer, static_cast<std::size_t>(got)));
      if (got < 0 && errno == EAGAIN) return;
      if (got == 0 || (got < 0 && errno != EINTR)) close_errors(rank);
    }
  }

  void close_errors(std::size_t rank) {
    Process& p = processes_[rank];
    if (!p.line.empty()) print(rank, "\n");
    ::close(p.errors);
    p.errors = -1;
  }

  void print(std::size_t rank, std::string_view text) {
    std::string& line = processes_[rank].line;
    for (const char c : text) {
      line += c;
      if (c != '\n') continue;
      const std::string out = fmt::format("[rank {}] {}", rank, line);
      for (std::size_t at = 0; at < out.size();) {
        const ssize_t put = ::write(request_.errors_fd, out.data() + at, out.size() - at);
        if (put < 0 && errno != EINTR) break;
        if (put > 0) at += static_cast<std::size_t>(put);
      }
      line.clear();
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      Process& p = processes_[rank];
      if (p.status >= 0 || !has_ended(p.pid)) continue;
      ::kill(-p.pid, SIGKILL);  // what it has left has nothing to do here any more
      int status = 0;
      ::waitpid(p.pid, &status, 0);
      p.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      read_errors(rank);
      if (p.errors >= 0) close_errors(rank);
      if (p.status != 0 && result_.first_failure == 0) {
        result_.first_failure = p.status;
        terminate_s_ = std::min(terminate_s_, steady_s() + request_.grace_s);
      }
    }
  }

  void interrupt(int signal) {
    result_.interrupted_by = signal;
    signal_all(signal);
    kill_s_ = std::min(kill_s_, steady_s() + request_.kill_s);
  }

  void enforce() {
    const double now_s = steady_s();
    if (now_s >= terminate_s_) {
      terminate_s_ = kNever;
      signal_all(SIGTERM);
      signal_all(SIGCONT);  // a stopped process does not see it otherwise
      kill_s_ = std::min(kill_s_, now_s + request_.kill_s);
    }
    if (now_s >= kill_s_) signal_all(SIGKILL);
  }

  void signal_all(int signal) {
    for (const Process& p : processes_)
      if (p.status < 0) ::kill(-p.pid, signal);
  }

  const LaunchRequest& request_;
  Signals signals_;
  TemporaryFolder folder_;
  std::vector<Process> processes_;
  LaunchResult result_;
  double terminate_s_ = kNever;
  double kill_s_ = kNever;
};

}  // namespace

LaunchResult launch(const LaunchRequest& request) { return Launch(request).run(); }

}  // namespace penstock
