// SPDX-License-Identifier: Apache-2.0
#include "hw/host/gloo_group.hpp"
#include "hw/host/gloo_wire.hpp"
#include "hw/host/memory_wire.hpp"

#include "base/error.hpp"
#include "tests/hw/error_text.hpp"
#include "tests/hw/silent_listener.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <future>
#include <map>
#include <thread>

namespace penstock::wire_test {
namespace {

constexpr std::int64_t kSizes[] = {4, 4096, 0, 100'003, 8 << 20};

/// A block with room for the trailer.
struct Memory {
  explicit Memory(std::int64_t bytes)
      : data(static_cast<std::size_t>(bytes + kTrailerBytes)), block{data.data(), bytes} {}
  std::vector<unsigned char> data;
  Block block;
};

Op op(std::uint32_t microbatch) { return {microbatch, 3, OpKind::forward, Op::sends}; }

MessageHeader header(std::uint32_t microbatch, std::int64_t bytes) {
  return {op(microbatch), 0.5 + microbatch, 1.25 * microbatch, bytes};
}

unsigned char pattern(std::uint32_t message, std::size_t at) {
  return static_cast<unsigned char>(message * 131 + at * 7 + at / 251);
}

/// Sends one message of every size, `rounds` times.
void send_all(WireSender& wire, int rounds) {
  std::uint32_t n = 0;
  for (int round = 0; round < rounds; ++round)
    for (const std::int64_t bytes : kSizes) {
      Memory memory(bytes);
      for (std::size_t i = 0; i < static_cast<std::size_t>(bytes); ++i)
        memory.data[i] = pattern(n, i);
      wire.send(header(n, bytes), memory.block);
      ++n;
    }
}

std::string difference(const MessageHeader& got, const Memory& memory, std::uint32_t n) {
  const MessageHeader expected = header(n, memory.block.bytes);
  if (got.op != expected.op || got.bytes != expected.bytes ||
      got.departed_s != expected.departed_s || got.arrival_s != expected.arrival_s)
    return "header of message " + std::to_string(n) + " is that of " + to_string(got.op);
  for (std::size_t i = 0; i < static_cast<std::size_t>(memory.block.bytes); ++i)
    if (memory.data[i] != pattern(n, i))
      return "message " + std::to_string(n) + " differs at byte " + std::to_string(i);
  return {};
}

/// Receives them, two posted ahead; what is wrong with them, or nothing.
std::string receive_all(WireReceiver& wire, int rounds) {
  std::vector<Memory> memory;
  for (int round = 0; round < rounds; ++round)
    for (const std::int64_t bytes : kSizes) memory.emplace_back(bytes);
  std::uint32_t posted = 0;
  for (std::uint32_t n = 0; n < memory.size(); ++n) {
    for (; posted < memory.size() && posted < n + 2; ++posted)
      wire.post(memory[posted].block, memory[posted].block.bytes, op(posted));
    const MessageHeader got = wire.receive();
    if (std::string d = difference(got, memory[n], n); !d.empty()) return d;
  }
  return {};
}

const WireSettings kThere{"device 0 -> device 1 (forward)", 2, false};
const WireSettings kBack{"device 1 -> device 0 (backward)", 2, false};

// ---- one process

TEST(MemoryWire, DeliversEverySizeInOrderBothWaysAtOnce) {
  RunControl control(0);
  MemoryWire there = memory_wire(kThere, control);
  MemoryWire back = memory_wire(kBack, control);
  auto a = std::async(std::launch::async, [&] { send_all(*there.sender, 5); });
  auto b = std::async(std::launch::async, [&] { send_all(*back.sender, 5); });
  auto c = std::async(std::launch::async, [&] { return receive_all(*there.receiver, 5); });
  EXPECT_EQ(receive_all(*back.receiver, 5), "");
  EXPECT_EQ(c.get(), "");
}

TEST(MemoryWire, SendingNeverWaitsForTheReceiver) {
  RunControl control(0);
  MemoryWire wire = memory_wire(kThere, control);
  send_all(*wire.sender, 2);  // this thread receives only afterwards
  EXPECT_EQ(receive_all(*wire.receiver, 2), "");
}

TEST(MemoryWire, ABlockThatIsPostedTakesTheMessageWithoutReceive) {
  RunControl control(0);
  MemoryWire wire = memory_wire(kThere, control);
  Memory from(4), to(4);
  from.data[3] = 77;
  wire.receiver->post(to.block, 4, op(0));
  wire.sender->send(header(0, 4), from.block);
  EXPECT_EQ(to.data[3], 77);
}

TEST(MemoryWire, AnnouncedTimesReachTheSenderInOrder) {
  RunControl control(0);
  MemoryWire wire = memory_wire(kThere, control);
  wire.receiver->announce(1.5);
  wire.receiver->announce(2.5);
  EXPECT_EQ(wire.sender->wait_posted(op(0)), 1.5);
  EXPECT_EQ(wire.sender->wait_posted(op(1)), 2.5);
}

TEST(MemoryWire, AStoppedRunEndsBothWaits) {
  RunControl control(0);
  MemoryWire wire = memory_wire(kThere, control);
  Memory to(4);
  wire.receiver->post(to.block, 4, op(0));
  auto sender = std::async(std::launch::async,
                           [&] { return error_of([&] { wire.sender->wait_posted(op(0)); }); });
  auto receiver =
      std::async(std::launch::async, [&] { return error_of([&] { wire.receiver->receive(); }); });
  control.fail("enough");
  EXPECT_EQ(sender.get(), "enough");
  EXPECT_EQ(receiver.get(), "enough");
}

TEST(MemoryWire, AStallNamesChannelAndOp) {
  RunControl control(0.05);
  MemoryWire wire = memory_wire(kThere, control);
  Memory to(4);
  wire.receiver->post(to.block, 4, op(7));
  EXPECT_TRUE(has_parts(error_of([&] { wire.receiver->receive(); }),
                        {"nothing moved", "device 0 -> device 1 (forward) waits to receive 3F7"}));
}

TEST(MemoryWire, AnotherOpOrSizeThanExpectedStopsTheRun) {
  for (const std::int64_t bytes : {4, 8}) {
    RunControl control(0);
    MemoryWire wire = memory_wire(kThere, control);
    Memory from(8), to(4);
    wire.receiver->post(to.block, 4, op(1));
    wire.sender->send(header(bytes == 4 ? 2 : 1, bytes), from.block);
    EXPECT_TRUE(has_parts(error_of([&] { wire.receiver->receive(); }),
                          {"device 0 -> device 1", "expected 3F1 with 4 bytes, got"}));
    EXPECT_TRUE(control.stopped());
  }
}

// ---- several processes

struct Folder {
  Folder() : path((std::filesystem::temp_directory_path() / "wire-test-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path;
};

GroupSettings in_folder(const Folder& folder, int rank, int size, double deadline_s = 20) {
  GroupSettings s;
  s.identity = {rank, size, ""};
  s.folder = folder.path;
  s.deadline_s = deadline_s;
  return s;
}

/// A forked process that runs `work` and says its result, or what it threw.
class Process {
 public:
  template <class Work>
  explicit Process(Work work) {
    EXPECT_EQ(::pipe2(result_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(ready_.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::string text;
      try {
        text = work(ready_[1]);
      } catch (const std::exception& e) {
        text = e.what();
      }
      const ssize_t written = ::write(result_[1], text.data(), text.size());
      ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(result_[1]);
    ::close(ready_[1]);
  }
  ~Process() {
    if (pid_ > 0) {
      signal(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(result_[0]);
    ::close(ready_[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Waits until it has written a byte to its `ready`.
  void wait_ready() {
    char c = 0;
    EXPECT_EQ(::read(ready_[0], &c, 1), 1);
  }
  void signal(int number) { ::kill(pid_, number); }
  /// Waits until it has stopped (SIGSTOP).
  void wait_stopped() {
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  std::string result() {
    std::string text;
    char buffer[1024];
    for (ssize_t n = 0; (n = ::read(result_[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
    return text;
  }

 private:
  pid_t pid_ = -1;
  std::array<int, 2> result_{-1, -1};
  std::array<int, 2> ready_{-1, -1};
};

void say_ready(int fd) {
  if (::write(fd, "r", 1) != 1) throw SystemError("cannot say ready");
}

/// One rank of two: sends on one channel and receives on the other, both at once.
std::string exchange(GlooGroup& group, int rounds) {
  RunControl control(0);
  const bool first = group.rank() == 0;
  const int peer = 1 - group.rank();
  std::unique_ptr<WireSender> sender;
  std::unique_ptr<WireReceiver> receiver;
  // The same order on both.
  if (first)
    sender = gloo_sender(group, peer, kThere, control);
  else
    receiver = gloo_receiver(group, peer, kThere, control);
  if (first)
    receiver = gloo_receiver(group, peer, kBack, control);
  else
    sender = gloo_sender(group, peer, kBack, control);
  auto sending = std::async(std::launch::async, [&] { send_all(*sender, rounds); });
  std::string wrong = receive_all(*receiver, rounds);
  sending.get();
  group.barrier();
  return wrong.empty() ? control.reason() : wrong;
}

TEST(GlooWire, DeliversEverySizeInOrderBothWaysAtOnceBetweenProcesses) {
  const Folder folder;
  const auto rank = [&](int r) {
    return [&folder, r](int) {
      GlooGroup group(in_folder(folder, r, 2));
      return exchange(group, 5);
    };
  };
  Process a(rank(0));
  Process b(rank(1));
  EXPECT_EQ(a.result(), "");
  EXPECT_EQ(b.result(), "");
}

TEST(GlooWire, DeliversBetweenThreadsOfOneProcessToo) {
  const Folder folder;
  const auto rank = [&](int r) {
    GlooGroup group(in_folder(folder, r, 2));
    return exchange(group, 2);
  };
  auto other = std::async(std::launch::async, rank, 1);
  EXPECT_EQ(rank(0), "");
  EXPECT_EQ(other.get(), "");
}

constexpr int kMessages = 20;
constexpr std::int64_t kBytes = 1000;

std::string rendezvous_sender(GlooGroup& group, const WireSettings& settings) {
  RunControl control(0);
  const auto wire = gloo_sender(group, 1, settings, control);
  const Memory memory(kBytes);
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    const double posted_s = wire->wait_posted(op(n));
    if (posted_s != 10.0 + n) return "posted at " + std::to_string(posted_s);
    wire->send(header(n, kBytes), memory.block);
  }
  group.barrier();
  return "sent";
}

std::string rendezvous_receiver(GlooGroup& group, const WireSettings& settings) {
  RunControl control(0);
  const auto wire = gloo_receiver(group, 0, settings, control);
  std::vector<Memory> memory(kMessages, Memory(kBytes));
  for (Memory& m : memory) m.block.data = m.data.data();
  std::uint32_t posted = 0;
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    for (; posted < kMessages && posted < n + 2; ++posted) {
      wire->post(memory[posted].block, kBytes, op(posted));
      wire->announce(10.0 + posted);
    }
    wire->receive();
  }
  group.barrier();
  return "received";
}

TEST(GlooWire, AnnouncedTimesReachTheSenderBeforeItsMessage) {
  const Folder folder;
  WireSettings settings = kThere;
  settings.rendezvous = true;
  Process a([&](int) {
    GlooGroup group(in_folder(folder, 0, 2));
    return rendezvous_sender(group, settings);
  });
  Process b([&](int) {
    GlooGroup group(in_folder(folder, 1, 2));
    return rendezvous_receiver(group, settings);
  });
  EXPECT_EQ(a.result(), "sent");
  EXPECT_EQ(b.result(), "received");
}

TEST(GlooWire, TheLastMessagesOfAPeerThatHasEndedAreStillReceived) {
  const Folder folder;
  Process a([&](int) {
    GlooGroup group(in_folder(folder, 0, 2));
    RunControl control(0);
    const auto wire = gloo_sender(group, 1, kThere, control);
    const Memory memory(4);
    wire->send(header(0, 4), memory.block);
    wire->send(header(1, 4), memory.block);
    return std::string("sent");
  });
  Process b([&](int ready) {
    GlooGroup group(in_folder(folder, 1, 2));
    RunControl control(0);
    const auto wire = gloo_receiver(group, 0, kThere, control);
    std::vector<Memory> to(3, Memory(4));
    for (std::uint32_t n = 0; n < 3; ++n) {
      to[n].block.data = to[n].data.data();
      wire->post(to[n].block, 4, op(n));
    }
    say_ready(ready);
    ::raise(SIGSTOP);
    wire->receive();
    wire->receive();
    wire->receive();  // never sent
    return std::string("received");
  });
  b.wait_ready();
  b.wait_stopped();
  // The notes of b's receives are under way already; a ends while b sleeps.
  EXPECT_EQ(a.result(), "sent");
  b.signal(SIGCONT);
  EXPECT_TRUE(has_parts(b.result(), {"device 0 -> device 1 (forward)", "rank 0 is gone", "3F2"}));
}

// Far more than the buffers of a connection hold.
constexpr std::int64_t kLarge = 64 << 20;

std::string wait_for_ever(int ready) {
  say_ready(ready);
  for (;;) ::pause();
}

/// Lets a process wait for the test; made before the process is.
class Go {
 public:
  Go() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Go() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Go(const Go&) = delete;
  Go& operator=(const Go&) = delete;
  void now() const { EXPECT_EQ(::write(ends_[1], "g", 1), 1); }
  void wait() const {
    char c = 0;
    if (::read(ends_[0], &c, 1) != 1) throw SystemError("cannot wait");
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Says it when the caller has had time to get stuck. Early is not wrong, only a weaker test.
class SayReadySoon {
 public:
  explicit SayReadySoon(int ready) : timer_(0.1) {
    timer_.on_stop([ready] { say_ready(ready); });
  }

 private:
  RunControl timer_;
};

/// Rank 1 has opened both channels, has posted a receive of message 5 if it `posts`, and waits.
std::string victim(const Folder& folder, bool posts, int ready) {
  Memory large(kLarge);
  GlooGroup group(in_folder(folder, 1, 2));
  RunControl control(0);
  const auto receiver = gloo_receiver(group, 0, kThere, control);
  if (posts) receiver->post(large.block, kLarge, op(5));
  return wait_for_ever(ready);
}

/// Rank 0 sends it message 5.
std::string survivor(const Folder& folder, const Go& go, double deadline_s, int ready) {
  GlooGroup group(in_folder(folder, 0, 2));
  const Memory large(kLarge);
  RunControl control(deadline_s);
  const auto sender = gloo_sender(group, 1, kThere, control);
  go.wait();
  control.progress();
  const SayReadySoon soon(ready);
  sender->send(header(5, kLarge), large.block);
  return "nothing was noticed";
}

/// Rank 1 gets stuck, with a receive posted or not, and rank 0 sends; what rank 0 says when rank 1
/// stays like this, or is killed.
std::string sending_to(bool posts, bool is_killed) {
  const Folder folder;
  const Go go;
  Process dies([&](int ready) { return victim(folder, posts, ready); });
  Process lives([&](int ready) { return survivor(folder, go, is_killed ? 0 : 1.5, ready); });
  dies.wait_ready();
  dies.signal(SIGSTOP);
  dies.wait_stopped();
  go.now();
  lives.wait_ready();
  if (is_killed) dies.signal(SIGKILL);
  return lives.result();
}

TEST(GlooWire, AKilledReceiverEndsASendThatWaits) {
  EXPECT_TRUE(has_parts(sending_to(false, true), {"device 0 -> device 1 (forward)",
                                                  "rank 1 is gone", "3F5 was to be sent"}));
}

TEST(GlooWire, AReceiverKilledInTheMiddleOfAMessageEndsTheSend) {
  EXPECT_TRUE(has_parts(sending_to(true, true), {"device 0 -> device 1 (forward)", "rank 1 is gone",
                                                 "3F5 was to be sent"}));
}

TEST(GlooWire, AHungReceiverEndsASendAtTheDeadline) {
  EXPECT_TRUE(has_parts(sending_to(false, false),
                        {"nothing moved", "device 0 -> device 1 (forward) waits to send 3F5"}));
}

TEST(GlooWire, AHungReceiverEndsASendThatHasBegunAtTheDeadline) {
  EXPECT_TRUE(has_parts(sending_to(true, false),
                        {"nothing moved", "device 0 -> device 1 (forward) waits to send 3F5"}));
}

TEST(GlooWire, ASenderKilledInTheMiddleOfAMessageEndsTheReceive) {
  const Folder folder;
  const Go stop, go;
  Process lives([&](int) {
    GlooGroup group(in_folder(folder, 0, 2));
    RunControl control(0);
    const auto wire = gloo_receiver(group, 1, kBack, control);
    Memory large(kLarge);
    wire->post(large.block, kLarge, op(6));
    stop.wait();       // rank 0 answers until rank 1 is connected
    ::raise(SIGSTOP);  // so that the message cannot get through as a whole
    wire->receive();
    return std::string("nothing was noticed");
  });
  Process dies([&](int ready) {
    GlooGroup group(in_folder(folder, 1, 2));
    RunControl control(0);
    const auto wire = gloo_sender(group, 0, kBack, control);
    const Memory large(kLarge);
    say_ready(ready);
    go.wait();
    const SayReadySoon soon(ready);
    wire->send(header(6, kLarge), large.block);
    return std::string("sent");
  });
  dies.wait_ready();
  stop.now();
  lives.wait_stopped();
  go.now();
  dies.wait_ready();
  dies.signal(SIGKILL);
  EXPECT_EQ(dies.result(), "");
  lives.signal(SIGCONT);
  EXPECT_TRUE(has_parts(lives.result(), {"device 1 -> device 0 (backward)", "rank 1 is gone",
                                         "3F6 was to be received"}));
}

TEST(GlooWire, AMessageOfAnotherSizeIsWaitedForUntilTheDeadline) {
  const Folder folder;
  const auto rank = [&](int r) {
    return [&folder, r](int) {
      GlooGroup group(in_folder(folder, r, 2));
      RunControl control(1.5);
      Memory memory(8);
      if (r == 0) {
        gloo_sender(group, 1, kThere, control)->send(header(2, 8), memory.block);
      } else {
        const auto wire = gloo_receiver(group, 0, kThere, control);
        wire->post(memory.block, 4, op(2));
        wire->receive();
      }
      return std::string("delivered");
    };
  };
  Process a(rank(0)), b(rank(1));
  EXPECT_TRUE(has_parts(a.result(), {"device 0 -> device 1 (forward)", "3F2"}));
  EXPECT_TRUE(has_parts(b.result(), {"device 0 -> device 1 (forward)", "3F2"}));
}

TEST(GlooWire, AStoppedRunEndsItsPeerWithoutADeadline) {
  const Folder folder;
  Process fails([&](int ready) {
    GlooGroup group(in_folder(folder, 1, 2));
    RunControl control(0);
    const auto wire = gloo_receiver(group, 0, kThere, control);
    control.fail("out of memory");
    return wait_for_ever(ready);
  });
  Process other([&](int) {
    GlooGroup group(in_folder(folder, 0, 2));
    RunControl control(0);
    const auto wire = gloo_sender(group, 1, kThere, control);
    const Memory memory(4);
    wire->send(header(0, 4), memory.block);
    return std::string("sent");
  });
  EXPECT_TRUE(has_parts(other.result(), {"device 0 -> device 1 (forward)", "rank 1 is gone"}));
}

TEST(GlooWire, AStoppedRunEndsItsOwnWaits) {
  const Folder folder;
  auto other = std::async(std::launch::async, [&] {
    GlooGroup group(in_folder(folder, 1, 2));
    RunControl control(0);
    const auto wire = gloo_receiver(group, 0, kThere, control);
    Memory to(4);
    wire->post(to.block, 4, op(0));
    auto wait = std::async(std::launch::async, [&] { return error_of([&] { wire->receive(); }); });
    control.fail("enough");
    return wait.get();
  });
  GlooGroup group(in_folder(folder, 0, 2));
  RunControl control(0);
  const auto wire = gloo_sender(group, 1, kThere, control);
  EXPECT_EQ(other.get(), "enough");
}

TEST(GlooWire, AnEndThatIsNeverOpenedIsNamed) {
  const Folder folder;
  Process hangs([&](int ready) {
    const GlooGroup group(in_folder(folder, 1, 2));
    return wait_for_ever(ready);
  });
  Process waits([&](int) {
    GlooGroup group(in_folder(folder, 0, 2, 2));
    RunControl control(0);
    gloo_sender(group, 1, kThere, control);
    return std::string("connected");
  });
  EXPECT_TRUE(
      has_parts(waits.result(), {"rank 0 cannot connect device 0 -> device 1 (forward) with "
                                 "rank 1",
                                 "did not come within 2 s"}));
}

// ---- the group

TEST(GlooGroup, GathersBroadcastsAndHasOneClockOnOneMachine) {
  const Folder folder;
  const auto rank = [&](int r) {
    return [&folder, r](int) {
      GlooGroup group(in_folder(folder, r, 3));
      std::string all;
      for (const auto& part : group.gather(std::string(100'000, static_cast<char>('a' + r))))
        all += part.substr(99'998) + std::to_string(part.size()) + " ";
      group.barrier();
      all += group.broadcast("from " + std::to_string(r), 2);
      return all + (group.clock_offset_s() == 0 ? "" : " wrong clock") + " " + group.address();
    };
  };
  Process a(rank(0)), b(rank(1)), c(rank(2));
  EXPECT_EQ(a.result(), "aa100000 bb100000 cc100000 from 2 127.0.0.1");
  EXPECT_EQ(b.result(), "from 2 127.0.0.1");
  EXPECT_EQ(c.result(), "from 2 127.0.0.1");
}

TEST(GlooGroup, RanksThatNeverStartAreNamedByAllOthers) {
  const Folder folder;
  const auto rank = [&](int r) {
    return [&folder, r](int) {
      const GlooGroup group(in_folder(folder, r, 4, 2));
      return std::string("met");
    };
  };
  Process a(rank(0)), c(rank(2));
  EXPECT_EQ(a.result(), "ranks 1 and 3 did not come within 2 s");
  EXPECT_EQ(c.result(), "ranks 1 and 3 did not come within 2 s");
}

TEST(GlooGroup, AMissingRankZeroIsNamed) {
  const Folder folder;
  EXPECT_TRUE(has_parts(error_of([&] { GlooGroup(in_folder(folder, 1, 2, 0.2)); }),
                        {"rank 0 did not come to the folder", "within 0.2 s"}));
}

TEST(GlooGroup, AKilledRankEndsABarrierOfTheOthersWithoutADeadline) {
  for (const int victim : {0, 1}) {
    const Folder folder;
    const auto rank = [&](int r) {
      return [&folder, r, victim](int ready) {
        GlooGroup group(in_folder(folder, r, 3, 600));
        if (r == victim) return wait_for_ever(ready);
        group.barrier();
        return std::string("passed");
      };
    };
    Process processes[] = {Process(rank(0)), Process(rank(1)), Process(rank(2))};
    processes[victim].wait_ready();
    processes[victim].signal(SIGKILL);
    for (const int r : {0, 1, 2}) {
      if (r == victim) continue;
      EXPECT_TRUE(has_parts(processes[r].result(), {victim == 0 ? "rank 0" : "rank 1 has ended"}));
    }
  }
}

TEST(GlooGroup, APortWhereSomebodyElseListensIsPassedOver) {
  const SilentListener listener;
  const auto rank = [&](int r) {
    return [&listener, r](int) {
      GroupSettings s;
      s.identity = {r, 2, "this"};
      s.master_address = "localhost";
      for (int i = 0; i < 4; ++i) s.ports.push_back(listener.port + i);
      s.deadline_s = 30;
      GlooGroup group(s);
      return exchange(group, 1);
    };
  };
  Process a(rank(0)), b(rank(1));
  EXPECT_EQ(a.result(), "");
  EXPECT_EQ(b.result(), "");
}

}  // namespace
}  // namespace penstock::wire_test
