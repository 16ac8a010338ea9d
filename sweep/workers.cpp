#include "sweep/workers.hpp"

#include "base/child_process.hpp"
#include "base/clock.hpp"
#include "sweep/bytes.hpp"
#include "sweep/worker.hpp"

#include <fmt/format.h>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock {
namespace {

/// A worker holds the points of so many seconds, within limits: enough that messages cost nothing.
constexpr double kHeldS = 0.02;
constexpr std::size_t kLeast = 2, kMost = 4096;
/// Crashes of a worker at the same point; from the second on it is in a child, so that a third
/// means that somebody kills workers.
constexpr int kCrashes = 3;
/// Workers that end without a point in hand, one after the other without any row in between.
constexpr int kIdleDeaths = 50;
constexpr int kSupervisorDeaths = 3;
constexpr int kNumbersOfSupervisor = 1 << 20;
/// For ranks that have not come when all is done.
constexpr double kLateS = 10;
/// Until a rank that does not find rank 0 asks whether all is done.
constexpr double kPatienceS = 5;
constexpr int kLookMs = 100;  // at the stop flag, which a signal may set just before poll()

/// A socket that is closed unless somebody takes it: the other end would wait for us for ever.
class Accepted {
 public:
  explicit Accepted(int socket) : socket_(socket) {}
  ~Accepted() {
    if (socket_ >= 0) ::close(socket_);
  }
  Accepted(const Accepted&) = delete;
  Accepted& operator=(const Accepted&) = delete;
  int take() { return std::exchange(socket_, -1); }

 private:
  int socket_;
};

/// Of one worker or supervisor.
struct Connection {
  explicit Connection(Accepted& socket) : stream(socket.take()) {}

  Stream stream;
  std::optional<Hello> hello;  ///< none: it has not introduced itself
  bool open = true;
  bool waits_to_send = false;
  std::deque<std::uint64_t> holds;  ///< points that are handed out to it, in their order
  std::size_t target = kLeast;      ///< how many it is to hold
  std::size_t rows = 0;             ///< since it was last handed some
  double handed_s = 0;
  std::optional<Ended> ended;  ///< what its supervisor said

  bool is_worker() const { return hello && hello->number != kSupervisor; }
  bool takes_points() const { return open && is_worker() && !ended; }
};

/// A point that is handed out, or is to be again.
struct Open {
  Point point;
  Connection* holder = nullptr;
  int crashes = 0;
};

class Poll {
 public:
  Poll() : poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (poll_ < 0) throw SystemError::from_errno("open", "an event queue");
  }
  ~Poll() { ::close(poll_); }
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

