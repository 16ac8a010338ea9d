#include "sweep/supervisor.hpp"

#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/say.hpp"
#include "sweep/worker.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>

namespace penstock {
namespace {

/// Ctrl-C goes to all processes of a terminal, and launchers send SIGTERM to theirs: what a worker
/// has begun is finished first, and it ends when rank 0 does.
void leave_stopping_to_rank_0() {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

/// Where memory runs out, a worker goes first: that costs a point.
void go_first() {
  if (FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("500", file);
    std::fclose(file);
  }
}

/// One number that this process and those forked from it share.
class SharedNumber {
 public:
  SharedNumber()
      : memory_(::mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    if (memory_ == MAP_FAILED) throw SystemError::from_errno("share", "memory");
    new (memory_) Number(kNoPoint);
  }
  ~SharedNumber() { ::munmap(memory_, sizeof(Number)); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;

  using Number = std::atomic<std::uint64_t>;
  Number& get() { return *static_cast<Number*>(memory_); }

 private:
  void* memory_;
};

struct Process {
  int number = 0;
  pid_t pid = -1;
  int ended = -1;  ///< a descriptor that is ready when it has
  std::unique_ptr<SharedNumber> in_hand;
};

class Supervisor {
 public:
  Supervisor(const Team& team, const Door& door, int socket)
      : team_(team), door_(door), rank_0_(socket) {
    rank_0_.add(Says::hello, encode(Hello{door.key, team.rank, kSupervisor}));
  }
  ~Supervisor() {
    for (const Process& p : processes_) ::kill(p.pid, SIGKILL);
    for (const Process& p : processes_) reap(p);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void run() {
    rank_0_.send_all();  // before there are workers: who is known to rank 0 is missed when it ends
    for (int i = 0; i < team_.jobs && !rank_0_has_ended(); ++i) start();
    while (rank_0_.send_all() && !processes_.empty()) {
      std::vector<pollfd> ready = {{rank_0_.socket(), POLLIN, 0}};
      for (const Process& p : processes_) ready.push_back({p.ended, POLLIN, 0});
      ::poll(ready.data(), ready.size(), -1);
      if (ready[0].revents != 0 && !rank_0_.receive()) return;
      for (std::size_t i = processes_.size(); i-- > 0;)
        if (ready[i + 1].revents != 0) after(i);
    }
    // Without workers, rank 0 is still to read how the last one ended.
    while (rank_0_.receive()) {
      pollfd ready{rank_0_.socket(), POLLIN, 0};
      ::poll(&ready, 1, -1);
    }
  }

 private:
  bool rank_0_has_ended() {
    pollfd ready{rank_0_.socket(), POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0 && !rank_0_.receive();
  }

  void start() {
    Process p;
    p.number = team_.first_number + started_++;
    p.in_hand = std::make_unique<SharedNumber>();
    const pid_t supervisor = ::getpid();
    p.pid = ::fork();
    if (p.pid == 0) {
      end_with_parent(supervisor);
      ::close_range(3, ~0U, 0);  // connections are the supervisor's
      go_first();
      ::_exit(work(team_, door_, p.number, p.in_hand->get()));
    }
    if (p.pid < 0 && !processes_.empty()) return;  // fewer will do
    if (p.pid < 0) throw SystemError::from_errno("start", "a worker process");
    p.ended = watch_process(p.pid);
    processes_.push_back(std::move(p));
  }

  /// One that has ended well was told to, or has lost rank 0.
  void after(std::size_t i) {
    const Process p = std::move(processes_[i]);
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i));
    const int status = reap(p);
    const std::uint64_t in_hand = p.in_hand->get();
    rank_0_.add(Says::ended, encode(Ended{p.number, status, in_hand}));
    if (status != 0 || in_hand != kNoPoint) start();
  }

  static int reap(const Process& p) {
    int status = 0;
    while (::waitpid(p.pid, &status, 0) < 0 && errno == EINTR) continue;
    ::close(p.ended);
    return status;
  }

  const Team& team_;
  const Door& door_;
  Stream rank_0_;
  std::vector<Process> processes_;
  int started_ = 0;
};

}  // namespace

void supervise(const Team& team, const Door& door) {
  leave_stopping_to_rank_0();
  const int socket = connect_to(door);
  if (socket < 0 && team.rank > 0)
    throw SystemError(
        fmt::format("cannot reach rank 0 where it hands out points: {}:{}", door.host, door.port));
  if (socket < 0) return;  // it has ended
  Supervisor(team, door, socket).run();
}

pid_t start_supervisor(const Team& team, const Door& door) {
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw SystemError::from_errno("start", "a process for workers");
  if (pid > 0) return pid;
  end_with_parent(parent);
  ::close_range(3, ~0U, 0);  // results and connections are the parent's
  try {
    supervise(team, door);
  } catch (const std::exception& error) {
    say("penstock: {}\n", what_of(error));
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace penstock