  void add(int socket) { control(EPOLL_CTL_ADD, socket, EPOLLIN); }
  void wait_to_send(int socket, bool wait) {
    control(EPOLL_CTL_MOD, socket, wait ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
  void remove(int socket) { control(EPOLL_CTL_DEL, socket, 0); }
  /// Calls back with each socket that is ready.
  template <class Ready>
  void wait(int timeout_ms, const Ready& ready) {
    epoll_event events[64];
    const int count = ::epoll_wait(poll_, events, 64, timeout_ms);
    for (int i = 0; i < count; ++i) ready(events[i].data.fd);
  }

 private:
  void control(int operation, int socket, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = socket;
    ::epoll_ctl(poll_, operation, socket, &event);
  }
  int poll_;
};

/// Rank 0: hands out points, takes rows, and knows who holds what.
class Coordinator {
 public:
  Coordinator(const Team& team, const NextPoint& next, const TakeRow& take,
              const WorkerOptions& options)
      : team_(team),
        next_(next),
        take_(take),
        stop_(options.stop),
        full_(options.full),
        tick_(options.tick),
        local_(std::in_place, true) {
    door_.local = local_->name();
    door_.key = random_name();
    poll_.add(local_->socket());
    start();
  }
  ~Coordinator() {
    connections_.clear();
    lost_.clear();
    local_.reset();  // the supervisor sees that we are gone, even if it has only come that far
    if (supervisor_ > 0) reap_supervisor();
  }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Other ranks come in there. They find it in the store, which is kept until all have.
  void open_to_ranks(const Listener& remote, std::unique_ptr<RendezvousStore> store, int ranks,
                     const std::string& told) {
    store->set(kToldKey, told);
    store->set(kDoorKey, fmt::format("{} {}", remote.port(), door_.key));
    store_ = std::move(store);
    remote_ = &remote;
    missing_ranks_ = ranks - 1;
    poll_.add(remote.socket());
  }

  void run() {
    const double started_s = steady_s();
    while (!done() || (missing_ranks_ > 0 && !stopping_ && steady_s() < started_s + kLateS)) {
      const bool looks = stop_ != nullptr || tick_ || done();
      poll_.wait(looks ? kLookMs : -1, [this](int socket) { serve(socket); });
      if (tick_) tick_();
      if (stop_ != nullptr && *stop_ && !stopping_) stop();
    }
  }

  static constexpr const char* kDoorKey = "sweep";
  static constexpr const char* kToldKey = "told";

 private:
  using Name = std::pair<int, int>;  ///< rank and number

  bool done() const { return stopping_ ? workers_ == 0 : no_more_ && points_.empty(); }

  void stop() {
    stopping_ = true;
    for (const auto& [socket, c] : connections_) {
      if (!c->is_worker()) continue;
      c->stream.add(Says::stop, "");
      push(*c);
    }
  }

  void start() {
    supervisor_ = start_supervisor(team_, door_);
    supervisor_ended_ = watch_process(supervisor_);
    poll_.add(supervisor_ended_);
  }

  // ---- connections

  void serve(int socket) {
    if (socket == supervisor_ended_) return restart_supervisor();
    if (socket == local_->socket()) return accept(*local_);
    if (remote_ != nullptr && socket == remote_->socket()) return accept(*remote_);
    const auto found = connections_.find(socket);
    if (found == connections_.end()) return;
    Connection& c = *found->second;
    const bool open = c.stream.receive();
    if (!read(c) || !open) return close(c);
    fill(c);
    push(c);
    if (held_back_ && !full_()) {
      held_back_ = false;
      wake_idle();
    }
  }

  void accept(const Listener& listener) {
    for (int socket; (socket = listener.accept()) >= 0;) {
      Accepted accepted(socket);
      connections_[socket] = std::make_unique<Connection>(accepted);
      poll_.add(socket);
    }
  }

  /// False: this is none of ours.
  bool read(Connection& c) {
    try {
      while (const auto message = c.stream.next())
        if (!obey(c, *message)) return false;
      return true;
    } catch (const Garbled&) {
      return false;
    }
  }

  bool obey(Connection& c, const Message& message) {
    if (!c.hello) return message.says == Says::hello && introduce(c, decode_hello(message.bytes));
    if (message.says == Says::row) take_row(c, decode(message.bytes));
    if (message.says == Says::ended) note_end(c.hello->rank, decode_ended(message.bytes));
    return true;
  }

  bool introduce(Connection& c, Hello hello) {
    if (hello.key != door_.key) return false;
    if (hello.number == kSupervisor) {
      if (hello.rank != 0 && --missing_ranks_ == 0) store_.reset();
    } else {
      const Name name{hello.rank, hello.number};
      if (ended_early_.erase(name) > 0 || is_lost(hello)) return false;
      by_name_[name] = &c;
      ++workers_;
      if (stopping_) c.stream.add(Says::stop, "");
    }
    c.hello = std::move(hello);
    c.handed_s = steady_s();
    return true;
  }

  /// Sends what goes; that the other end has closed shows when it is read from.
  void push(Connection& c) {
    c.stream.send();
    const bool wait = c.stream.unsent() > 0;
    if (wait != c.waits_to_send) poll_.wait_to_send(c.stream.socket(), wait);
    c.waits_to_send = wait;
  }

  void close(Connection& c) {
    poll_.remove(c.stream.socket());
    c.open = false;
    const auto node = connections_.extract(c.stream.socket());
    if (!c.hello) return;
    if (!c.is_worker()) {
      if (c.hello->rank != 0) lose_rank(c.hello->rank);
      return;
    }
    --workers_;
    // All its rows have been read. Which point it had in hand its supervisor says.
    const Name name{c.hello->rank, c.hello->number};
    lost_[name] = std::move(node.mapped());
    if (c.ended) settle(name);
  }

  // ---- points

  /// Hands over what it needs to have enough for a while, given how fast it has been.
  void fill(Connection& c) {
    if (!c.takes_points() || stopping_ || c.holds.size() * 2 > c.target) return;
    const double now_s = steady_s();
    const double rows_per_s = static_cast<double>(c.rows) / std::max(now_s - c.handed_s, 1e-6);
    const auto wanted = static_cast<std::size_t>(rows_per_s * kHeldS);
    c.target = std::clamp(std::min(wanted, c.target * 4), kLeast, kMost);
    c.rows = 0;
    c.handed_s = now_s;
    while (c.holds.size() < c.target) {
      Open* const open = next_open();
      if (open == nullptr) break;
      give(c, *open);
    }
    if (c.holds.empty()) share_with(c);
  }

  void give(Connection& c, Open& open) {
    open.holder = &c;
    c.holds.push_back(open.point.number);
    c.stream.add(Says::point, encode(Task{open.point, open.crashes > 0}));
  }

  /// Null: all are handed out, or no more are wanted now.
  Open* next_open() {
    while (!again_.empty()) {
      const auto found = points_.find(again_.front());
      again_.pop_front();
      if (found != points_.end() && found->second.holder == nullptr) return &found->second;
    }
    if (no_more_) return nullptr;
    held_back_ = full_ && full_();
    if (held_back_) return nullptr;
    std::optional<Point> point = next_();
    no_more_ = !point;
    if (no_more_) return nullptr;
    const std::uint64_t number = point->number;
    return &points_.insert_or_assign(number, Open{std::move(*point), nullptr, 0}).first->second;
  }

  /// Half of what the one who holds most has not begun.
  void share_with(Connection& idle) {
    Connection* most = nullptr;
    for (const auto& [socket, c] : connections_)
      if (c->takes_points() && (most == nullptr || c->holds.size() > most->holds.size()))
        most = c.get();
    if (most == nullptr || most->holds.size() < 2) return;
    for (std::size_t n = most->holds.size() / 2; n > 0; --n) {
      const std::uint64_t number = most->holds.back();
      most->holds.pop_back();
      most->stream.add(Says::give_up, encode(number));
      give(idle, points_.at(number));
    }
    push(*most);
  }

  void wake_idle() {
    for (const auto& [socket, c] : connections_) {
      if (!c->takes_points() || !c->holds.empty()) continue;
      fill(*c);
      push(*c);
    }
  }

  void take_row(Connection& c, Row row) {
    idle_deaths_ = supervisor_deaths_ = 0;
    ++c.rows;
    const auto found = points_.find(row.point);
    if (found == points_.end()) return;  // somebody else was faster
    finish(found, std::move(row));
  }

  void finish(std::unordered_map<std::uint64_t, Open>::iterator open, Row row) {
    if (Connection* const holder = open->second.holder) {
      // The first, as a rule.
      const auto held = std::ranges::find(holder->holds, open->first);
      if (held != holder->holds.end()) holder->holds.erase(held);
    }
    points_.erase(open);
    take_(std::move(row));
  }

  // ---- ends

  void note_end(int rank, const Ended& ended) {
    if (ended.status != 0 && ended.in_hand == kNoPoint && ++idle_deaths_ > kIdleDeaths)
      throw SystemError("workers end before they are given a point: the last " +
                        how_it_ended(ended.status));
    const Name name{rank, ended.number};
    const auto worker = by_name_.find(name);
    if (worker == by_name_.end()) {
      ended_early_.insert(name);
      return;
    }
    worker->second->ended = ended;
    if (!worker->second->open) settle(name);
  }

  /// Its workers have ended or are about to.
  void lose_rank(int rank) {
    if (rank != 0) lost_ranks_.insert(rank);
    std::vector<Name> closed;
    for (const auto& [name, c] : by_name_) {
      if (name.first != rank) continue;
      if (!c->ended) c->ended = Ended{name.second, 0, kNoPoint};
      if (!c->open) closed.push_back(name);
    }
    for (const Name& name : closed) settle(name);
  }

  /// Who comes now had been started by a supervisor that has ended.
  bool is_lost(const Hello& hello) const {
    return hello.rank == 0 ? hello.number < team_.first_number : lost_ranks_.contains(hello.rank);
  }

  void restart_supervisor() {
    const int status = reap_supervisor();
    lose_rank(0);
    if (stopping_) return;
    if (++supervisor_deaths_ > kSupervisorDeaths)
      throw SystemError("workers cannot be started: their supervisor ended " +
                        how_it_ended(status));
    team_.first_number += kNumbersOfSupervisor;
    start();
  }

  int reap_supervisor() {
    poll_.remove(supervisor_ended_);
    ::close(std::exchange(supervisor_ended_, -1));
    int status = 0;
    while (::waitpid(supervisor_, &status, 0) < 0 && errno == EINTR) continue;
    supervisor_ = -1;
    return status;
  }

  /// A worker has ended, its rows have been read, and it is known how: its points go to others.
  void settle(const Name& name) {
    const auto node = lost_.extract(name);
    const Connection& c = *node.mapped();
    by_name_.erase(name);
    for (const std::uint64_t number : c.holds) {
      points_.at(number).holder = nullptr;
      if (number != c.ended->in_hand) again_.push_back(number);
    }
    const auto guilty = points_.find(c.ended->in_hand);
    if (guilty != points_.end() && !stopping_) crashed(guilty, c.ended->status);
    wake_idle();
  }

  void crashed(std::unordered_map<std::uint64_t, Open>::iterator open, int status) {
    const auto& [number, point] = *open;
    const bool hopeless = out_of_time(status) || ++open->second.crashes == kCrashes;
    if (hopeless) return finish(open, failed_row(number, why_failed(status, team_.point_limit_s)));
    if (point.holder == nullptr) again_.push_front(number);
  }

  Team team_;
  const NextPoint& next_;
  const TakeRow& take_;
  const std::atomic<bool>* stop_;
  std::function<bool()> full_;
  std::function<void()> tick_;
  bool held_back_ = false;  ///< somebody has got fewer points than there are
  std::optional<Listener> local_;
  Door door_;
  Poll poll_;
  pid_t supervisor_ = -1;
  int supervisor_ended_ = -1;  ///< a descriptor
  std::unique_ptr<RendezvousStore> store_;
  const Listener* remote_ = nullptr;
  int missing_ranks_ = 0;

  std::unordered_map<int, std::unique_ptr<Connection>> connections_;  ///< by socket
  std::map<Name, std::unique_ptr<Connection>> lost_;  ///< closed, and not yet said how they ended
  std::map<Name, Connection*> by_name_;               ///< workers of both
  std::set<Name> ended_early_;                        ///< before they came here
  std::set<int> lost_ranks_;
  int workers_ = 0;  ///< connected

  std::unordered_map<std::uint64_t, Open> points_;  ///< by number
  std::deque<std::uint64_t> again_;                 ///< to be handed out before new ones
  bool no_more_ = false;
  bool stopping_ = false;
  int idle_deaths_ = 0, supervisor_deaths_ = 0;
};

/// Sockets of as many workers as the system lets us have.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Cores that this process may use.
int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? CPU_COUNT(&cores)
             : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string from_rank_0(RendezvousStore& store, const char* key, double deadline_s) {
  const auto answer = store.get(key, 0, deadline_s);
  if (answer.found != RendezvousStore::Found::yes)
    throw SystemError("rank 0 has not said where it hands out points");
  return answer.bytes;
}

/// Looks for rank 0, and now and then whether it need not be there any more: then it returns null.
std::unique_ptr<RendezvousStore> meet_unless(const std::function<bool()>& is_done,
                                             GroupSettings group) {
  const double end_s = steady_s() + group.deadline_s;
  for (;;) {
    const double left_s = end_s - steady_s();
    group.deadline_s = std::min(left_s, kPatienceS);
    try {
      return meet(group);
    } catch (const RefusedByRank0&) {
      throw;
    } catch (const SystemError&) {
      if (is_done()) return nullptr;
      if (left_s <= kPatienceS) throw;
    }
  }
}

int jobs_of(const WorkerOptions& options) {
  return options.jobs > 0 ? options.jobs : usable_cores();
}

}  // namespace

void visit(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options) {
  invariant(!works_for_rank_0(options), "points are handed out by rank 0");
  allow_many_files();
  Coordinator coordinator({evaluate, 0, jobs_of(options), options.point_limit_s}, next, take,
                          options);
  const bool grouped = options.group && options.group->identity.size > 1;
  if (!grouped) return coordinator.run();
  const Listener remote(
      false, on_one_machine(*options.group) ? Listener::To::this_machine : Listener::To::everybody);
  coordinator.open_to_ranks(remote, meet(*options.group), options.group->identity.size,
                            options.told);
  coordinator.run();
}

bool works_for_rank_0(const WorkerOptions& options) {
  return options.group && options.group->identity.rank > 0;
}

void work_for_rank_0(const std::function<Evaluate(const std::string& told)>& prepare,
                     const std::function<bool()>& is_done, const WorkerOptions& options) {
  const GroupSettings& group = *options.group;
  auto store = meet_unless(is_done, group);
  if (!store) return;
  try {
    Door door;
    door.host = store->server_address();
    std::istringstream(from_rank_0(*store, Coordinator::kDoorKey, group.deadline_s)) >> door.port >>
        door.key;
    const Evaluate evaluate = prepare(from_rank_0(*store, Coordinator::kToldKey, group.deadline_s));
    store.reset();
    supervise({evaluate, group.identity.rank, jobs_of(options), options.point_limit_s}, door);
  } catch (const SystemError&) {
    if (!is_done()) throw;
  }
}

}  // namespace penstock
